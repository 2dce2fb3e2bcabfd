//! Tasks: asked for, called off, tried again, ended, looked at.

use super::{Added, Changed, NewTask, Queue, QueueError, effects};
use crate::model::{Actor, Event, Passage, RepoName, Run, Task, TaskId, TaskState};
use crate::store::{Asked, Ending};

/// The most events one question gives.
const EVENTS_MOST: u32 = 1_000;

impl Queue {
    /// A task is asked for. Its id is `repo#n`, or `repo#n:lane` where another lane of the issue has
    /// that. A task that has ended (or waits in review) is queued anew when this wish is newer than
    /// the one before and than the end.
    pub async fn add(&self, t: NewTask) -> Result<Added, QueueError> {
        // The counter goes on from the highest number, so the very last cannot be one.
        if t.number.is_some_and(|n| n == 0 || n >= i64::MAX as u64) {
            return Err(QueueError::Invalid("that is no issue's number".to_owned()));
        }
        let ask = self.inner.store.ask(&t, self.inner.clock.now());
        match self.write(Passage::QueueAdd, ask).await? {
            Asked::NoProject => Err(missing("project", &t.slug)),
            Asked::New(task) => Ok(Added::New(task)),
            Asked::Again(task) => Ok(Added::Again(task)),
            Asked::Existing(task) => Ok(Added::Existing(task)),
        }
    }

    /// Calls a task off, and whatever lease is on it. One that was called off already is given as it
    /// stands; one that is done is a [`QueueError::Conflict`].
    pub async fn cancel(&self, id: &TaskId, by: Actor) -> Result<Changed, QueueError> {
        self.end(id, Ending::Cancelled, by).await
    }

    /// Ends a task well: its pull request was merged, or a person says so. Whatever lease is on it
    /// ends too.
    pub async fn done(&self, id: &TaskId, by: Actor) -> Result<Changed, QueueError> {
        self.end(id, Ending::Done, by).await
    }

    async fn end(&self, id: &TaskId, ending: Ending, by: Actor) -> Result<Changed, QueueError> {
        let passage = match ending {
            Ending::Cancelled => Passage::QueueCancel,
            Ending::Done => Passage::QueueDone,
        };
        let end = self.inner.store.end(id, ending, &by, self.inner.clock.now());
        let ended = self.write(passage, end).await?;
        let ended = ended.ok_or_else(|| missing("task", id))?;
        if !ended.changed && ending == Ending::Cancelled && ended.task.state == TaskState::Done {
            return Err(conflict(&ended.task, "there is nothing to call off"));
        }
        Ok(Changed { task: ended.task, revoked: ended.revoked })
    }

    /// Asks for another run, now. It goes on from what was done where the lane had done its part
    /// (docs/lifecycle.md), else it starts over. A queued task is given as it stands; one that a
    /// worker holds is a [`QueueError::Conflict`].
    pub async fn retry(&self, id: &TaskId, by: Actor) -> Result<Task, QueueError> {
        let task = self.task(id).await?;
        if task.state == TaskState::Queued {
            return Ok(task);
        }
        if task.state.is_leased() {
            return Err(conflict(&task, "a worker has it; cancel it first"));
        }
        let keep = effects::survive_retry(&task);
        let now = self.inner.clock.now();
        let requeue = self.inner.store.requeue(&task, keep, &by, now);
        match self.write(Passage::QueueRetry, requeue).await? {
            Some(task) => Ok(task),
            // It moved on between the two: what it is now decides.
            None => Err(conflict(&self.task(id).await?, "it has just changed; ask again")),
        }
    }

    /// Tasks in a state, or all, the newest first.
    pub async fn tasks(&self, state: Option<TaskState>) -> Result<Vec<Task>, QueueError> {
        Ok(self.inner.store.tasks(state).await?)
    }

    /// The same for a list: without their texts, and with short titles.
    pub async fn task_lines(&self, state: Option<TaskState>) -> Result<Vec<Task>, QueueError> {
        Ok(self.inner.store.task_lines(state).await?)
    }

    /// One task.
    pub async fn task(&self, id: &TaskId) -> Result<Task, QueueError> {
        self.inner.store.task(id).await?.ok_or_else(|| missing("task", id))
    }

    /// A task's runs, the newest first.
    pub async fn runs(&self, id: &TaskId) -> Result<Vec<Run>, QueueError> {
        Ok(self.inner.store.runs(id).await?)
    }

    /// Tasks of a project that are in review or not ended, the oldest first, for intake.
    pub async fn open_reviews(&self, slug: &RepoName) -> Result<Vec<Task>, QueueError> {
        Ok(self.inner.store.open_tasks(slug).await?)
    }

    /// The newest events, of one task or of all, of those with a greater `seq` than `after`; the
    /// oldest first, at most 1,000.
    pub async fn last_events(
        &self,
        after: i64,
        task: Option<&TaskId>,
        most: u32,
    ) -> Result<Vec<Event>, QueueError> {
        Ok(self.inner.store.last_events(after, task, most.clamp(1, EVENTS_MOST)).await?)
    }

    /// Events with a greater `seq` than `after`, of one task or of all, the oldest first; at most
    /// 1,000.
    pub async fn events(
        &self,
        after: i64,
        task: Option<&TaskId>,
        limit: u32,
    ) -> Result<Vec<Event>, QueueError> {
        Ok(self.inner.store.events(after, task, limit.clamp(1, EVENTS_MOST)).await?)
    }
}

pub(super) fn missing(what: &'static str, id: &impl std::fmt::Display) -> QueueError {
    QueueError::NotFound { what, id: id.to_string() }
}

fn conflict(task: &Task, why: &'static str) -> QueueError {
    QueueError::Conflict { task: task.id.clone(), state: task.state, why }
}
