//! The worker's own repositories: mirror, checkout, snapshot, push.
//!
//! A lane may write everything in its copy, `.git` included, so nothing here ever runs git with
//! that `.git` or believes a byte of it (docs/SECURITY.md). Three repositories take part:
//! - the **mirror**, bare, one a repository, under relay's cache, fetched incrementally;
//! - the **copy**, which the lane gets: its own complete `.git`, sharing no file with the mirror;
//! - the copy's **folder** beside the mirror: the worker's own index of the copy, and what the
//!   snapshot writes until it is accepted. The lane sees neither it nor the mirror.
//!
//! Architecture invariant: imports `model` and `process` only. Network git is the `git` program;
//! trees, diffs and refs of relay's own repositories are read with libgit2.

mod abandoned;
mod bundle;
mod checkout;
mod diff;
mod error;
mod fence;
mod inspect;
mod isolation;
mod keep;
mod lfs;
mod mirror;
mod plant;
mod porcelain;
mod prune;
mod push;
mod rebase;
mod refs;
mod remove;
mod secrets;
mod snapshot;
mod stubs;
mod tree_rules;
mod warm_index;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::model::{IdError, Secret};
use crate::process::Redactor;

pub use checkout::Copy;
pub use error::GitError;
pub use isolation::{NETWORK_ENV, OLDEST_GIT, is_new_enough};
pub use mirror::Mirror;
pub use plant::plant;
pub use push::{Fence, FenceClaim, Fenced, Push, Pushed};
pub use rebase::Onto;
pub use remove::remove_tree;
pub use snapshot::{Snapshot, SnapshotRequest};
pub use tree_rules::HOST_FILE_LIMIT;

/// The `git` program of this machine and the folder where relay keeps its repositories.
#[derive(Clone, Debug)]
pub struct Git {
    settings: Arc<Settings>,
    secrets: Redactor,
}

#[derive(Debug)]
struct Settings {
    program: PathBuf,
    path_env: OsString,
    cache: PathBuf,
    network: Vec<(OsString, OsString)>,
    version: tokio::sync::OnceCell<String>,
    lfs: tokio::sync::OnceCell<bool>,
}

impl Git {
    /// `program` is the absolute path of git, `path_env` the PATH its helpers are looked up in,
    /// `cache` the folder `$RELAY_HOME/cache` (absolute; made when it is needed).
    #[must_use]
    pub fn new(program: PathBuf, path_env: OsString, cache: PathBuf) -> Self {
        Self::with_network(program, path_env, cache, Vec::new())
    }

    /// As [`Git::new`], for a machine that reaches its forge through a proxy or an own
    /// certificate authority. Only names of [`NETWORK_ENV`] are kept.
    #[must_use]
    pub fn with_network(
        program: PathBuf,
        path_env: OsString,
        cache: PathBuf,
        network: Vec<(OsString, OsString)>,
    ) -> Self {
        let network = isolation::network(network);
        let (version, lfs) = (tokio::sync::OnceCell::new(), tokio::sync::OnceCell::new());
        let settings = Settings { program, path_env, cache, network, version, lfs };
        Self { settings: Arc::new(settings), secrets: Redactor::default() }
    }

    /// Whether git-lfs is here, once it was asked.
    fn lfs(&self) -> &tokio::sync::OnceCell<bool> {
        &self.settings.lfs
    }

    /// The same, which refuses a commit that holds one of `secrets`.
    #[must_use]
    pub fn guarding(&self, secrets: Redactor) -> Self {
        Self { settings: Arc::clone(&self.settings), secrets }
    }

    fn cache(&self) -> &Path {
        &self.settings.cache
    }
}

/// Where a repository is fetched from and pushed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// An `https://` or `http://` URL without a login in it, or the absolute path of a bare or
    /// ordinary repository on this disk.
    pub url: String,
    /// Never sent to a path, to another host than its own, nor over plain http to another machine.
    pub token: Option<HostToken>,
}

/// A token and the one host that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostToken {
    /// Such as `github.com`; a port does not count.
    pub host: String,
    /// Sent as `x-access-token`'s password.
    pub token: Secret,
}

/// Who a commit says made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Such as `relay-agent`.
    pub name: String,
    /// An address; it need not receive mail.
    pub email: String,
}

/// A commit's id in hex.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Commit(String);

impl Commit {
    /// The 40 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn oid(&self) -> Result<git2::Oid, GitError> {
        Ok(git2::Oid::from_str(&self.0)?)
    }
}

impl From<git2::Oid> for Commit {
    fn from(oid: git2::Oid) -> Self {
        Self(oid.to_string())
    }
}

impl FromStr for Commit {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 40 && text.bytes().all(hex) && text.bytes().any(|b| b != b'0') {
            return Ok(Self(text.to_owned()));
        }
        Err(IdError { text: text.chars().take(80).collect(), expected: "a commit id (40 hex)" })
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Opens one of relay's own repositories without any configuration but libgit2's defaults: a
/// person's own settings have no say in what relay reads.
fn open(folder: &Path) -> Result<git2::Repository, GitError> {
    let repo = git2::Repository::open_bare(folder)?;
    repo.set_config(&git2::Config::new()?)?;
    Ok(repo)
}

/// Whether `branch` can be the name of a branch, and is read by git as nothing else.
#[must_use]
pub fn is_branch_name(branch: &str) -> bool {
    !branch.starts_with('-') && git2::Reference::is_valid_name(&format!("refs/heads/{branch}"))
}

/// Whether `branch` can be the name of a branch.
fn check_branch(branch: &str) -> Result<(), GitError> {
    if !is_branch_name(branch) {
        return Err(GitError::BadBranch(branch.chars().take(80).collect()));
    }
    Ok(())
}
