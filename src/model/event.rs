//! What happened: a closed, append-only list.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{IdError, TaskId, Timestamp};

/// What kind of thing happened. An event is written in the statement or transaction of the
/// change it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A worker was seen for the first time.
    WorkerRegistered,
    /// A worker returned after it reported offline, or as a new instance.
    WorkerOnline,
    /// A worker reported offline.
    WorkerOffline,
    /// Somebody paused a worker, or a lane of it.
    WorkerPaused,
    /// Somebody resumed it.
    WorkerResumed,
    /// Somebody told a worker to end once its runs have.
    WorkerDraining,
    /// A task was made, or set back to queued.
    TaskQueued,
    /// A task waits for a time.
    TaskParked,
    /// A person asked for another run.
    TaskRetried,
    /// A task was called off.
    TaskCancelled,
    /// A task killed several runs in a row.
    TaskQuarantined,
    /// A task's pull request was merged, or a person ended it.
    TaskDone,
    /// A worker leased a task.
    RunClaimed,
    /// The lane was started.
    RunStarted,
    /// The run ended well.
    RunFinished,
    /// The run ended badly.
    RunFailed,
    /// A cloud lane's task was handed to its vendor.
    RunDispatched,
    /// A lease ran out, or a new instance of its worker ended it.
    LeaseExpired,
    /// What a run cost.
    StepUsage,
    /// A plugin's, or a lane's, note.
    PluginMark,
}

impl EventKind {
    const ALL: [(Self, &'static str); 20] = [
        (Self::WorkerRegistered, "worker.registered"),
        (Self::WorkerOnline, "worker.online"),
        (Self::WorkerOffline, "worker.offline"),
        (Self::WorkerPaused, "worker.paused"),
        (Self::WorkerResumed, "worker.resumed"),
        (Self::WorkerDraining, "worker.draining"),
        (Self::TaskQueued, "task.queued"),
        (Self::TaskParked, "task.parked"),
        (Self::TaskRetried, "task.retried"),
        (Self::TaskCancelled, "task.cancelled"),
        (Self::TaskQuarantined, "task.quarantined"),
        (Self::TaskDone, "task.done"),
        (Self::RunClaimed, "run.claimed"),
        (Self::RunStarted, "run.started"),
        (Self::RunFinished, "run.finished"),
        (Self::RunFailed, "run.failed"),
        (Self::RunDispatched, "run.dispatched"),
        (Self::LeaseExpired, "lease.expired"),
        (Self::StepUsage, "step.usage"),
        (Self::PluginMark, "plugin.mark"),
    ];

    /// The word stored, sent and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

impl FromStr for EventKind {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::ALL.into_iter().find(|(_, word)| *word == text).map(|(kind, _)| kind).ok_or_else(
            || IdError { text: text.chars().take(80).collect(), expected: "an event kind" },
        )
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for EventKind {
    fn schema_name() -> Cow<'static, str> {
        "EventKind".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = Self::ALL.iter().map(|(_, word)| *word).collect();
        json_schema!({ "type": "string", "enum": words })
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Who did it: `runner:<name>`, `agent:<lane>`, `user:<login>` or `site`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Actor(pub String);

impl Actor {
    /// A worker.
    pub fn runner(name: impl fmt::Display) -> Self {
        Self(format!("runner:{name}"))
    }

    /// A lane.
    pub fn agent(lane: impl fmt::Display) -> Self {
        Self(format!("agent:{lane}"))
    }

    /// A person.
    pub fn user(login: impl fmt::Display) -> Self {
        Self(format!("user:{login}"))
    }

    /// The site by itself: timers and sweeps.
    #[must_use]
    pub fn site() -> Self {
        Self("site".to_owned())
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its place in the list; grows by at least one.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// By whom.
    pub actor: Actor,
    /// About which task.
    pub task: Option<TaskId>,
    /// Details that belong to the kind: the epoch, the stop reason, a hint.
    pub data: serde_json::Value,
}
