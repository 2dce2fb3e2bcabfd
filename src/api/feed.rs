//! What a reader follows: events, run logs, the site's own state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Event, RunId, TaskState, Timestamp};

/// `GET /events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events with a greater `seq`.
    #[serde(default)]
    pub after: i64,
    /// Only events of this task.
    #[serde(default)]
    pub task: Option<String>,
    /// At most so many, 1 to 1,000.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The newest so many instead of the oldest.
    #[serde(default)]
    pub newest: bool,
}

/// Events, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventsAnswer {
    /// The events.
    pub events: Vec<Event>,
}

/// `GET /tasks/…/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Which run; the newest when left out.
    #[serde(default)]
    pub run: Option<RunId>,
    /// From this byte.
    #[serde(default)]
    pub offset: u64,
    /// How long the answer may be held for something new, in seconds, at most 60.
    #[serde(default)]
    pub wait: u32,
}

/// A piece of a run's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogAnswer {
    /// Whose log it is; `None` when the task never ran.
    pub run: Option<RunId>,
    /// Where `text` starts; later than asked when the log's beginning was cut away.
    pub offset: u64,
    /// The text.
    pub text: String,
    /// Where to ask next.
    pub next: u64,
    /// Whether the run ended and all of its log was given.
    pub end: bool,
    /// The task's state, so that a follower knows when to stop.
    pub state: TaskState,
}

/// `GET /status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusAnswer {
    /// The owner's version of relay.
    pub version: String,
    /// The owner's process.
    pub pid: u32,
    /// The site's clock.
    pub ts: Timestamp,
    /// What the owner watches, one line for each linked repository that has news.
    pub forges: Vec<ForgeStatus>,
    /// The hosts the owner's process asked since it began.
    pub hosts: Vec<HostStatus>,
}

/// How it stands with one forge's API, for all who use one login there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostStatus {
    /// As people and `gh` name it.
    pub host: String,
    /// The last answer of whatever kind.
    pub reached_at: Option<Timestamp>,
    /// No call is made before this.
    pub waiting_until: Option<Timestamp>,
    /// Why: `primary limit`, `secondary limit`, `rate limit`.
    pub limit: Option<String>,
    /// Calls answered.
    pub calls: u64,
    /// Those of them that cost quota.
    pub counted: u64,
}

/// `GET /health`. A damaged database is a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthAnswer {
    /// The database's size in bytes, its write-ahead log included.
    pub bytes: u64,
    /// Whether every page was read and found sound; a large database is not read through.
    pub read_through: bool,
    /// When the newest event was told, by the site's clock of then.
    pub newest_event: Option<Timestamp>,
}

/// How it stands with one linked repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForgeStatus {
    /// The project.
    pub slug: String,
    /// When it was last asked.
    pub polled_at: Option<Timestamp>,
    /// Not asked again before this: a rate limit or an outage.
    pub cooling_until: Option<Timestamp>,
    /// The last error, for a person.
    pub error: Option<String>,
}
