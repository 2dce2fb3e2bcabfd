//! Pull requests of a local repository: rows on the site, since there is nowhere else to put them.

use std::time::Duration;

use async_trait::async_trait;

use crate::api::{OpenLocalPull, TaskDetail};
use crate::client::{Client, ClientError};
use crate::forge::{ForgeError, NewPull, Pull, PullState, Pulls, Standing};
use crate::model::{ForgeProblem, LeaseRef, RepoName, WorkerId};
use crate::work::persist::{Patience, persistently};
use crate::work::renewal::Renewal;

/// How long the site is asked that is there and fails. One that is away is waited for.
const PATIENCE: Patience = Patience::WhileAway(Duration::from_secs(120));

/// One task's pull request of a local repository.
#[derive(Clone, Debug)]
pub struct LocalPulls {
    /// The site.
    pub client: Client,
    /// Brings the lease back where it had only run out.
    pub renewal: Renewal,
    /// Under which lease it is written.
    pub lease: LeaseRef,
    /// The holder.
    pub worker: WorkerId,
    /// The pushed commit.
    pub head: String,
    /// The change, as a person reads it.
    pub diff: String,
    /// What was asked for, so that the comment can be added to it.
    pub pull: NewPull,
}

#[async_trait]
impl Pulls for LocalPulls {
    /// What a disk refuses shows when it is written to.
    async fn standing(&self, _: &RepoName) -> Result<Standing, ForgeError> {
        Ok(Standing::Writable)
    }

    async fn find_pull(&self, _: &RepoName, branch: &str) -> Result<Option<Pull>, ForgeError> {
        let detail = self.detail().await?;
        // One that shows an older commit is brought up to date by opening it again.
        Ok(detail
            .local_pull
            .filter(|row| row.branch == branch && row.head == self.head)
            .map(|row| pull(row.number)))
    }

    async fn open_pull(&self, repo: &RepoName, new: &NewPull) -> Result<Pull, ForgeError> {
        self.write(repo, new, None).await?;
        Ok(pull(self.lease.task.number))
    }

    async fn find_comment(
        &self,
        _: &RepoName,
        _: u64,
        marker: &str,
    ) -> Result<Option<String>, ForgeError> {
        let detail = self.detail().await?;
        let comment = detail.local_pull.and_then(|row| row.comment);
        Ok(comment.filter(|text| text.contains(marker)).map(|_| self.lease.task.to_string()))
    }

    async fn comment(&self, repo: &RepoName, _: u64, body: &str) -> Result<String, ForgeError> {
        self.write(repo, &self.pull, Some(body.to_owned())).await?;
        Ok(self.lease.task.to_string())
    }
}

impl LocalPulls {
    async fn write(
        &self,
        repo: &RepoName,
        new: &NewPull,
        comment: Option<String>,
    ) -> Result<(), ForgeError> {
        let row = OpenLocalPull {
            lease: self.lease.clone(),
            worker_id: self.worker.clone(),
            title: new.title.clone(),
            body: new.body.clone(),
            branch: new.branch.clone(),
            base: new.base.clone(),
            head: self.head.clone(),
            diff: self.diff.clone(),
            comment,
        };
        let open = || self.client.open_local_pull(repo, &row);
        let opening = self.renewal.saying(|| self.persistently(open));
        opening.await.map(drop).map_err(forge_error)
    }

    async fn detail(&self) -> Result<TaskDetail, ForgeError> {
        self.persistently(|| self.client.task(&self.lease.task)).await.map_err(forge_error)
    }

    /// The site may be away for a moment, and the row is the same however often it is written.
    async fn persistently<T, F>(&self, ask: impl FnMut() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        persistently(&*self.renewal.clock, &*self.renewal.ids, PATIENCE, ask).await
    }
}

fn pull(number: u64) -> Pull {
    Pull { number, url: String::new(), state: PullState::Open, head: None }
}

fn forge_error(error: ClientError) -> ForgeError {
    match error {
        ClientError::Refused(problem) => {
            ForgeError::Refused { why: ForgeProblem::Invalid, text: problem.detail }
        }
        error => ForgeError::Unreachable(error.to_string()),
    }
}
