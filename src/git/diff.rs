//! Reading the mirror: one file of a commit, and what lies between two commits.

use std::path::Path;

use super::tree_rules::changed_workflow;
use super::{Commit, GitError, Mirror, open};

impl Mirror {
    /// The content of the regular file at `path` in `commit`; `None` where there is none, or it
    /// is a folder, a link or a submodule.
    ///
    /// # Errors
    /// Where the commit is not in the mirror or cannot be read.
    pub fn file_at(&self, commit: &Commit, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        let repo = open(&self.paths.mirror)?;
        let tree = repo.find_commit(commit.oid()?)?.tree()?;
        let entry = match tree.get_path(Path::new(path)) {
            Ok(entry) => entry,
            Err(error) if error.code() == git2::ErrorCode::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !matches!(entry.filemode(), 0o100_644 | 0o100_755 | 0o100_664) {
            return Ok(None);
        }
        Ok(Some(repo.find_blob(entry.id())?.content().to_vec()))
    }

    /// The first file under `.github/workflows` that `commit` changes.
    ///
    /// # Errors
    /// Where one of the commits is not in the mirror or cannot be read.
    pub fn changed_workflow(
        &self,
        base: &Commit,
        commit: &Commit,
    ) -> Result<Option<String>, GitError> {
        let repo = open(&self.paths.mirror)?;
        let (base, new) = (repo.find_commit(base.oid()?)?, repo.find_commit(commit.oid()?)?);
        changed_workflow(&repo, &base.tree()?, &new.tree()?)
    }

    /// The patch from `base` to `commit` as text, cut after `cap` bytes with a line that says so.
    ///
    /// # Errors
    /// Where one of the commits is not in the mirror or cannot be read.
    pub fn diff(&self, base: &Commit, commit: &Commit, cap: usize) -> Result<String, GitError> {
        let repo = open(&self.paths.mirror)?;
        let tree = |commit: &Commit| -> Result<git2::Tree<'_>, GitError> {
            Ok(repo.find_commit(commit.oid()?)?.tree()?)
        };
        let diff = repo.diff_tree_to_tree(Some(&tree(base)?), Some(&tree(commit)?), None)?;
        let mut patch = Vec::new();
        let printed = diff.print(git2::DiffFormat::Patch, |_, _, line| {
            if matches!(line.origin(), '+' | '-' | ' ') {
                patch.push(line.origin() as u8);
            }
            patch.extend_from_slice(line.content());
            patch.len() <= cap
        });
        let is_cut = patch.len() > cap;
        match printed {
            Err(error) if !is_cut => return Err(error.into()),
            _ => {}
        }
        if !is_cut {
            return Ok(String::from_utf8_lossy(&patch).into_owned());
        }
        let mut end = cap;
        while end > 0 && patch[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        let text = String::from_utf8_lossy(&patch[..end]);
        Ok(format!("{text}\n(the diff was cut after {end} bytes)\n"))
    }
}
