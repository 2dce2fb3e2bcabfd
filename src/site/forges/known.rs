//! The forges relay knows: GitHub by the person's logins, and repositories on this disk.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Forges, IssueText, LocalRepository, RemoteRepository};
use crate::api::feed::HostStatus;
use crate::api::{Code, Problem};
use crate::forge::ForgeError;
use crate::forge::github::{Accounts, GateState, GitHub, Issue, host_of};
use crate::forge::local;
use crate::model::{ForgeProblem, Project, RepoName, Timestamp};

/// See the module.
#[derive(Clone, Debug)]
pub struct KnownForges {
    accounts: Arc<Accounts>,
    /// The REST base of the GitHub that repositories are linked from.
    api_base: String,
}

impl KnownForges {
    /// Repositories are linked from the GitHub at `api_base`; a linked one remembers its own.
    pub fn new(accounts: Arc<Accounts>, api_base: impl Into<String>) -> Self {
        Self { accounts, api_base: api_base.into() }
    }

    /// The connection to `api_base`. A refused login is forgotten, so that the next request asks
    /// for a token anew.
    async fn ask<'a, T, F: Future<Output = Result<T, ForgeError>> + Send + 'a>(
        &self,
        api_base: &str,
        question: impl FnOnce(Arc<GitHub>) -> F + Send,
    ) -> Result<T, Problem> {
        let github = self.accounts.at(api_base).await.map_err(problem)?;
        let answer = question(github).await;
        if answer.as_ref().is_err_and(|e| e.problem() == ForgeProblem::Unauthorized) {
            self.accounts.forget(api_base).await;
        }
        answer.map_err(problem)
    }
}

#[async_trait]
impl Forges for KnownForges {
    async fn repository(&self, slug: &RepoName) -> Result<RemoteRepository, Problem> {
        let asked = slug.clone();
        let found = self
            .ask(&self.api_base, |github| async move { github.repository(&asked).await })
            .await?;
        if found.archived {
            let detail = format!("`{}` is archived: nothing can be pushed to it", found.name);
            return Err(Problem::new(Code::Conflict, detail));
        }
        if !found.can_push {
            let detail = format!("this login may not push to `{}`", found.name);
            return Err(Problem::new(Code::Forge, detail)
                .hint("ask for write access, or link a fork of your own"));
        }
        Ok(RemoteRepository {
            slug: found.name,
            host: host_of(&self.api_base),
            remote: found.clone_url,
            api_base: self.api_base.clone(),
            default_branch: found.default_branch,
        })
    }

    async fn inspect(&self, path: &Path) -> Result<LocalRepository, Problem> {
        let path = path.to_owned();
        let looked = tokio::task::spawn_blocking(move || local::inspect(&path)).await;
        let found = looked
            .map_err(|e| Problem::new(Code::Internal, format!("reading the repository: {e}")))?
            .map_err(problem)?;
        let path = found.path.to_str().ok_or_else(|| {
            Problem::new(Code::BadRequest, format!("{}: not UTF-8", found.path.display()))
        })?;
        Ok(LocalRepository { path: path.to_owned(), default_branch: found.default_branch })
    }

    fn hosts(&self, now: Timestamp) -> Vec<HostStatus> {
        let status = |(host, state): (String, GateState)| {
            let shut = state.shut.filter(|(until, _)| now < *until);
            HostStatus {
                host,
                reached_at: state.reached_at,
                waiting_until: shut.map(|(until, _)| until),
                limit: shut.map(|(_, limit)| limit.to_string()),
                calls: state.calls,
                counted: state.counted,
            }
        };
        self.accounts.hosts().into_iter().map(status).collect()
    }

    async fn issue(&self, project: &Project, number: u64) -> Result<IssueText, Problem> {
        let slug = project.slug.clone();
        let found = self
            .ask(api_base(project)?, |github| async move { github.issue(&slug, number).await })
            .await?;
        let issue = found.ok_or_else(|| {
            let detail = format!("`{}` has no issue {number}", project.slug);
            Problem::new(Code::NotFound, detail)
                .hint("a pull request is no issue; check the number")
        })?;
        if !issue.open {
            let detail = format!("issue {number} of `{}` is closed", project.slug);
            return Err(Problem::new(Code::Conflict, detail).hint("open it again first"));
        }
        Ok(text(issue))
    }

    async fn open_issue(
        &self,
        project: &Project,
        title: &str,
        body: &str,
    ) -> Result<IssueText, Problem> {
        let (slug, title, body) = (project.slug.clone(), title.to_owned(), body.to_owned());
        let open =
            |github: Arc<GitHub>| async move { github.open_issue(&slug, &title, &body, &[]).await };
        Ok(text(self.ask(api_base(project)?, open).await?))
    }
}

fn text(issue: Issue) -> IssueText {
    IssueText { number: issue.number, title: issue.title, body: issue.body }
}

fn api_base(project: &Project) -> Result<&str, Problem> {
    project.api_base.as_deref().ok_or_else(|| {
        let detail = format!("`{}` is linked without a forge", project.slug);
        Problem::new(Code::Conflict, detail).hint(format!("`relay link {}` mends it", project.slug))
    })
}

/// What a forge said, for whoever asked the site.
fn problem(error: ForgeError) -> Problem {
    let code = match &error {
        ForgeError::Local { .. } => Code::BadRequest,
        _ if error.problem() == ForgeProblem::NotFound => Code::NotFound,
        _ => Code::Forge,
    };
    let problem = Problem::new(code, error.to_string());
    match error.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}
