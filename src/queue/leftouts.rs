//! What workers say at the bell that they take nothing of for now. In memory alone: it changes with
//! each of their runs, and is only ever told to people; the sites of one database tell each other.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::Queue;
use crate::model::{LaneName, RepoName, Worker, WorkerId};

/// What one worker leaves out, though it serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// Lanes whose login the vendor refused.
    pub refused: Vec<LaneName>,
    /// Lanes of which it runs as much as it may.
    pub limited: Vec<LaneName>,
    /// Repositories of which it runs as much as it may.
    pub full: Vec<RepoName>,
    /// Everything: it ends once its runs have.
    pub ending: bool,
}

/// Of those workers that leave something out.
#[derive(Debug, Default)]
pub(super) struct LeftOuts(Mutex<HashMap<WorkerId, LeftOut>>);

impl LeftOuts {
    /// A panic elsewhere leaves a whole map: each change is one step.
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<WorkerId, LeftOut>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the worker ends.
    pub(super) fn is_ending(&self, worker: &WorkerId) -> bool {
        self.with(|map| map.get(worker).is_some_and(|left| left.ending))
    }

    /// Nothing is known of the worker any more.
    pub(super) fn forget(&self, worker: &WorkerId) {
        self.with(|map| map.remove(worker));
    }

    /// Nothing is known any more of any but these.
    pub(super) fn keep(&self, workers: &[WorkerId]) {
        self.with(|map| map.retain(|worker, _| workers.contains(worker)));
    }

    /// What those of `workers` leave out that leave something out.
    pub(super) fn of(&self, workers: &[Worker]) -> HashMap<WorkerId, LeftOut> {
        let known = |map: &mut HashMap<WorkerId, LeftOut>| {
            let of = |worker: &Worker| Some((worker.id.clone(), map.get(&worker.id)?.clone()));
            workers.iter().filter_map(of).collect()
        };
        self.with(known)
    }
}

impl Queue {
    /// Notes what a worker leaves out that holds the doorbell, and says whether that is news. What it
    /// said before is over.
    pub fn leaves_out(&self, worker: &WorkerId, left: LeftOut) -> bool {
        let nothing = LeftOut::default();
        self.inner.leftouts.with(|map| {
            let is_news = map.get(worker).unwrap_or(&nothing) != &left;
            if left == nothing {
                map.remove(worker);
            } else {
                map.insert(worker.clone(), left);
            }
            is_news
        })
    }
}
