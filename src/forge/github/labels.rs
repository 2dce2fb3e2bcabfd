//! Who set a label and when, whether they may, and whether the text is still the one they read.

use serde::{Deserialize, Serialize};

use super::request::encoded;
use super::{GitHub, Limit, time};
use crate::forge::ForgeError;
use crate::model::{ForgeProblem, RepoName, Timestamp};

/// Pages of a hundred events of one issue.
const PAGES: usize = 20;

/// What an issue's events say about one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelHistory {
    /// The newest time it was set.
    pub set: Option<LabelSet>,
    /// The newest time it was taken off.
    pub removed_at: Option<Timestamp>,
    /// The newest time the issue's title was changed.
    pub renamed_at: Option<Timestamp>,
}

/// A label was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSet {
    /// By whom; a deleted account has no name.
    pub by: Option<String>,
    /// When, to the second.
    pub at: Timestamp,
}

/// What a login may do with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Nothing, or only what everybody may.
    None,
    /// Read, or triage.
    Read,
    /// Write, maintain or administer.
    Write,
}

/// An issue's text against the moment its label was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wording {
    /// The same; this is it.
    Same {
        /// The title.
        title: String,
        /// The text.
        body: String,
    },
    /// Edited since.
    Changed,
    /// The server has no edit history, and something about the issue changed since.
    Unknown,
    /// There is no such issue any more.
    Gone,
}

impl GitHub {
    /// The history of `label` on an issue, from the issue's events.
    ///
    /// # Errors
    /// As any request; an issue with thousands of events is an error too.
    pub async fn label_history(
        &self,
        repo: &RepoName,
        number: u64,
        label: &str,
    ) -> Result<LabelHistory, ForgeError> {
        let path = format!("/repos/{repo}/issues/{number}/events");
        let events: Vec<WireEvent> = self.list(&path, PAGES).await?;
        let mut history = LabelHistory::default();
        for event in events {
            let about = event.label.is_some_and(|l| l.name.eq_ignore_ascii_case(label));
            let at = event.created_at;
            match event.event.as_str() {
                // `>=`: of two events in one second the later one in the list counts.
                "labeled" if about && history.set.as_ref().is_none_or(|set| at >= set.at) => {
                    let by = event.actor.map(|actor| actor.login);
                    history.set = Some(LabelSet { by, at });
                }
                "unlabeled" if about => history.removed_at = history.removed_at.max(Some(at)),
                "renamed" => history.renamed_at = history.renamed_at.max(Some(at)),
                _ => {}
            }
        }
        Ok(history)
    }

    /// What `login` may do with the repository. An unknown login may nothing.
    ///
    /// # Errors
    /// `Forbidden` where this login may not ask, which takes push access.
    pub async fn permission(&self, repo: &RepoName, login: &str) -> Result<Permission, ForgeError> {
        #[derive(Serialize, Deserialize)]
        struct Wire {
            permission: String,
        }
        let path = format!("/repos/{repo}/collaborators/{}/permission", encoded(login));
        match self.get::<Wire>(&path).await {
            Ok(answer) => Ok(match answer.value.permission.as_str() {
                "admin" | "maintain" | "write" | "push" => Permission::Write,
                "read" | "triage" | "pull" => Permission::Read,
                _ => Permission::None,
            }),
            Err(ForgeError::Refused { why: ForgeProblem::NotFound, .. }) => Ok(Permission::None),
            Err(error) => Err(error),
        }
    }

    /// The issue's text, where it is the one that stood when its label was set.
    ///
    /// One GraphQL query gives text and edit times of one moment after the label's event was
    /// read, so that no edit fits in between. Times are whole seconds: an edit in the label's own
    /// second counts as a change. A server without GraphQL has no edit history; there only an
    /// issue that nothing at all happened to since the label is the same.
    ///
    /// # Errors
    /// As any request.
    pub async fn wording(
        &self,
        repo: &RepoName,
        number: u64,
        history: &LabelHistory,
    ) -> Result<Wording, ForgeError> {
        let Some(set) = &history.set else { return Ok(Wording::Unknown) };
        let asked = Query {
            query: EDITS,
            variables: Variables { owner: repo.owner(), name: repo.name(), number },
        };
        let document: Document = match self.query(&asked).await {
            Ok(document) => document,
            Err(ForgeError::Refused { why: ForgeProblem::NotFound, .. }) => {
                return self.wording_by_rest(repo, number, history, set.at).await;
            }
            Err(error) => return Err(error),
        };
        if let Some(error) = document.errors.first() {
            if error.kind.as_deref() == Some("RATE_LIMITED") {
                let until = self.clock.now() + std::time::Duration::from_secs(60);
                self.gate.shut(until, Limit::Primary);
                return Err(ForgeError::RateLimited { until });
            }
            if error.kind.as_deref() != Some("NOT_FOUND") {
                let said: String = error.message.chars().take(300).collect();
                return Err(ForgeError::BadAnswer(format!("{repo}#{number}: GraphQL says {said}")));
            }
        }
        let issue = document.data.and_then(|d| d.repository).and_then(|r| r.issue);
        let Some(issue) = issue else { return Ok(Wording::Gone) };
        let renamed = issue.timeline_items.nodes.iter().filter_map(|n| n.created_at.as_deref());
        for edit in issue.last_edited_at.as_deref().into_iter().chain(renamed) {
            let Some(at) = time::parse(edit) else { return Ok(Wording::Unknown) };
            if at >= set.at {
                return Ok(Wording::Changed);
            }
        }
        Ok(Wording::Same { title: issue.title, body: issue.body })
    }

    async fn wording_by_rest(
        &self,
        repo: &RepoName,
        number: u64,
        history: &LabelHistory,
        set_at: Timestamp,
    ) -> Result<Wording, ForgeError> {
        if history.renamed_at.is_some_and(|at| at >= set_at) {
            return Ok(Wording::Changed);
        }
        // Read after the events, so this text is not older than the label.
        let Some(issue) = self.issue(repo, number).await? else { return Ok(Wording::Gone) };
        // By whole seconds, as GitHub writes them: a server that writes milliseconds moves the
        // issue one or two of them after the label's event.
        if issue.updated_at.0 / 1000 > set_at.0 / 1000 {
            return Ok(Wording::Unknown);
        }
        Ok(Wording::Same { title: issue.title, body: issue.body })
    }
}

#[derive(Serialize, Deserialize)]
struct WireEvent {
    event: String,
    #[serde(with = "time")]
    created_at: Timestamp,
    #[serde(default)]
    actor: Option<WireActor>,
    #[serde(default)]
    label: Option<WireName>,
}

#[derive(Serialize, Deserialize)]
struct WireActor {
    login: String,
}

#[derive(Serialize, Deserialize)]
struct WireName {
    name: String,
}

const EDITS: &str = "query($owner:String!,$name:String!,$number:Int!){\
    repository(owner:$owner,name:$name){issue(number:$number){title body lastEditedAt \
    timelineItems(itemTypes:[RENAMED_TITLE_EVENT],last:1){\
    nodes{...on RenamedTitleEvent{createdAt}}}}}}";

#[derive(Serialize)]
struct Query<'a> {
    query: &'a str,
    variables: Variables<'a>,
}

#[derive(Serialize)]
struct Variables<'a> {
    owner: &'a str,
    name: &'a str,
    number: u64,
}

#[derive(Deserialize)]
struct Document {
    data: Option<Data>,
    #[serde(default)]
    errors: Vec<QueryError>,
}

#[derive(Deserialize)]
struct QueryError {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Data {
    repository: Option<RepositoryData>,
}

#[derive(Deserialize)]
struct RepositoryData {
    issue: Option<IssueData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssueData {
    title: String,
    body: String,
    last_edited_at: Option<String>,
    timeline_items: Timeline,
}

#[derive(Deserialize)]
struct Timeline {
    nodes: Vec<RenameData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenameData {
    created_at: Option<String>,
}
