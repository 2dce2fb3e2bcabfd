//! Reading what happened. Events are written by the statements of the changes they tell.

use sqlx::any::AnyRow;

use super::{Sql, Store, StoreError};
use crate::model::{Actor, Event, TaskId};

impl Store {
    /// Events after `after`, of a task or of all, the oldest first.
    pub async fn events(
        &self,
        after: i64,
        task: Option<&TaskId>,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        let sql = match task {
            Some(id) => Sql::new(
                "select seq, at, kind, actor, task_id, data from events
                where task_id = $3 and seq > $1 order by seq limit $2",
            )
            .bind(after)
            .bind(i64::from(limit))
            .bind(id.to_string()),
            None => Sql::new(
                "select seq, at, kind, actor, task_id, data from events
                where seq > $1 order by seq limit $2",
            )
            .bind(after)
            .bind(i64::from(limit)),
        };
        self.read(sql).await?.iter().map(|row| self.event(row)).collect()
    }

    /// The newest `most` of the events after `after`, of a task or of all, the oldest first.
    pub async fn last_events(
        &self,
        after: i64,
        task: Option<&TaskId>,
        most: u32,
    ) -> Result<Vec<Event>, StoreError> {
        let sql = match task {
            Some(id) => Sql::new(
                "select seq, at, kind, actor, task_id, data from events
                where task_id = $3 and seq > $1 order by seq desc limit $2",
            )
            .bind(after)
            .bind(i64::from(most))
            .bind(id.to_string()),
            None => Sql::new(
                "select seq, at, kind, actor, task_id, data from events
                where seq > $1 order by seq desc limit $2",
            )
            .bind(after)
            .bind(i64::from(most)),
        };
        self.read(sql).await?.iter().rev().map(|row| self.event(row)).collect()
    }

    fn event(&self, row: &AnyRow) -> Result<Event, StoreError> {
        let row = self.fields(row);
        Ok(Event {
            seq: row.int("seq")?,
            at: row.time("at")?,
            kind: row.parsed("kind")?,
            actor: Actor(row.text("actor")?),
            task: row.optional("task_id")?,
            data: row.json("data")?,
        })
    }
}
