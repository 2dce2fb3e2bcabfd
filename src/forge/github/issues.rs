//! Issues: the list of one label, one of them, a new one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::encoded;
use super::{GitHub, time};
use crate::forge::ForgeError;
use crate::model::{ForgeProblem, RepoName, Timestamp};

/// How far a forge's clock may be behind this one without being noticed.
const CLOCKS: Duration = Duration::from_secs(60);
/// Pages of a hundred issues with one label; nobody has as many open.
const PAGES: usize = 20;

/// An issue as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Its number.
    pub number: u64,
    /// Its title. Text of a stranger.
    pub title: String,
    /// Its text. Text of a stranger.
    pub body: String,
    /// Whether it is open.
    pub open: bool,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// When anything about it last changed: a text, a label, a comment.
    pub updated_at: Timestamp,
    /// Where a person can read it.
    pub url: String,
}

impl Issue {
    /// Whether it carries `label`; GitHub's labels differ by more than case.
    #[must_use]
    pub fn has(&self, label: &str) -> bool {
        self.labels.iter().any(|have| have.eq_ignore_ascii_case(label))
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    number: u64,
    title: String,
    #[serde(default)]
    body: Option<String>,
    state: String,
    #[serde(default)]
    labels: Vec<WireLabel>,
    #[serde(with = "time")]
    created_at: Timestamp,
    #[serde(with = "time")]
    updated_at: Timestamp,
    #[serde(default)]
    html_url: String,
    #[serde(default)]
    pull_request: Option<Present>,
}

/// A field that only has to be there.
#[derive(Serialize, Deserialize)]
struct Present {}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WireLabel {
    Object { name: String },
    Name(String),
}

impl From<Wire> for Issue {
    fn from(wire: Wire) -> Self {
        let name = |label| match label {
            WireLabel::Object { name } | WireLabel::Name(name) => name,
        };
        Self {
            number: wire.number,
            title: wire.title,
            body: wire.body.unwrap_or_default(),
            open: wire.state == "open",
            labels: wire.labels.into_iter().map(name).collect(),
            updated_at: wire.updated_at,
            url: wire.html_url,
        }
    }
}

impl GitHub {
    /// Every open issue with `label`, oldest first. Pull requests are left out.
    ///
    /// # Errors
    /// Any page that could not be read makes the whole list an error, so that a hole is never
    /// taken for labels taken off.
    pub async fn labelled(&self, repo: &RepoName, label: &str) -> Result<Vec<Issue>, ForgeError> {
        let label_text = encoded(label);
        let path = format!(
            "/repos/{repo}/issues?state=open&labels={label_text}&sort=created&direction=asc"
        );
        let wire: Vec<Wire> = self.list(&path, PAGES).await?;
        Ok(wire
            .into_iter()
            .filter(|wire| wire.pull_request.is_none())
            .map(Issue::from)
            .filter(|issue| issue.open && issue.has(label))
            .collect())
    }

    /// One issue, where it is still there; a pull request is no issue.
    ///
    /// # Errors
    /// A number that does not exist is `None`, everything else that is not an answer an error.
    pub async fn issue(&self, repo: &RepoName, number: u64) -> Result<Option<Issue>, ForgeError> {
        match self.get::<Wire>(&format!("/repos/{repo}/issues/{number}")).await {
            Ok(answer) if answer.value.pull_request.is_some() => Ok(None),
            Ok(answer) => Ok(Some(answer.value.into())),
            Err(ForgeError::Refused { why: ForgeProblem::NotFound, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens an issue. After an answer that was lost it is looked for, and nothing is sent twice.
    ///
    /// # Errors
    /// Where it was lost and cannot be looked for either, the error says so.
    /// `Forbidden` or `Invalid` with GitHub's words, for instance where issues are switched off.
    pub async fn open_issue(
        &self,
        repo: &RepoName,
        title: &str,
        body: &str,
        labels: &[String],
    ) -> Result<Issue, ForgeError> {
        #[derive(Serialize)]
        struct New<'a> {
            title: &'a str,
            body: &'a str,
            labels: &'a [String],
        }
        let path = format!("/repos/{repo}/issues");
        let asked_at = self.clock.now();
        match self.post::<_, Wire>(&path, &New { title, body, labels }).await {
            Ok(wire) => Ok(wire.into()),
            Err(ForgeError::Unreachable(text) | ForgeError::BadAnswer(text)) => {
                match self.just_opened(repo, title, body, asked_at).await {
                    Ok(Some(issue)) => Ok(issue),
                    Ok(None) => Err(ForgeError::Unreachable(text)),
                    Err(_) => Err(ForgeError::Unreachable(format!(
                        "{text}; the issue may have been opened all the same, look before you try \
                         again"
                    ))),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The issue that this login opened with these words at `asked_at` or after.
    async fn just_opened(
        &self,
        repo: &RepoName,
        title: &str,
        body: &str,
        asked_at: Timestamp,
    ) -> Result<Option<Issue>, ForgeError> {
        let Some(me) = self.login().await? else { return Ok(None) };
        let path = format!(
            "/repos/{repo}/issues?state=all&creator={}&sort=created&direction=desc&per_page=10",
            encoded(&me)
        );
        let newest = self.get::<Vec<Wire>>(&path).await?.value;
        Ok(newest
            .into_iter()
            .filter(|wire| self.here(wire.created_at) + CLOCKS >= asked_at)
            .map(Issue::from)
            .find(|issue| issue.title == title && issue.body == body))
    }
}
