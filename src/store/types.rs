//! What the store takes and gives, beside the nouns of `model`.

use crate::model::{
    ForgeKind, InstanceId, Label, LaneName, RepoName, TaskId, Timestamp, WorkerName,
};

/// A worker that introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWorker {
    /// What it is called; its id is stable for it.
    pub name: WorkerName,
    /// This start of it. A new one ends the leases of the one before at once.
    pub instance: InstanceId,
    /// The machine.
    pub host: String,
    /// What it serves.
    pub lanes: Vec<LaneName>,
    /// What it advertises.
    pub labels: Vec<Label>,
    /// Hosts of the forges it is logged in to.
    pub forges: Vec<String>,
    /// The version of relay it runs.
    pub version: String,
}

/// A task that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// The project.
    pub slug: RepoName,
    /// The lane.
    pub lane: LaneName,
    /// The number; `None` takes the project's own counter.
    pub number: Option<u64>,
    /// The title, as it stood when it was asked for.
    pub title: String,
    /// The text, as it stood then.
    pub body: String,
    /// The login that asked.
    pub asked_by: String,
    /// When it was asked for: the label event's time, or now.
    pub seen_at: Timestamp,
}

/// What a queued task asks of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The task.
    pub task: TaskId,
    /// Its lane.
    pub lane: LaneName,
    /// Labels the worker must have.
    pub labels: Vec<Label>,
    /// Which kind of forge its project has.
    pub forge: ForgeKind,
    /// The forge's host, of which the worker must have a login; for a local project the machine
    /// that the worker must be on.
    pub host: String,
}

/// The pull request of a local repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPullRow {
    /// The task's number.
    pub number: u64,
    /// `<lane>: <title>`.
    pub title: String,
    /// `Closes #N`.
    pub body: String,
    /// The pushed branch.
    pub branch: String,
    /// The branch it is to be merged into.
    pub base: String,
    /// The commit pushed, in hex.
    pub head: String,
    /// The change as a unified diff, cut where it is very long.
    pub diff: String,
    /// The summary and usage comment; `None` leaves an earlier one.
    pub comment: Option<String>,
}
