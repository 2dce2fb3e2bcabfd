//! What a vendor said of a login that outlives the run and the worker: out of quota until then, or
//! refused. Kept in relay's home, a file a login, so that a worker that starts again does not ask
//! the vendor for what it said already.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay_lanes::Vendor;
use serde::{Deserialize, Serialize};

use super::login::Whose;
use crate::files;
use crate::model::{StopReason, Timestamp};

/// The folder of marks in relay's own.
const FOLDER: &str = "quota";
/// A login rests for so long at the most, whatever the vendor's text says: they count by the month.
/// The site keeps its tasks to the same.
pub const MOST: Duration = Duration::from_secs(32 * 24 * 60 * 60);
/// A quota that is said to be there again rests for so long all the same, as its task does: what a
/// vendor says may lie on another clock.
const LEAST: Duration = Duration::from_secs(60);
/// A login that was refused is tried again after so long, unless it changes before: a vendor's bad
/// hour refuses good logins.
const REFUSED: Duration = Duration::from_secs(60 * 60);

/// The marks of one home.
#[derive(Clone, Debug)]
pub struct Marks {
    folder: PathBuf,
}

/// What is known of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// A quota or a limit is used up.
    OutOfQuota,
    /// The vendor refused it.
    Refused,
}

/// One mark that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// What the vendor said.
    pub said: Said,
    /// Until when it holds.
    pub until: Timestamp,
    /// When it was noted.
    noted: Timestamp,
    /// The tokens it was said of.
    tokens: String,
}

impl Marks {
    /// Of the home `relay_home`.
    #[must_use]
    pub fn of(relay_home: &Path) -> Self {
        Self { folder: relay_home.join(FOLDER) }
    }

    /// Keeps what a run under `whose` that began at `began` showed: `stop` is why it stopped, `None`
    /// where it did not.
    pub fn heard(
        &self,
        vendor: &Vendor,
        whose: &Whose,
        began: Timestamp,
        stop: Option<&StopReason>,
        now: Timestamp,
    ) {
        let (said, until) = match stop {
            Some(StopReason::Quota { until }) => {
                (Said::OutOfQuota, (*until).clamp(now + LEAST, now + MOST))
            }
            Some(StopReason::NotLoggedIn) => (Said::Refused, now + REFUSED),
            // The vendor answered to the end.
            None
            | Some(
                StopReason::Finished
                | StopReason::NoChanges
                | StopReason::Skipped
                | StopReason::MaxTurns,
            ) => {
                // A run that began before knows nothing of what came after.
                if read(&self.path(vendor, whose)).is_some_and(|mark| mark.noted <= began) {
                    self.forget(vendor, whose);
                }
                return;
            }
            Some(_) => return,
        };
        self.sweep(now);
        let mark = Mark { said, until, noted: now, tokens: whose.tokens.clone() };
        if let Err(error) = self.write(vendor, whose, &mark) {
            tracing::warn!(lane = vendor.lane, %error, "what the vendor said of the login is not kept");
        }
    }

    /// What holds for `whose` at `now`. A mark that has run out, or whose login was made anew, is
    /// forgotten.
    #[must_use]
    pub fn of_login(&self, vendor: &Vendor, whose: &Whose, now: Timestamp) -> Option<Mark> {
        let path = self.path(vendor, whose);
        let mut mark = read(&path)?;
        if mark.noted > now {
            // The clock was set back: what was left to wait is waited for, and no more.
            let left = mark.until.since(mark.noted);
            mark = Mark { until: now + left, noted: now, ..mark };
            if let Err(error) = self.write(vendor, whose, &mark) {
                tracing::warn!(lane = vendor.lane, %error, "a mark is not brought to the clock");
            }
        }
        mark.until = mark.until.min(mark.noted + MOST);
        let is_anew = mark.said == Said::Refused && mark.tokens != whose.tokens;
        if mark.until <= now || is_anew {
            self.forget(vendor, whose);
            return None;
        }
        Some(mark)
    }

    fn forget(&self, vendor: &Vendor, whose: &Whose) {
        let _there_was_none = fs::remove_file(self.path(vendor, whose));
    }

    /// Takes away what ran out, of whichever login.
    fn sweep(&self, now: Timestamp) {
        let marks = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for path in marks.map(|mark| mark.path()) {
            if read(&path).is_none_or(|mark| mark.until <= now) {
                let _gone_already = fs::remove_file(path);
            }
        }
    }

    fn path(&self, vendor: &Vendor, whose: &Whose) -> PathBuf {
        self.folder.join(format!("{}-{}.json", vendor.lane, whose.key))
    }

    fn write(&self, vendor: &Vendor, whose: &Whose, mark: &Mark) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        files::replace(&self.path(vendor, whose), &serde_json::to_vec(mark)?)
    }
}

fn read(path: &Path) -> Option<Mark> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay_lanes::codex::VENDOR;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    const NOW: Timestamp = Timestamp(1_796_000_000_000);

    struct Bench {
        dir: tempfile::TempDir,
        marks: Marks,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { marks: Marks::of(dir.path()), dir }
        }

        fn hears(&self, stop: Option<&StopReason>, now: Timestamp) {
            self.marks.heard(&VENDOR, &whose("ada", "1"), now, stop, now);
        }

        fn is_out_until(&self, until: Timestamp, now: Timestamp) {
            self.hears(Some(&StopReason::Quota { until }), now);
        }

        fn until(&self, now: Timestamp) -> Option<i64> {
            let mark = self.marks.of_login(&VENDOR, &whose("ada", "1"), now)?;
            Some(mark.until.0 - now.0)
        }

        fn files(&self) -> usize {
            fs::read_dir(self.dir.path().join(FOLDER)).map_or(0, Iterator::count)
        }
    }

    fn whose(key: &str, tokens: &str) -> Whose {
        Whose { key: key.to_owned(), tokens: tokens.to_owned(), lock: None }
    }

    fn after(ms: i64) -> Timestamp {
        Timestamp(NOW.0 + ms)
    }

    #[test]
    fn a_mark_holds_for_its_login_until_its_time_and_is_forgotten_then() {
        let bench = Bench::new();
        bench.is_out_until(after(2 * HOUR), NOW);
        let other = |key, tokens| bench.marks.of_login(&VENDOR, &whose(key, tokens), NOW);
        assert_eq!(other("bob", "1"), None, "another login");
        assert!(other("ada", "2").is_some(), "a refresh brings no quota");
        assert_eq!(bench.until(after(2 * HOUR - 1)), Some(1));
        assert_eq!((bench.until(after(2 * HOUR)), bench.files()), (None, 0));
    }

    #[test]
    fn no_vendor_rests_a_login_for_longer_than_a_month_or_for_no_time() {
        let bench = Bench::new();
        for (said, most) in [
            (after(400 * DAY), 32 * DAY),
            (Timestamp(i64::MAX), 32 * DAY),
            (after(-HOUR), 60_000),
            (Timestamp(i64::MIN), 60_000),
        ] {
            bench.is_out_until(said, NOW);
            assert_eq!(bench.until(NOW), Some(most), "{said}");
        }
        // Nor does a file that somebody wrote.
        let path = bench.marks.path(&VENDOR, &whose("ada", "1"));
        let text = fs::read_to_string(&path).unwrap();
        let mut mark: Mark = serde_json::from_str(&text).unwrap();
        mark.until = after(400 * DAY);
        fs::write(&path, serde_json::to_vec(&mark).unwrap()).unwrap();
        assert_eq!(bench.until(NOW), Some(32 * DAY));
        for rubbish in ["", "{}", "{\"until\":99}", "\0"] {
            fs::write(&path, rubbish).unwrap();
            assert_eq!(bench.until(NOW), None, "{rubbish}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_rests_it_no_longer_than_it_was_to() {
        let bench = Bench::new();
        let years_ahead = after(3 * 365 * DAY);
        bench.is_out_until(Timestamp(years_ahead.0 + 2 * HOUR), years_ahead);
        assert_eq!(bench.until(NOW), Some(2 * HOUR));
        assert_eq!(bench.until(after(HOUR)), Some(HOUR), "and it goes on from there");
        assert_eq!(bench.until(after(2 * HOUR)), None);
    }

    #[test]
    fn a_refused_login_rests_for_an_hour_or_until_it_is_another() {
        let bench = Bench::new();
        bench.hears(Some(&StopReason::NotLoggedIn), NOW);
        assert_eq!(bench.until(NOW), Some(HOUR));
        assert_eq!(bench.marks.of_login(&VENDOR, &whose("ada", "2"), NOW), None);
        assert_eq!(bench.until(NOW), None, "forgotten");
        bench.hears(Some(&StopReason::NotLoggedIn), NOW);
        assert_eq!(bench.until(after(HOUR)), None);
    }

    #[test]
    fn an_answer_frees_a_login_and_no_other_end_does() {
        let bench = Bench::new();
        bench.is_out_until(after(2 * HOUR), NOW);
        for stop in [StopReason::Crashed, StopReason::VendorUnreachable, StopReason::TimedOut] {
            bench.hears(Some(&stop), after(1));
            assert_eq!(bench.until(NOW), Some(2 * HOUR), "{stop}");
        }
        // It began before the limit was met: with a key, runs go side by side.
        bench.marks.heard(&VENDOR, &whose("ada", "1"), after(-1), None, after(2));
        assert_eq!(bench.until(NOW), Some(2 * HOUR));
        for stop in [None, Some(&StopReason::Finished), Some(&StopReason::MaxTurns)] {
            bench.is_out_until(after(2 * HOUR), NOW);
            bench.hears(stop, after(1));
            assert_eq!(bench.until(NOW), None, "{stop:?}");
        }
    }

    #[test]
    fn what_ran_out_goes_with_the_next_mark() {
        let bench = Bench::new();
        bench.is_out_until(after(HOUR), NOW);
        let later = after(2 * HOUR);
        let quota = StopReason::Quota { until: after(3 * HOUR) };
        bench.marks.heard(&VENDOR, &whose("bob", "1"), later, Some(&quota), later);
        assert_eq!(bench.files(), 1);
    }
}
