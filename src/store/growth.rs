//! What is told about the past and would grow without end.

use super::{Sql, Store, StoreError};
use crate::model::{RunId, Timestamp};

/// Rows that one statement takes away, so that no other write waits long.
const AT_ONCE: i64 = 5_000;

impl Store {
    /// Runs whose log nobody needs: ended before `before`, and either of a task that is done or
    /// cancelled, or not the task's newest.
    pub async fn forgettable_runs(&self, before: Timestamp) -> Result<Vec<RunId>, StoreError> {
        let sql = Sql::new(
            "select r.id from runs r join tasks t on t.id = r.task_id
            where r.finished_at < $1 and (t.state in ('done', 'cancelled') or r.epoch < t.epoch)",
        )
        .bind(before.0);
        self.read(sql).await?.iter().map(|row| self.fields(row).parsed("id")).collect()
    }

    /// Whether this run is known.
    pub async fn knows_run(&self, run: &RunId) -> Result<bool, StoreError> {
        let sql = Sql::new("select id from runs where id = $1").bind(run.to_string());
        Ok(!self.read(sql).await?.is_empty())
    }

    /// Takes away what was told before `before` of no task or of one that is done or cancelled, and
    /// the diffs kept with the pull requests of such tasks. Gives how many events went. The newest
    /// event stays: the next one's number follows from it.
    pub async fn forget_told(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut gone = 0;
        loop {
            let sql = Sql::new(
                "delete from events where seq in (
                    select e.seq from events e left join tasks t on t.id = e.task_id
                    where e.at < $1 and e.seq < (select max(seq) from events)
                      and (t.id is null or t.state in ('done', 'cancelled'))
                    order by e.seq limit $2)
                returning seq as gone",
            )
            .bind(before.0)
            .bind(AT_ONCE);
            let rows = self.write(sql).await?.len() as u64;
            gone += rows;
            if rows < AT_ONCE as u64 {
                break;
            }
        }
        let sql = Sql::new(
            "update local_pulls set diff = '' where diff <> '' and updated_at < $1
                and task_id in (select id from tasks where state in ('done', 'cancelled'))",
        )
        .bind(before.0);
        self.write(sql).await?;
        Ok(gone)
    }
}
