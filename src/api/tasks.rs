//! Tasks, projects and preferences, for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{
    Effect, ForgeKind, LaneName, Preference, PreferenceKey, Project, RepoName, Run, Scope, Task,
    TaskState, WaitReason,
};

/// `POST /tasks`. The answer is the [`Task`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTask {
    /// The project.
    pub slug: RepoName,
    /// The lane.
    pub lane: LaneName,
    /// An issue of the forge; the site reads its title and text.
    #[serde(default)]
    pub issue: Option<u64>,
    /// A title, where there is no issue, of at most 256 characters. Of a GitHub project an issue is
    /// opened with it.
    #[serde(default)]
    pub title: Option<String>,
    /// The text that goes with the title, of at most 65,536 characters.
    #[serde(default)]
    pub body: Option<String>,
    /// The person who asks.
    pub asked_by: String,
}

/// `GET /tasks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TasksQuery {
    /// Only tasks in this state.
    #[serde(default)]
    pub state: Option<TaskState>,
    /// Taken, and changes nothing: a list has no texts and short titles in any case.
    #[serde(default)]
    pub lines: bool,
}

/// The answer to `GET /tasks`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tasks {
    /// The tasks, newest first: `body` is empty, and a title has 300 characters at the most.
    /// `GET /tasks/{owner}/{task}` has the whole.
    pub tasks: Vec<Task>,
}

/// `GET /projects`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Projects {
    /// Every linked repository.
    pub projects: Vec<Project>,
}

/// `GET /tasks/{owner}/{task}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDetail {
    /// The task.
    pub task: Task,
    /// Why it waits, where it waits.
    pub waiting: Vec<WaitReason>,
    /// Its runs, newest first.
    pub runs: Vec<Run>,
    /// What its runs did outside.
    pub effects: Vec<Effect>,
    /// The pull request of a local repository, with its diff.
    pub local_pull: Option<LocalPull>,
}

/// A pull request that is a row: a local repository has nowhere else to put it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalPull {
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
    /// The summary and usage comment.
    pub comment: Option<String>,
}

/// `POST /projects/{owner}/{repo}/pulls`: opens it, or brings it up to date. Fenced like every
/// write of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenLocalPull {
    /// The lease it is done under.
    pub lease: crate::model::LeaseRef,
    /// The holder.
    pub worker_id: crate::model::WorkerId,
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
    /// The change.
    pub diff: String,
    /// The comment, once there is one; `None` leaves an earlier one.
    #[serde(default)]
    pub comment: Option<String>,
}

/// `POST /projects`. The answer is the [`crate::model::Project`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkProject {
    /// Which forge.
    pub forge: ForgeKind,
    /// `owner/name`; for a local repository what the person wants it called, `local/<name>`.
    pub slug: RepoName,
    /// An absolute path, for a local repository.
    #[serde(default)]
    pub path: Option<String>,
    /// The machine that links it, for a local repository.
    pub host: String,
}

/// `POST /tasks/…/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The person.
    pub by: String,
}

/// `POST /tasks/…/done` and `…/retry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetDone {
    /// The person.
    pub by: String,
}

/// `POST /preferences`. Without a value the preference is taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreferRequest {
    /// What.
    pub key: PreferenceKey,
    /// For whom.
    pub scope: Scope,
    /// To what.
    #[serde(default)]
    pub value: Option<String>,
    /// The person.
    pub by: String,
}

/// `GET /preferences`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Preferences {
    /// All of them, widest first.
    pub preferences: Vec<Preference>,
}
