//! What a worker does under its lease: start, record, finish.

use std::time::Duration;

use serde_json::json;

use super::bounds::{self, MESSAGE_MOST};
use super::deaths::{DEATHS, QUICK, QUICK_DEATHS};
use super::unanswered::{PASSED_OVER, passed_over};
use super::{LocalPullRow, Queue, QueueError, RunEnd};
use crate::model::{
    Disposition, Effect, EventKind, LeaseRef, Outcome, Passage, RunId, StopReason, Task, TaskState,
    Timestamp, Usage, WorkerId,
};
use crate::store::{Finish, RunHead};

/// How often a run whose lane's side broke is tried again in a row before a person has to look.
pub const RETRIES: u32 = 5;

/// The pause before the first of them; it doubles (facts of peers: 10 s · 2^(n-1), at most 300 s).
pub const RETRY_FIRST: Duration = Duration::from_secs(10);

/// The longest pause.
pub const RETRY_MOST: Duration = Duration::from_secs(300);

/// A quota that is said to be over already is still waited for so long: what the vendor says may
/// be wrong, and each try costs a run.
const QUOTA_LEAST: Duration = Duration::from_secs(60);

impl Queue {
    /// The lane starts on `branch`; the task is running. May be repeated.
    pub async fn start(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        branch: &str,
    ) -> Result<Task, QueueError> {
        bounds::of_branch(branch)?;
        let now = self.inner.clock.now();
        let start = self.inner.store.start(lease, worker, now, branch);
        let task = self.write(Passage::QueueStart, start).await?;
        task.ok_or_else(|| QueueError::LeaseLost(lease.clone()))
    }

    /// An effect goes into the journal. May be repeated; of each kind the last of an epoch counts.
    pub async fn record(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        effect: &Effect,
    ) -> Result<(), QueueError> {
        let now = self.inner.clock.now();
        let record = self.inner.store.record(lease, worker, now, effect);
        let done = self.write(Passage::QueueRecord, record).await?;
        if done { Ok(()) } else { Err(QueueError::LeaseLost(lease.clone())) }
    }

    /// The run ends, and the lease with it; where the task goes follows from the reason. Repeated
    /// after it was done, it changes nothing and gives the task as it stands.
    pub async fn finish(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        mut end: RunEnd,
    ) -> Result<Task, QueueError> {
        bounds::of_usage(end.usage.as_ref())?;
        bounds::of_url(end.pr_url.as_deref())?;
        let lost = || QueueError::LeaseLost(lease.clone());
        let store = &self.inner.store;
        let now = self.inner.clock.now();
        end.reason = soon_enough(end.reason, now);
        let known = if decides_alone(&end) { self.inner.runs.get(lease) } else { None };
        let head = match known {
            Some(run) => RunHead::of_a_lease(run, now),
            None => store.run_head(lease, worker, QUICK_DEATHS - 1).await?.ok_or_else(lost)?,
        };
        if head.told {
            return self.task(&lease.task).await;
        }
        let quick_death = end.reason == StopReason::Crashed && now.since(head.began) < QUICK;
        let next = if quick_death && is_last_death(&head) {
            Next::failed(StopReason::Quarantined)
        } else if self.is_passed_over(lease, &end, &head, now).await? {
            end.error = Some(not_its_outage(lease, end.error.as_deref()));
            Next::failed(StopReason::VendorError)
        } else {
            Next::after(disposition(&end), head.retries, now)
        };
        let message = end.error.as_deref().or(end.summary.as_deref()).map(first_line);
        let finish = Finish {
            lease,
            worker,
            now,
            reason: &end.reason,
            task_reason: next.reason.as_ref().unwrap_or(&end.reason),
            quick_death,
            ends_row: ends_row(&end.reason),
            outcome: end.reason.outcome(),
            state: next.state,
            parked_until: next.parked_until,
            retries: next.retries,
            message,
            summary: end.summary.as_deref(),
            error: end.error.as_deref(),
            kept: end.kept.as_deref(),
            pr: end.pr,
            pr_url: end.pr_url.as_deref(),
            usage: end.usage.as_ref(),
            events: events(lease, &head, &end, &next),
        };
        if let Some(at) = next.parked_until {
            self.due_at(at);
        }
        let finished = self.write(Passage::QueueFinish, store.finish(&finish)).await?;
        if let Some(at) = next.parked_until {
            self.due_at(at);
        }
        self.inner.runs.remove(lease);
        match finished {
            Some(task) => {
                if head.budgeted && reports_cost(&end) {
                    self.settle_budgets().await?;
                }
                Ok(task)
            }
            // The same call may have been on its way twice, or was told before.
            None => match store.run_head(lease, worker, 0).await? {
                Some(head) if head.told => self.task(&lease.task).await,
                _ => Err(lost()),
            },
        }
    }

    /// Whether the vendor has answered others often enough where it did not answer this task. Asked
    /// only once the task has failed for a while.
    async fn is_passed_over(
        &self,
        lease: &LeaseRef,
        end: &RunEnd,
        head: &RunHead,
        now: Timestamp,
    ) -> Result<bool, QueueError> {
        if end.reason != StopReason::VendorUnreachable || head.retries + 1 < RETRIES {
            return Ok(false);
        }
        let runs = self.inner.store.unanswered(lease).await?;
        Ok(passed_over(&runs, now) >= PASSED_OVER)
    }

    /// The run of a live lease, for whatever else is written under it.
    pub async fn check_lease(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
    ) -> Result<RunId, QueueError> {
        let run = self.inner.store.live_run(lease, worker, self.inner.clock.now()).await?;
        run.ok_or_else(|| QueueError::LeaseLost(lease.clone()))
    }

    /// Opens, or updates, the pull request of a local repository.
    pub async fn open_local_pull(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        pull: &LocalPullRow,
    ) -> Result<(), QueueError> {
        let now = self.inner.clock.now();
        let open = self.inner.store.open_local_pull(lease, worker, now, pull);
        let done = self.write(Passage::QueueLocalPull, open).await?;
        if done { Ok(()) } else { Err(QueueError::LeaseLost(lease.clone())) }
    }
}

/// Where a task goes when its run has ended.
#[derive(Debug, PartialEq, Eq)]
struct Next {
    state: TaskState,
    parked_until: Option<Timestamp>,
    /// Infrastructure failures in a row.
    retries: u32,
    /// Why, where it is not for what the run ended by.
    reason: Option<StopReason>,
}

impl Next {
    /// A person has to look, for another reason than its last run's.
    const fn failed(reason: StopReason) -> Self {
        Self { state: TaskState::Failed, parked_until: None, retries: 0, reason: Some(reason) }
    }

    fn after(disposition: Disposition, retries: u32, now: Timestamp) -> Self {
        let to = |state| Self { state, parked_until: None, retries: 0, reason: None };
        match disposition {
            Disposition::Review => to(TaskState::Review),
            Disposition::Done => to(TaskState::Done),
            Disposition::Fail => to(TaskState::Failed),
            Disposition::Cancel => to(TaskState::Cancelled),
            // The worker gave it up: that says nothing about a row of failures.
            Disposition::Requeue => Self { retries, ..to(TaskState::Queued) },
            Disposition::Park(until) => {
                Self { parked_until: Some(until.max(now + QUOTA_LEAST)), ..to(TaskState::Parked) }
            }
            Disposition::Retry if retries >= RETRIES => Self { retries, ..to(TaskState::Failed) },
            Disposition::Retry => Self {
                state: TaskState::Parked,
                parked_until: Some(now + pause(retries)),
                retries: retries + 1,
                reason: None,
            },
            // Never so many that a lane's own failure right after an outage would be the last.
            Disposition::Wait => Self {
                state: TaskState::Parked,
                parked_until: Some(now + pause(retries)),
                retries: (retries + 1).min(RETRIES - 1),
                reason: None,
            },
        }
    }
}

/// What happens to a task whose run ended so. A vendor that had answered in it was there: what the run
/// itself does may be what kept the program from it, and would again, so that counts.
fn disposition(end: &RunEnd) -> Disposition {
    let answered = end.usage.as_ref().is_some_and(Usage::tells_of_an_answer);
    match end.reason {
        StopReason::VendorUnreachable if answered => Disposition::Retry,
        _ => end.reason.disposition(),
    }
}

/// Whether nothing of the task decides what becomes of it, neither its failures nor its deaths nor
/// its budgets: then the end need not look before it is written. That the lease lives is asked by
/// what is written.
fn decides_alone(end: &RunEnd) -> bool {
    let by_the_task = matches!(
        end.reason.disposition(),
        Disposition::Requeue | Disposition::Retry | Disposition::Wait
    );
    !by_the_task && end.reason != StopReason::Crashed && !reports_cost(end)
}

fn reports_cost(end: &RunEnd) -> bool {
    end.usage.as_ref().is_some_and(|usage| usage.cost_usd.is_some())
}

/// A vendor's or a forge's time as it is believed: what lies further ahead is a broken clock's.
fn soon_enough(reason: StopReason, now: Timestamp) -> StopReason {
    let most = |until: Timestamp| until.min(now + bounds::PARKED_MOST);
    match reason {
        StopReason::Quota { until } => StopReason::Quota { until: most(until) },
        StopReason::ForgeLimited { until } => StopReason::ForgeLimited { until: most(until) },
        other => other,
    }
}

/// Whether one more quick death sets the task aside.
const fn is_last_death(head: &RunHead) -> bool {
    head.quick_deaths + 1 >= QUICK_DEATHS || head.deaths + 1 >= DEATHS
}

/// Whether a run that ended so is the end of a row of deaths. Giving up by its worker, or a crash,
/// says nothing of the kind.
const fn ends_row(reason: &StopReason) -> bool {
    !matches!(reason, StopReason::Crashed | StopReason::WorkerStopped | StopReason::LeaseLost)
}

/// What is said of a task that its vendor alone does not answer. What its worker said of it tells
/// that it is tried again.
fn not_its_outage(lease: &LeaseRef, error: Option<&str>) -> String {
    let said = first_line(error.unwrap_or_default());
    let said = said.split_once(" (hint: ").map_or(said, |(said, _)| said);
    let said: String = said.chars().take(MESSAGE_MOST / 2).collect();
    let hint = StopReason::VendorError.hint(&lease.task).unwrap_or_default();
    format!(
        "after each of {PASSED_OVER} runs that the vendor did not answer, it answered other tasks of \
         the lane: {said} (hint: {hint})"
    )
}

/// The pause after `before` failures in a row and one more.
fn pause(before: u32) -> Duration {
    RETRY_FIRST.saturating_mul(2_u32.saturating_pow(before)).min(RETRY_MOST)
}

/// What the end of a run tells, in order: by the lane (`true`) or by the runner.
fn events(
    lease: &LeaseRef,
    head: &RunHead,
    end: &RunEnd,
    next: &Next,
) -> Vec<(EventKind, bool, serde_json::Value)> {
    let mut told = Vec::new();
    let data = json!({
        "epoch": lease.epoch, "run": head.id, "stop": end.reason, "error": end.error,
        "kept": end.kept, "pr": end.pr, "pr_url": end.pr_url,
    });
    match end.reason.outcome() {
        Outcome::Finished => told.push((EventKind::RunFinished, false, data)),
        Outcome::Failed => told.push((EventKind::RunFailed, false, data)),
        Outcome::Released => {}
    }
    let stop = json!({ "epoch": lease.epoch, "stop": end.reason, "until": next.parked_until });
    match next.state {
        TaskState::Parked => told.push((EventKind::TaskParked, false, stop)),
        TaskState::Queued => told.push((EventKind::TaskQueued, false, stop)),
        TaskState::Cancelled => told.push((EventKind::TaskCancelled, false, stop)),
        TaskState::Done => told.push((EventKind::TaskDone, false, stop)),
        _ => {}
    }
    if next.reason == Some(StopReason::Quarantined) {
        let data = json!({
            "epoch": lease.epoch, "why": "crashed",
            "hint": format!("relay task retry '{}'", lease.task),
        });
        told.push((EventKind::TaskQuarantined, false, data));
    }
    if let Some(usage) = &end.usage {
        let data = json!({ "epoch": lease.epoch, "run": head.id, "usage": usage });
        told.push((EventKind::StepUsage, true, data));
    }
    if let Some(note) = &end.note {
        let data = json!({ "epoch": lease.epoch, "run": head.id, "note": note });
        told.push((EventKind::PluginMark, true, data));
    }
    told
}

/// The first line with something on it, for where a task has one line.
fn first_line(text: &str) -> &str {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let end = line.char_indices().nth(MESSAGE_MOST).map_or(line.len(), |(at, _)| at);
    line.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PushProblem;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let seconds: Vec<u64> = (0..7).map(|n| pause(n).as_secs()).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(pause(u32::MAX), RETRY_MOST);
    }

    #[test]
    fn an_outage_fails_no_task_however_long_it_lasts() {
        let forge = StopReason::PushRefused { why: PushProblem::Unreachable };
        for away in [forge, StopReason::VendorUnreachable] {
            let mut retries = 0;
            for _ in 0..100 {
                let next = Next::after(away.disposition(), retries, Timestamp(0));
                assert_eq!(next.state, TaskState::Parked, "{away}");
                retries = next.retries;
            }
            assert_eq!(
                Next::after(Disposition::Retry, retries, Timestamp(0)).state,
                TaskState::Parked
            );
        }
        assert_eq!(Next::after(Disposition::Retry, RETRIES, Timestamp(0)).state, TaskState::Failed);
    }

    #[test]
    fn a_quota_in_the_past_is_still_waited_for() {
        let now = Timestamp(1_000_000);
        let next = Next::after(Disposition::Park(Timestamp(5)), 3, now);
        assert_eq!(next.parked_until, Some(now + QUOTA_LEAST));
        assert_eq!(next.retries, 0);
    }

    #[test]
    fn no_quota_puts_a_task_away_for_good() {
        let now = Timestamp(1_000_000);
        let most = now + bounds::PARKED_MOST;
        let never = Timestamp(i64::MAX);
        assert_eq!(
            soon_enough(StopReason::Quota { until: never }, now),
            StopReason::Quota { until: most }
        );
        assert_eq!(
            soon_enough(StopReason::ForgeLimited { until: never }, now),
            StopReason::ForgeLimited { until: most }
        );
        let soon = StopReason::Quota { until: now + QUOTA_LEAST };
        assert_eq!(soon_enough(soon.clone(), now), soon);
        assert_eq!(first_line(&"é".repeat(5_000)).chars().count(), MESSAGE_MOST);
    }

    #[test]
    fn every_end_tells_at_least_one_event() {
        let lease =
            LeaseRef { task: "a/b#1".parse().expect("an id"), epoch: crate::model::Epoch(1) };
        let head = RunHead {
            id: "00000000-0000-7000-8000-000000000001".parse().expect("an id"),
            retries: 0,
            began: Timestamp(0),
            deaths: 0,
            quick_deaths: 0,
            budgeted: false,
            told: false,
        };
        for reason in [
            StopReason::Finished,
            StopReason::NoChanges,
            StopReason::Skipped,
            StopReason::Cancelled,
            StopReason::Quota { until: Timestamp(0) },
            StopReason::Crashed,
            StopReason::WorkerStopped,
        ] {
            let next = Next::after(reason.disposition(), 0, Timestamp(0));
            assert!(!events(&lease, &head, &RunEnd::bare(reason), &next).is_empty());
        }
    }
}
