//! Several sites on one database: what one tells the others, and what it forgets of what it knew.

use super::{Queue, QueueError};
use crate::model::{InstanceId, LeaseRef, WorkerId};

impl Queue {
    /// Tells the other sites on the same database.
    ///
    /// # Errors
    /// The database's.
    pub async fn tell(&self, text: &str) -> Result<(), QueueError> {
        Ok(self.inner.store.tell(text).await?)
    }

    /// Another site wrote: what was read before may be old ([`Queue::writes`]).
    pub fn written_elsewhere(&self) {
        self.inner.store.written_elsewhere();
    }

    /// A worker came to another site, or left one: what is remembered of it may be old, and what its
    /// last start left out is over.
    pub fn forget(&self, worker: &WorkerId) {
        self.inner.seen.forget(worker);
        self.inner.leftouts.forget(worker);
    }

    /// What other sites told may have been missed: what any worker leaves out is not known any more,
    /// but for those that wait `here` and said it themselves. Of the others it is known again once it
    /// changes.
    pub fn forget_left_out(&self, here: &[WorkerId]) {
        self.inner.leftouts.keep(here);
    }

    /// Which start of each worker lives. Others that are remembered are forgotten.
    ///
    /// # Errors
    /// The database's.
    pub async fn instances(&self) -> Result<Vec<(WorkerId, InstanceId)>, QueueError> {
        let living = self.inner.store.instances().await?;
        self.inner.seen.keep(&living);
        Ok(living)
    }

    /// Every lease that was given and has not ended.
    ///
    /// # Errors
    /// The database's.
    pub async fn live_leases(&self) -> Result<Vec<LeaseRef>, QueueError> {
        Ok(self.inner.store.live_leases().await?)
    }

    /// Writes down that these workers were heard of, which costs no statement else: one that waits
    /// at this site is not silent at the others.
    ///
    /// # Errors
    /// The database's; it is made up for by the next.
    pub async fn write_heard(&self, workers: &[WorkerId]) -> Result<(), QueueError> {
        if workers.is_empty() {
            return Ok(());
        }
        Ok(self.inner.store.heard_of(workers, self.inner.clock.now()).await?)
    }
}
