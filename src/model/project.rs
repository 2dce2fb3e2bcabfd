//! A linked repository.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RepoName, Timestamp};

/// Where a repository, its issues and its pull requests live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForgeKind {
    /// GitHub or GitHub Enterprise.
    Github,
    /// A repository on one machine's disk.
    Local,
}

/// A linked repository. Its slug is the repository's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// `owner/name`, or `local/<name>`.
    pub slug: RepoName,
    /// Which forge.
    pub forge: ForgeKind,
    /// The forge's host (`github.com`), or the machine whose disk holds a local repository.
    pub host: String,
    /// Where git fetches from and pushes to: an http(s) URL, or an absolute path.
    pub remote: String,
    /// The REST base URL of the forge; `None` for a local repository.
    pub api_base: Option<String>,
    /// The branch that work starts from, as last seen.
    pub default_branch: String,
    /// When it was linked.
    pub linked_at: Timestamp,
}
