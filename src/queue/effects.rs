//! Which effects of earlier runs a new claim goes on from.
//!
//! The journal belongs to a request: the wish for the task, until somebody wishes anew. Within
//! it the steps are a chain (commit, push, pull request, comment), and a step done again makes
//! those after it to be done again.

use crate::model::{Disposition, Effect, Epoch, StopReason, Task, TaskState};
use crate::store::JournalEntry;

/// The effects that stand, in the order of the steps: of each kind the newest, and none that is
/// older than a step before it. A worker that could not find an earlier one's commit made its own;
/// what was pushed then is not that.
pub(super) fn chain(journal: Vec<JournalEntry>) -> Vec<Effect> {
    let mut oldest = Epoch(0);
    let mut standing = Vec::new();
    for step in 0..STEPS {
        let newest = journal
            .iter()
            .filter(|entry| step_of(&entry.effect) == step)
            .max_by_key(|entry| entry.epoch);
        if let Some(entry) = newest.filter(|entry| entry.epoch >= oldest) {
            oldest = entry.epoch;
            standing.push(entry.effect.clone());
        }
    }
    standing
}

const STEPS: u8 = 4;

const fn step_of(effect: &Effect) -> u8 {
    match effect {
        Effect::Committed { .. } => 0,
        Effect::Pushed { .. } => 1,
        Effect::PullRequest { .. } => 2,
        Effect::Commented { .. } => 3,
    }
}

/// Whether a person's retry goes on from what was done: where the lane had done its part, or was
/// kept from it by something that is not its doing. After the lane's own failure, or an end, a
/// retry starts over.
pub(super) fn survive_retry(task: &Task) -> bool {
    match task.state {
        TaskState::Parked => true,
        TaskState::Failed => task.stop_reason.as_ref().is_some_and(|reason| match reason {
            StopReason::PushRefused { .. }
            | StopReason::ForgeRefused { .. }
            | StopReason::RepoUnusable { .. }
            | StopReason::Quarantined => true,
            other => matches!(other.disposition(), Disposition::Retry | Disposition::Requeue),
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(epoch: i64, effect: Effect) -> JournalEntry {
        JournalEntry { epoch: Epoch(epoch), effect }
    }

    fn committed(commit: &str) -> Effect {
        Effect::Committed {
            commit: commit.to_owned(),
            base: "b".to_owned(),
            summary: None,
            usage: None,
        }
    }

    fn pushed(commit: &str) -> Effect {
        Effect::Pushed { commit: commit.to_owned(), branch: "relay/claude-1".to_owned() }
    }

    #[test]
    fn steps_of_several_epochs_make_one_chain() {
        let pull = Effect::PullRequest { number: 3, url: "u".to_owned() };
        let journal = vec![entry(1, committed("a")), entry(2, pushed("a")), entry(4, pull.clone())];
        assert_eq!(chain(journal), [committed("a"), pushed("a"), pull]);
    }

    #[test]
    fn a_step_done_again_drops_the_later_steps_of_before() {
        let pull = Effect::PullRequest { number: 3, url: "u".to_owned() };
        let journal = vec![
            entry(1, committed("a")),
            entry(1, pushed("a")),
            entry(1, pull),
            entry(2, committed("b")),
        ];
        assert_eq!(chain(journal.clone()), [committed("b")]);
        let mut went_on = journal;
        went_on.push(entry(3, pushed("b")));
        assert_eq!(chain(went_on), [committed("b"), pushed("b")]);
    }
}
