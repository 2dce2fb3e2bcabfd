//! Workers: they introduce themselves, and are heard of.

use super::deaths::LIMITS;
use super::seen::Known;
use super::{LeaseRenewal, LeftOut, NewWorker, Queue, QueueError, Registered, bounds};
use crate::model::{
    InstanceId, LEASE, LeaseRef, Passage, StopReason, Timestamp, Worker, WorkerId, WorkerState,
};
use crate::store::HeartbeatRow;

impl Queue {
    /// A worker introduces itself. Its id is stable for its name; a new instance ends the leases of
    /// the one before at once. The same instance may repeat it.
    pub async fn register(&self, r: NewWorker) -> Result<Registered, QueueError> {
        bounds::of_worker(&r)?;
        let now = self.inner.clock.now();
        let id = self.new_id()?;
        let register = self.inner.store.register(&r, &id, now, &LIMITS);
        let ended = self.write(Passage::QueueRegister, register).await?;
        let worker = self.inner.store.worker_named(&r.name, now).await?;
        let mut worker = worker.ok_or_else(|| QueueError::WorkerUnknown(r.name.to_string()))?;
        // The token that it comes with is noted after this; the one before may have been revoked.
        (worker.revoked, worker.state) = (false, WorkerState::Online);
        let known = Known {
            instance: r.instance,
            offline: false,
            interval_ms: worker.interval_ms,
            last_seen: now,
            lanes: worker.lanes.clone(),
            labels: worker.labels.clone(),
        };
        // What its last start left out, this one says anew.
        self.leaves_out(&worker.id, LeftOut::default());
        self.inner.seen.put(&worker.id, known);
        Ok(Registered { worker, ended })
    }

    /// Notes, without a statement, that a worker was heard of: it holds the doorbell.
    pub fn heard(&self, worker: &WorkerId) {
        self.inner.seen.heard(worker, self.inner.clock.now());
    }

    /// A worker says that it lives, and which leases it believes it holds. Each is renewed to 30
    /// minutes from now, also when it had run out and nobody took the task, and answered in the
    /// order given. Without leases and news it costs no statement. An old instance is
    /// [`QueueError::WorkerUnknown`].
    pub async fn heartbeat(
        &self,
        worker: &WorkerId,
        instance: &InstanceId,
        offline: bool,
        interval_ms: Option<u64>,
        leases: &[LeaseRef],
    ) -> Result<Vec<LeaseRenewal>, QueueError> {
        let inner = &self.inner;
        bounds::of_heartbeat(leases)?;
        let interval_ms = interval_ms.map(bounds::interval);
        let now = inner.clock.now();
        if leases.is_empty() && inner.seen.is_idle_beat(worker, instance, offline, interval_ms) {
            inner.seen.heard(worker, now);
            return Ok(Vec::new());
        }
        let beat = HeartbeatRow {
            worker,
            instance,
            offline,
            interval_ms,
            leases,
            now,
            expires_at: now + LEASE,
        };
        let heartbeat = inner.store.heartbeat(&beat);
        let Some(renewed) = self.write(Passage::QueueHeartbeat, heartbeat).await? else {
            return Err(QueueError::WorkerUnknown(worker.to_string()));
        };
        inner.seen.beat(worker, instance, offline, interval_ms, now);
        self.due_at(beat.expires_at);
        let mut answers = Vec::with_capacity(leases.len());
        for lease in leases {
            let outcome = if renewed.contains(lease) {
                Ok(())
            } else {
                self.write(Passage::QueueRevive, inner.store.revive(lease, &beat)).await?
            };
            answers.push(match outcome {
                Ok(()) => LeaseRenewal::Renewed { expires_at: beat.expires_at },
                Err(reason) => LeaseRenewal::Lost { reason },
            });
        }
        Ok(answers)
    }

    /// One worker, as [`Queue::workers`] tells it.
    pub async fn worker(&self, id: &WorkerId) -> Result<Option<Worker>, QueueError> {
        let now = self.inner.clock.now();
        Ok(self.inner.store.worker(id, now).await?.map(|worker| self.with_memory(worker, now)))
    }

    /// Every worker, by name, with the leases it holds.
    pub async fn workers(&self) -> Result<Vec<Worker>, QueueError> {
        let now = self.inner.clock.now();
        let workers = self.inner.store.workers(now).await?;
        Ok(workers.into_iter().map(|worker| self.with_memory(worker, now)).collect())
    }

    /// What this process heard of the worker since the database did.
    pub(super) fn with_memory(&self, mut worker: Worker, now: Timestamp) -> Worker {
        worker.ending = self.inner.leftouts.is_ending(&worker.id);
        let Some(known) = self.inner.seen.get(&worker.id) else { return worker };
        // What is ahead of us was stamped before the clock went back.
        if known.last_seen > worker.last_seen || worker.last_seen > now {
            worker.last_seen = known.last_seen;
            worker.state =
                WorkerState::derive(now, known.last_seen, known.offline || worker.revoked);
        }
        worker
    }
}

impl LeaseRenewal {
    /// Whether the lease is gone because a person called the task off.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Lost { reason: StopReason::Cancelled })
    }
}
