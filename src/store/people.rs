//! What a person, or the forge, says about a task: called off, done, again.

use super::row::{json_text, task_columns};
use super::{Sql, Store, StoreError};
use crate::model::{Actor, LeaseRef, StopReason, Task, TaskId, TaskState, Timestamp, WorkerId};

/// How a task is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Called off. A task that is done stays done.
    Cancelled,
    /// Ended well, whatever it was.
    Done,
}

/// A task after it was ended from outside.
#[derive(Debug)]
pub struct Ended {
    /// As it stands now; unchanged where the ending does not fit.
    pub task: Task,
    /// Whether this changed it.
    pub changed: bool,
    /// The lease that this ended.
    pub revoked: Option<(WorkerId, LeaseRef)>,
}

impl Store {
    /// Ends a task and whatever lease is on it. `None` where there is no such task.
    pub async fn end(
        &self,
        id: &TaskId,
        ending: Ending,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Option<Ended>, StoreError> {
        let (state, kind, reason, message) = match ending {
            Ending::Cancelled => (
                TaskState::Cancelled,
                "task.cancelled",
                Some(json_text(&StopReason::Cancelled)),
                Some(format!("called off by {}", by.0)),
            ),
            Ending::Done => (TaskState::Done, "task.done", None, None),
        };
        let sql = Sql::new(concat!(
            "select worker_id, id as revoked, epoch from tasks
            where id = $1 and worker_id is not null;
            update runs set finished_at = $2, ended_by = 'person', outcome = 'released',
                stop_reason = '{\"reason\":\"cancelled\"}'
            where task_id = $1 and finished_at is null;
            update tasks set state = $3, worker_id = null, claim_id = null, expires_at = null,
                parked_until = null, updated_at = $2, stop_reason = coalesce($4, stop_reason),
                message = coalesce($5, message)
            where id = $1 and state not in ('done', $3) returning id as touched;
            insert into events (at, kind, actor, task_id, data)
                select $2, $6, $7, id, '{\"epoch\":' || epoch || '}' from tasks
                where id = $1 and changes() = 1;
            select ",
            task_columns!(),
            " from tasks where id = $1"
        ))
        .bind(id.to_string())
        .bind(now.0)
        .bind(state.as_str())
        .bind(reason)
        .bind(message)
        .bind(kind)
        .bind(by.0.clone());
        let rows = self.write(sql).await?;
        let (mut changed, mut revoked, mut task) = (false, None, None);
        for row in rows.iter().map(|row| self.fields(row)) {
            if row.has("touched") {
                changed = true;
            } else if row.has("revoked") {
                revoked = Some((row.parsed("worker_id")?, row.lease("revoked")?));
            } else {
                task = Some(row.task()?);
            }
        }
        Ok(task.map(|task| Ended { task, changed, revoked }))
    }

    /// Queues a task that is as `seen`. Its journal is kept, or belongs to an earlier request
    /// from now on. `None` where the task is no longer as it was seen.
    pub async fn requeue(
        &self,
        seen: &Task,
        keep_journal: bool,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Option<Task>, StoreError> {
        let data = serde_json::json!({ "from": seen.state, "keeps_work": keep_journal });
        let sql = Sql::new(concat!(
            "update tasks set state = 'queued', retries = 0, deaths_from = epoch, parked_until = null,
                request_epoch = case $5 when 1 then request_epoch else epoch end,
                asked_at = case $5 when 1 then asked_at else $2 end,
                stop_reason = case $5 when 1 then stop_reason else null end,
                message = case $5 when 1 then message else null end, updated_at = $2
            where id = $1 and state = $3 and epoch = $4
              and state not in ('queued', 'claimed', 'running')
            returning id as touched;
            insert into events (at, kind, actor, task_id, data)
                select $2, 'task.retried', $6, $1, $7 where changes() = 1;
            select ",
            task_columns!(),
            " from tasks where id = $1"
        ))
        .bind(seen.id.to_string())
        .bind(now.0)
        .bind(seen.state.as_str())
        .bind(seen.epoch.0)
        .bind(i64::from(keep_journal))
        .bind(by.0.clone())
        .bind(data.to_string());
        let rows = self.write(sql).await?;
        self.touched_task(&rows)
    }
}
