//! How much a worker may say of itself. It comes from a machine that may be anybody's: without a
//! bound one token could fill the database, or hold its one writer for seconds.

use std::time::Duration;

use super::QueueError;
use super::types::Claimant;
use crate::model::{COST_MOST, COUNT_MOST, LaneName, LeaseRef, Usage};
use crate::store::NewWorker;

/// Lanes, labels or forges of one worker: far more than a machine has, and each is a parameter of
/// a statement.
pub const LISTED_MOST: usize = 100;

/// Leases in one heartbeat: a worker has few jobs at a time.
pub const LEASES_MOST: usize = 1000;

/// A quota or a rate limit is waited for so long at the most: vendors count by the month, and a
/// worker that says more would put the task away for good.
pub const PARKED_MOST: Duration = Duration::from_secs(32 * 24 * 60 * 60);

/// What a worker may say of how often it checks in: a day is more than any does.
pub const INTERVAL_MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// Characters of a title that somebody gives, as of an issue's on GitHub.
pub const TITLE_MOST: usize = 256;

/// Characters of a text that somebody gives, as of an issue's on GitHub.
pub const BODY_MOST: usize = 65_536;

pub(super) use crate::model::stop_reason::MESSAGE_MOST;

/// Bytes of a branch's name (a file system has 255), and of a pull request's address.
const BRANCH_MOST: usize = 255;
const URL_MOST: usize = 2_000;

/// Bytes of a host's name (RFC 1035 §2.3.4 has 255) or of a version.
const NAME_MOST: usize = 255;

pub(super) fn of_worker(worker: &NewWorker) -> Result<(), QueueError> {
    listed("lanes", worker.lanes.len(), LISTED_MOST)?;
    listed("labels", worker.labels.len(), LISTED_MOST)?;
    listed("forges", worker.forges.len(), LISTED_MOST)?;
    named("host", &worker.host)?;
    named("version", &worker.version)?;
    worker.forges.iter().try_for_each(|forge| named("a forge", forge))
}

pub(super) fn of_claim(claim: &Claimant) -> Result<(), QueueError> {
    listed("lanes", claim.lanes.as_ref().map_or(0, Vec::len), LISTED_MOST)?;
    listed("labels", claim.labels.as_ref().map_or(0, Vec::len), LISTED_MOST)?;
    listed("repositories", claim.except.len(), LISTED_MOST)
}

pub(super) fn of_order(lanes: &[LaneName]) -> Result<(), QueueError> {
    listed("lanes", lanes.len(), LISTED_MOST)
}

pub(super) fn of_heartbeat(leases: &[LeaseRef]) -> Result<(), QueueError> {
    listed("leases", leases.len(), LEASES_MOST)
}

/// How often a worker says that it checks in, in milliseconds, as it is believed.
pub(super) fn interval(ms: u64) -> u64 {
    u64::try_from(INTERVAL_MOST.as_millis()).map_or(ms, |most| ms.min(most))
}

/// Budgets are sums of what is reported: one number below nothing would turn them back, and one too
/// high would stop everybody's work.
pub(super) fn of_usage(usage: Option<&Usage>) -> Result<(), QueueError> {
    match usage.and_then(Usage::nonsense) {
        Some(name) => Err(QueueError::Invalid(format!(
            "`usage.{name}` is no amount of one run: a cost is 0 to {COST_MOST} US dollars, a count \
             at most {COUNT_MOST}"
        ))),
        None => Ok(()),
    }
}

/// A worker's word that stands in each line of a list.
pub(super) fn of_branch(branch: &str) -> Result<(), QueueError> {
    short("a branch", branch, BRANCH_MOST)
}

/// The same of a pull request's address.
pub(super) fn of_url(url: Option<&str>) -> Result<(), QueueError> {
    short("a pull request's address", url.unwrap_or_default(), URL_MOST)
}

fn short(what: &str, text: &str, most: usize) -> Result<(), QueueError> {
    if text.len() > most {
        return Err(QueueError::Invalid(format!("{what} is at most {most} bytes")));
    }
    Ok(())
}

fn listed(what: &str, count: usize, most: usize) -> Result<(), QueueError> {
    if count > most {
        return Err(QueueError::Invalid(format!("{count} {what}: at most {most} are taken")));
    }
    Ok(())
}

fn named(what: &str, text: &str) -> Result<(), QueueError> {
    if text.len() > NAME_MOST || text.chars().any(char::is_control) {
        return Err(QueueError::Invalid(format!(
            "{what} is no name: at most {NAME_MOST} bytes, without control characters"
        )));
    }
    Ok(())
}
