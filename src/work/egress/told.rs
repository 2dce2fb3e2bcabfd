//! What a run's log says of its network: each refusal once, by name, and how often it came again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Where lines go.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// Different lines of one run. A lane can ask for as many names as it likes.
const LINES: usize = 40;

/// Names in the last line.
const NAMED: usize = 5;

/// What was told, and how often it was kept back.
pub(super) struct Told {
    tell: Tell,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// What was told, and how often it came again.
    told: BTreeMap<String, u64>,
    /// What came when there were enough lines.
    untold: u64,
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

impl Told {
    pub(super) fn new(tell: Tell) -> Self {
        Self { tell, counts: Mutex::default() }
    }

    /// Tells that `what` (a host with its port, never more of a request) did not work, and why.
    pub(super) fn once(&self, what: &str, why: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{what}: {why}");
        if let Some(again) = counts.told.get_mut(&key) {
            *again += 1;
        } else if counts.told.len() < LINES {
            (self.tell)(&format!("   network: {key}"));
            counts.told.insert(key, 0);
        } else {
            counts.untold += 1;
        }
    }

    /// The last line, where something was kept back.
    pub(super) fn end(&self) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut again: Vec<(&str, u64)> = counts
            .told
            .iter()
            .filter(|(_, again)| **again > 0)
            .map(|(key, again)| {
                (key.split_once(": ").map_or(key.as_str(), |(what, _)| what), *again)
            })
            .collect();
        let all: u64 = again.iter().map(|(_, again)| again).sum::<u64>() + counts.untold;
        if all == 0 {
            return;
        }
        again.sort_by_key(|(_, again)| std::cmp::Reverse(*again));
        let named: Vec<String> =
            again.iter().take(NAMED).map(|(what, again)| format!("{what} {again}x")).collect();
        let named = if named.is_empty() { "others".to_owned() } else { named.join(", ") };
        (self.tell)(&format!("   network: {all} more of these: {named}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_name_is_told_once_and_there_is_an_end() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let to = Arc::clone(&lines);
        let told = Told::new(Box::new(move |line| to.lock().unwrap().push(line.to_owned())));
        for _ in 0..3 {
            told.once("refused a.example:443", "why");
        }
        for n in 0..1000 {
            told.once(&format!("refused n{n}.example:443"), "why");
        }
        told.end();
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), LINES + 1);
        assert_eq!(lines[0], "   network: refused a.example:443: why");
        let last = "   network: 963 more of these: refused a.example:443 2x";
        assert_eq!(lines.last().map(String::as_str), Some(last));
    }

    #[test]
    fn a_quiet_run_says_nothing() {
        let told = Told::new(Box::new(|line| panic!("{line}")));
        told.end();
    }
}
