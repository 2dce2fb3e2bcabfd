//! Why the queue did not do it.

use crate::model::{LaneName, LeaseRef, TaskId, TaskState, WorkerName};
use crate::store::StoreError;

/// Why the queue did not do it. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// What was named is not there.
    #[error("no {what} `{id}`")]
    NotFound {
        /// `task`, `project` or `worker`.
        what: &'static str,
        /// As it was asked for.
        id: String,
    },
    /// The lease is not the task's live one: it ran out, was called off, or another claim took
    /// the task.
    #[error("the lease on `{}` (epoch {}) is no longer held", .0.task, .0.epoch)]
    LeaseLost(LeaseRef),
    /// The worker is unknown, or a newer instance has its name.
    #[error("worker `{0}` is not registered, or another instance of it is")]
    WorkerUnknown(String),
    /// A lane that the worker neither serves nor has paused.
    #[error("worker `{worker}` does not serve the lane `{lane}`")]
    NotServed {
        /// The worker.
        worker: WorkerName,
        /// The lane.
        lane: LaneName,
        /// The lanes that it serves.
        serves: Vec<LaneName>,
    },
    /// The worker takes nothing more and ends, which is not taken back.
    #[error("{worker} was told to end, which is not taken back: it takes nothing more{}", to_end(.runs))]
    Ends {
        /// The worker.
        worker: WorkerName,
        /// Where it runs.
        host: String,
        /// What it has to end.
        runs: Vec<TaskId>,
    },
    /// What was asked does not fit the state the task is in.
    #[error("task `{task}` is {state}: {why}")]
    Conflict {
        /// The task.
        task: TaskId,
        /// Where it stands.
        state: TaskState,
        /// Why that does not go together.
        why: &'static str,
    },
    /// A value that the types let through and the queue does not.
    #[error("{0}")]
    Invalid(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl QueueError {
    /// For a person: what helps, where the database is the cause.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(cause) => cause.hint(),
            _ => None,
        }
    }
}

fn to_end(runs: &[TaskId]) -> String {
    let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    if runs.is_empty() { String::new() } else { format!(", and has {} to end", runs.join(", ")) }
}
