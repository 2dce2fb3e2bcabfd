//! A repository on this disk as a forge: what it is, and whether a branch was merged.
//!
//! The repository is the operator's own, bare or ordinary. It is only read here, through git2,
//! which runs no hook, filter or helper; the owner check of libgit2 stays on.

use std::fmt;
use std::path::{Path, PathBuf};

use git2::{BranchType, ErrorCode, Oid, Repository, RepositoryOpenFlags};

use super::ForgeError;

/// A local repository that can be linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRepo {
    /// The folder git fetches from and pushes to: absolute, without symbolic links.
    pub path: PathBuf,
    /// The branch HEAD names.
    pub default_branch: String,
    /// Whether it has no working tree.
    pub bare: bool,
}

/// What is wrong with a local repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalProblem {
    /// There is no such folder.
    NotFound,
    /// The folder is not the top of a repository.
    NotARepository,
    /// It belongs to another user of this machine.
    OtherOwner,
    /// It has no commit yet.
    Empty,
    /// HEAD names a commit instead of a branch.
    Detached,
    /// The path or the branch is not UTF-8, or the path holds a control character.
    NotText,
    /// Something else, in git's words.
    Git(String),
}

impl LocalProblem {
    /// What a person can do about it.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound | Self::NotText | Self::Git(_) => None,
            Self::NotARepository => Some("name the folder that holds `.git`, or a bare repository"),
            Self::OtherOwner => Some(
                "run relay as the user who owns the folder, or allow it with \
                 `git config --global --add safe.directory FOLDER`",
            ),
            Self::Empty => Some("make a first commit; work starts from the default branch"),
            Self::Detached => Some("check out the branch that work is to start from"),
        }
    }
}

impl fmt::Display for LocalProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no such folder",
            Self::NotARepository => "not a git repository",
            Self::OtherOwner => "belongs to another user, so git refuses it (dubious ownership)",
            Self::Empty => "has no commit yet",
            Self::Detached => "HEAD is detached, so there is no default branch",
            Self::NotText => {
                "the path or the branch name is not UTF-8, or holds a control character"
            }
            Self::Git(text) => text,
        })
    }
}

/// Looks at the repository at `path`: bare or ordinary, with at least one commit on the branch
/// that HEAD names.
///
/// # Errors
/// [`ForgeError::Local`] with the path and what is wrong.
pub fn inspect(path: &Path) -> Result<LocalRepo, ForgeError> {
    let path = path.canonicalize().map_err(|_| problem(path, LocalProblem::NotFound))?;
    let repo = open(&path)?;
    let bad = |what| problem(&path, what);
    let head = repo.find_reference("HEAD").map_err(|e| bad(explain(&e)))?;
    let target = head.symbolic_target_bytes().ok_or_else(|| bad(LocalProblem::Detached))?;
    let target = std::str::from_utf8(target).map_err(|_| bad(LocalProblem::NotText))?;
    let branch =
        target.strip_prefix("refs/heads/").ok_or_else(|| bad(LocalProblem::Detached))?.to_owned();
    tip(&repo, &branch).map_err(|e| match e.code() {
        ErrorCode::NotFound | ErrorCode::UnbornBranch => bad(LocalProblem::Empty),
        _ => bad(explain(&e)),
    })?;
    let bare = repo.is_bare();
    // A linked worktree's own folder stays the remote: git resolves it to the shared repository.
    let remote = if bare { repo.path() } else { repo.workdir().unwrap_or(&path) };
    let remote = remote.canonicalize().unwrap_or_else(|_| path.clone());
    if remote.to_str().is_none_or(|path| path.chars().any(char::is_control)) {
        return Err(bad(LocalProblem::NotText));
    }
    Ok(LocalRepo { path: remote, default_branch: branch, bare })
}

/// Whether `commit` (hex) is in the first of the branches `bases` that is there: merged by a merge
/// or a fast-forward. A squash or a rebase makes other commits; such a task ends by `relay task
/// done`. The second base is what the first is called since it was renamed.
///
/// # Errors
/// [`ForgeError::Local`] where the repository, or its branch, cannot be read. A commit or a branch
/// that is not there is not merged.
pub fn merged(path: &Path, bases: [&str; 2], commit: &str) -> Result<bool, ForgeError> {
    let repo = open(path)?;
    let bad = |e: git2::Error| problem(path, explain(&e));
    let commit = Oid::from_str(commit).map_err(bad)?;
    let is_there = |base: &&str| match tip(&repo, base) {
        Err(error) if error.code() == ErrorCode::NotFound => None,
        other => Some(other),
    };
    let Some(tip) = bases.iter().find_map(is_there) else { return Ok(false) };
    let tip = tip.map_err(bad)?;
    if tip == commit {
        return Ok(true);
    }
    if repo.find_commit(commit).is_err() {
        return Ok(false);
    }
    repo.graph_descendant_of(tip, commit).map_err(bad)
}

fn open(path: &Path) -> Result<Repository, ForgeError> {
    // NO_SEARCH: a folder inside some other repository is not that repository.
    let none: [&Path; 0] = [];
    Repository::open_ext(path, RepositoryOpenFlags::NO_SEARCH, none).map_err(|e| {
        let what = match e.code() {
            ErrorCode::NotFound if !path.exists() => LocalProblem::NotFound,
            ErrorCode::NotFound => LocalProblem::NotARepository,
            _ => explain(&e),
        };
        problem(path, what)
    })
}

fn tip(repo: &Repository, branch: &str) -> Result<Oid, git2::Error> {
    Ok(repo.find_branch(branch, BranchType::Local)?.get().peel_to_commit()?.id())
}

fn explain(error: &git2::Error) -> LocalProblem {
    match error.code() {
        ErrorCode::Owner => LocalProblem::OtherOwner,
        ErrorCode::UnbornBranch => LocalProblem::Empty,
        _ => LocalProblem::Git(error.message().to_owned()),
    }
}

fn problem(path: &Path, problem: LocalProblem) -> ForgeError {
    ForgeError::Local { path: path.display().to_string(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use git2::{RepositoryInitOptions, Signature, Time};

    fn repository(dir: &Path, bare: bool) -> Repository {
        let mut options = RepositoryInitOptions::new();
        options.bare(bare).initial_head("trunk").external_template(false);
        Repository::init_opts(dir, &options).unwrap()
    }

    fn commit(repo: &Repository, refname: &str, parents: &[Oid], text: &str) -> Oid {
        let blob = repo.blob(text.as_bytes()).unwrap();
        let mut tree = repo.treebuilder(None).unwrap();
        tree.insert("file", blob, 0o100_644).unwrap();
        let tree = repo.find_tree(tree.write().unwrap()).unwrap();
        let who = Signature::new("a", "a@example.invalid", &Time::new(1, 0)).unwrap();
        let parents: Vec<_> = parents.iter().map(|p| repo.find_commit(*p).unwrap()).collect();
        let parents: Vec<_> = parents.iter().collect();
        repo.commit(Some(refname), &who, &who, text, &tree, &parents).unwrap()
    }

    fn what(result: Result<LocalRepo, ForgeError>) -> LocalProblem {
        match result.unwrap_err() {
            ForgeError::Local { problem, .. } => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bare_and_ordinary_repositories_can_be_linked() {
        let dir = tempfile::tempdir().unwrap();
        for bare in [true, false] {
            let path = dir.path().join(if bare { "bare.git" } else { "plain" });
            commit(&repository(&path, bare), "HEAD", &[], "one");
            let link = dir.path().join(format!("link-{bare}"));
            std::os::unix::fs::symlink(&path, &link).unwrap();
            let found = inspect(&link).unwrap();
            assert_eq!(found.path, path.canonicalize().unwrap());
            assert_eq!((found.default_branch.as_str(), found.bare), ("trunk", bare));
        }
    }

    #[test]
    fn what_cannot_be_worked_on_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(what(inspect(&dir.path().join("nowhere"))), LocalProblem::NotFound);
        assert_eq!(what(inspect(dir.path())), LocalProblem::NotARepository);

        let repo = repository(&dir.path().join("r"), false);
        assert_eq!(what(inspect(&dir.path().join("r"))), LocalProblem::Empty);

        let first = commit(&repo, "HEAD", &[], "one");
        std::fs::create_dir(dir.path().join("r/sub")).unwrap();
        assert_eq!(what(inspect(&dir.path().join("r/sub"))), LocalProblem::NotARepository);

        repo.set_head_detached(first).unwrap();
        assert_eq!(what(inspect(&dir.path().join("r"))), LocalProblem::Detached);
    }

    #[test]
    fn a_commit_is_merged_once_the_branch_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let repo = repository(dir.path(), true);
        let base = commit(&repo, "refs/heads/trunk", &[], "one");
        let work = commit(&repo, "refs/heads/relay/claude-1", &[base], "two");
        let merged = |commit: &str| merged(dir.path(), ["trunk", "main"], commit).unwrap();
        assert!(!merged(&work.to_string()));
        assert!(!merged(&"7".repeat(40)), "a commit that is not there is not merged");
        let merge = commit(&repo, "refs/heads/trunk", &[base, work], "three");
        assert!(merged(&work.to_string()));
        assert!(merged(&merge.to_string()));
        let with = |bases| super::merged(dir.path(), bases, &work.to_string()).unwrap();
        assert!(with(["renamed-since", "trunk"]), "the base has another name now");
        assert!(!with(["renamed-since", "gone-as-well"]));
    }
}
