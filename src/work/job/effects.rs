//! What earlier claims of the task already did.

use crate::model::{Effect, Usage};

/// The journal as the job needs it: at most one effect of each kind, the newest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Done {
    /// The lane's work, kept as a commit.
    pub(super) committed: Option<Committed>,
    /// The commit the branch was pushed to.
    pub(super) pushed: Option<String>,
    /// The pull request.
    pub(super) pull: Option<(u64, String)>,
    /// The comment.
    pub(super) commented: Option<String>,
}

/// The lane's work as one commit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Committed {
    pub(super) commit: String,
    pub(super) base: String,
    pub(super) summary: Option<String>,
    pub(super) usage: Option<Usage>,
}

impl Done {
    /// Reads the journal, oldest first.
    pub(super) fn read(effects: &[Effect]) -> Self {
        let mut done = Self::default();
        for effect in effects {
            match effect.clone() {
                Effect::Committed { commit, base, summary, usage } => {
                    // What was pushed or said before belongs to other work.
                    done = Self::default();
                    let usage = usage.map(|text| text.read());
                    done.committed = Some(Committed { commit, base, summary, usage });
                }
                Effect::Pushed { commit, .. } => done.pushed = Some(commit),
                Effect::PullRequest { number, url } => done.pull = Some((number, url)),
                Effect::Commented { id } => done.commented = Some(id),
            }
        }
        done
    }

    /// Whether the branch already shows the work. The pushed commit may be another than the one
    /// that was made: where a host refuses the hidden ref it carries a trailer.
    pub(super) fn is_pushed(&self) -> bool {
        self.committed.is_some() && self.pushed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(commit: &str) -> Effect {
        Effect::Committed { commit: commit.into(), base: "b".into(), summary: None, usage: None }
    }

    fn pushed(commit: &str) -> Effect {
        Effect::Pushed { commit: commit.into(), branch: "relay/claude-1".into() }
    }

    #[test]
    fn work_that_was_pushed_is_known() {
        assert!(Done::read(&[committed("c"), pushed("c")]).is_pushed());
        assert!(!Done::read(&[committed("c")]).is_pushed());
    }

    #[test]
    fn effects_of_older_work_do_not_count_for_newer() {
        let done = Done::read(&[
            committed("c1"),
            pushed("c1"),
            Effect::Commented { id: "7".into() },
            committed("c2"),
        ]);
        assert!(!done.is_pushed());
        assert_eq!(done.commented, None);
    }
}
