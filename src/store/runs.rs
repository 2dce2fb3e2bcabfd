//! Runs and the journal of their effects.

use sqlx::any::AnyRow;

use super::{Sql, Store, StoreError};
use crate::model::{Effect, Epoch, LeaseRef, Run, RunId, TaskId, Timestamp, Usage, WorkerId};

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Under which claim it was recorded.
    pub epoch: Epoch,
    /// What.
    pub effect: Effect,
}

/// What the end of a run is decided by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// The run.
    pub id: RunId,
    /// Infrastructure failures of the task in a row, before this run.
    pub retries: u32,
    /// When the lane was started, else when the task was claimed.
    pub began: Timestamp,
    /// Deaths of the task in a row, before this run.
    pub deaths: u32,
    /// How many of the newest of them, so many as were asked for, were quick.
    pub quick_deaths: u32,
    /// Whether a budget holds for the task.
    pub budgeted: bool,
    /// Whether its own worker has ended it, and nobody has claimed the task since.
    pub told: bool,
}

impl RunHead {
    /// Of a run that is to end by its own word, whatever was before it.
    #[must_use]
    pub const fn of_a_lease(id: RunId, now: Timestamp) -> Self {
        Self {
            id,
            retries: 0,
            began: now,
            deaths: 0,
            quick_deaths: 0,
            budgeted: false,
            told: false,
        }
    }
}

impl Store {
    /// The run under a lease of `worker`, live or not; of deaths before it the newest `deaths` are
    /// looked at for quick ones.
    pub async fn run_head(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        deaths: u32,
    ) -> Result<Option<RunHead>, StoreError> {
        let sql = Sql::new(
            "select r.id, r.ended_by, t.retries, t.epoch,
                coalesce(r.started_at, r.claimed_at) as began,
                (select count(*) from runs d where d.task_id = $1 and d.epoch < $2
                    and d.epoch > t.deaths_from and d.death is not null) as deaths,
                (select count(*) from (
                    select d.death from runs d where d.task_id = $1 and d.epoch < $2
                        and d.epoch > t.deaths_from and d.death is not null
                    order by d.epoch desc limit $4) as l
                 where l.death = 'quick') as quick_deaths,
                (select count(*) from preferences b where b.key = 'budget.usd_day'
                    and b.slug in ('', t.slug) and b.lane in ('', t.lane)) as budgets
            from runs r join tasks t on t.id = r.task_id
            where r.task_id = $1 and r.epoch = $2 and r.worker_id = $3",
        )
        .bind(lease.task.to_string())
        .bind(lease.epoch.0)
        .bind(worker.to_string())
        .bind(i64::from(deaths));
        let rows = self.read(sql).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let row = self.fields(row);
        let count = |column| Ok(u32::try_from(row.int(column)?).unwrap_or(u32::MAX));
        Ok(Some(RunHead {
            id: row.parsed("id")?,
            retries: count("retries")?,
            began: row.time("began")?,
            deaths: count("deaths")?,
            quick_deaths: count("quick_deaths")?,
            budgeted: row.int("budgets")? > 0,
            told: row.optional_text("ended_by")?.is_some_and(|by| by == "worker")
                && row.int("epoch")? == lease.epoch.0,
        }))
    }

    /// A task's runs, the newest first.
    pub async fn runs(&self, id: &TaskId) -> Result<Vec<Run>, StoreError> {
        let sql = Sql::new(
            "select r.id, r.task_id, r.epoch, r.worker_id, r.claimed_at, r.started_at,
                r.finished_at, r.outcome, r.stop_reason, r.summary, r.error, r.kept,
                u.run_id, u.model, u.input_tokens, u.cache_read_tokens, u.cache_write_tokens,
                u.output_tokens, u.model_calls, u.turns, u.cost_usd, u.duration_ms
            from runs r left join usage u on u.run_id = r.id
            where r.task_id = $1 order by r.epoch desc",
        )
        .bind(id.to_string());
        let rows = self.read(sql).await?;
        let run = |row: &AnyRow| {
            let row = self.fields(row);
            let usage = if row.is_null("run_id") {
                None
            } else {
                Some(Usage {
                    model: row.optional_text("model")?,
                    input_tokens: row.count("input_tokens")?,
                    cache_read_tokens: row.count("cache_read_tokens")?,
                    cache_write_tokens: row.count("cache_write_tokens")?,
                    output_tokens: row.count("output_tokens")?,
                    model_calls: row.count("model_calls")?,
                    turns: row.count("turns")?,
                    cost_usd: row.real("cost_usd")?,
                    duration_ms: row.count("duration_ms")?,
                })
            };
            Ok(Run {
                id: row.parsed("id")?,
                task: row.parsed("task_id")?,
                epoch: Epoch(row.int("epoch")?),
                worker: row.parsed("worker_id")?,
                claimed_at: row.time("claimed_at")?,
                started_at: row.optional_time("started_at")?,
                finished_at: row.optional_time("finished_at")?,
                outcome: row.optional_word("outcome")?,
                stop_reason: row.optional_json("stop_reason")?,
                summary: row.optional_text("summary")?,
                error: row.optional_text("error")?,
                kept: row.optional_text("kept")?,
                usage,
            })
        };
        rows.iter().map(run).collect()
    }

    /// The journal of a task's current request, in the order of the epochs.
    pub async fn journal(&self, id: &TaskId) -> Result<Vec<JournalEntry>, StoreError> {
        let sql = Sql::new(
            "select e.epoch, e.body from effects e join tasks t on t.id = e.task_id
            where e.task_id = $1 and e.epoch > t.request_epoch order by e.epoch, e.kind",
        )
        .bind(id.to_string());
        let rows = self.read(sql).await?;
        let entry = |row: &AnyRow| {
            let row = self.fields(row);
            Ok(JournalEntry { epoch: Epoch(row.int("epoch")?), effect: row.json("body")? })
        };
        rows.iter().map(entry).collect()
    }
}
