//! A commit as one file that plain git can read: what is kept of work that could not be pushed.

use std::fs;
use std::path::Path;

use super::isolation::Command;
use super::mirror::make_folder;
use super::{Commit, GitError, Mirror, check_branch};

impl Mirror {
    /// Writes what `commit` adds to `base` to the file `to`, as branch `branch`. A person reads
    /// it with `git fetch FILE BRANCH` in any clone of the repository.
    ///
    /// # Errors
    /// Where git or the disk refuses. A half-written file is not left under that name.
    pub async fn bundle(
        &self,
        base: &Commit,
        commit: &Commit,
        branch: &str,
        to: &Path,
    ) -> Result<(), GitError> {
        let _lock = self.lock(false).await?;
        self.write_bundle(&self.paths.mirror, base, commit, branch, to).await
    }

    /// Brings the commit that [`Mirror::bundle`] wrote to `file` back into the mirror, where the
    /// mirror was made anew since. False where the file does not hold that very commit, or the
    /// mirror lacks what it stands on.
    ///
    /// # Errors
    /// Where git cannot be run or the disk refuses.
    pub async fn unbundle(&self, file: &Path, commit: &Commit) -> Result<bool, GitError> {
        let _lock = self.lock(false).await?;
        let mut command = Command::in_repo(&self.paths.mirror, "bundle", ["unbundle"]);
        command.args.push(file.as_os_str().to_owned());
        if self.git.try_run(command).await?.code != Some(0) || !self.holds(commit)? {
            return Ok(false);
        }
        self.hold(commit)?;
        Ok(true)
    }

    /// [`Mirror::bundle`] of a commit whose objects are in the repository `from`.
    pub(super) async fn write_bundle(
        &self,
        from: &Path,
        base: &Commit,
        commit: &Commit,
        branch: &str,
        to: &Path,
    ) -> Result<(), GitError> {
        check_branch(branch)?;
        if let Some(parent) = to.parent() {
            make_folder(parent)?;
        }
        // A bundle names refs as its repository does, so it is made in one that has just this one.
        make_folder(&self.paths.runs)?;
        let scratch = tempfile::Builder::new()
            .prefix("bundle-")
            .tempdir_in(&self.paths.runs)
            .map_err(GitError::disk(&self.paths.runs))?;
        let at = |name: &str| scratch.path().join(name);
        let write = |name: &str, bytes: &[u8]| {
            let path = at(name);
            path.parent().map_or(Ok(()), make_folder)?;
            fs::write(&path, bytes).map_err(GitError::disk(&path))
        };
        let mut alternates = from.join("objects").into_os_string().into_encoded_bytes();
        alternates.push(b'\n');
        write("objects/info/alternates", &alternates)?;
        write(&format!("refs/heads/{branch}"), format!("{commit}\n").as_bytes())?;
        write("HEAD", format!("ref: refs/heads/{branch}\n").as_bytes())?;
        let unfinished = at("bundle");
        let mut command = Command::in_repo(scratch.path(), "bundle", ["create", "--quiet"]);
        command.args.push(unfinished.clone().into());
        command.args.extend([format!("refs/heads/{branch}").into(), format!("^{base}").into()]);
        self.git.run(command).await?;
        // The cache and the place for kept work may be on two disks.
        let beside = to.with_extension("part");
        fs::copy(&unfinished, &beside).map_err(GitError::disk(&beside))?;
        fs::rename(&beside, to).map_err(GitError::disk(to))
    }
}
