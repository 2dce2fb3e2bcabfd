//! Linked repositories, their local pull requests, and preferences.

use super::tasks::missing;
use super::{LocalPullRow, Queue, QueueError};
use crate::model::{
    Actor, Label, Passage, Preference, PreferenceKey, Project, RepoName, Scope, TaskId,
};

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

    /// Sets a preference, also for tasks that are already queued. The value of `lane.labels` is a
    /// comma-separated list; an empty one asks for none where a wider scope asks for some. That of
    /// `push.workflows` is `allow` or `refuse`.
    pub async fn prefer(&self, p: &Preference, by: Actor) -> Result<(), QueueError> {
        let (labels, value) = match p.key {
            PreferenceKey::LaneLabels => {
                let labels = labels(&p.value)?;
                let value = labels.iter().map(Label::as_str).collect::<Vec<_>>().join(",");
                (labels, value)
            }
            PreferenceKey::PushWorkflows => (Vec::new(), one_of(&p.value, &["allow", "refuse"])?),
        };
        let checked = Preference { value, ..p.clone() };
        let prefer = self.inner.store.prefer(&checked, &labels, &by, self.inner.clock.now());
        Ok(self.write(Passage::QueuePrefer, prefer).await?)
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
        if there { Ok(()) } else { Err(missing("preference", &key.as_str())) }
    }

    /// All preferences, the widest first.
    pub async fn preferences(&self) -> Result<Vec<Preference>, QueueError> {
        Ok(self.inner.store.preferences().await?)
    }
}

fn one_of(value: &str, words: &[&str]) -> Result<String, QueueError> {
    let value = value.trim();
    if words.contains(&value) {
        return Ok(value.to_owned());
    }
    let shown: String = value.chars().take(80).collect();
    Err(QueueError::Invalid(format!(
        "push.workflows: `{shown}` is not one of {}",
        words.join(", ")
    )))
}

fn labels(value: &str) -> Result<Vec<Label>, QueueError> {
    let parse = |text: &str| {
        text.parse::<Label>().map_err(|e| QueueError::Invalid(format!("lane.labels: {e}")))
    };
    value.split(',').map(str::trim).filter(|text| !text.is_empty()).map(parse).collect()
}
