//! A lane whose vendor did not answer is left alone for a while, so that an outage does not take a
//! run of every task in the queue. The task that met it is parked by the site as well. Kept in
//! relay's home, a file a lane, for whoever looks and for a worker that starts again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::files;
use crate::model::{LaneName, StopReason, Timestamp};

/// The folder of rests in relay's own.
const FOLDER: &str = "rests";
/// How long after the first run that the vendor did not answer; it doubles.
const FIRST: Duration = Duration::from_secs(30);
/// The longest: so late at the most it is found that the vendor is back.
const MOST: Duration = Duration::from_secs(300);

/// The lanes of one home that rest.
#[derive(Clone, Debug)]
pub struct Rests {
    folder: PathBuf,
}

/// It stays behind its time, until the vendor has answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rest {
    until: Timestamp,
    /// How long the next one is, in seconds.
    next: u64,
}

impl Rests {
    /// Of the home `relay_home`.
    #[must_use]
    pub fn of(relay_home: &Path) -> Self {
        Self { folder: relay_home.join(FOLDER) }
    }

    /// A run of `lane` ended at `now`. A vendor that had `answered` in it was there: what the run itself
    /// did may be what kept the program from it, which is no reason to leave other tasks alone.
    pub fn ended(&self, lane: &LaneName, reason: &StopReason, answered: bool, now: Timestamp) {
        if *reason != StopReason::VendorUnreachable {
            if !says_nothing(reason) {
                self.forget(lane);
            }
            return;
        }
        // Runs side by side meet one outage, and not several.
        if answered || self.until(lane, now).is_some() {
            return;
        }
        let known = read(&self.path(lane)).map(|rest| Duration::from_secs(rest.next));
        let this = known.map_or(FIRST, |next| next.clamp(FIRST, MOST));
        let rest = Rest { until: now + this, next: (this * 2).min(MOST).as_secs() };
        if let Err(error) = self.write(lane, &rest) {
            tracing::warn!(%lane, %error, "the lane is not left alone: that its vendor is away is not kept");
        }
    }

    /// Until when `lane` is left alone. What lies further ahead than any rest is of another clock, and
    /// does not hold.
    #[must_use]
    pub fn until(&self, lane: &LaneName, now: Timestamp) -> Option<Timestamp> {
        let rest = read(&self.path(lane))?;
        (rest.until > now && rest.until <= now + MOST).then_some(rest.until)
    }

    /// The vendor has answered.
    pub fn forget(&self, lane: &LaneName) {
        let _there_was_none = fs::remove_file(self.path(lane));
    }

    fn path(&self, lane: &LaneName) -> PathBuf {
        self.folder.join(format!("{lane}.json"))
    }

    fn write(&self, lane: &LaneName, rest: &Rest) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        files::replace(&self.path(lane), &serde_json::to_vec(rest)?)
    }
}

fn read(path: &Path) -> Option<Rest> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Whether a run that ended so need not have asked the vendor anything.
pub(super) const fn says_nothing(reason: &StopReason) -> bool {
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

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_796_000_000_000 + seconds * 1000)
    }

    /// What is left, in seconds.
    fn left(rests: &Rests, lane: &LaneName, now: Timestamp) -> Option<i64> {
        rests.until(lane, now).map(|until| (until.0 - now.0) / 1000)
    }

    #[test]
    fn a_lane_rests_for_longer_each_time_and_for_five_minutes_at_the_most() {
        let dir = tempfile::tempdir().unwrap();
        let (claude, mut now) = (lane("claude"), 7);
        for seconds in [30, 60, 120, 240, 300, 300] {
            // Each time another worker of the home, or one that was started again.
            let rests = Rests::of(dir.path());
            rests.ended(&claude, &AWAY, false, at(now));
            assert_eq!(left(&rests, &claude, at(now)), Some(seconds));
            assert_eq!(rests.until(&lane("codex"), at(now)), None, "another lane");
            // What began before the outage was met is of the same one.
            rests.ended(&claude, &AWAY, false, at(now + 1));
            assert_eq!(left(&Rests::of(dir.path()), &claude, at(now + 1)), Some(seconds - 1));
            now += seconds;
            assert_eq!(rests.until(&claude, at(now)), None);
        }
    }

    #[test]
    fn an_answer_of_the_vendor_ends_it_and_no_other_end_does() {
        let claude = lane("claude");
        for (reason, seconds) in [
            (StopReason::WorkerStopped, 60),
            (StopReason::Crashed, 60),
            (StopReason::Finished, 30),
            (StopReason::VendorError, 30),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let rests = Rests::of(dir.path());
            rests.ended(&claude, &AWAY, false, at(0));
            rests.ended(&claude, &reason, true, at(40));
            rests.ended(&claude, &AWAY, false, at(50));
            assert_eq!(left(&rests, &claude, at(50)), Some(seconds), "{reason}");
            rests.ended(&claude, &StopReason::Finished, true, at(51));
            assert_eq!(rests.until(&claude, at(51)), None);
        }
    }

    #[test]
    fn a_run_that_had_answers_makes_no_lane_rest() {
        let dir = tempfile::tempdir().unwrap();
        let (rests, claude) = (Rests::of(dir.path()), lane("claude"));
        rests.ended(&claude, &AWAY, true, at(0));
        assert_eq!(rests.until(&claude, at(0)), None);
        // It began before the outage, and does not say that it is over.
        rests.ended(&claude, &AWAY, false, at(1));
        rests.ended(&claude, &AWAY, true, at(2));
        assert_eq!(left(&rests, &claude, at(2)), Some(29));
    }

    #[test]
    fn neither_a_clock_nor_a_file_makes_it_longer() {
        let dir = tempfile::tempdir().unwrap();
        let (rests, claude) = (Rests::of(dir.path()), lane("claude"));
        rests.ended(&claude, &AWAY, false, at(100_000));
        assert_eq!(rests.until(&claude, at(0)), None);
        rests.ended(&claude, &AWAY, false, at(0));
        assert_eq!(left(&rests, &claude, at(0)), Some(60));
        for rubbish in ["", "{}", "\0", r#"{"until":1e99,"next":1}"#] {
            fs::write(rests.path(&claude), rubbish).unwrap();
            assert_eq!(rests.until(&claude, at(0)), None, "{rubbish}");
        }
        let long = Rest { until: at(1), next: u64::MAX };
        rests.write(&claude, &long).unwrap();
        rests.ended(&claude, &AWAY, false, at(2));
        assert_eq!(left(&rests, &claude, at(2)), Some(300));
    }
}
