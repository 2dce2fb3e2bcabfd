//! A lane whose vendor did not answer is left alone for a while, so that an outage does not take a
//! run of every task in the queue. The task that met it is parked by the site as well.

use std::time::Duration;

use crate::model::{LaneName, StopReason};

/// How long after the first run that the vendor did not answer; it doubles.
const FIRST: Duration = Duration::from_secs(30);
/// The longest: so late at the most it is found that the vendor is back.
const MOST: Duration = Duration::from_secs(300);

/// The lanes of one worker that rest, by [`crate::model::Clock::uptime`]: no clock that is set makes
/// it longer.
#[derive(Debug, Default)]
pub struct Rests(Vec<Rest>);

#[derive(Debug)]
struct Rest {
    lane: LaneName,
    until: Duration,
    next: Duration,
}

impl Rests {
    /// A run of `lane` ended at `now`. A vendor that had `answered` in it was there: what the run itself
    /// did may be what kept the program from it, which is no reason to leave other tasks alone.
    pub fn ended(&mut self, lane: &LaneName, reason: &StopReason, answered: bool, now: Duration) {
        let known = self.0.iter_mut().find(|rest| rest.lane == *lane);
        match (reason, known) {
            (StopReason::VendorUnreachable, _) if answered => {}
            (StopReason::VendorUnreachable, None) => {
                let (until, next) = (now + FIRST, FIRST * 2);
                self.0.push(Rest { lane: lane.clone(), until, next });
            }
            // Runs side by side meet one outage, and not several.
            (StopReason::VendorUnreachable, Some(rest)) if rest.until <= now => {
                rest.until = now + rest.next;
                rest.next = (rest.next * 2).min(MOST);
            }
            _ if says_nothing(reason) => {}
            _ => self.0.retain(|rest| rest.lane != *lane),
        }
    }

    /// How long `lane` is still left alone.
    #[must_use]
    pub fn left(&self, lane: &LaneName, now: Duration) -> Option<Duration> {
        let rest = self.0.iter().find(|rest| rest.lane == *lane && rest.until > now)?;
        Some(rest.until.saturating_sub(now))
    }
}

/// Whether a run that ended so need not have asked the vendor anything.
const fn says_nothing(reason: &StopReason) -> bool {
    matches!(
        reason,
        StopReason::VendorUnreachable
            | StopReason::Cancelled
            | StopReason::WorkerStopped
            | StopReason::LeaseLost
            | StopReason::TimedOut
            | StopReason::Stalled
            | StopReason::Crashed
            | StopReason::SandboxUnavailable
            | StopReason::RepoUnusable { .. }
            | StopReason::PushRefused { .. }
            | StopReason::ForgeRefused { .. }
            | StopReason::ForgeLimited { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: StopReason = StopReason::VendorUnreachable;

    fn lane(name: &str) -> LaneName {
        name.parse().unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lane_rests_for_longer_each_time_and_for_five_minutes_at_the_most() {
        let (mut rests, claude, mut now) = (Rests::default(), lane("claude"), at(7));
        for seconds in [30, 60, 120, 240, 300, 300] {
            rests.ended(&claude, &AWAY, false, now);
            assert_eq!(rests.left(&claude, now), Some(at(seconds)));
            assert_eq!(rests.left(&lane("codex"), now), None, "another lane");
            // What began before the outage was met is of the same one.
            rests.ended(&claude, &AWAY, false, now + at(1));
            assert_eq!(rests.left(&claude, now + at(1)), Some(at(seconds - 1)));
            now += at(seconds);
            assert_eq!(rests.left(&claude, now), None);
        }
    }

    #[test]
    fn an_answer_of_the_vendor_ends_it_and_no_other_end_does() {
        let (mut rests, claude) = (Rests::default(), lane("claude"));
        for (reason, seconds) in [
            (StopReason::WorkerStopped, 60),
            (StopReason::Crashed, 60),
            (StopReason::Finished, 30),
            (StopReason::VendorError, 30),
        ] {
            rests = Rests::default();
            rests.ended(&claude, &AWAY, false, at(0));
            rests.ended(&claude, &reason, true, at(40));
            rests.ended(&claude, &AWAY, false, at(50));
            assert_eq!(rests.left(&claude, at(50)), Some(at(seconds)), "{reason}");
        }
        rests.ended(&claude, &StopReason::Finished, true, at(51));
        assert_eq!(rests.left(&claude, at(51)), None);
    }

    #[test]
    fn a_run_that_had_answers_makes_no_lane_rest() {
        let (mut rests, claude) = (Rests::default(), lane("claude"));
        rests.ended(&claude, &AWAY, true, at(0));
        assert_eq!(rests.left(&claude, at(0)), None);
        // It began before the outage, and does not say that it is over.
        rests.ended(&claude, &AWAY, false, at(1));
        rests.ended(&claude, &AWAY, true, at(2));
        assert_eq!(rests.left(&claude, at(2)), Some(at(29)));
    }
}
