//! What the queue takes and gives, beside the nouns of `model`.

use crate::model::{
    ClaimId, Effect, InstanceId, Label, LaneName, Lease, LeaseRef, Project, RepoName, RunId,
    RunPreferences, StopReason, Task, Timestamp, Usage, Worker, WorkerId,
};

/// The answer to [`super::Queue::register`].
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// The worker as it is known now.
    pub worker: Worker,
    /// Leases of its earlier instance that this ended; their tasks are queued again.
    pub ended: Vec<LeaseRef>,
}

/// What became of one lease in a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRenewal {
    /// Live until then.
    Renewed {
        /// On the queue's clock.
        expires_at: Timestamp,
    },
    /// Not the worker's any more.
    Lost {
        /// `cancelled` where a person called the task off, else `lease_lost`.
        reason: StopReason,
    },
}

/// Who asks for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The worker.
    pub worker: WorkerId,
    /// Which start of it.
    pub instance: InstanceId,
    /// Asked again with the same one while its lease lives, the same lease is given again.
    pub claim_id: ClaimId,
    /// The lanes it would take now; those it registered when `None`.
    pub lanes: Option<Vec<LaneName>>,
    /// The labels it has; those it registered when `None`.
    pub labels: Option<Vec<Label>>,
    /// Repositories it would take nothing of now.
    pub except: Vec<RepoName>,
}

/// A claimed task and what its job needs.
#[derive(Debug, PartialEq)]
pub struct Claimed {
    /// The right to work on it.
    pub lease: Lease,
    /// This run.
    pub run: RunId,
    /// What to do.
    pub task: Task,
    /// Where.
    pub project: Project,
    /// What earlier claims of the same request did and this one need not do again, in the order
    /// of the job's steps.
    pub effects: Vec<Effect>,
    /// `relay/<lane>-<number>`.
    pub branch: String,
    /// What the preferences say of the run.
    pub preferences: RunPreferences,
}

/// How a run ended, as its worker tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEnd {
    /// Why it stopped; the task's next state follows from it.
    pub reason: StopReason,
    /// The pull request's number.
    pub pr: Option<u64>,
    /// Where a person can read it.
    pub pr_url: Option<String>,
    /// What the lane said.
    pub summary: Option<String>,
    /// What went wrong, for a person.
    pub error: Option<String>,
    /// The file on the worker's disk that keeps the work, where it could not be delivered.
    pub kept: Option<String>,
    /// What it cost. `None` is "not reported".
    pub usage: Option<Usage>,
    /// A lane's note; becomes an event.
    pub note: Option<String>,
}

impl RunEnd {
    /// An end of which nothing but the reason is known.
    #[must_use]
    pub fn bare(reason: StopReason) -> Self {
        Self {
            reason,
            pr: None,
            pr_url: None,
            summary: None,
            error: None,
            kept: None,
            usage: None,
            note: None,
        }
    }
}

/// What [`super::Queue::add`] did.
#[derive(Clone, Debug, PartialEq)]
pub enum Added {
    /// There is a new task.
    New(Task),
    /// An ended task was queued anew: it was asked for again after its end.
    Again(Task),
    /// Nothing: the task is there, and this is no newer wish.
    Existing(Task),
}

impl Added {
    /// The task in each case.
    #[must_use]
    pub fn task(&self) -> &Task {
        match self {
            Self::New(task) | Self::Again(task) | Self::Existing(task) => task,
        }
    }
}

/// A task after a person's, or the forge's, word about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The task as it stands now.
    pub task: Task,
    /// The lease that this ended, and its holder, who wants to hear of it.
    pub revoked: Option<(WorkerId, LeaseRef)>,
}
