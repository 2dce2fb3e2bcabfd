//! What every handler shares.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bearers::Bearers;
use super::bell::Bell;
use super::desk::Desk;
use super::forges::Forges;
use super::limits::Rates;
use super::logs::Logs;
use super::metrics::Metrics;
use super::orders::Turns;
use super::page::Pages;
use super::problem::{Answer, Refusal};
use super::setup::Tries;
use super::sites::{Notice, Sites};
use super::timers::Timers;
use super::watch::Standing;
use crate::model::{Actor, Clock};
use crate::queue::{Changed, Queue};

/// One site: its queue, its bell and what they need.
#[derive(Debug)]
pub struct Site {
    /// The queue.
    pub queue: Queue,
    /// The doorbell.
    pub bell: Arc<Bell>,
    /// The tokens that are good now.
    pub bearers: Bearers,
    /// Machines that ask for a token, and who may answer them.
    pub desk: Desk,
    /// Invites that were tried in vain.
    pub tries: Tries,
    /// The URL it is known by, where it is served over TCP.
    pub url: Option<String>,
    /// The other sites on the same database.
    pub sites: Arc<Sites>,
    /// The runs' logs.
    pub logs: Arc<Logs>,
    /// Timers and the reading of what is queued.
    pub timers: Arc<Timers>,
    /// GitHub and the repositories on this disk.
    pub forges: Arc<dyn Forges>,
    /// The site's clock.
    pub clock: Arc<dyn Clock>,
    /// The version of relay this is.
    pub version: String,
    /// The revision of the API it speaks.
    pub revision: u32,
    /// How it stands with each linked repository.
    pub standing: Standing,
    /// Rung where a repository was linked: it is looked at before its turn.
    pub linked: Notify,
    /// The turns of what workers are told.
    pub orders: Turns,
    /// Links are made one after another, so that two do not take one slug.
    pub linking: tokio::sync::Mutex<()>,
    /// Writes under way; they are ended also where the caller hangs up.
    pub writes: TaskTracker,
    /// Held answers are let go.
    pub closing: CancellationToken,
    /// No new connection is taken.
    pub stopping: CancellationToken,
    /// What every time-out of a slow client is counted in.
    pub tick: Duration,
    /// How often each caller may ask.
    pub rates: Rates,
    /// The API's own document.
    pub pages: Pages,
    /// What was counted.
    pub metrics: Metrics,
    /// When the database was last asked whether it answers, in uptime, and whether it did.
    pub ready: tokio::sync::Mutex<Option<(Duration, bool)>>,
}

impl Site {
    /// Runs a write, and what has to follow it, to its end: the caller may hang up in the middle,
    /// and a change nobody is told of would wait for the next one.
    pub async fn write<T: Send + 'static>(
        &self,
        write: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Answer<T> {
        match self.writes.spawn(write).await {
            Ok(answer) => answer,
            Err(cause) => Err(Refusal::internal("the request", &cause)),
        }
    }

    /// Tells the holder of a task that was ended under it, where there was one.
    pub fn called_off(&self, changed: &Changed) {
        if let Some((worker, lease)) = &changed.revoked {
            self.logs.ended(lease);
            self.bell.revoke(worker, lease.clone());
            self.sites.tell(Notice::revoked(worker, lease));
        }
    }

    /// Notes that the workers at the bell are there, before the queue is asked about workers.
    pub fn hear_held(&self) {
        for worker in self.bell.present() {
            self.queue.heard(&worker);
        }
    }
}

/// The person a request names. It is shown and stored, so it is kept to one short line.
pub fn person(by: &str) -> Answer<Actor> {
    let plain = !by.is_empty() && by.len() <= 100 && !by.chars().any(char::is_control);
    if plain { Ok(Actor::user(by)) } else { Err(Refusal::bad("`by` is not a person's login")) }
}
