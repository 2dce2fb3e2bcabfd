//! Vendors' programs that pass the proxy by. Behind a door such a one reaches nothing, and says no
//! more than that there is no network: it is told by whether anybody knocked.

use std::io;
use std::path::Path;

use super::Traffic;
use crate::model::{LaneName, StopReason};

/// The folder of notes in relay's own, a file a lane.
const NOTES: &str = "egress";

/// What a person is told, after the lane's name.
pub const WORDS: &str = "its program never asked relay's proxy in its last run, so it reached \
                         nothing: this version may pass HTTPS_PROXY by";

/// Keeps what a vendor's run showed. True where it failed for want of an answer and nobody came to
/// the door: whoever was not logged in, or was called off, had no reason to.
#[must_use]
pub fn mind(
    relay_home: &Path,
    lane: &LaneName,
    traffic: Traffic,
    stop: Option<&StopReason>,
) -> bool {
    let note = relay_home.join(NOTES).join(lane.as_str());
    if traffic.asked > 0 {
        let _never_was = std::fs::remove_file(note);
        return false;
    }
    let tried = matches!(
        stop,
        Some(StopReason::VendorUnreachable | StopReason::Stalled | StopReason::TimedOut)
    );
    if tried && let Err(error) = write(&note) {
        tracing::warn!(%lane, %error, "that it passed the proxy by is not noted");
    }
    tried
}

fn write(note: &Path) -> io::Result<()> {
    if let Some(folder) = note.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(note, "")
}

/// The lanes of this home whose last run passed the proxy by.
#[must_use]
pub fn passed_by(relay_home: &Path) -> Vec<LaneName> {
    let notes = std::fs::read_dir(relay_home.join(NOTES)).into_iter().flatten().flatten();
    let mut lanes: Vec<LaneName> =
        notes.filter_map(|note| note.file_name().to_str()?.parse().ok()).collect();
    lanes.sort();
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_nobody_heard_of_is_noted_until_one_is_heard() {
        let home = tempfile::tempdir().unwrap();
        let claude = LaneName::claude();
        let mind = |asked, stop: Option<&StopReason>| {
            super::mind(home.path(), &claude, Traffic { asked, led: 0, opened: true }, stop)
        };
        let quiet = [StopReason::NotLoggedIn, StopReason::Cancelled, StopReason::VendorError];
        for quiet in quiet.iter().map(Some).chain([None]) {
            assert!(!mind(0, quiet), "{quiet:?}");
        }
        assert_eq!(passed_by(home.path()), []);
        assert!(mind(0, Some(&StopReason::VendorUnreachable)));
        assert!(!mind(0, None), "a run that needed no network is no proof of the contrary");
        assert_eq!(passed_by(home.path()), std::slice::from_ref(&claude));
        assert!(!mind(1, Some(&StopReason::VendorUnreachable)));
        assert_eq!(passed_by(home.path()), []);
    }
}
