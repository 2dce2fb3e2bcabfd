//! Why a run stopped. The list is closed and an API: events, the CLI and later pages show it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ForgeProblem, PushProblem, RepoProblem, TaskId, Timestamp};

/// Characters of the one line that a task has of its last run; the run has the rest.
pub const MESSAGE_MOST: usize = 1_000;

/// Why a run stopped. Each knows by itself what happens to the task ([`StopReason::disposition`])
/// and which of the seed's outcomes it is ([`StopReason::outcome`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReason {
    /// The lane finished and there is a pull request.
    Finished,
    /// The lane finished and changed nothing.
    NoChanges,
    /// The lane said that there is nothing to do.
    Skipped,
    /// The lane used up its turns.
    MaxTurns,
    /// The run passed its time limit.
    TimedOut,
    /// No event came for ten minutes from a vendor that streams events.
    Stalled,
    /// A person, or the issue, called the task off.
    Cancelled,
    /// The vendor's quota or rate limit is used up.
    Quota {
        /// When it is worth trying again.
        until: Timestamp,
    },
    /// The run reached its money limit.
    Budget,
    /// The vendor's program has no valid login.
    NotLoggedIn,
    /// The vendor's program refused what the run needs, or the model refused the work.
    PermissionRefused,
    /// The machine cannot box the lane, so it was not run.
    SandboxUnavailable,
    /// The vendor's servers could not be reached.
    VendorUnreachable,
    /// The vendor's program or servers answered with an error.
    VendorError,
    /// The program's output was not what its contract says.
    ProtocolViolation,
    /// The program died without an answer.
    Crashed,
    /// The task killed several runs in a row.
    Quarantined,
    /// Another claim took the task over.
    LeaseLost,
    /// The repository cannot be worked on.
    RepoUnusable {
        /// What is wrong with it.
        why: RepoProblem,
    },
    /// The push was refused.
    PushRefused {
        /// By which rule.
        why: PushProblem,
    },
    /// The forge refused the pull request, the comment or an answer.
    ForgeRefused {
        /// How.
        why: ForgeProblem,
    },
    /// The forge's rate limit is used up; what was done is kept.
    ForgeLimited {
        /// No call is made before this.
        until: Timestamp,
    },
    /// The worker was told to stop.
    WorkerStopped,
}

/// What happens to the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// To review, with its pull request.
    Review,
    /// Nothing more to do.
    Done,
    /// The lane's side broke: again by itself, after a short pause, a limited number of times,
    /// since each costs a run.
    Retry,
    /// What lies outside of the run is away (the vendor, the forge, the host, the disk): again by
    /// itself until it is back. No outage, however long, fails a task.
    Wait,
    /// Back to the queue at once: the worker gave it up, the task is not to blame.
    Requeue,
    /// Not before a time.
    Park(Timestamp),
    /// A person has to look.
    Fail,
    /// Called off.
    Cancel,
}

/// The seed's three words for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// `run.finished`.
    Finished,
    /// `run.failed`.
    Failed,
    /// The lease is freed; nothing is said about the work.
    Released,
}

impl StopReason {
    /// What happens to the task when a run stops for this reason.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        match self {
            Self::Finished => Disposition::Review,
            Self::Skipped => Disposition::Done,
            Self::Cancelled => Disposition::Cancel,
            Self::Quota { until } | Self::ForgeLimited { until } => Disposition::Park(*until),
            Self::LeaseLost | Self::WorkerStopped => Disposition::Requeue,
            Self::Stalled | Self::Crashed => Disposition::Retry,
            Self::VendorUnreachable
            | Self::RepoUnusable {
                why: RepoProblem::Unreachable | RepoProblem::Machine | RepoProblem::Disk,
            }
            | Self::PushRefused { why: PushProblem::Unreachable }
            | Self::ForgeRefused { why: ForgeProblem::RateLimited | ForgeProblem::Unreachable } => {
                Disposition::Wait
            }
            Self::NoChanges
            | Self::MaxTurns
            | Self::TimedOut
            | Self::Budget
            | Self::NotLoggedIn
            | Self::PermissionRefused
            | Self::SandboxUnavailable
            | Self::VendorError
            | Self::ProtocolViolation
            | Self::Quarantined
            | Self::RepoUnusable { .. }
            | Self::PushRefused { .. }
            | Self::ForgeRefused { .. } => Disposition::Fail,
        }
    }

    /// Which of the seed's outcomes this is.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self.disposition() {
            Disposition::Review | Disposition::Done => Outcome::Finished,
            Disposition::Fail | Disposition::Retry | Disposition::Wait => Outcome::Failed,
            Disposition::Park(_) | Disposition::Requeue | Disposition::Cancel => Outcome::Released,
        }
    }

    /// What a person can do about it, with the commands spelled out for `task`. `None` where there
    /// is nothing to mend.
    #[must_use]
    pub fn hint(&self, task: &TaskId) -> Option<String> {
        let hint = match self {
            // A repository on a disk has no login; it was moved or removed.
            Self::RepoUnusable { why: RepoProblem::NotFound }
            | Self::PushRefused { why: PushProblem::NotFound }
                if task.repo.is_local() =>
            {
                "REPO is not where it was linked: put it back, or leave a link to it there, which \
                 keeps its name and tasks (`ln -s NEW OLD`); then `relay task retry 'TASK'`"
            }
            Self::RepoUnusable { why } => why.hint(),
            Self::PushRefused { why } => why.hint(),
            Self::ForgeRefused { why } => why.hint(),
            Self::Finished
            | Self::Skipped
            | Self::Cancelled
            | Self::LeaseLost
            | Self::WorkerStopped => return None,
            Self::NoChanges => "`relay task log 'TASK'` shows what the lane did",
            Self::MaxTurns => "make the issue smaller, then `relay task retry 'TASK'`",
            Self::TimedOut => {
                "`relay work --max-minutes N`, or `relay prefer run.max_minutes N`, allows more time"
            }
            Self::Stalled => "`relay task log 'TASK'` ends where the lane fell silent",
            Self::ForgeLimited { .. } => "relay goes on by itself when the limit is over",
            Self::Quota { .. } => "relay goes on by itself when the quota is there again",
            Self::Budget => "raise the vendor's limit, then `relay task retry 'TASK'`",
            Self::NotLoggedIn => {
                "`relay lane ls` says how to log in; then `relay task retry 'TASK'`"
            }
            Self::PermissionRefused => "`relay task log 'TASK'` shows what was refused",
            Self::SandboxUnavailable => "`relay doctor` says what the sandbox lacks",
            Self::VendorUnreachable => "relay tries again by itself; `relay doctor` shows the lane",
            Self::VendorError | Self::ProtocolViolation | Self::Crashed => {
                "`relay task log 'TASK'` has its last words; `relay task retry 'TASK'` runs it again"
            }
            Self::Quarantined => "see why its runs die, then `relay task retry 'TASK'`",
        };
        Some(hint.replace("TASK", &task.to_string()).replace("REPO", &task.repo.to_string()))
    }

    /// The word stored and shown, without its details.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::NoChanges => "no_changes",
            Self::Skipped => "skipped",
            Self::MaxTurns => "max_turns",
            Self::TimedOut => "timed_out",
            Self::Stalled => "stalled",
            Self::Cancelled => "cancelled",
            Self::Quota { .. } => "quota",
            Self::Budget => "budget",
            Self::NotLoggedIn => "not_logged_in",
            Self::PermissionRefused => "permission_refused",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::VendorUnreachable => "vendor_unreachable",
            Self::VendorError => "vendor_error",
            Self::ProtocolViolation => "protocol_violation",
            Self::Crashed => "crashed",
            Self::Quarantined => "quarantined",
            Self::LeaseLost => "lease_lost",
            Self::RepoUnusable { .. } => "repo_unusable",
            Self::PushRefused { .. } => "push_refused",
            Self::ForgeRefused { .. } => "forge_refused",
            Self::ForgeLimited { .. } => "forge_limited",
            Self::WorkerStopped => "worker_stopped",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        match self {
            Self::RepoUnusable { why } => write!(f, " ({})", word(why)),
            Self::PushRefused { why } => write!(f, " ({})", word(why)),
            Self::ForgeRefused { why } => write!(f, " ({})", word(why)),
            _ => Ok(()),
        }
    }
}

/// A unit variant's serialised name, so that the word stands in one place.
fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_serialised_tag() {
        for reason in [
            StopReason::Finished,
            StopReason::Quota { until: Timestamp(5) },
            StopReason::RepoUnusable { why: RepoProblem::NestedGit },
            StopReason::PushRefused { why: PushProblem::Protected },
            StopReason::ForgeRefused { why: ForgeProblem::RateLimited },
            StopReason::ForgeLimited { until: Timestamp(5) },
            StopReason::WorkerStopped,
        ] {
            let json = serde_json::to_value(&reason).unwrap_or_default();
            assert_eq!(json["reason"], reason.code());
            assert_eq!(serde_json::from_value::<StopReason>(json).ok(), Some(reason));
        }
        let shown = StopReason::RepoUnusable { why: RepoProblem::NestedGit }.to_string();
        assert_eq!(shown, "repo_unusable (nested_git)");
    }

    #[test]
    fn a_repository_on_a_disk_is_not_looked_for_with_a_login() {
        let reason = StopReason::RepoUnusable { why: RepoProblem::NotFound };
        let hint = |task: &str| reason.hint(&task.parse().unwrap()).unwrap();
        assert!(hint("local/shop#1").contains("`ln -s NEW OLD`"));
        assert!(hint("local/shop#1").contains("`relay task retry 'local/shop#1'`"));
        assert!(hint("acme/shop#1").contains("gh auth status"));
    }

    #[test]
    fn only_infrastructure_is_tried_again_by_itself() {
        assert_eq!(StopReason::NoChanges.disposition(), Disposition::Fail);
        assert_eq!(StopReason::Stalled.disposition(), Disposition::Retry);
        assert_eq!(StopReason::VendorUnreachable.disposition(), Disposition::Wait);
        let away = StopReason::RepoUnusable { why: RepoProblem::Disk };
        assert_eq!(away.disposition(), Disposition::Wait);
        assert_eq!(StopReason::WorkerStopped.disposition(), Disposition::Requeue);
        let limited = StopReason::ForgeLimited { until: Timestamp(5) };
        assert_eq!(limited.disposition(), Disposition::Park(Timestamp(5)), "it costs no retry");
        assert_eq!(
            StopReason::ForgeRefused { why: ForgeProblem::Forbidden }.disposition(),
            Disposition::Fail
        );
    }
}
