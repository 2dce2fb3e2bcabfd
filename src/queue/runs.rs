//! The runs that were claimed with this process. A lease is of one run and a run keeps its id, so
//! what is known here is never out of date, whatever became of the lease.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{Epoch, LeaseRef, RunId, TaskId};

/// So many are kept. Beyond it all are forgotten and the database is asked, as after a restart.
const MOST: usize = 10_000;

/// See the module. Of each task the newest.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<HashMap<TaskId, (Epoch, RunId)>>);

impl Runs {
    pub(super) fn put(&self, lease: &LeaseRef, run: &RunId) {
        let mut runs = self.map();
        if runs.len() >= MOST {
            runs.clear();
        }
        runs.insert(lease.task.clone(), (lease.epoch, run.clone()));
    }

    pub(super) fn get(&self, lease: &LeaseRef) -> Option<RunId> {
        let runs = self.map();
        runs.get(&lease.task).filter(|(epoch, _)| *epoch == lease.epoch).map(|(_, run)| run.clone())
    }

    /// The run has ended.
    pub(super) fn remove(&self, lease: &LeaseRef) {
        let mut runs = self.map();
        if runs.get(&lease.task).is_some_and(|(epoch, _)| *epoch == lease.epoch) {
            runs.remove(&lease.task);
        }
    }

    /// A panic elsewhere leaves a whole map: each change is one step.
    fn map(&self) -> MutexGuard<'_, HashMap<TaskId, (Epoch, RunId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
