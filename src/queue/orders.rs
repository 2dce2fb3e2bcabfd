//! What people tell a worker: to pause, to go on, to end. It is written down, and each claim looks.

use std::collections::BTreeMap;

use super::{Queue, QueueError, bounds};
use crate::model::{
    Actor, LaneName, Order, Orders, Pause, Worker, WorkerId, WorkerName, WorkerState,
};

impl Queue {
    /// Tells a worker about these lanes of it, or as a whole where none is named; gives the worker
    /// as it stands then. To say it twice changes nothing. A pause holds until it is resumed, over
    /// restarts of the worker; to resume the whole worker resumes each of its lanes; a drain is of
    /// the start that lives now, and is not taken back.
    ///
    /// No claim that begins after this gets anything of what was paused. A claim that had begun
    /// before may still be answered, and what was claimed is worked on.
    ///
    /// # Errors
    /// [`QueueError::NotFound`] where nobody has that name, [`QueueError::NotServed`] for a lane
    /// that is none of the worker's, [`QueueError::Invalid`] for a drain of a lane, and
    /// [`QueueError::Ends`] where a worker is resumed that is there and ends.
    pub async fn order(
        &self,
        name: &WorkerName,
        order: Order,
        lanes: &[LaneName],
        by: &Actor,
    ) -> Result<Worker, QueueError> {
        bounds::of_order(lanes)?;
        if order == Order::Drain && !lanes.is_empty() {
            let text = "a worker is drained as a whole: pause a lane of it instead";
            return Err(QueueError::Invalid(text.to_owned()));
        }
        let now = self.inner.clock.now();
        let worker = self.named(name).await?;
        let is_known = |lane: &LaneName| {
            let paused = |pause: &Pause| pause.lane.as_ref() == Some(lane);
            worker.lanes.contains(lane) || worker.orders.paused.iter().any(paused)
        };
        if let Some(lane) = lanes.iter().find(|lane| !is_known(lane)) {
            let (worker, lane, serves) = (worker.name, lane.clone(), worker.lanes);
            return Err(QueueError::NotServed { worker, lane, serves });
        }
        let ends = worker.ending || worker.orders.drain.is_some();
        if order == Order::Resume && ends && worker.state != WorkerState::Offline {
            let runs = worker.leases.into_iter().map(|lease| lease.task).collect();
            return Err(QueueError::Ends { worker: worker.name, host: worker.host, runs });
        }
        self.inner.store.order(name, order, lanes, by, now).await?;
        self.named(name).await
    }

    /// What each worker was told and holds; those that were told nothing are not there.
    ///
    /// # Errors
    /// The database's.
    pub async fn orders(&self) -> Result<BTreeMap<WorkerId, Orders>, QueueError> {
        Ok(self.inner.store.orders().await?)
    }

    async fn named(&self, name: &WorkerName) -> Result<Worker, QueueError> {
        let now = self.inner.clock.now();
        let worker = self.inner.store.worker_named(name, now).await?;
        let worker = worker.map(|worker| self.with_memory(worker, now));
        worker.ok_or_else(|| QueueError::NotFound { what: "worker", id: name.to_string() })
    }
}
