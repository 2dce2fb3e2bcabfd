//! A task: one issue and one lane. docs/lifecycle.md has the picture of its states.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Actor, Cents, Epoch, IdError, Label, LaneName, Scope, StopReason, TaskId, Timestamp, WorkerId,
    WorkerName,
};

/// Where a task stands. The same words are in the database's CHECK constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waits for a worker.
    Queued,
    /// Leased; the lane has not started.
    Claimed,
    /// Leased; the lane was started.
    Running,
    /// A pull request is open and waits for a person.
    Review,
    /// Stopped with a reason that needs a person.
    Failed,
    /// Merged, or ended by hand.
    Done,
    /// Not before a time: a quota, a rate limit or a short pause before an infrastructure retry.
    Parked,
    /// Called off by a person or by the issue.
    Cancelled,
}

impl TaskState {
    /// Every state, in the order they are listed to people.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Claimed,
        Self::Running,
        Self::Review,
        Self::Failed,
        Self::Done,
        Self::Parked,
        Self::Cancelled,
    ];

    /// The word stored, sent and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Running => "running",
            Self::Review => "review",
            Self::Failed => "failed",
            Self::Done => "done",
            Self::Parked => "parked",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a worker holds a lease in this state.
    #[must_use]
    pub const fn is_leased(self) -> bool {
        matches!(self, Self::Claimed | Self::Running)
    }

    /// Whether nothing more happens by itself. `Review` still ends by a merge or a close.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Done | Self::Cancelled)
    }
}

impl FromStr for TaskState {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| IdError {
            text: text.chars().take(80).collect(),
            expected: "a task state (queued, claimed, running, review, failed, done, parked, cancelled)",
        })
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A task as the site tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// The lane that is to do it.
    pub lane: LaneName,
    /// Where it stands.
    pub state: TaskState,
    /// The title, as it stood when the task was made.
    pub title: String,
    /// The text, as it stood when the task was made. Data from strangers.
    pub body: String,
    /// Who asked: the login that set the label, or the local user.
    pub asked_by: String,
    /// Capabilities a worker must have.
    pub required_labels: Vec<Label>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed state.
    pub updated_at: Timestamp,
    /// How many times it was claimed.
    pub epoch: Epoch,
    /// Who holds it, where it is leased.
    pub worker: Option<WorkerId>,
    /// When the live lease ends.
    pub expires_at: Option<Timestamp>,
    /// Not before this, where it is parked.
    pub parked_until: Option<Timestamp>,
    /// Why the last run stopped, or why it was cancelled.
    pub stop_reason: Option<StopReason>,
    /// One line about the last run: its error, or its summary.
    pub message: Option<String>,
    /// The branch of the pull request.
    pub branch: Option<String>,
    /// The pull request's number.
    pub pr: Option<u64>,
    /// Where a person can read it.
    pub pr_url: Option<String>,
}

impl Task {
    /// The task's name in a repository, `<lane, dashed>-<number>`: of its branch and of its fence.
    #[must_use]
    pub fn ref_name(&self) -> String {
        format!("{}-{}", self.lane.dashed(), self.id.number)
    }

    /// The branch that its work goes to. Site and worker each know it from the task alone.
    #[must_use]
    pub fn own_branch(&self) -> String {
        format!("relay/{}", self.ref_name())
    }
}

/// Why a queued task is not running. Worked out when asked, never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum WaitReason {
    /// No worker has registered, or none was heard of for an hour.
    NoWorker,
    /// The workers that could take it are away.
    Offline {
        /// The one that was heard of last.
        worker: WorkerName,
        /// When.
        last_seen: Timestamp,
        /// Whether its token was revoked: to start it again does not help.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        revoked: bool,
        /// Whether people paused it, or this lane of it, as well: it takes nothing when it is back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        paused: bool,
    },
    /// Workers are there; none serves this lane.
    NoLane {
        /// The lane nobody serves.
        lane: LaneName,
    },
    /// Workers serve the lane; none has these labels.
    NoLabel {
        /// What is missing.
        missing: Vec<Label>,
    },
    /// The repository is on another machine's disk.
    OtherHost {
        /// The machine that linked it.
        host: String,
    },
    /// No worker with the lane is logged in to the forge.
    NoForgeLogin {
        /// The forge's host.
        forge: String,
    },
    /// Every worker that could take it is out of the vendor's quota, or of the forge's.
    Paused {
        /// When the first of them goes on.
        until: Timestamp,
    },
    /// Every worker that could take it was told by people to take nothing of its lane, or to end.
    WorkersPaused {
        /// Those workers.
        workers: Vec<WorkerName>,
        /// Who told the last of them.
        by: Actor,
        /// When.
        since: Timestamp,
    },
    /// Every worker that could take it ends once its runs have.
    Ending {
        /// Those workers.
        workers: Vec<WorkerName>,
    },
    /// The vendor refused the login of the lane of every worker that could take it.
    LoginRefused {
        /// The lane.
        lane: LaneName,
        /// Those workers.
        workers: Vec<WorkerName>,
    },
    /// Every worker that could take it runs as much of its lane as it may (`--limit`).
    LaneFull {
        /// The lane.
        lane: LaneName,
        /// Those workers.
        workers: Vec<WorkerName>,
    },
    /// Every worker that could take it runs as much of its repository as it may (`--per-repo`).
    RepoFull {
        /// What they run of it.
        runs: Vec<TaskId>,
    },
    /// No worker that could take it was heard of within two minutes: none holds the doorbell, and none
    /// that works says so. One that is there is heard of as often as it checks in.
    Silent {
        /// The one that was heard of last.
        worker: WorkerName,
        /// When.
        last_seen: Timestamp,
        /// How often it checks in, in milliseconds.
        interval_ms: Option<u64>,
    },
    /// Every worker that could take it is busy, or is about to ask.
    Busy,
    /// Its repository could not be looked at; beside another reason.
    Unreachable {
        /// What the last look came to.
        error: String,
    },
    /// Parked until a time.
    Parked {
        /// Not before this.
        until: Timestamp,
        /// Why its last run stopped.
        #[serde(default)]
        stopped: Option<StopReason>,
    },
    /// A budget that covers it is used up.
    Budget {
        /// For whom the budget holds.
        scope: Scope,
        /// How much a day may cost, in US dollars.
        usd_day: Cents,
        /// What was reported when it was used up.
        spent_usd: Cents,
        /// When it is there again; `None` where it is nothing.
        until: Option<Timestamp>,
    },
    /// A reason of a newer site.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
pub(crate) mod sample {
    use super::*;

    /// A task under way, for tests that change what they are about.
    pub(crate) fn task() -> Task {
        Task {
            id: "acme/shop#12".parse().unwrap(),
            lane: "claude".parse().unwrap(),
            state: TaskState::Running,
            title: "Add a total".to_owned(),
            body: String::new(),
            asked_by: "mona".to_owned(),
            required_labels: Vec::new(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            epoch: Epoch(1),
            worker: None,
            expires_at: None,
            parked_until: None,
            stop_reason: None,
            message: None,
            branch: None,
            pr: None,
            pr_url: None,
        }
    }
}
