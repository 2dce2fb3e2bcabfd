//! Reading what happened. Events are written by the statements of the changes they tell.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::any::AnyRow;

use super::{Sql, Store, StoreError};
use crate::model::{Actor, Event, TaskId};

/// A write lasts some milliseconds; what takes longer than a second waits for something itself.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOKS: u32 = 200;

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
        let events = self.all_events(sql.clone()).await?;
        // Of one task each event is told before the next begins.
        if task.is_some() || self.file().is_some() || is_whole(after, &events) {
            return Ok(events);
        }
        if self.wait_for_tellers().await? {
            return self.all_events(sql).await;
        }
        let place = (after + 1..).zip(&events).take_while(|(seq, event)| *seq == event.seq).count();
        Ok(events.into_iter().take(place).collect())
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

    async fn all_events(&self, sql: Sql) -> Result<Vec<Event>, StoreError> {
        self.read(sql).await?.iter().map(|row| self.event(row)).collect()
    }

    /// On Postgres a number is given before its event can be seen, so a later one may be seen
    /// first; who reads on from there would never see the earlier. Waits until everybody who was
    /// about to tell something has told it. False where that lasts.
    async fn wait_for_tellers(&self) -> Result<bool, StoreError> {
        let tellers = async || -> Result<BTreeSet<String>, StoreError> {
            let sql = Sql::new(
                "select virtualtransaction as teller from pg_locks
                where locktype = 'relation' and relation = 'events'::regclass
                  and mode = 'RowExclusiveLock' and granted",
            );
            self.read(sql).await?.iter().map(|row| self.fields(row).text("teller")).collect()
        };
        let before = tellers().await?;
        let mut now = before.clone();
        for _ in 0..LOOKS {
            if before.is_disjoint(&now) {
                return Ok(true);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            now = tellers().await?;
        }
        Ok(false)
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

/// Whether no number is left out after `after`.
fn is_whole(after: i64, events: &[Event]) -> bool {
    (after + 1..).zip(events).all(|(seq, event)| seq == event.seq)
}
