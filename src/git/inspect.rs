//! A look at a copy before git sees it: what lies there that must not be committed, or must not
//! even be looked at by git. No link is followed and no file is opened.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::GitError;
use super::tree_rules::HOST_FILE_LIMIT;
use crate::model::RepoProblem;

/// So many findings are kept; a copy with as many is refused with one of them, ignored or not,
/// since nobody knows what comes after them.
pub(super) const FINDINGS: usize = 10_000;

/// Something in a copy that stands in the way, unless the repository ignores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub why: RepoProblem,
    /// Relative to the copy: of a nested repository its folder, else the thing itself.
    pub path: PathBuf,
}

impl Finding {
    /// Whether git would read this pipe, socket or device to learn what the repository wants.
    pub fn would_hold_git_up(&self) -> bool {
        const READ_BY_GIT: [&str; 4] =
            [".gitignore", ".gitattributes", ".gitmodules", ".lfsconfig"];
        let name = self.path.file_name().unwrap_or_default();
        self.why == RepoProblem::SpecialFile
            && READ_BY_GIT.iter().any(|read| name.eq_ignore_ascii_case(read))
    }
}

/// Walks the copy at `dir`.
pub(super) fn inspect(dir: &Path) -> Result<Vec<Finding>, GitError> {
    let kind = match fs::symlink_metadata(dir) {
        // The lane's doing, not the disk's: another run would spend the same again.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("the lane left no folder at {}", dir.display());
            return Err(GitError::Repo { why: RepoProblem::CheckoutFailed, text });
        }
        other => other.map_err(GitError::disk(dir))?.file_type(),
    };
    if !kind.is_dir() {
        return Ok(vec![Finding { why: RepoProblem::SpecialFile, path: PathBuf::new() }]);
    }
    let mut findings = Vec::new();
    // Files with several names: how many, and which of them are here.
    let mut shared: HashMap<(u64, u64), (u64, Vec<PathBuf>)> = HashMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let here = dir.join(&folder);
        let entries = match fs::read_dir(&here) {
            // Deeper than a path is long: git could not name it either.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidFilename => {
                findings.push(Finding { why: RepoProblem::SpecialFile, path: folder });
                continue;
            }
            // As above: the lane closed it, and would again.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let text = format!("the lane left {} unreadable", here.display());
                return Err(GitError::Repo { why: RepoProblem::CheckoutFailed, text });
            }
            other => other.map_err(GitError::disk(&here))?,
        };
        for entry in entries {
            let entry = entry.map_err(GitError::disk(&here))?;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            let kind = entry.file_type().map_err(GitError::disk(&here))?;
            let at_top = folder.as_os_str().is_empty();
            let why = if names_git(&name) {
                // The lane's own `.git`: never opened, never committed.
                if at_top && name == ".git" {
                    continue;
                }
                RepoProblem::NestedGit
            } else if kind.is_dir() {
                folders.push(path);
                continue;
            } else if at_top && name == ".lfsconfig" && !kind.is_file() {
                // git-lfs reads it, wherever it leads and however long that is.
                RepoProblem::SpecialFile
            } else if kind.is_symlink() {
                continue;
            } else if !kind.is_file() {
                RepoProblem::SpecialFile
            } else {
                let Ok(file) = entry.metadata() else { continue };
                if file.nlink() > 1 {
                    let (_, names) = shared
                        .entry((file.dev(), file.ino()))
                        .or_insert_with(|| (file.nlink(), Vec::new()));
                    names.push(path.clone());
                }
                if file.len() <= HOST_FILE_LIMIT {
                    continue;
                }
                RepoProblem::FileTooLarge
            };
            let is_nested = why == RepoProblem::NestedGit && !at_top;
            let path = if is_nested { folder.clone() } else { path };
            findings.push(Finding { why, path });
            if findings.len() >= FINDINGS {
                return Ok(findings);
            }
        }
    }
    // A file that also has a name outside may be one the lane could not read.
    let outside = shared.into_values().filter(|(links, names)| *links > names.len() as u64);
    let outside = outside.flat_map(|(_, names)| names);
    findings.extend(outside.map(|path| Finding { why: RepoProblem::LinkOutside, path }));
    findings.truncate(FINDINGS);
    Ok(findings)
}

/// The first of `submodules` that the lane touched. git never looks into their folders, so that
/// what a lane does there would be lost without a word. One that the lane fetched (it has a `.git`
/// then) is as good as untouched: which commit is meant is told by the base.
pub(super) fn touched_submodule<'a>(dir: &Path, submodules: &'a [PathBuf]) -> Option<&'a Path> {
    let is_untouched = |path: &&PathBuf| {
        let folder = dir.join(path);
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
        is_folder
            && (fs::symlink_metadata(folder.join(".git")).is_ok()
                || fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none()))
    };
    submodules.iter().find(|path| !is_untouched(path)).map(PathBuf::as_path)
}

/// Whether some file system takes `name` for `.git`.
pub(super) fn names_git(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.eq_ignore_ascii_case(b".git") || name.eq_ignore_ascii_case(b"git~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_looked_at_without_following_a_link() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        for folder in [".git", "a/b/.GIT", "c", "d"] {
            fs::create_dir_all(at(folder)).expect("made");
        }
        fs::write(at("c/.git"), "gitdir: /elsewhere").expect("written");
        std::os::unix::fs::symlink("/", at("d/root")).expect("linked");
        let large = fs::File::create(at("d/large")).expect("made");
        large.set_len(HOST_FILE_LIMIT + 1).expect("sparse");
        let _socket = std::os::unix::net::UnixListener::bind(at("d/socket")).expect("bound");
        let mut found = inspect(dir.path()).expect("readable");
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let found: Vec<_> = found.iter().map(|f| (f.why, f.path.to_str().unwrap_or(""))).collect();
        assert_eq!(
            found,
            [
                (RepoProblem::NestedGit, "a/b"),
                (RepoProblem::NestedGit, "c"),
                (RepoProblem::FileTooLarge, "d/large"),
                (RepoProblem::SpecialFile, "d/socket"),
            ]
        );
    }

    #[test]
    fn a_copy_that_is_gone_or_closed_is_not_the_disks_fault() {
        let dir = tempfile::tempdir().expect("a folder");
        let gone = inspect(&dir.path().join("gone")).expect_err("nothing there");
        assert_eq!(gone.problem(), RepoProblem::CheckoutFailed, "{gone}");
        // Nothing is closed to root.
        if !rustix::process::geteuid().is_root() {
            let shut = dir.path().join("shut");
            fs::create_dir(&shut).expect("made");
            fs::set_permissions(&shut, std::os::unix::fs::PermissionsExt::from_mode(0o000))
                .expect("closed");
            let closed = inspect(dir.path()).expect_err("unreadable");
            assert_eq!(closed.problem(), RepoProblem::CheckoutFailed, "{closed}");
        }
    }

    #[test]
    fn a_copy_that_became_a_link_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let link = dir.path().join("copy");
        std::os::unix::fs::symlink("/", &link).expect("linked");
        assert_eq!(inspect(&link).expect("looked at")[0].why, RepoProblem::SpecialFile);
    }
}
