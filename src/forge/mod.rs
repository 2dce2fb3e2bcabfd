//! Where issues and pull requests live: GitHub, or a repository on this disk.
//!
//! Architecture invariant: this room knows nothing of tasks' states or leases. It asks a forge,
//! says what it answered, and writes only what it is told to.

pub mod github;
pub mod local;
pub mod page;
pub mod words;

use async_trait::async_trait;

use crate::model::{ForgeProblem, RepoName, Timestamp};

/// What a job needs of a forge: one pull request, and one comment on it. Both are looked for
/// before they are made, and again after an answer that was lost.
#[async_trait]
pub trait Pulls: Send + Sync {
    /// What this login may do with the repository: asked before a lane is run for work that could
    /// not be delivered.
    async fn standing(&self, repo: &RepoName) -> Result<Standing, ForgeError>;

    /// The pull request from `branch` of this repository: the open one, else the newest.
    async fn find_pull(&self, repo: &RepoName, branch: &str) -> Result<Option<Pull>, ForgeError>;

    /// Opens a pull request, or returns the one that is already open for the branch.
    async fn open_pull(&self, repo: &RepoName, pull: &NewPull) -> Result<Pull, ForgeError>;

    /// The id of the comment on issue or pull request `number` that holds `marker`.
    async fn find_comment(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
    ) -> Result<Option<String>, ForgeError>;

    /// Posts a comment and returns its id. After a lost answer it is looked for by the run
    /// marker in `body` ([`words::run_marker`]) and never posted twice.
    async fn comment(&self, repo: &RepoName, number: u64, body: &str)
    -> Result<String, ForgeError>;
}

/// What a login may do with a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Push to it.
    Writable,
    /// Read it only.
    ReadOnly,
    /// Nobody can write to it.
    Archived,
    /// It has another name now.
    Moved(RepoName),
}

/// A pull request on a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Its number.
    pub number: u64,
    /// Where a person can read it.
    pub url: String,
    /// Where it stands.
    pub state: PullState,
    /// The commit it shows, in hex, where the forge says so.
    pub head: Option<String>,
}

/// Where a pull request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullState {
    /// Waits for a person.
    Open,
    /// Its commits are in the base branch.
    Merged,
    /// Closed without a merge.
    Closed,
}

/// A pull request to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPull {
    /// The pushed branch, in the same repository.
    pub branch: String,
    /// The branch it is to be merged into.
    pub base: String,
    /// Its title ([`words::pr_title`]).
    pub title: String,
    /// Its text ([`words::pr_body`]).
    pub body: String,
}

/// Why a forge did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// It answered, and the answer is no.
    #[error("{text}")]
    Refused {
        /// The kind of refusal.
        why: ForgeProblem,
        /// What was asked and what the forge said, for a person. Never holds the token.
        text: String,
    },
    /// A primary or secondary rate limit, or relay's own cool-down after one.
    #[error("the forge's rate limit is used up")]
    RateLimited {
        /// No call is made before this.
        until: Timestamp,
    },
    /// It could not be reached, did not answer in time, or answered with a server error.
    #[error("{0}")]
    Unreachable(String),
    /// It answered with something that cannot be read as an answer.
    #[error("{0}")]
    BadAnswer(String),
    /// A repository on this disk that cannot be used.
    #[error("{path}: {problem}")]
    Local {
        /// The folder.
        path: String,
        /// What is wrong with it.
        problem: local::LocalProblem,
    },
}

impl ForgeError {
    /// The same as a stop reason's detail.
    #[must_use]
    pub const fn problem(&self) -> ForgeProblem {
        match self {
            Self::Refused { why, .. } => *why,
            Self::RateLimited { .. } => ForgeProblem::RateLimited,
            Self::Unreachable(_) => ForgeProblem::Unreachable,
            // A page of a proxy or a broken server: nothing that the request is to blame for.
            Self::BadAnswer(_) => ForgeProblem::Unreachable,
            Self::Local { problem, .. } => match problem {
                local::LocalProblem::NotFound | local::LocalProblem::NotARepository => {
                    ForgeProblem::NotFound
                }
                local::LocalProblem::OtherOwner => ForgeProblem::Forbidden,
                _ => ForgeProblem::Invalid,
            },
        }
    }

    /// What a person can do about it, where there is something.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused { why: ForgeProblem::Unauthorized, .. } => {
                Some("log in with `gh auth login`, or set RELAY_GITHUB_TOKEN")
            }
            Self::Refused { why: ForgeProblem::Forbidden, .. } => {
                Some("the login needs write access to the repository, or the token more scopes")
            }
            Self::Refused { why: ForgeProblem::NotFound, .. } => {
                Some("check the name; a private repository is not seen without a login that may")
            }
            Self::Local { problem, .. } => problem.hint(),
            _ => None,
        }
    }
}
