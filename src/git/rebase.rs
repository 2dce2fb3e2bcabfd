//! Work that stands on a commit its branch does not have any more: put onto what the branch has now.
//!
//! A default branch that was rewritten while a lane ran lacks the commit the work stands on. Pushed
//! as it is, the pull request would show what the rewriting took away as well. Nobody's files are
//! needed for it: three trees become one, in the mirror.

use super::mirror::blocking;
use super::tree_rules::broken_rule;
use super::{Commit, GitError, Mirror, open};

/// What became of [`Mirror::onto`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Onto {
    /// The branch still has the commit that the work stands on.
    AsItIs,
    /// The same change on top of the branch; the mirror holds it.
    Commit(Commit),
    /// The branch has the change already.
    Nothing,
    /// The change does not fit on the branch.
    Conflict {
        /// Where, relative to the repository.
        path: String,
    },
}

impl Mirror {
    /// The change from `base` to `commit`, made so that it stands on `tip` where `tip` has lost
    /// `base`.
    ///
    /// # Errors
    /// Where one of the commits is not in the mirror, or the mirror cannot be written.
    pub async fn onto(
        &self,
        base: &Commit,
        commit: &Commit,
        tip: &Commit,
    ) -> Result<Onto, GitError> {
        let _lock = self.lock(false).await?;
        let (folder, ids) = (self.paths.mirror.clone(), [base.oid()?, commit.oid()?, tip.oid()?]);
        let made = blocking(&self.paths.mirror, move || onto(&open(&folder)?, ids)).await?;
        if let Onto::Commit(commit) = &made {
            self.hold(commit)?;
        }
        Ok(made)
    }
}

fn onto(repo: &git2::Repository, [base, commit, tip]: [git2::Oid; 3]) -> Result<Onto, GitError> {
    if base == tip || repo.graph_descendant_of(tip, base)? {
        return Ok(Onto::AsItIs);
    }
    let [base, commit, tip] = [base, commit, tip].map(|id| repo.find_commit(id));
    let (base, commit, tip) = (base?, commit?, tip?);
    let mut merged = repo.merge_trees(&base.tree()?, &tip.tree()?, &commit.tree()?, None)?;
    if merged.has_conflicts() {
        let first = merged.conflicts()?.next().transpose()?;
        let entry = first.and_then(|found| found.our.or(found.their).or(found.ancestor));
        let path = entry.map(|entry| String::from_utf8_lossy(&entry.path).into_owned());
        return Ok(Onto::Conflict { path: path.unwrap_or_default() });
    }
    let tree = repo.find_tree(merged.write_tree_to(repo)?)?;
    if tree.id() == tip.tree_id() {
        return Ok(Onto::Nothing);
    }
    if let Some((_, path)) = broken_rule(repo, &tip.tree()?, &tree)? {
        return Ok(Onto::Conflict { path });
    }
    let message = String::from_utf8_lossy(commit.message_bytes());
    let by = (commit.author(), commit.committer());
    Ok(Onto::Commit(repo.commit(None, &by.0, &by.1, &message, &tree, &[&tip])?.into()))
}
