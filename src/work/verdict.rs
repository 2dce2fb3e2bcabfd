//! From what a lane said and how it ended to why the run stopped. The only place that knows both
//! words.

use std::time::Duration;

use relay_lanes::{Exit, LaneUsage, Reader, Reason, Said, Verdict};

use super::stop::StopSignal;
use crate::model::{StopReason, Timestamp, Usage};
use crate::process::{EndedBy, LaneEnd, Redactor};

/// Parked for so long when a vendor's quota is used up and it does not say until when.
const QUOTA_UNKNOWN: Duration = Duration::from_secs(3600);

/// What came of running the lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneResult {
    /// Why the job ends here; `None` when it goes on with what the lane left behind.
    pub stop: Option<StopReason>,
    /// What the lane said.
    pub summary: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// What mends it, where the lane or the worker knows better than the reason.
    pub hint: Option<String>,
    /// What it cost.
    pub usage: Usage,
    /// A note the lane left.
    pub note: Option<String>,
}

/// One entry of the run's log.
#[must_use]
pub fn said(said: &Said) -> String {
    match said {
        Said::Text(text) => text.clone(),
        Said::Tool { name, detail } => format!("→ {name} {detail}"),
        Said::Note(note) => format!("! {note}"),
    }
}

/// What came of a run whose output `reader` has read: in the worker, and again of its transcript.
#[must_use]
pub fn conclude(
    reader: Box<dyn Reader>,
    mut end: LaneEnd,
    signal: &StopSignal,
    now: Timestamp,
    redactor: &Redactor,
) -> LaneResult {
    if end.ended_by == EndedBy::Asked && signal.reason().is_none() {
        // Its last words say what it waited for.
        end.ended_by = EndedBy::Itself;
    }
    let stderr = String::from_utf8_lossy(&end.stderr).into_owned();
    let waited = reader.waits_for_vendor();
    let mut verdict = reader.end(&Exit {
        code: end.code,
        signal: end.signal,
        stderr: &stderr,
        now_ms: now.0,
        over_limit: end.ended_by == EndedBy::OutputLimit,
        stdout_bytes: end.stdout_bytes,
    });
    if end.ended_by == EndedBy::Stalled && waited {
        verdict.reason = Reason::VendorUnreachable;
    }
    redact(&mut verdict, redactor);
    judge(&end, verdict, signal, now)
}

/// What was read out of a lane's JSON is looked at once more: it may have been written with
/// escapes that the line did not show.
fn redact(verdict: &mut Verdict, redactor: &Redactor) {
    let Verdict { summary, error, hint, note, usage, .. } = verdict;
    for text in [summary, error, hint, note, &mut usage.model].into_iter().flatten() {
        *text = redactor.text(text);
    }
}

/// Judges a run: what ended it from outside comes first, then what the lane itself said.
#[must_use]
pub fn judge(end: &LaneEnd, verdict: Verdict, signal: &StopSignal, now: Timestamp) -> LaneResult {
    let stop = match end.ended_by {
        EndedBy::Asked => Some(signal.reason().unwrap_or(StopReason::WorkerStopped)),
        EndedBy::TimedOut => Some(StopReason::TimedOut),
        EndedBy::Stalled if verdict.reason == Reason::VendorUnreachable => {
            Some(StopReason::VendorUnreachable)
        }
        EndedBy::Stalled => Some(StopReason::Stalled),
        EndedBy::Itself | EndedBy::OutputLimit => stop_reason(&verdict.reason, now),
    };
    let (error, hint) = match (&stop, end.ended_by) {
        (Some(StopReason::TimedOut), _) => {
            (Some(format!("the lane was stopped after {}", minutes(end.elapsed))), None)
        }
        (Some(StopReason::Stalled), _) => {
            let silent = "the lane said nothing for ten minutes and was stopped after";
            (Some(format!("{silent} {}", minutes(end.elapsed))), None)
        }
        (Some(StopReason::VendorUnreachable), EndedBy::Stalled) => {
            let silent = "the vendor gave no answer for ten minutes; the lane was stopped after";
            (Some(format!("{silent} {}", minutes(end.elapsed))), None)
        }
        (_, EndedBy::Asked) => (None, None),
        // A hint may be all that a lane has to say.
        _ if verdict.error.is_none() => (verdict.hint, None),
        _ => (verdict.error, verdict.hint),
    };
    LaneResult {
        stop,
        summary: verdict.summary.filter(|s| !s.trim().is_empty()),
        error,
        hint,
        usage: usage(verdict.usage, end.elapsed),
        note: verdict.note,
    }
}

fn stop_reason(reason: &Reason, now: Timestamp) -> Option<StopReason> {
    Some(match reason {
        Reason::Done => return None,
        Reason::Skipped => StopReason::Skipped,
        Reason::MaxTurns => StopReason::MaxTurns,
        Reason::Budget => StopReason::Budget,
        Reason::NotLoggedIn => StopReason::NotLoggedIn,
        Reason::PermissionRefused => StopReason::PermissionRefused,
        Reason::SandboxUnavailable => StopReason::SandboxUnavailable,
        Reason::VendorUnreachable => StopReason::VendorUnreachable,
        Reason::VendorError => StopReason::VendorError,
        Reason::ProtocolViolation => StopReason::ProtocolViolation,
        Reason::Crashed => StopReason::Crashed,
        Reason::Quota { until_ms } => {
            StopReason::Quota { until: until_ms.map_or(now + QUOTA_UNKNOWN, Timestamp) }
        }
    })
}

fn usage(lane: LaneUsage, elapsed: Duration) -> Usage {
    Usage {
        model: lane.model,
        input_tokens: lane.input_tokens,
        cache_read_tokens: lane.cache_read_tokens,
        cache_write_tokens: lane.cache_write_tokens,
        output_tokens: lane.output_tokens,
        model_calls: lane.model_calls,
        turns: lane.turns,
        cost_usd: lane.cost_usd,
        duration_ms: u64::try_from(elapsed.as_millis()).ok(),
    }
}

fn minutes(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        s if s < 120 => format!("{s} s"),
        s => format!("{} min", s / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(ended_by: EndedBy) -> LaneEnd {
        LaneEnd {
            code: Some(1),
            signal: None,
            ended_by,
            stderr: vec![],
            stdout_bytes: 0,
            elapsed: Duration::from_secs(600),
        }
    }

    #[test]
    fn a_cancel_keeps_its_reason_whatever_the_dying_program_said() {
        let signal = StopSignal::default();
        signal.stop(StopReason::Cancelled);
        let result =
            judge(&end(EndedBy::Asked), Verdict::new(Reason::Crashed), &signal, Timestamp(0));
        assert_eq!((result.stop, result.error), (Some(StopReason::Cancelled), None));
    }

    #[test]
    fn silence_is_the_vendors_where_it_never_answered() {
        let signal = StopSignal::default();
        let stop =
            |reason| judge(&end(EndedBy::Stalled), Verdict::new(reason), &signal, Timestamp(0));
        assert_eq!(stop(Reason::Crashed).stop, Some(StopReason::Stalled));
        let waited = stop(Reason::VendorUnreachable);
        assert_eq!(waited.stop, Some(StopReason::VendorUnreachable));
        assert!(waited.error.unwrap().contains("gave no answer for ten minutes"));
    }

    #[test]
    fn a_quota_without_a_time_is_an_hour() {
        let quota = |until_ms| {
            let verdict = Verdict::new(Reason::Quota { until_ms });
            judge(&end(EndedBy::Itself), verdict, &StopSignal::default(), Timestamp(1000)).stop
        };
        assert_eq!(quota(Some(7)), Some(StopReason::Quota { until: Timestamp(7) }));
        assert_eq!(quota(None), Some(StopReason::Quota { until: Timestamp(3_601_000) }));
    }

    #[test]
    fn a_lane_that_is_done_goes_on_to_its_commit() {
        let mut verdict = Verdict::new(Reason::Done);
        verdict.summary = Some(" \n".to_owned());
        let result = judge(&end(EndedBy::Itself), verdict, &StopSignal::default(), Timestamp(0));
        assert_eq!((result.stop, result.summary), (None, None));
        assert_eq!(result.usage.duration_ms, Some(600_000));
        assert!(!result.usage.is_reported());
    }
}
