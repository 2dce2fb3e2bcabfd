//! Pull requests and comments: looked for before they are made, and after a lost answer.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::request::encoded;
use super::{GitHub, time};
use crate::forge::{ForgeError, NewPull, Pull, PullState, Pulls, Standing, words};
use crate::model::{ForgeProblem, RepoName, Timestamp};

/// Pages of a hundred pull requests of one branch, or comments of one pull request.
const PAGES: usize = 30;

#[derive(Serialize, Deserialize)]
struct Wire {
    number: u64,
    html_url: String,
    state: String,
    #[serde(default)]
    merged: bool,
    #[serde(default)]
    merged_at: Option<String>,
    head: Head,
}

#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(rename = "ref")]
    branch: String,
    #[serde(default)]
    sha: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct WireComment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    #[serde(with = "time")]
    created_at: Timestamp,
    #[serde(default)]
    user: Option<WireUser>,
}

#[derive(Serialize, Deserialize)]
struct WireUser {
    login: String,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

impl From<Wire> for Pull {
    fn from(wire: Wire) -> Self {
        let state = if wire.merged || wire.merged_at.is_some() {
            PullState::Merged
        } else if wire.state == "open" {
            PullState::Open
        } else {
            PullState::Closed
        };
        Self { number: wire.number, url: wire.html_url, state, head: wire.head.sha }
    }
}

impl GitHub {
    /// One pull request, where it exists.
    ///
    /// # Errors
    /// As any request.
    pub async fn pull(&self, repo: &RepoName, number: u64) -> Result<Option<Pull>, ForgeError> {
        match self.get::<Wire>(&format!("/repos/{repo}/pulls/{number}")).await {
            Ok(answer) => Ok(Some(answer.value.into())),
            Err(ForgeError::Refused { why: ForgeProblem::NotFound, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn open_pull_of(
        &self,
        repo: &RepoName,
        branch: &str,
    ) -> Result<Option<Pull>, ForgeError> {
        Ok(self.find_pull(repo, branch).await?.filter(|pull| pull.state == PullState::Open))
    }
}

#[async_trait]
impl Pulls for GitHub {
    async fn standing(&self, repo: &RepoName) -> Result<Standing, ForgeError> {
        let found = self.repository(repo).await?;
        Ok(if !found.name.to_string().eq_ignore_ascii_case(&repo.to_string()) {
            Standing::Moved(found.name)
        } else if found.archived {
            Standing::Archived
        } else if found.can_push {
            Standing::Writable
        } else {
            Standing::ReadOnly
        })
    }

    async fn find_pull(&self, repo: &RepoName, branch: &str) -> Result<Option<Pull>, ForgeError> {
        let head = encoded(&format!("{}:{branch}", repo.owner()));
        let path = format!("/repos/{repo}/pulls?state=all&head={head}");
        let found: Vec<Wire> = self.list(&path, PAGES).await?;
        Ok(found
            .into_iter()
            .filter(|wire| wire.head.branch == branch)
            .map(Pull::from)
            .max_by_key(|pull| (pull.state == PullState::Open, pull.number)))
    }

    async fn open_pull(&self, repo: &RepoName, new: &NewPull) -> Result<Pull, ForgeError> {
        #[derive(Serialize)]
        struct Body<'a> {
            title: &'a str,
            head: &'a str,
            base: &'a str,
            body: &'a str,
        }
        if let Some(open) = self.open_pull_of(repo, &new.branch).await? {
            return Ok(open);
        }
        let body = Body { title: &new.title, head: &new.branch, base: &new.base, body: &new.body };
        match self.post::<_, Wire>(&format!("/repos/{repo}/pulls"), &body).await {
            Ok(wire) => Ok(wire.into()),
            // The answer was lost, or somebody was first: what is there counts.
            Err(
                error @ (ForgeError::Unreachable(_)
                | ForgeError::BadAnswer(_)
                | ForgeError::Refused { why: ForgeProblem::Invalid, .. }),
            ) => match self.open_pull_of(repo, &new.branch).await {
                Ok(Some(open)) => Ok(open),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn find_comment(
        &self,
        repo: &RepoName,
        number: u64,
        marker: &str,
    ) -> Result<Option<String>, ForgeError> {
        // A marker copied by somebody else is not relay's comment.
        let me = self.login().await?;
        let path = format!("/repos/{repo}/issues/{number}/comments");
        let comments: Vec<WireComment> = self.list(&path, PAGES).await?;
        Ok(comments
            .into_iter()
            .filter(|comment| match (&me, &comment.user) {
                (Some(me), Some(by)) => by.login.eq_ignore_ascii_case(me),
                // Only an App's installation has no name, and no person's comment is one of it.
                (None, Some(by)) => by.kind.as_deref() == Some("Bot"),
                (_, None) => false,
            })
            .filter(|comment| comment.body.as_deref().is_some_and(|b| b.starts_with(marker)))
            .min_by_key(|comment| (comment.created_at, comment.id))
            .map(|comment| comment.id.to_string()))
    }

    async fn comment(
        &self,
        repo: &RepoName,
        number: u64,
        body: &str,
    ) -> Result<String, ForgeError> {
        #[derive(Serialize)]
        struct Body<'a> {
            body: &'a str,
        }
        let marker = words::marker_of(body);
        if let Some(marker) = marker
            && let Some(there) = self.find_comment(repo, number, marker).await?
        {
            return Ok(there);
        }
        let path = format!("/repos/{repo}/issues/{number}/comments");
        match (self.post::<_, WireComment>(&path, &Body { body }).await, marker) {
            (Ok(comment), _) => Ok(comment.id.to_string()),
            (
                Err(error @ (ForgeError::Unreachable(_) | ForgeError::BadAnswer(_))),
                Some(marker),
            ) => match self.find_comment(repo, number, marker).await {
                Ok(Some(there)) => Ok(there),
                _ => Err(error),
            },
            (Err(error), _) => Err(error),
        }
    }
}
