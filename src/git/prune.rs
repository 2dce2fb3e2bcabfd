//! Mirrors that nobody used for long, and commits that were kept and are of no use any more.

use std::collections::HashSet;
use std::fs::{self, File};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use super::mirror::{Paths, remove_folder};
use super::{Commit, Git, GitError, open};
use crate::model::{RepoName, Timestamp};

/// Where commits are held that a snapshot made.
const KEPT: &str = "refs/relay/kept/";

impl Git {
    /// Every mirror under the cache, and when it was last brought up to date.
    #[must_use]
    pub fn mirrors(&self) -> Vec<(RepoName, Timestamp)> {
        let mut found = Vec::new();
        for owner in fs::read_dir(self.cache()).into_iter().flatten().flatten() {
            for entry in fs::read_dir(owner.path()).into_iter().flatten().flatten() {
                let (owner, name) = (owner.file_name(), entry.file_name());
                let name = name.to_str().and_then(|name| name.strip_suffix(".git"));
                let (Some(owner), Some(name)) = (owner.to_str(), name) else { continue };
                let Ok(repo) = format!("{owner}/{name}").parse::<RepoName>() else { continue };
                let lock = Paths::of(self.cache(), &repo).lock;
                let used =
                    fs::metadata(lock).and_then(|lock| lock.modified()).unwrap_or(UNIX_EPOCH);
                let used = used.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                found.push((repo, Timestamp(i64::try_from(used.as_millis()).unwrap_or(i64::MAX))));
            }
        }
        found
    }

    /// Removes the mirror of `repo`, unless somebody uses it just now; says whether it is gone. The
    /// next fetch makes it again.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn remove_mirror(&self, repo: &RepoName) -> Result<bool, GitError> {
        let paths = Paths::of(self.cache(), repo);
        let lock = File::open(&paths.lock).map_err(GitError::disk(&paths.lock))?;
        if lock.try_lock().is_err() {
            return Ok(false);
        }
        // The lock's file stays: somebody may wait for it.
        for folder in [&paths.runs, &paths.mirror, &paths.home, &paths.lfs] {
            remove_folder(folder)?;
        }
        Ok(true)
    }

    /// Commits of the mirror of `repo` that were kept, and made before `before`.
    ///
    /// # Errors
    /// Where the mirror cannot be read.
    pub fn kept_before(&self, repo: &RepoName, before: Timestamp) -> Result<Vec<Commit>, GitError> {
        let mirror = open(&Paths::of(self.cache(), repo).mirror)?;
        let mut old = Vec::new();
        for reference in mirror.references_glob(&format!("{KEPT}*"))? {
            let commit = reference?.peel_to_commit()?;
            if commit.time().seconds().saturating_mul(1000) < before.0 {
                old.push(commit.id().into());
            }
        }
        Ok(old)
    }

    /// Lets go of each of `commits` that is not one of `needed`.
    ///
    /// # Errors
    /// Where the mirror cannot be written.
    pub fn let_go(
        &self,
        repo: &RepoName,
        commits: &[Commit],
        needed: &HashSet<String>,
    ) -> Result<usize, GitError> {
        let mirror = open(&Paths::of(self.cache(), repo).mirror)?;
        let mut gone = 0;
        for commit in commits.iter().filter(|commit| !needed.contains(commit.as_str())) {
            mirror.find_reference(&format!("{KEPT}{commit}"))?.delete()?;
            gone += 1;
        }
        Ok(gone)
    }
}

/// Notes on the lock that the mirror was used now, by the system's clock.
pub(super) fn note_use(lock: &File) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    if let Err(error) = futimens(lock, &times) {
        tracing::debug!(%error, "the use of a mirror was not noted");
    }
}
