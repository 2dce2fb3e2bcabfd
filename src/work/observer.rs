//! Who is told what the worker does: the terminal, the demo, a test.

use std::time::Duration;

use super::gate::Shut;
use crate::model::{LaneName, Orders, Outcome, StopReason, TaskId, Timestamp, WorkerId};

/// The steps of a job, in their order (DESIGN §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The mirror is brought up to date.
    Fetch,
    /// The lane's copy is made.
    Checkout,
    /// The site is told.
    Start,
    /// The prompt is put together.
    Prompt,
    /// The lane runs in its box.
    Run,
    /// What it left behind becomes one commit.
    Commit,
    /// The commit goes to the task's branch.
    Push,
    /// The pull request is found or opened, and the summary is posted.
    PullRequest,
    /// The site is told how it ended.
    Release,
}

impl Step {
    /// What a person reads.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Checkout => "checkout",
            Self::Start => "start",
            Self::Prompt => "prompt",
            Self::Run => "run",
            Self::Commit => "commit",
            Self::Push => "push",
            Self::PullRequest => "pull request",
            Self::Release => "release",
        }
    }
}

/// What happened in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEvent {
    /// It began.
    Began,
    /// It was done.
    Ended {
        /// What came of it, in a few words.
        note: String,
        /// Whether that is what was wanted: a lane that was run can have failed.
        outcome: Outcome,
    },
    /// The job ends here.
    Failed {
        /// Why.
        reason: StopReason,
        /// For a person.
        error: Option<String>,
    },
}

/// Is told what the worker does. Calls must not block.
pub trait Observer: Send + Sync {
    /// The worker is registered.
    fn registered(&self, _worker: &WorkerId, _lanes: &str) {}
    /// The worker waits for work.
    fn waiting(&self) {}
    /// A step of a job.
    fn step(&self, _task: &TaskId, _step: Step, _event: &StepEvent) {}
    /// The site has not answered since; said once an absence.
    fn site_away(&self, _since: Timestamp, _why: &str) {}
    /// The site has not answered this worker yet; said once.
    fn site_silent(&self, _why: &str, _hint: Option<&str>) {}
    /// It answers for the first time, after so long.
    fn site_answers(&self, _after: Duration) {}
    /// It answers again, after so long.
    fn site_back(&self, _after: Duration) {}
    /// How often [`Observer::beat`] is wanted; nobody wants it with `None`.
    fn beats(&self) -> Option<Duration> {
        None
    }
    /// The loop is alive: it could have taken up what comes. A loop that is stuck does not say so,
    /// whatever else of the process still runs.
    fn beat(&self) {}
    /// A lane that this worker serves is not asked for, and why; said once.
    fn shut(&self, _lane: &LaneName, _why: &Shut, _now: Timestamp) {}
    /// People told the worker something; `orders` is all that holds now.
    fn ordered(&self, _orders: &Orders, _running: &[TaskId]) {}
    /// Something a person should know although the worker goes on.
    fn warning(&self, _text: &str) {}
}
