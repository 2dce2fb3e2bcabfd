//! What time does to tasks. The site calls [`Queue::sweep`] when [`Queue::next_timer`] has come.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Queue, QueueError, Swept};
use crate::model::Timestamp;

/// A claim looks for what has run out at least so often, whatever this process knows: another
/// one may have written to the same database.
const SWEEP_AGAIN: Duration = Duration::from_secs(60);

impl Queue {
    /// Ends leases that ran out and queues parked tasks whose time has come.
    pub async fn sweep(&self) -> Result<Swept, QueueError> {
        let now = self.inner.clock.now();
        // First later, then what was found: a claim between the two brings it forward again.
        self.inner.due.store((now + SWEEP_AGAIN).0, Ordering::Release);
        let sweep = self.inner.store.sweep(now).await;
        match &sweep {
            Ok(sweep) => sweep.next.into_iter().for_each(|at| self.due_at(at)),
            Err(_) => self.due_at(now),
        }
        Ok(sweep?.swept)
    }

    /// When the next sweep has something to do.
    pub async fn next_timer(&self) -> Result<Option<Timestamp>, QueueError> {
        Ok(self.inner.store.next_timer().await?)
    }

    /// Something runs out at `at`.
    pub(super) fn due_at(&self, at: Timestamp) {
        self.inner.due.fetch_min(at.0, Ordering::AcqRel);
    }
}
