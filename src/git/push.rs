//! A commit onto the task's branch on the remote, past the fence or not at all.

use super::fence::with_trailer;
use super::isolation::Address;
use super::mirror::Mirror;
use super::porcelain::{Refusal, Verdict};
use super::refs::hidden_ref;
use super::{Commit, GitError, Identity, Remote, abandoned, check_branch, open};
use crate::model::{Epoch, PushProblem, Timestamp};

/// How often the remote is read again after somebody else moved a ref. Only an older claim or a
/// person can, and each of them at most a few times.
const ATTEMPTS: usize = 6;

/// Which claim of which task.
#[derive(Clone, Debug)]
pub struct Fence<'a> {
    /// Where to.
    pub remote: &'a Remote,
    /// The task's name on the remote, `<lane, dashed>-<number>`: the hidden ref is
    /// `refs/relay/fence/<name>`.
    pub name: &'a str,
    /// The claim.
    pub epoch: Epoch,
    /// Who the marker commits say made them.
    pub identity: &'a Identity,
    /// Now.
    pub at: Timestamp,
}

/// What became of [`Mirror::fence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceClaim {
    /// No older claim can push any more; or this is the first claim, and there is none.
    Held,
    /// The host refuses the ref. The push will use a trailer instead, which holds less: an older
    /// claim can still push until this one does.
    Unsupported,
    /// A newer claim holds it: the lease is lost.
    Stale,
    /// The remote refused.
    Refused {
        /// By which rule.
        why: PushProblem,
        /// In its words.
        text: String,
    },
}

/// A push of one commit.
#[derive(Clone, Debug)]
pub struct Push<'a> {
    /// The claim that pushes.
    pub fence: Fence<'a>,
    /// What to push; the mirror holds it.
    pub commit: &'a Commit,
    /// The branch, without `refs/heads/`.
    pub branch: &'a str,
    /// What earlier claims of the task made, as the site tells. A push of theirs may have landed
    /// without its trailer, on a host that refuses the hidden ref, and nobody was told. It is
    /// believed of commits that relay committed: a site has no say over a person's.
    pub earlier: &'a [Commit],
}

/// What became of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The branch is at the commit; perhaps it was before.
    Done {
        /// What the branch is at: the commit asked for, or, where the host refuses the hidden
        /// ref, the same with a trailer.
        commit: Commit,
        /// What protects it from older claims.
        fenced: Fenced,
    },
    /// The remote refused, or relay did not ask it to because a person's commits would be lost.
    Refused {
        /// By which rule.
        why: PushProblem,
        /// In its words, or relay's.
        text: String,
    },
    /// A newer claim of the task has pushed or is about to: the lease is lost.
    Stale {
        /// The newer claim, where it is known.
        epoch: Option<Epoch>,
    },
}

/// What keeps older claims from pushing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// The hidden ref.
    HiddenRef,
    /// An epoch trailer on the branch's commit; the host refuses the hidden ref.
    Trailer,
}

impl Mirror {
    /// Moves the task's hidden ref to this claim, if it is not the first. To be called when a
    /// task is claimed: from then on no older claim's push lands.
    ///
    /// # Errors
    /// Where git or the disk of this machine refuses.
    pub async fn fence(&self, fence: &Fence<'_>) -> Result<FenceClaim, GitError> {
        if fence.epoch.0 < 2 {
            return Ok(FenceClaim::Held);
        }
        let _lock = self.lock(false).await?;
        let remote = Address::of(fence.remote, &self.paths.home)?;
        abandoned::let_go(&remote, &[&hidden_ref(fence)?], fence.at);
        let refused = |why, text| Ok(FenceClaim::Refused { why, text });
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let seen = match self.see(fence, None, &remote).await? {
                Ok(seen) => seen,
                Err(Refusal { why, text }) => return refused(why, text),
            };
            match seen.claim() {
                claim if claim > Some(fence.epoch) => return Ok(FenceClaim::Stale),
                claim if claim == Some(fence.epoch) => return Ok(FenceClaim::Held),
                _ => {}
            }
            match self.move_fence(fence, &seen, &remote).await? {
                Verdict::Landed => return Ok(FenceClaim::Held),
                Verdict::Moved(text) | Verdict::Broken(text) => last = text,
                Verdict::FenceRefused { .. } => return Ok(FenceClaim::Unsupported),
                Verdict::Refused(Refusal { why, text }) => return refused(why, text),
            }
        }
        refused(PushProblem::Unreachable, last)
    }

    /// Puts `push.commit` on the branch. relay's own earlier push is replaced; a branch that
    /// holds anything else is left alone, unless nothing of it would be lost.
    ///
    /// # Errors
    /// Where git or the disk of this machine refuses. What the remote refuses is a [`Pushed`].
    pub async fn push(&self, push: &Push<'_>) -> Result<Pushed, GitError> {
        check_branch(push.branch)?;
        let fence = &push.fence;
        let _lock = self.lock(false).await?;
        let remote = Address::of(fence.remote, &self.paths.home)?;
        let branch = format!("refs/heads/{}", push.branch);
        abandoned::let_go(&remote, &[&hidden_ref(fence)?, &branch], fence.at);
        let refused = |why, text| Ok(Pushed::Refused { why, text });
        let mut fenced = Fenced::HiddenRef;
        // What this very call put on the branch before it learned that the host refuses the ref.
        let mut landed: Option<Commit> = None;
        let mut last = Refusal { why: PushProblem::Other, text: String::new() };
        for _ in 0..ATTEMPTS {
            let seen = match self.see(fence, Some(push.branch), &remote).await? {
                Ok(seen) => seen,
                // A connection that breaks may be back; the next look also tells whether what
                // was sent has landed.
                Err(refusal) if refusal.why == PushProblem::Unreachable => {
                    last = refusal;
                    continue;
                }
                Err(Refusal { why, text }) => return refused(why, text),
            };
            if seen.claim() > Some(fence.epoch) {
                return Ok(Pushed::Stale { epoch: seen.claim() });
            }
            let commit = match fenced {
                Fenced::HiddenRef => push.commit.clone(),
                Fenced::Trailer => self.commit_with_trailer(push.commit, fence.epoch)?,
            };
            let is_recorded = fenced == Fenced::Trailer || seen.recorded() == Some(&commit);
            if seen.branch.as_ref() == Some(&commit) && is_recorded {
                return Ok(Pushed::Done { commit, fenced });
            }
            if let Some(branch) = &seen.branch {
                let ours =
                    [seen.recorded(), Some(&commit), landed.as_ref()].contains(&Some(branch));
                let earlier = push.earlier.contains(branch)
                    && self.message_of(branch, Some(fence.identity))?.is_some();
                if !ours && !earlier && !self.is_part_of(branch, &commit)? {
                    let text = format!(
                        "the branch `{}` is at {branch}, which relay did not push",
                        push.branch
                    );
                    return refused(PushProblem::BranchMoved, text);
                }
            }
            // First only the ref, so that from here on no older claim's push lands; then, with a
            // fresh look at the branch, both.
            let claims = fenced == Fenced::HiddenRef
                && fence.epoch.0 >= 2
                && seen.claim() < Some(fence.epoch);
            let verdict = if claims {
                self.move_fence(fence, &seen, &remote).await?
            } else {
                self.move_both(push, &seen, &commit, fenced, &remote).await?
            };
            match verdict {
                Verdict::Landed if claims => {}
                Verdict::Landed => return Ok(Pushed::Done { commit, fenced }),
                Verdict::Moved(text) => last = Refusal { why: PushProblem::Other, text },
                Verdict::Broken(text) => last = Refusal { why: PushProblem::Unreachable, text },
                Verdict::FenceRefused { branch_landed, text } => {
                    fenced = Fenced::Trailer;
                    landed = branch_landed.then_some(commit);
                    last = Refusal { why: PushProblem::Other, text };
                }
                Verdict::Refused(Refusal { why, text }) => return refused(why, text),
            }
        }
        refused(last.why, last.text)
    }

    /// The same commit with an epoch trailer; of one commit and epoch always the same.
    fn commit_with_trailer(&self, commit: &Commit, epoch: Epoch) -> Result<Commit, GitError> {
        let repo = open(&self.paths.mirror)?;
        let old = repo.find_commit(commit.oid()?)?;
        let message = with_trailer(&String::from_utf8_lossy(old.message_bytes()), epoch);
        let parents: Vec<git2::Commit<'_>> = old.parents().collect();
        let parents: Vec<&git2::Commit<'_>> = parents.iter().collect();
        let new =
            repo.commit(None, &old.author(), &old.committer(), &message, &old.tree()?, &parents)?;
        Ok(new.into())
    }

    /// Whether everything of `branch` is in `commit`, as far as the mirror knows.
    fn is_part_of(&self, branch: &Commit, commit: &Commit) -> Result<bool, GitError> {
        let repo = open(&self.paths.mirror)?;
        if repo.find_commit(branch.oid()?).is_err() {
            return Ok(false);
        }
        Ok(repo.graph_descendant_of(commit.oid()?, branch.oid()?)?)
    }
}
