//! One commit of what a lane left behind, made from the worker's own repository with the
//! worker's own index.
//!
//! The index is a copy of the one the files were checked out with (the room `warm_index`). A
//! fresh one would take committed CRLF files for changes nobody made, and would read every file.
//!
//! What git writes goes to the copy's own folder. Only a snapshot that breaks no rule gets into
//! the mirror (the room `keep`), so a refused one is gone with the copy and never
//! shows up in another run's copy; and runs side by side write into nothing they share.

use std::collections::HashSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::checkout::{Copy, INDEX};
use super::inspect::{FINDINGS, Finding, inspect, touched_submodule};
use super::mirror::{Mirror, blocking};
use super::secrets::secret_in;
use super::tree_rules::broken_rule;
use super::warm_index::warm_copy;
use super::{Commit, GitError, Identity, error, open};
use crate::model::{RepoProblem, Timestamp};
use crate::process::ProcessError;

/// What a snapshot is to be made with.
#[derive(Clone, Debug)]
pub struct SnapshotRequest<'a> {
    /// Author and committer.
    pub identity: &'a Identity,
    /// The commit's message; made printable and never empty.
    pub message: &'a str,
    /// The commit's time, in whole seconds, as UTC.
    pub at: Timestamp,
}

/// What became of what the lane left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// A commit on top of the copy's base, now held by the mirror.
    Commit {
        /// Its id.
        commit: Commit,
        /// Its tree, in hex.
        tree: String,
    },
    /// The copy is as it was checked out.
    NoChanges,
    /// Something in the copy must not be committed.
    Refused {
        /// By which rule.
        why: RepoProblem,
        /// What breaks it, relative to the copy.
        path: String,
    },
}

const SNAPSHOT_INDEX: &str = "index.snapshot";
/// So many paths that git takes in nowhere are left out of a bundle: git is asked once for each.
const NOT_TAKEN: usize = 16;

impl Mirror {
    /// Commits what is in `copy`. The lane must be dead: what it changes meanwhile may be
    /// committed unchecked. Can be called again.
    ///
    /// # Errors
    /// Where git or the disk refuses. A file the lane made unreadable is such a case.
    pub async fn snapshot(
        &self,
        copy: &Copy,
        request: &SnapshotRequest<'_>,
    ) -> Result<Snapshot, GitError> {
        self.take(copy, request).await.map_err(too_much)
    }

    async fn take(&self, copy: &Copy, request: &SnapshotRequest<'_>) -> Result<Snapshot, GitError> {
        let _lock = self.lock(false).await?;
        copy.check_identity()?;
        let dir = copy.dir().to_owned();
        let findings = blocking(copy.dir(), move || inspect(&dir)).await?;
        let in_the_way = self.in_the_way(copy, findings).await?;
        if let Some(Finding { why, path }) = in_the_way.into_iter().next() {
            return Ok(Snapshot::Refused { why, path: path.to_string_lossy().into_owned() });
        }
        if let Some(path) = touched_submodule(copy.dir(), &copy.submodules) {
            let (why, path) = (RepoProblem::SubmoduleChanged, path.to_string_lossy().into_owned());
            return Ok(Snapshot::Refused { why, path });
        }
        let tree = match self.write_tree(copy, &[]).await? {
            Ok(tree) => tree,
            Err(path) => {
                // A link that git does not take in is a `.gitmodules`; a nested repository is none.
                let why = if copy.dir().join(&path).is_symlink() {
                    RepoProblem::UnsafeFile
                } else {
                    RepoProblem::NestedGit
                };
                return Ok(Snapshot::Refused { why, path });
            }
        };
        let snapshot = self.commit(copy, request, &tree).await?;
        if let Snapshot::Commit { commit, .. } = &snapshot
            && let Some(path) = self.keep(copy, commit).await?
        {
            return Ok(Snapshot::Refused { why: RepoProblem::UnsafeFile, path });
        }
        Ok(snapshot)
    }

    /// The work of a refused copy as a bundle at `to`, on branch `branch`: everything but what git
    /// could not take in. Whoever opens it reads what a rule forbids to push, in a repository of
    /// their own. False where there is nothing to keep.
    ///
    /// # Errors
    /// Where git or the disk refuses.
    pub async fn rescue(
        &self,
        copy: &Copy,
        request: &SnapshotRequest<'_>,
        branch: &str,
        to: &Path,
    ) -> Result<bool, GitError> {
        let _lock = self.lock(false).await?;
        copy.check_identity()?;
        let dir = copy.dir().to_owned();
        let findings = blocking(copy.dir(), move || inspect(&dir)).await?;
        let left_out = self.in_the_way(copy, findings).await?;
        if left_out.len() >= FINDINGS || left_out.iter().any(Finding::would_hold_git_up) {
            return Ok(false);
        }
        let mut left_out: Vec<PathBuf> = left_out.into_iter().map(|finding| finding.path).collect();
        let most = left_out.len() + NOT_TAKEN;
        let tree = loop {
            match self.write_tree(copy, &left_out).await? {
                Ok(tree) => break tree,
                Err(path) if left_out.len() < most => left_out.push(path.into()),
                Err(_) => return Ok(false),
            }
        };
        let (folder, base) = (copy.folder.clone(), copy.base().oid()?);
        let (identity, at, message) =
            (request.identity.clone(), request.at, printable(request.message));
        let (secrets, lfs) = (self.git.secrets.clone(), self.paths.lfs.clone());
        let made = blocking(copy.dir(), move || {
            let repo = open(&folder)?;
            let base = repo.find_commit(base)?;
            let (old, tree) = (base.tree()?, repo.find_tree(tree)?);
            // Not in a file of relay's either.
            if old.id() == tree.id() || secret_in(&repo, &old, &tree, &secrets, &lfs)?.is_some() {
                return Ok(None);
            }
            let by = signature(&identity, at)?;
            Ok(Some(repo.commit(None, &by, &by, &message, &tree, &[&base])?.into()))
        });
        let Some(commit) = made.await? else { return Ok(false) };
        self.write_bundle(&copy.folder, copy.base(), &commit, branch, to).await?;
        Ok(true)
    }

    /// The findings that the repository does not ignore. A nested repository is let be
    /// where it is ignored (a package manager's folder) or is a submodule of the base: git is
    /// told never to look into either. Where one of them would hold git up, or there are too many
    /// to ask, only those are given that are sure.
    async fn in_the_way(
        &self,
        copy: &Copy,
        findings: Vec<Finding>,
    ) -> Result<Vec<Finding>, GitError> {
        if findings.is_empty() || findings.len() >= FINDINGS {
            return Ok(findings);
        }
        let mut in_doubt = Vec::new();
        {
            let repo = open(&copy.folder)?;
            let base = repo.find_commit(copy.base().oid()?)?.tree()?;
            for finding in findings {
                let known = base.get_path(&finding.path).ok().map(|entry| entry.kind());
                match (finding.why, known) {
                    // As old as the base: the rules on trees say whether it was changed.
                    (RepoProblem::NestedGit, Some(Some(git2::ObjectType::Commit)))
                    | (RepoProblem::FileTooLarge, Some(Some(git2::ObjectType::Blob))) => {}
                    _ => in_doubt.push(finding),
                }
            }
        }
        in_doubt.sort_by(|a, b| a.path.cmp(&b.path));
        // Not even a question whether it is ignored: git would open the pipe and wait for a writer.
        if let Some(at) = in_doubt.iter().position(Finding::would_hold_git_up) {
            return Ok(vec![in_doubt.swap_remove(at)]);
        }
        let mut ask = copy.git(INDEX, "check-ignore", ["-z", "--stdin"]);
        for Finding { path, .. } in &in_doubt {
            ask.stdin.extend_from_slice(path.as_os_str().as_bytes());
            ask.stdin.push(0);
        }
        if in_doubt.is_empty() {
            return Ok(Vec::new());
        }
        let output = self.git.try_run(ask).await?;
        if !matches!(output.code, Some(0 | 1)) {
            // git does not want to look at one of these paths at all.
            return Ok(in_doubt);
        }
        let ignored: HashSet<PathBuf> = output
            .stdout
            .split(|&b| b == 0)
            .map(|path| std::ffi::OsString::from_vec(path.to_vec()).into())
            .collect();
        in_doubt.retain(|finding| !ignored.contains(&finding.path));
        self.without_lfs(copy, in_doubt).await
    }

    /// What is stored with LFS is no large file to the host: a pointer is committed in its place.
    async fn without_lfs(
        &self,
        copy: &Copy,
        mut findings: Vec<Finding>,
    ) -> Result<Vec<Finding>, GitError> {
        let mut ask = copy.git(INDEX, "check-attr", ["-z", "--stdin", "filter"]);
        for Finding { path, .. } in findings.iter().filter(|f| f.why == RepoProblem::FileTooLarge) {
            ask.stdin.extend_from_slice(path.as_os_str().as_bytes());
            ask.stdin.push(0);
        }
        if ask.stdin.is_empty() || !self.git.has_lfs().await {
            return Ok(findings);
        }
        let told = self.git.run(ask).await?;
        let fields: Vec<&[u8]> = told.split(|&b| b == 0).collect();
        let stored: HashSet<&[u8]> = fields
            .chunks_exact(3)
            .filter(|field| field[2] == b"lfs")
            .map(|field| field[0])
            .collect();
        findings.retain(|finding| {
            finding.why != RepoProblem::FileTooLarge
                || !stored.contains(finding.path.as_os_str().as_bytes())
        });
        Ok(findings)
    }

    /// The tree of the copy as it is now, without the paths `left_out`; or the path git refuses to
    /// take in.
    async fn write_tree(
        &self,
        copy: &Copy,
        left_out: &[PathBuf],
    ) -> Result<Result<git2::Oid, String>, GitError> {
        copy.leave_stubs_out()?;
        let (from, to) = (copy.folder.join(INDEX), copy.folder.join(SNAPSHOT_INDEX));
        let dir = copy.dir().to_owned();
        blocking(copy.dir(), move || warm_copy(&from, &to, &dir)).await?;
        let mut add = copy.git(SNAPSHOT_INDEX, "add", ["--all"]);
        if self.git.has_lfs().await {
            self.filter_lfs(&mut add);
        }
        if !left_out.is_empty() {
            add.args.extend(["--pathspec-from-file=-".into(), "--pathspec-file-nul".into()]);
            add.stdin.extend_from_slice(b":(top)\0");
            for path in left_out {
                add.stdin.extend_from_slice(b":(top,literal,exclude)");
                add.stdin.extend_from_slice(path.as_os_str().as_bytes());
                add.stdin.push(0);
            }
        }
        let added = self.git.try_run(add).await?;
        if added.code != Some(0) {
            let text = error::text_of(&added);
            let invalid = text.lines().find_map(|line| line.split_once("invalid path '"));
            return match invalid.and_then(|(_, rest)| rest.rsplit_once('\'')) {
                Some((path, _)) => Ok(Err(path.to_owned())),
                None => Err(error::told_of_files("add", &added)),
            };
        }
        let none: [&str; 0] = [];
        let tree = self.git.run(copy.git(SNAPSHOT_INDEX, "write-tree", none)).await?;
        Ok(Ok(git2::Oid::from_str(String::from_utf8_lossy(&tree).trim())?))
    }

    async fn commit(
        &self,
        copy: &Copy,
        request: &SnapshotRequest<'_>,
        tree: &git2::Oid,
    ) -> Result<Snapshot, GitError> {
        let (folder, tree, base) = (copy.folder.clone(), *tree, copy.base().oid()?);
        let (identity, at) = (request.identity.clone(), request.at);
        let message = printable(request.message);
        let (secrets, lfs) = (self.git.secrets.clone(), self.paths.lfs.clone());
        blocking(copy.dir(), move || {
            let repo = open(&folder)?;
            let base = repo.find_commit(base)?;
            if base.tree_id() == tree {
                return Ok(Snapshot::NoChanges);
            }
            let tree = repo.find_tree(tree)?;
            if let Some(path) = secret_in(&repo, &base.tree()?, &tree, &secrets, &lfs)? {
                return Ok(Snapshot::Refused { why: RepoProblem::SecretInTree, path });
            }
            if let Some((why, path)) = broken_rule(&repo, &base.tree()?, &tree)? {
                return Ok(Snapshot::Refused { why, path });
            }
            let by = signature(&identity, at)?;
            let commit = repo.commit(None, &by, &by, &message, &tree, &[&base])?;
            Ok(Snapshot::Commit { commit: commit.into(), tree: tree.id().to_string() })
        })
        .await
    }

    /// Holds a commit of the mirror by a ref, until [`Mirror::forget`].
    pub(super) fn hold(&self, commit: &Commit) -> Result<(), GitError> {
        let mirror = open(&self.paths.mirror)?;
        mirror.reference(&kept(commit), commit.oid()?, true, "")?;
        Ok(())
    }

    /// Lets go of a commit that [`Mirror::snapshot`] made, once it is pushed or of no use.
    ///
    /// # Errors
    /// Where the mirror cannot be written.
    pub fn forget(&self, commit: &Commit) -> Result<(), GitError> {
        match open(&self.paths.mirror)?.find_reference(&kept(commit)) {
            Ok(mut reference) => Ok(reference.delete()?),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// That a git which talks to nobody is not done in its time is the lane's doing, and no outage: a
/// line of `.gitignore` with many `*`, or a thousand sparse files, cost it nothing, and another run
/// would leave the same.
fn too_much(error: GitError) -> GitError {
    match error {
        GitError::Process { source: ProcessError::TimedOut { limit, .. }, .. } => {
            let text =
                format!("the lane left what git could not take in within {} s", limit.as_secs());
            GitError::Repo { why: RepoProblem::CheckoutFailed, text }
        }
        other => other,
    }
}

/// The ref of the mirror that holds an accepted commit.
pub(super) fn kept(commit: &Commit) -> String {
    format!("refs/relay/kept/{commit}")
}

/// `identity` at a time, in UTC.
pub(super) fn signature(
    identity: &Identity,
    at: Timestamp,
) -> Result<git2::Signature<'static>, GitError> {
    let time = git2::Time::new(at.0.div_euclid(1000), 0);
    Ok(git2::Signature::new(&identity.name, &identity.email, &time)?)
}

/// A commit message without control characters, tidied as git does, and never empty.
pub(super) fn printable(message: &str) -> String {
    let clean: String = message
        .replace("\r\n", "\n")
        .chars()
        .filter(|c| !c.is_control() || "\n\t".contains(*c))
        .collect();
    let tidy = git2::message_prettify(clean, None).unwrap_or_default();
    if tidy.trim().is_empty() { "Changes by relay\n".to_owned() } else { tidy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_git_takes_in_is_the_lanes_doing_and_not_tried_again() {
        let limit = std::time::Duration::from_secs(600);
        let source = ProcessError::TimedOut { program: "git".into(), limit };
        let error = too_much(GitError::Process { command: "add", source });
        assert_eq!(error.problem(), RepoProblem::CheckoutFailed);
        assert!(error.to_string().contains("600 s"), "{error}");
        let full = std::io::ErrorKind::StorageFull.into();
        let full = GitError::Disk { path: "/x".into(), source: full };
        assert_eq!(too_much(full).problem(), RepoProblem::Disk);
    }

    #[test]
    fn a_message_is_printable_and_never_empty() {
        assert_eq!(printable("a\0b\u{1b}[1m\r\n\r\n\r\n\tc  \n\n"), "ab[1m\n\n\tc\n");
        assert_eq!(printable(" \n\0"), "Changes by relay\n");
        // A line that starts with `#` is text, not a comment.
        assert_eq!(printable("# heading"), "# heading\n");
    }
}
