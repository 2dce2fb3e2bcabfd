//! What a job tells the site of its effects and its end. It is kept on this disk until the site has
//! it: a site that is away, or a worker that is killed meanwhile, costs no work.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::halt::set_aside;
use super::{Job, LAST_WORD, Report, Stop};
use crate::api::{RecordRequest, ReleaseRequest};
use crate::model::stop_reason::MESSAGE_MOST;
use crate::model::{Disposition, Effect, LEASE, Lease, Outcome, Passage, StopReason, Timestamp};
use crate::work::courier::{self, is_lost, kept_words};
use crate::work::log::Rest;
use crate::work::observer::{Step, StepEvent};
use crate::work::outbox::{self, Entry};
use crate::work::persist::{Patience, persistently};

/// How long a site that is there and fails is told of an effect or a result before the job's slot
/// is given to other work. What it was told stays here and is handed in beside the jobs.
const PATIENCE: Patience = Patience::WhileAway(Duration::from_secs(20 * 60));
/// As [`LAST_WORD`] once the worker is told to stop.
const LAST_WORD_STOPPED: Duration = Duration::from_secs(5);

/// A clock that is off by less is as good as right.
const SKEW_LEAST: Duration = Duration::from_secs(5 * 60);

/// The effect that is not known to be recorded.
#[derive(Debug, Default)]
pub(super) struct Unrecorded(Mutex<Option<Waiting>>);

#[derive(Clone, Debug)]
struct Waiting {
    effect: Effect,
    on_disk: bool,
}

impl Unrecorded {
    fn set(&self, waiting: Option<Waiting>) -> Option<Waiting> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), waiting)
    }

    fn get(&self) -> Option<Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Job {
    /// Writes an effect into the journal before the next step begins.
    pub(super) async fn record(&self, effect: Effect) -> Result<(), Stop> {
        let passage = match effect {
            Effect::Committed { .. } => Passage::RecordCommitted,
            Effect::Pushed { .. } => Passage::RecordPushed,
            Effect::PullRequest { .. } => Passage::RecordPull,
            Effect::Commented { .. } => Passage::RecordCommented,
        };
        let request = RecordRequest {
            worker_id: self.shared.worker.clone(),
            epoch: self.lease.epoch,
            effect: effect.clone(),
        };
        self.unrecorded.set(Some(Waiting { effect, on_disk: false }));
        let recording = self.tell(PATIENCE, || async {
            let answer = self.shared.client.record(&self.lease.task, &request).await;
            if answer.as_ref().is_err_and(crate::client::ClientError::is_passing) {
                self.keep_effect();
            }
            answer
        });
        self.pass(passage, recording).await?;
        if self.unrecorded.set(None).is_some_and(|waiting| waiting.on_disk) {
            self.shared.outbox.remove(&self.claim.run);
        }
        Ok(())
    }

    /// An effect that the site did not take at once outlives this process.
    fn keep_effect(&self) {
        let Some(waiting) = self.unrecorded.get().filter(|waiting| !waiting.on_disk) else {
            return;
        };
        if self.keep_entry(&self.entry(None)) {
            self.unrecorded.set(Some(Waiting { on_disk: true, ..waiting }));
        }
    }

    fn entry(&self, release: Option<ReleaseRequest>) -> Entry {
        Entry {
            site: self.shared.client.endpoint().to_string(),
            worker: self.shared.worker.clone(),
            instance: self.renewal.heartbeat.instance.clone(),
            run: self.claim.run.clone(),
            lease: self.lease.clone(),
            at: self.shared.clock.now(),
            effects: self.unrecorded.get().map(|waiting| waiting.effect).into_iter().collect(),
            release,
        }
    }

    fn keep_entry(&self, entry: &Entry) -> bool {
        match self.shared.outbox.put(entry) {
            Ok(()) => true,
            Err(error) => {
                let path = self.shared.outbox.folder().display();
                self.shared.observer.warning(&format!(
                    "{}: what the site did not hear cannot be kept: {path}: {error}",
                    self.lease.task
                ));
                false
            }
        }
    }

    /// Tells the site how the job ended.
    pub(super) async fn release(
        self,
        stop: Option<Stop>,
        report: Report,
        rest: Rest,
    ) -> StopReason {
        let (reason, error) = stop.map_or((StopReason::Finished, None), |stop| {
            (stop.reason.clone(), stop.told_within(MESSAGE_MOST))
        });
        let (shared, outcome) = (&self.shared, Outcome::Finished);
        let tell = |event| shared.observer.step(&self.lease.task, Step::Release, &event);
        // A lease that is gone has nothing to release; its end was already recorded.
        if matches!(reason, StopReason::LeaseLost | StopReason::Cancelled) {
            self.let_result_go(&rest);
            tell(StepEvent::Ended { note: format!("nothing to release: {reason}"), outcome });
            return reason;
        }
        let entry = self.entry(Some(self.release_request(reason.clone(), error, report)));
        // A job that was given up is queued again by the end of its lease alone.
        let is_news = reason.disposition() != Disposition::Requeue || !entry.effects.is_empty();
        let kept = is_news && self.keep_entry(&entry);
        if kept {
            rest.keep();
        }
        let offering = self.renewal.saying(|| {
            persistently(&*shared.clock, &*shared.ids, PATIENCE, || {
                courier::say(&shared.client, &entry, &rest)
            })
        });
        let answer = tokio::select! {
            biased;
            answer = offering => Some(answer),
            () = self.worker_ends() => None,
        };
        match answer {
            Some(Ok(task)) => {
                self.let_result_go(&rest);
                let stands = task.as_deref().map(courier::stands).unwrap_or_default();
                tell(StepEvent::Ended { note: format!("{reason}: {stands}"), outcome });
                if let Some(text) = task.as_deref().and_then(|task| set_aside(task, &reason)) {
                    shared.observer.warning(&text);
                }
                return reason;
            }
            Some(Err(error)) if is_lost(&error) => {
                self.let_result_go(&rest);
                let text = format!("the site did not take the result: {error}");
                tell(StepEvent::Failed { reason: StopReason::LeaseLost, error: Some(text) });
            }
            Some(Err(error)) => {
                tell(StepEvent::Failed { reason: reason.clone(), error: Some(kept_words(&error)) });
                match (kept, error.is_passing()) {
                    (true, true) => shared.outbox.leave(entry),
                    (true, false) => {}
                    (false, _) => rest.discard(),
                }
            }
            None => {
                if !kept {
                    rest.discard();
                }
                let text = if kept {
                    "the site does not answer; the result is kept, and the next `relay work` hands it in"
                } else {
                    "the worker stops, and the site does not answer"
                };
                tell(StepEvent::Failed { reason: reason.clone(), error: Some(text.to_owned()) });
            }
        }
        StopReason::LeaseLost
    }

    fn release_request(
        &self,
        reason: StopReason,
        error: Option<String>,
        report: Report,
    ) -> ReleaseRequest {
        let (pr, pr_url) = report.pr.map_or((None, None), |(n, url)| (Some(n), Some(url)));
        let mut request = ReleaseRequest {
            worker_id: self.shared.worker.clone(),
            epoch: self.lease.epoch,
            reason: by_the_sites_clock(reason, self.skew),
            pr,
            pr_url: pr_url.filter(|url| !url.is_empty()),
            summary: report.summary,
            error,
            kept: report.kept.map(|path| path.display().to_string()),
            usage: report.usage,
            note: report.note,
        };
        outbox::bound(&mut request);
        request
    }

    /// The worker was told to end, and a moment has passed.
    async fn worker_ends(&self) {
        let stopped = async {
            self.signal.token().cancelled().await;
            tokio::time::sleep(LAST_WORD_STOPPED).await;
        };
        let drained = async {
            self.draining.cancelled().await;
            tokio::time::sleep(LAST_WORD).await;
        };
        tokio::select! {
            () = stopped => {}
            () = drained => {}
        }
    }

    fn let_result_go(&self, rest: &Rest) {
        self.shared.outbox.remove(&self.claim.run);
        rest.discard();
    }
}

/// How far the site's clock is ahead of this machine's, in milliseconds: it made this lease just now.
pub(super) fn skew(lease: &Lease, now: Timestamp) -> i64 {
    let made = lease.expires_at - LEASE;
    let skew = made.0.saturating_sub(now.0);
    if Duration::from_millis(skew.unsigned_abs()) < SKEW_LEAST { 0 } else { skew }
}

/// A vendor's or a forge's time as the site's clock will show it, which parks the task until then.
fn by_the_sites_clock(reason: StopReason, skew: i64) -> StopReason {
    let shown = |until: Timestamp| Timestamp(until.0.saturating_add(skew));
    match reason {
        StopReason::Quota { until } => StopReason::Quota { until: shown(until) },
        StopReason::ForgeLimited { until } => StopReason::ForgeLimited { until: shown(until) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Epoch;

    const HOUR: i64 = 3_600_000;

    fn lease(made: i64) -> Lease {
        let id = "00000000-0000-7000-8000-000000000001";
        Lease {
            task: "acme/shop#1".parse().unwrap(),
            epoch: Epoch(1),
            worker: id.parse().unwrap(),
            expires_at: Timestamp(made) + LEASE,
        }
    }

    #[test]
    fn a_quota_ends_when_it_does_on_a_site_whose_clock_is_days_off() {
        let now = Timestamp(1_000 * HOUR);
        assert_eq!(skew(&lease(now.0 + 60_000), now), 0, "a minute on the way is no skew");
        for days in [-2, 2] {
            let off = skew(&lease(now.0 + days * 24 * HOUR), now);
            let in_an_hour = StopReason::Quota { until: Timestamp(now.0 + HOUR) };
            let shown = Timestamp(now.0 + days * 24 * HOUR + HOUR);
            assert_eq!(by_the_sites_clock(in_an_hour, off), StopReason::Quota { until: shown });
        }
        assert_eq!(by_the_sites_clock(StopReason::Crashed, HOUR), StopReason::Crashed);
    }
}
