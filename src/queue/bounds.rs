//! How much a worker may say of itself. It comes from a machine that may be anybody's: without a
//! bound one token could fill the database, or hold its one writer for seconds.

use super::QueueError;
use super::types::Claimant;
use crate::model::LeaseRef;
use crate::store::NewWorker;

/// Lanes, labels or forges of one worker: far more than a machine has, and each is a parameter of
/// a statement.
pub const LISTED_MOST: usize = 100;

/// Leases in one heartbeat: a worker has few jobs at a time.
pub const LEASES_MOST: usize = 1000;

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
    listed("labels", claim.labels.as_ref().map_or(0, Vec::len), LISTED_MOST)
}

pub(super) fn of_heartbeat(leases: &[LeaseRef]) -> Result<(), QueueError> {
    listed("leases", leases.len(), LEASES_MOST)
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
