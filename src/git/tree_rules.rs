//! What a snapshot may not bring into a repository, read off the two trees.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use git2::{Delta, DiffFile, FileMode, Repository, Tree};

use super::GitError;
use super::inspect::names_git;
use crate::model::RepoProblem;

/// The largest file GitHub takes, in bytes (docs.github.com, "About large files on GitHub").
pub const HOST_FILE_LIMIT: u64 = 100 * 1024 * 1024;

/// The first rule that `new` breaks where it differs from `base`, and the path that breaks it.
pub(super) fn broken_rule(
    repo: &Repository,
    base: &Tree<'_>,
    new: &Tree<'_>,
) -> Result<Option<(RepoProblem, String)>, GitError> {
    let diff = changed(repo, base, new)?;
    let mut cases = Cases { repo, base, new, looked_at: HashSet::new() };
    for delta in diff.deltas() {
        if delta.old_file().mode() == FileMode::Commit {
            let path = delta.old_file().path_bytes().unwrap_or_default();
            return Ok(Some((RepoProblem::SubmoduleChanged, lossy(path))));
        }
        if delta.status() == Delta::Deleted {
            continue;
        }
        let file = delta.new_file();
        let path = file.path_bytes().unwrap_or_default();
        if let Some(why) = broken_by(repo, &file, path)? {
            return Ok(Some((why, lossy(path))));
        }
        if delta.status() == Delta::Added && cases.collide(path)? {
            return Ok(Some((RepoProblem::CaseCollision, lossy(path))));
        }
    }
    Ok(None)
}

/// The first workflow file that differs between the two trees. Not a rule of every repository's:
/// some let their lanes change them.
pub(super) fn changed_workflow(
    repo: &Repository,
    base: &Tree<'_>,
    new: &Tree<'_>,
) -> Result<Option<String>, GitError> {
    let diff = changed(repo, base, new)?;
    let paths = diff.deltas().flat_map(|delta| {
        [delta.old_file(), delta.new_file()].map(|file| file.path_bytes().map(<[u8]>::to_vec))
    });
    Ok(paths.flatten().find(|path| is_workflow(path)).map(|path| lossy(&path)))
}

/// The files that differ between the two trees.
pub(super) fn changed<'a>(
    repo: &'a Repository,
    base: &Tree<'_>,
    new: &Tree<'_>,
) -> Result<git2::Diff<'a>, GitError> {
    let mut options = git2::DiffOptions::new();
    options.include_typechange(true).skip_binary_check(true).context_lines(0);
    Ok(repo.diff_tree_to_tree(Some(base), Some(new), Some(&mut options))?)
}

fn broken_by(
    repo: &Repository,
    file: &DiffFile<'_>,
    path: &[u8],
) -> Result<Option<RepoProblem>, GitError> {
    match file.mode() {
        FileMode::Commit => return Ok(Some(RepoProblem::NestedGit)),
        FileMode::Link => {
            let target = repo.find_blob(file.id())?;
            if leaves(path, target.content()) {
                return Ok(Some(RepoProblem::LinkOutside));
            }
        }
        _ => {
            let (size, _) = repo.odb()?.read_header(file.id())?;
            if size as u64 > HOST_FILE_LIMIT {
                return Ok(Some(RepoProblem::FileTooLarge));
            }
        }
    }
    Ok(None)
}

/// Whether the host would run the file at `path`, possibly with the repository's secrets.
fn is_workflow(path: &[u8]) -> bool {
    let prefix = b".github/workflows";
    path.len() >= prefix.len()
        && path[..prefix.len()].eq_ignore_ascii_case(prefix)
        && path.get(prefix.len()).is_none_or(|&b| b == b'/')
}

/// Whether a link at `path` with this `target` can lead out of the tree, or into a `.git`. Only
/// leading `..` are counted; one that follows a name is refused, since the name may be a link.
fn leaves(path: &[u8], target: &[u8]) -> bool {
    let depth = path.iter().filter(|&&b| b == b'/').count();
    let (mut ups, mut names) = (0, 0);
    for part in target.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            ups += 1;
            if names > 0 {
                return true;
            }
        } else {
            names += 1;
            if names_git(OsStr::from_bytes(part)) {
                return true;
            }
        }
    }
    target.is_empty() || target[0] == b'/' || target.contains(&b'\\') || ups > depth
}

/// Names that only differ in case, folder by folder.
struct Cases<'a> {
    repo: &'a Repository,
    base: &'a Tree<'a>,
    new: &'a Tree<'a>,
    looked_at: HashSet<Vec<u8>>,
}

impl Cases<'_> {
    /// Whether the new file at `path`, or a folder above it, has a twin that `base` did not have.
    fn collide(&mut self, path: &[u8]) -> Result<bool, GitError> {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            let folder = &path[..end];
            if self.looked_at.insert(folder.to_vec()) && self.has_new_twins(folder)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_new_twins(&self, folder: &[u8]) -> Result<bool, GitError> {
        let Some(new) = self.tree_at(self.new, folder)? else { return Ok(false) };
        let known: HashSet<Vec<u8>> = self
            .tree_at(self.base, folder)?
            .iter()
            .flat_map(|tree| tree.iter().map(|e| e.name_bytes().to_vec()).collect::<Vec<_>>())
            .collect();
        let mut by_fold: HashMap<String, bool> = HashMap::new();
        for entry in new.iter() {
            let was_there = known.contains(entry.name_bytes());
            let fold = String::from_utf8_lossy(entry.name_bytes()).to_lowercase();
            if by_fold.get(&fold).is_some_and(|twin_was_there| !(was_there && *twin_was_there)) {
                return Ok(true);
            }
            by_fold.insert(fold, was_there);
        }
        Ok(false)
    }

    fn tree_at(&self, root: &Tree<'_>, folder: &[u8]) -> Result<Option<Tree<'_>>, GitError> {
        let id = if folder.is_empty() {
            root.id()
        } else {
            let path = Path::new(OsStr::from_bytes(folder));
            match root.get_path(path) {
                Ok(entry) if entry.kind() == Some(git2::ObjectType::Tree) => entry.id(),
                Ok(_) => return Ok(None),
                Err(error) if error.code() == git2::ErrorCode::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Some(self.repo.find_tree(id)?))
    }
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_may_point_inside_the_tree_only() {
        for (path, target) in
            [("a", "b"), ("a/b", "../c"), ("a/b", "./c/d"), ("a/b/c", "../../d"), ("a", "b..")]
        {
            assert!(!leaves(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in [
            ("a", ""),
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a/b", "../../c"),
            ("a/b", "./.././../c"),
            ("a", "up/../../c"),
            ("a/b", "../up/../x"),
            ("a", ".git/config"),
            ("a/b", "../.GIT"),
            ("a", r"..\c"),
        ] {
            assert!(leaves(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }

    #[test]
    fn workflows_are_known_by_their_folder() {
        for path in [".github/workflows/ci.yml", ".github/Workflows/x", ".github/workflows"] {
            assert!(is_workflow(path.as_bytes()), "{path}");
        }
        for path in [".github/workflows.md", ".github/CODEOWNERS", "a/.github/workflows/ci.yml"] {
            assert!(!is_workflow(path.as_bytes()), "{path}");
        }
    }
}
