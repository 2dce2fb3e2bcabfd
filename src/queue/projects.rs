//! Linked repositories, their local pull requests, and preferences.

use super::tasks::missing;
use super::{LocalPullRow, Queue, QueueError};
use crate::model::preference::labels;
use crate::model::{Actor, Passage, Preference, PreferenceKey, Project, RepoName, Scope, TaskId};

impl Queue {
    /// Links a repository, or brings its row up to date.
    pub async fn link(&self, p: Project) -> Result<Project, QueueError> {
        Ok(self.write(Passage::QueueLink, self.inner.store.link(&p)).await?)
    }

    /// Every linked repository, by slug.
    pub async fn projects(&self) -> Result<Vec<Project>, QueueError> {
        Ok(self.inner.store.projects().await?)
    }

    /// One linked repository.
    pub async fn project(&self, slug: &RepoName) -> Result<Project, QueueError> {
        self.inner.store.project(slug).await?.ok_or_else(|| missing("project", slug))
    }

    /// The pull request of a task of a local repository.
    pub async fn local_pull(&self, id: &TaskId) -> Result<Option<LocalPullRow>, QueueError> {
        Ok(self.inner.store.local_pull(id).await?)
    }

    /// Sets a preference, also for tasks that are already queued; its value is checked by its key.
    /// An empty `lane.labels` asks for none where a wider scope asks for some.
    pub async fn prefer(&self, p: &Preference, by: Actor) -> Result<(), QueueError> {
        let invalid = |error| QueueError::Invalid(format!("{}: {error}", p.key.as_str()));
        let value = p.key.check(&p.value).map_err(invalid)?;
        let labels = match p.key {
            PreferenceKey::LaneLabels => labels(&value).map_err(invalid)?,
            _ => Vec::new(),
        };
        let checked = Preference { value, ..p.clone() };
        let prefer = self.inner.store.prefer(&checked, &labels, &by, self.inner.clock.now());
        self.write(Passage::QueuePrefer, prefer).await?;
        self.preferred(p.key).await
    }

    /// Takes a preference away, also for tasks that are already queued.
    pub async fn unprefer(
        &self,
        key: PreferenceKey,
        scope: &Scope,
        _by: Actor,
    ) -> Result<(), QueueError> {
        let unprefer = self.inner.store.unprefer(key, scope);
        let there = self.write(Passage::QueueUnprefer, unprefer).await?;
        if !there {
            return Err(missing("preference", &key.as_str()));
        }
        self.preferred(key).await
    }

    /// What follows from a change of a preference.
    async fn preferred(&self, key: PreferenceKey) -> Result<(), QueueError> {
        match key {
            PreferenceKey::BudgetUsdDay => self.settle_budgets().await.map(drop),
            _ => Ok(()),
        }
    }

    /// All preferences, the widest first.
    pub async fn preferences(&self) -> Result<Vec<Preference>, QueueError> {
        Ok(self.inner.store.preferences().await?)
    }
}
