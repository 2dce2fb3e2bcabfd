//! What is known of workers without asking the database: an idle one costs no statement.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{InstanceId, Label, LaneName, Timestamp, WorkerId};

/// A worker as the queue last heard of it. What is written of it is in the database as well,
/// but for `last_seen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) instance: InstanceId,
    pub(super) offline: bool,
    pub(super) interval_ms: Option<u64>,
    pub(super) last_seen: Timestamp,
    pub(super) lanes: Vec<LaneName>,
    pub(super) labels: Vec<Label>,
}

/// The workers that have registered with this process.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<HashMap<WorkerId, Known>>);

impl Seen {
    pub(super) fn put(&self, worker: &WorkerId, known: Known) {
        self.map().insert(worker.clone(), known);
    }

    pub(super) fn get(&self, worker: &WorkerId) -> Option<Known> {
        self.map().get(worker).cloned()
    }

    /// What was known of it is asked anew.
    pub(super) fn forget(&self, worker: &WorkerId) {
        self.map().remove(worker);
    }

    /// Forgets those of which another instance lives.
    pub(super) fn keep(&self, living: &[(WorkerId, InstanceId)]) {
        let mut map = self.map();
        for (worker, instance) in living {
            if map.get(worker).is_some_and(|known| known.instance != *instance) {
                map.remove(worker);
            }
        }
    }

    /// Moves `last_seen` on, where the worker is known.
    pub(super) fn heard(&self, worker: &WorkerId, now: Timestamp) {
        if let Some(known) = self.map().get_mut(worker) {
            known.last_seen = now;
        }
    }

    /// Whether a heartbeat without leases would change nothing but `last_seen`.
    pub(super) fn is_idle_beat(
        &self,
        worker: &WorkerId,
        instance: &InstanceId,
        offline: bool,
        interval_ms: Option<u64>,
    ) -> bool {
        self.map().get(worker).is_some_and(|known| {
            known.instance == *instance
                && known.offline == offline
                && (interval_ms.is_none() || known.interval_ms == interval_ms)
        })
    }

    /// What a heartbeat that was written said.
    pub(super) fn beat(
        &self,
        worker: &WorkerId,
        instance: &InstanceId,
        offline: bool,
        interval_ms: Option<u64>,
        now: Timestamp,
    ) {
        if let Some(known) = self.map().get_mut(worker)
            && known.instance == *instance
        {
            known.offline = offline;
            known.interval_ms = interval_ms.or(known.interval_ms);
            known.last_seen = now;
        }
    }

    /// A panic elsewhere leaves a whole map: each change is one step.
    fn map(&self) -> MutexGuard<'_, HashMap<WorkerId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
