//! What may happen to a task: add, claim, renew, start, record, finish, sweep, park, prefer.
//!
//! The queue decides; the store holds each change to one transaction that also tells its event.
//! docs/lifecycle.md has the picture of the states.
//!
//! Architecture invariant: nothing here polls, and nothing here runs by itself. The site holds
//! the timer ([`Queue::next_timer`]) and the bell.

pub mod bounds;
mod budgets;
mod claim;
mod deaths;
mod effects;
mod error;
mod growth;
mod invites;
mod lease;
mod leftouts;
mod orders;
mod projects;
mod runs;
mod seen;
mod sites;
mod tasks;
mod timers;
mod tokens;
mod types;
mod unanswered;
mod waiting;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use crate::model::{Clock, Faults, Ids, NoFaults, Passage, fault};

pub use crate::store::{Company, NEWS_BYTES, Session, without_login};
pub use crate::store::{
    Health, KnownToken, LocalPullRow, Need, NewTask, NewWorker, Redeemed, Store, StoreError, Swept,
};
pub use deaths::{DEATHS, QUICK, QUICK_DEATHS};
pub use error::QueueError;
pub use growth::{EVENTS_KEPT, LOGS_KEPT};
pub use invites::Installed;
pub use lease::{RETRIES, RETRY_FIRST, RETRY_MOST};
pub use leftouts::LeftOut;
pub use tokens::{NewToken, WORKER_SCOPES};
pub use types::{Added, Changed, Claimant, Claimed, LeaseRenewal, Registered, RunEnd};
pub use unanswered::PASSED_OVER;
pub use waiting::NEEDS_MOST;

/// The queue. Cheap to clone; clones are one queue.
#[derive(Clone, Debug)]
pub struct Queue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    faults: Arc<dyn Faults>,
    seen: seen::Seen,
    leftouts: leftouts::LeftOuts,
    runs: runs::Runs,
    /// Nothing in the database runs out before this time, so a claim before it need not sweep.
    due: AtomicI64,
    /// The uptime, in milliseconds, at which a claim sweeps whatever `due` says.
    again: AtomicU64,
    /// The uptime, in milliseconds, until which leases that ran out are left to their workers.
    spared_until: AtomicU64,
}

impl Queue {
    /// A queue over an open store.
    pub fn new(store: Store, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self::with_faults(store, clock, ids, Arc::new(NoFaults))
    }

    /// The same, of which each write passes its fault points.
    pub fn with_faults(
        store: Store,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        faults: Arc<dyn Faults>,
    ) -> Self {
        let inner = Inner {
            store,
            clock,
            ids,
            faults,
            seen: seen::Seen::default(),
            leftouts: leftouts::LeftOuts::default(),
            runs: runs::Runs::default(),
            due: AtomicI64::new(i64::MIN),
            again: AtomicU64::new(0),
            spared_until: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How often the database was asked since it was opened: a site that only holds doorbells
    /// asks it nothing.
    #[must_use]
    pub fn statements(&self) -> u64 {
        self.inner.store.statements()
    }

    /// How much was written since it was opened: what was read stands while this does. `None`
    /// while something is being written.
    #[must_use]
    pub fn writes(&self) -> Option<u64> {
        self.inner.store.writes()
    }

    /// Reads the database through, where it is not large.
    ///
    /// # Errors
    /// The database's, where it is damaged.
    pub async fn health(&self) -> Result<Health, QueueError> {
        Ok(self.inner.store.health().await?)
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// The database's.
    pub async fn answers(&self) -> Result<(), QueueError> {
        Ok(self.inner.store.answers().await?)
    }

    /// Waits for what is under way and closes the store.
    pub async fn close(&self) {
        self.inner.store.close().await;
    }

    /// Does a write of the store between its two fault points.
    async fn write<T>(&self, passage: Passage, write: impl Future<Output = T>) -> T {
        fault::pass(&*self.inner.faults, passage, write).await
    }

    /// A new id of a checked type.
    fn new_id<T: std::str::FromStr<Err: std::fmt::Display>>(&self) -> Result<T, QueueError> {
        self.inner.ids.uuid().parse().map_err(|e: T::Err| QueueError::Invalid(e.to_string()))
    }
}
