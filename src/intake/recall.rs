//! What the database said at the last look, for as long as nothing was written since: a watch over
//! repositories where nothing happens asks the forge, and the database nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Intake;
use super::memo::Wish;
use crate::model::{LaneName, Project, RepoName, Task, TaskId};
use crate::queue::{LocalPullRow, QueueError};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Recall(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How much had been written when the rest was read.
    written: Option<u64>,
    projects: Option<Vec<Project>>,
    lanes: Option<BTreeSet<LaneName>>,
    open: HashMap<RepoName, Vec<Task>>,
    tasks: HashMap<(RepoName, Wish), Option<Task>>,
    pulls: HashMap<TaskId, Option<LocalPullRow>>,
}

impl Recall {
    fn get<T>(&self, written: Option<u64>, pick: impl FnOnce(&Known) -> Option<T>) -> Option<T> {
        let known = self.lock();
        if written.is_some() && known.written == written { pick(&known) } else { None }
    }

    /// Keeps what was read after `written` was asked for. Nothing is kept of a reading beside
    /// which something was being written.
    fn keep(&self, written: Option<u64>, put: impl FnOnce(&mut Known)) {
        if written.is_none() {
            return;
        }
        let mut known = self.lock();
        if known.written != written {
            *known = Known { written, ..Known::default() };
        }
        put(&mut known);
    }

    /// A panic elsewhere leaves the memory whole: each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intake {
    /// Every linked repository.
    pub(super) async fn projects(&self) -> Result<Vec<Project>, QueueError> {
        let written = self.queue.writes();
        if let Some(known) = self.recall.get(written, |known| known.projects.clone()) {
            return Ok(known);
        }
        let read = self.queue.projects().await?;
        self.recall.keep(written, |known| known.projects = Some(read.clone()));
        Ok(read)
    }

    /// The lanes that some worker serves.
    pub(super) async fn served(&self) -> Result<BTreeSet<LaneName>, QueueError> {
        let written = self.queue.writes();
        if let Some(known) = self.recall.get(written, |known| known.lanes.clone()) {
            return Ok(known);
        }
        let workers = self.queue.workers().await?;
        let read: BTreeSet<LaneName> = workers.into_iter().flat_map(|w| w.lanes).collect();
        self.recall.keep(written, |known| known.lanes = Some(read.clone()));
        Ok(read)
    }

    /// The project's tasks that have not ended, or wait in review.
    pub(super) async fn open_tasks(&self, slug: &RepoName) -> Result<Vec<Task>, QueueError> {
        let written = self.queue.writes();
        if let Some(known) = self.recall.get(written, |known| known.open.get(slug).cloned()) {
            return Ok(known);
        }
        let read = self.queue.open_reviews(slug).await?;
        self.recall.keep(written, |known| {
            known.open.insert(slug.clone(), read.clone());
        });
        Ok(read)
    }

    /// The task of an issue and a lane: under the plain id, or under the one with the lane.
    pub(super) async fn task_of(
        &self,
        slug: &RepoName,
        wish: &Wish,
    ) -> Result<Option<Task>, QueueError> {
        let written = self.queue.writes();
        let of = (slug.clone(), wish.clone());
        if let Some(known) = self.recall.get(written, |known| known.tasks.get(&of).cloned()) {
            return Ok(known);
        }
        let read = self.read_task_of(slug, wish).await?;
        self.recall.keep(written, |known| {
            known.tasks.insert(of, read.clone());
        });
        Ok(read)
    }

    async fn read_task_of(&self, slug: &RepoName, wish: &Wish) -> Result<Option<Task>, QueueError> {
        let (number, lane) = wish;
        for with_lane in [None, Some(lane.clone())] {
            let id = TaskId { repo: slug.clone(), number: *number, lane: with_lane };
            match self.queue.task(&id).await {
                Ok(task) if task.lane == *lane => return Ok(Some(task)),
                Ok(_) | Err(QueueError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The pull request of a local repository's task.
    pub(super) async fn local_pull(
        &self,
        task: &TaskId,
    ) -> Result<Option<LocalPullRow>, QueueError> {
        let written = self.queue.writes();
        if let Some(known) = self.recall.get(written, |known| known.pulls.get(task).cloned()) {
            return Ok(known);
        }
        // Its diff is long, and a watch does not look at it.
        let read = self.queue.local_pull(task).await?;
        let read = read.map(|pull| LocalPullRow { diff: String::new(), ..pull });
        self.recall.keep(written, |known| {
            known.pulls.insert(task.clone(), read.clone());
        });
        Ok(read)
    }
}
