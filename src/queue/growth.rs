//! What of the past is kept, and for how long.

use std::time::Duration;

use super::{Queue, QueueError};
use crate::model::RunId;

/// A run's log stays for so long after the run's end; the newest of a task that is neither done
/// nor cancelled stays as long as the task does.
pub const LOGS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Events, and the diffs of local pull requests, of tasks that are done or cancelled.
pub const EVENTS_KEPT: Duration = Duration::from_secs(90 * 86_400);

impl Queue {
    /// Runs whose log is no longer kept.
    ///
    /// # Errors
    /// The database's.
    pub async fn forgettable_runs(&self) -> Result<Vec<RunId>, QueueError> {
        Ok(self.inner.store.forgettable_runs(self.inner.clock.now() - LOGS_KEPT).await?)
    }

    /// Whether this run is known.
    ///
    /// # Errors
    /// The database's.
    pub async fn knows_run(&self, run: &RunId) -> Result<bool, QueueError> {
        Ok(self.inner.store.knows_run(run).await?)
    }

    /// Forgets what is no longer kept; gives how many events went.
    ///
    /// # Errors
    /// The database's.
    pub async fn forget_told(&self) -> Result<u64, QueueError> {
        Ok(self.inner.store.forget_told(self.inner.clock.now() - EVENTS_KEPT).await?)
    }
}
