//! What a sandbox leaves at the top of a copy: where a name is not there, it puts an empty file for
//! as long as a command runs, and one that is killed leaves it. A file of the same name that says
//! something is the lane's work.

use std::fs;
use std::path::Path;

use super::GitError;
use super::checkout::Copy;

/// A folder with more than this is nobody's stub.
const MOST: usize = 64;

/// As lines for git's list of what to exclude.
pub(super) fn excluding<'a>(stubs: impl IntoIterator<Item = &'a str>) -> String {
    stubs.into_iter().map(|stub| format!("/{}\n", stub.trim_start_matches('/'))).collect()
}

impl Copy {
    /// Has the next snapshot pass over those of the copy's stubs that say nothing. Of what is in the
    /// base git passes over none.
    pub(super) fn leave_stubs_out(&self) -> Result<(), GitError> {
        let is_left = |stub: &&str| {
            let mut left = MOST;
            says_nothing(&self.dir().join(stub.trim_start_matches('/')), &mut left)
        };
        let excluded = excluding(self.stubs.iter().map(String::as_str).filter(is_left));
        let path = self.folder.join("info/exclude");
        fs::write(&path, excluded).map_err(GitError::disk(&path))
    }
}

/// Whether there are only empty files at `path`. What cannot be read is the lane's doing, and
/// something.
fn says_nothing(path: &Path, left: &mut usize) -> bool {
    let Some(fewer) = left.checked_sub(1) else { return false };
    *left = fewer;
    let Ok(about) = fs::symlink_metadata(path) else { return false };
    if !about.is_dir() {
        return about.is_file() && about.len() == 0;
    }
    let Ok(entries) = fs::read_dir(path) else { return false };
    entries.into_iter().all(|entry| entry.is_ok_and(|entry| says_nothing(&entry.path(), left)))
}
