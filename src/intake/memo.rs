//! What an intake remembers between two looks, so that nothing is asked or said twice. It is in
//! memory: after a restart everything is judged once more, and found as it was.

use std::collections::{HashMap, HashSet};

use crate::model::{LaneName, RepoName, Timestamp};

/// One issue and one lane.
pub(super) type Wish = (u64, LaneName);

/// Of every project.
#[derive(Debug, Default)]
pub(super) struct Memo(HashMap<RepoName, Known>);

/// Of one project.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Labelled issues that were judged, by their state then. Any change to an issue moves its
    /// `updated_at`, and it is judged anew.
    judged: HashMap<Wish, Timestamp>,
    /// The label events that were refused, so that each is told once.
    refused: HashMap<Wish, Option<Timestamp>>,
    /// Tasks without a label that nobody took off, by their issue's state then.
    unlabelled: HashMap<Wish, Timestamp>,
    /// What was met in this look; the rest is forgotten after it.
    met: HashSet<Wish>,
    /// Looks in a row that failed.
    pub(super) failures: u32,
    /// The last problem told.
    pub(super) problem: Option<String>,
}

impl Memo {
    pub(super) fn take(&mut self, slug: &RepoName) -> Known {
        self.0.remove(slug).unwrap_or_default()
    }

    pub(super) fn put(&mut self, slug: &RepoName, mut known: Known) {
        known.met.clear();
        self.0.insert(slug.clone(), known);
    }
}

impl Known {
    /// Whether the issue was judged as it stands; notes that it was met.
    pub(super) fn is_judged(&mut self, wish: &Wish, updated_at: Timestamp) -> bool {
        self.met.insert(wish.clone());
        self.judged.get(wish) == Some(&updated_at)
    }

    pub(super) fn judge(&mut self, wish: Wish, updated_at: Timestamp) {
        self.judged.insert(wish, updated_at);
    }

    /// Notes a refusal of the label set at `set_at`; whether it is the first one.
    pub(super) fn refuse(&mut self, wish: Wish, set_at: Option<Timestamp>) -> bool {
        self.refused.insert(wish, set_at) != Some(set_at)
    }

    /// Whether a task without a label was looked into, with its issue as it stands.
    pub(super) fn is_unlabelled(&mut self, wish: &Wish, updated_at: Timestamp) -> bool {
        self.met.insert(wish.clone());
        self.unlabelled.get(wish) == Some(&updated_at)
    }

    pub(super) fn leave_unlabelled(&mut self, wish: Wish, updated_at: Timestamp) {
        self.unlabelled.insert(wish, updated_at);
    }

    /// Forgets what a whole look did not meet.
    pub(super) fn forget_unmet(&mut self) {
        let met = std::mem::take(&mut self.met);
        self.judged.retain(|wish, _| met.contains(wish));
        self.refused.retain(|wish, _| met.contains(wish));
        self.unlabelled.retain(|wish, _| met.contains(wish));
    }
}
