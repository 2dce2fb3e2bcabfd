//! The push fence: a hidden ref a task on the remote, `refs/relay/fence/<lane>-<n>`, that says which
//! claim may push and what relay pushed last.
//!
//! Asking the site and then pushing is a race that a worker whose lease is gone can win. The ref
//! decides it where the push lands: each push moves it in the same atomic transaction as the
//! branch, leased on the value that was read, so of two workers that read the same state one
//! fails whole; and a worker that reads a later claim's ref stops.
//!
//! The ref always points to a commit without parent or file whose message has the facts, so that
//! reading it costs nothing and the branch stays plain.

use crate::git::Commit;
use crate::model::Epoch;

/// What the hidden ref says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    /// The claim that moved it last.
    pub epoch: Epoch,
    /// What relay put on the branch last, under whichever claim.
    pub pushed: Option<Commit>,
}

impl Marker {
    /// The marker's commit message. `now_ms` makes two markers of one claim two commits.
    pub fn message(&self, name: &str, now_ms: i64) -> String {
        let pushed = self.pushed.as_ref().map_or("nothing", Commit::as_str);
        format!("{TITLE}{name}\n\nepoch: {}\npushed: {pushed}\nat: {now_ms}\n", self.epoch)
    }

    /// Reads a message; `None` where relay did not write it.
    pub fn read(message: &str) -> Option<Self> {
        let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
        message.strip_prefix(TITLE)?;
        let epoch = Epoch(field("epoch: ")?.parse().ok()?);
        let pushed = match field("pushed: ")? {
            "nothing" => None,
            id => Some(id.parse().ok()?),
        };
        Some(Self { epoch, pushed })
    }
}

const TITLE: &str = "relay: fence of ";
const TRAILER: &str = "Relay-Epoch: ";

/// `message` with the trailer that stands in for the hidden ref where a host refuses it.
pub(super) fn with_trailer(message: &str, epoch: Epoch) -> String {
    let message = message.trim_end();
    // A last paragraph that already is a list of trailers takes one more line.
    let last = message.rsplit("\n\n").next().unwrap_or_default();
    let is_trailers = message.contains("\n\n")
        && last
            .lines()
            .all(|line| line.split_once(": ").is_some_and(|(key, _)| !key.contains(' ')));
    let gap = if is_trailers { "\n" } else { "\n\n" };
    format!("{message}{gap}{TRAILER}{epoch}\n")
}

/// The claim that a commit's trailer names.
pub(super) fn trailer_epoch(message: &str) -> Option<Epoch> {
    let last = message.trim_end().rsplit("\n\n").next()?;
    last.lines().rev().find_map(|line| line.strip_prefix(TRAILER)?.trim().parse().ok()).map(Epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back_as_written() {
        let id: Commit = "ab".repeat(20).parse().expect("hex");
        for pushed in [None, Some(id)] {
            let marker = Marker { epoch: Epoch(3), pushed };
            assert_eq!(Marker::read(&marker.message("claude-1", 5)), Some(marker));
        }
        for other in
            ["", "epoch: 1\npushed: nothing", "relay: fence of x\n\nepoch: x\npushed: nothing"]
        {
            assert_eq!(Marker::read(other), None);
        }
    }

    #[test]
    fn the_trailer_is_the_last_word() {
        let once = with_trailer("title\n\nbody: text here\n", Epoch(2));
        assert_eq!(once, "title\n\nbody: text here\nRelay-Epoch: 2\n");
        assert_eq!(with_trailer("fix: it\n", Epoch(1)), "fix: it\n\nRelay-Epoch: 1\n");
        assert_eq!(trailer_epoch(&once), Some(Epoch(2)));
        assert_eq!(trailer_epoch("Relay-Epoch: 7\n\nquoted above, not a trailer\n"), None);
    }
}
