//! One run of a lane, and the effects it has already had on the world.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Epoch, Outcome, RunId, StopReason, TaskId, Timestamp, Usage, WorkerId};

/// Something a job did outside the worker. Recorded under the epoch before the next step, so
/// that a later claim goes on from the first effect that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "effect", rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// The lane's work is a commit in the worker's own repository.
    Committed {
        /// Its id, in hex.
        commit: String,
        /// The commit of the default branch it stands on.
        base: String,
        /// The lane's summary, so that a later claim can still post it.
        summary: Option<String>,
        /// What the lane cost, for the same reason.
        usage: Option<Box<UsageText>>,
    },
    /// The branch on the forge is at this commit.
    Pushed {
        /// Its id, in hex.
        commit: String,
        /// The branch's name.
        branch: String,
    },
    /// The pull request is there.
    PullRequest {
        /// Its number.
        number: u64,
        /// Where a person can read it.
        url: String,
    },
    /// The summary was posted.
    Commented {
        /// The comment's id on the forge.
        id: String,
    },
}

/// A run's usage kept as JSON text inside an effect, so that effects stay comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct UsageText(pub String);

impl UsageText {
    /// Keeps `usage`.
    #[must_use]
    pub fn keep(usage: &Usage) -> Self {
        Self(serde_json::to_string(usage).unwrap_or_default())
    }

    /// Reads it back; unreadable text is usage that was not reported.
    #[must_use]
    pub fn read(&self) -> Usage {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Effect {
    /// The word under which it is stored: one of each kind a task and epoch.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Committed { .. } => "committed",
            Self::Pushed { .. } => "pushed",
            Self::PullRequest { .. } => "pull_request",
            Self::Commented { .. } => "commented",
        }
    }
}

/// One run, as the site tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The task it belongs to.
    pub task: TaskId,
    /// The claim it ran under.
    pub epoch: Epoch,
    /// Who ran it.
    pub worker: WorkerId,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When the lane was started.
    pub started_at: Option<Timestamp>,
    /// When it ended, by release or by expiry.
    pub finished_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why it ended.
    pub stop_reason: Option<StopReason>,
    /// The lane's summary.
    pub summary: Option<String>,
    /// What went wrong, for a person.
    pub error: Option<String>,
    /// The file on its worker's disk that keeps the work, where it could not be delivered.
    #[serde(default)]
    pub kept: Option<String>,
    /// What it cost.
    pub usage: Option<Usage>,
}
