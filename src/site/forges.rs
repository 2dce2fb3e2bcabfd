//! What the site asks a forge for a person: a repository to link, an issue to work on.

mod known;

use std::path::Path;

use async_trait::async_trait;

use crate::api::Problem;
use crate::api::feed::HostStatus;
use crate::model::{Project, RepoName, Timestamp};

pub use known::KnownForges;

/// The forges as the site needs them; handed in, so that tests need no network.
#[async_trait]
pub trait Forges: Send + Sync + std::fmt::Debug {
    /// A repository of GitHub.
    async fn repository(&self, slug: &RepoName) -> Result<RemoteRepository, Problem>;

    /// A repository on this machine's disk.
    async fn inspect(&self, path: &Path) -> Result<LocalRepository, Problem>;

    /// How it stands with the hosts that were asked.
    fn hosts(&self, now: Timestamp) -> Vec<HostStatus>;

    /// An issue of a linked repository.
    async fn issue(&self, project: &Project, number: u64) -> Result<IssueText, Problem>;

    /// Opens an issue in a linked repository.
    async fn open_issue(
        &self,
        project: &Project,
        title: &str,
        body: &str,
    ) -> Result<IssueText, Problem>;
}

/// A repository of a forge, as the forge tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRepository {
    /// Its name as the forge spells it.
    pub slug: RepoName,
    /// The forge's host.
    pub host: String,
    /// Where git fetches from and pushes to.
    pub remote: String,
    /// The REST base URL of the forge.
    pub api_base: String,
    /// The branch that work starts from.
    pub default_branch: String,
}

/// A repository on this disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRepository {
    /// Its canonical path.
    pub path: String,
    /// The branch that work starts from.
    pub default_branch: String,
}

/// An issue as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueText {
    /// Its number.
    pub number: u64,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
}
