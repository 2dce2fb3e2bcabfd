//! A worker takes the oldest task it can serve.

use super::{Claimant, Claimed, Queue, QueueError, bounds, effects};
use crate::model::{Effect, LEASE, Label, LaneName, Lease, Passage, Task, TaskId, WorkerId};
use crate::store::{Claim, ClaimedRow};

impl Queue {
    /// Leases the oldest queued task whose lane and labels the claimant has, and whose forge it is
    /// logged in to (of a local project: on whose machine it is), unless people told it to take
    /// nothing of it ([`Queue::order`]). Expired leases are swept first. `None` when there is nothing, or when the claim id belongs to a run that the worker has
    /// already finished.
    pub async fn claim(&self, c: &Claimant) -> Result<Option<Claimed>, QueueError> {
        let inner = &self.inner;
        bounds::of_claim(c)?;
        let now = inner.clock.now();
        if self.is_due() {
            self.sweep().await?;
        }
        let (lanes, labels) = self.offer(c).await?;
        let unknown = || QueueError::WorkerUnknown(c.worker.to_string());
        if lanes.is_empty() {
            let speaks = inner.store.speaks_for(&c.worker, &c.instance).await?;
            return if speaks { Ok(None) } else { Err(unknown()) };
        }
        let claim = Claim {
            worker: &c.worker,
            instance: &c.instance,
            claim_id: &c.claim_id,
            run: &self.new_id()?,
            lanes: &lanes,
            labels: &labels,
            except: &c.except,
            now,
            expires_at: now + LEASE,
        };
        // Said before and after the write: a sweep in between forgets what it did not see, and a
        // caller that goes away does not come to the second.
        self.due_at(claim.expires_at);
        inner.seen.heard(&c.worker, now);
        let (task, project, run, preferences) =
            match self.write(Passage::QueueClaim, inner.store.claim(&claim)).await? {
                ClaimedRow::Unknown => return Err(unknown()),
                ClaimedRow::Nothing => return Ok(None),
                ClaimedRow::Leased { task, project, run, preferences } => {
                    (*task, *project, run, preferences)
                }
            };
        self.due_at(claim.expires_at);
        // A first claim has no journal to read.
        let effects = if task.epoch.0 > 1 { self.effects(&task.id).await? } else { Vec::new() };
        let lease = lease_of(&task, &c.worker)?;
        inner.runs.put(&lease.reference(), &run);
        Ok(Some(Claimed {
            lease,
            run,
            branch: task.own_branch(),
            task,
            project,
            effects,
            preferences,
        }))
    }

    /// What the worker would take: what it says, else what it registered.
    async fn offer(&self, c: &Claimant) -> Result<(Vec<LaneName>, Vec<Label>), QueueError> {
        if let (Some(lanes), Some(labels)) = (&c.lanes, &c.labels) {
            return Ok((lanes.clone(), labels.clone()));
        }
        let (lanes, labels) = match self.inner.seen.get(&c.worker) {
            Some(known) if known.instance == c.instance => (known.lanes, known.labels),
            // It registered with an earlier process, or at another site.
            _ => {
                let worker = self.inner.store.worker(&c.worker, self.inner.clock.now()).await?;
                worker
                    .map(|worker| (worker.lanes, worker.labels))
                    .ok_or_else(|| QueueError::WorkerUnknown(c.worker.to_string()))?
            }
        };
        Ok((c.lanes.clone().unwrap_or(lanes), c.labels.clone().unwrap_or(labels)))
    }

    /// What earlier epochs of a task's current request did that need not be done again, in the
    /// order of the job's steps.
    pub async fn effects(&self, id: &TaskId) -> Result<Vec<Effect>, QueueError> {
        Ok(effects::chain(self.inner.store.journal(id).await?))
    }
}

fn lease_of(task: &Task, worker: &WorkerId) -> Result<Lease, QueueError> {
    let expires_at = task
        .expires_at
        .ok_or_else(|| QueueError::Invalid(format!("`{}` is leased without an end", task.id)))?;
    Ok(Lease { task: task.id.clone(), epoch: task.epoch, worker: worker.clone(), expires_at })
}
