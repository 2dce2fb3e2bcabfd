//! The end of a run under its lease.

pub(super) mod together;

use std::fmt::Write as _;

use super::leases::{bounded, live};
use super::row::{json_text, task_columns, word_text};
use super::{Sql, Store, StoreError};
use crate::model::{
    EventKind, LeaseRef, Outcome, StopReason, Task, TaskState, Timestamp, Usage, WorkerId,
};

/// The end of a run, decided.
#[derive(Debug)]
pub struct Finish<'a> {
    /// Under which lease.
    pub lease: &'a LeaseRef,
    /// Whose.
    pub worker: &'a WorkerId,
    /// Now.
    pub now: Timestamp,
    /// Why it stopped.
    pub reason: &'a StopReason,
    /// The same as the task keeps it: another where the task is set aside.
    pub task_reason: &'a StopReason,
    /// Whether the lane crashed within a minute of its start.
    pub quick_death: bool,
    /// Whether the row of deaths before it is over.
    pub ends_row: bool,
    /// The seed's word for it.
    pub outcome: Outcome,
    /// Where the task goes.
    pub state: TaskState,
    /// Not before this, where it is parked.
    pub parked_until: Option<Timestamp>,
    /// Infrastructure failures in a row after this one.
    pub retries: u32,
    /// One line for the task.
    pub message: Option<&'a str>,
    /// The lane's summary.
    pub summary: Option<&'a str>,
    /// What went wrong.
    pub error: Option<&'a str>,
    /// Where the work is kept.
    pub kept: Option<&'a str>,
    /// The pull request's number.
    pub pr: Option<u64>,
    /// Where it can be read.
    pub pr_url: Option<&'a str>,
    /// What it cost.
    pub usage: Option<&'a Usage>,
    /// What to tell, in order; `agent` stands for the task's lane, else it is the runner.
    pub events: Vec<(EventKind, bool, serde_json::Value)>,
}

/// The parameter after those of every end: the first of the events'.
const FIRST_EVENT: usize = 19;

/// What changes on the task.
const MOVED: &str = concat!(
    "update tasks set state = $5, parked_until = $6, retries = $7, stop_reason = $15,
        deaths_from = case $17 when 1 then epoch else deaths_from end, message = $9,
        pr = coalesce($10, pr), pr_url = coalesce($11, pr_url),
        worker_id = null, claim_id = null, expires_at = null, updated_at = $4
    where ",
    live!()
);

/// What changes on the run.
const ENDED: &str = "update runs set finished_at = $4, ended_by = 'worker', outcome = $12,
        stop_reason = $8, summary = $13, error = $14, death = $16, kept = $18";

/// The columns of a usage, but for the time those that follow from the run.
const USAGE: &str = "insert into usage (run_id, task_id, lane, worker_id, at, model, input_tokens,
        cache_read_tokens, cache_write_tokens, output_tokens, model_calls, turns, cost_usd,
        duration_ms)";

impl Store {
    /// Ends the run and the lease and moves the task on. `None` where the lease is not the live one.
    pub async fn finish(&self, end: &Finish<'_>) -> Result<Option<Task>, StoreError> {
        let events = event_rows(end.events.len());
        let usage = end.usage.map(|_| usage_values(FIRST_EVENT + 3 * end.events.len()));
        let mut sql = Sql::made(finish_text(&events, usage.as_deref()))
            .postgres(finish_text_postgres(&events, usage.as_deref()))
            .joint(together::joint(end))
            .bind(end.lease.task.to_string())
            .bind(end.lease.epoch.0)
            .bind(end.worker.to_string())
            .bind(end.now.0)
            .bind(end.state.as_str())
            .bind(end.parked_until.map(|t| t.0))
            .bind(i64::from(end.retries))
            .bind(json_text(end.reason))
            .bind(end.message)
            .bind(end.pr.map(bounded))
            .bind(end.pr_url)
            .bind(word_text(&end.outcome))
            .bind(end.summary)
            .bind(end.error)
            .bind(json_text(end.task_reason))
            .bind(end.quick_death.then_some("quick"))
            .bind(i64::from(end.ends_row))
            .bind(end.kept);
        for (kind, by_agent, data) in &end.events {
            let actor = if *by_agent { "agent" } else { "runner" };
            sql = sql.bind(kind.as_str()).bind(actor).bind(data.to_string());
        }
        if let Some(usage) = end.usage {
            sql = sql
                .bind(usage.model.clone())
                .bind(usage.input_tokens.map(bounded))
                .bind(usage.cache_read_tokens.map(bounded))
                .bind(usage.cache_write_tokens.map(bounded))
                .bind(usage.output_tokens.map(bounded))
                .bind(usage.model_calls.map(bounded))
                .bind(usage.turns.map(bounded))
                .bind(usage.cost_usd)
                .bind(usage.duration_ms.map(bounded));
        }
        let rows = self.write(sql).await?;
        self.touched_task(&rows)
    }
}

fn finish_text(events: &str, usage: Option<&str>) -> String {
    let mut text = format!(
        "{MOVED} returning id as touched;
        {ENDED} where task_id = $1 and epoch = $2 and changes() = 1;
        insert into events (at, kind, actor, task_id, data)
            select $4, e.column1,
                case e.column2 when 'agent' then 'agent:' || t.lane else 'runner:' || w.name end,
                t.id, e.column3
            from (values {events}) as e, tasks t, workers w
            where t.id = $1 and w.id = $3 and changes() = 1;"
    );
    if let Some(values) = usage {
        let _ = write!(
            text,
            "{USAGE}
                select r.id, r.task_id, t.lane, r.worker_id, $4, {values}
                from runs r join tasks t on t.id = r.task_id
                where r.task_id = $1 and r.epoch = $2 and changes() > 0;"
        );
    }
    text.push_str(concat!("select ", task_columns!(), " from tasks where id = $1"));
    text
}

/// The same as one statement: everything else follows from the task's row, where it was changed.
fn finish_text_postgres(events: &str, usage: Option<&str>) -> String {
    let mut text = format!(
        "with moved as (
            {MOVED} returning tasks.*
        ), run as (
            {ENDED} from moved where runs.task_id = moved.id and runs.epoch = moved.epoch
            returning runs.id, runs.worker_id
        ), told as (
            insert into events (at, kind, actor, task_id, data)
                select $4, e.column1,
                    case e.column2 when 'agent' then 'agent:' || t.lane
                        else 'runner:' || w.name end,
                    t.id, e.column3
                from moved t cross join workers w cross join (values {events}) as e
                where w.id = $3
        )"
    );
    if let Some(values) = usage {
        let _ = write!(
            text,
            ", spent as (
            {USAGE}
                select run.id, t.id, t.lane, run.worker_id, $4, {values}
                from run cross join moved t
        )"
        );
    }
    text.push_str(concat!(" select 1 as touched, ", task_columns!(), " from moved as tasks"));
    text
}

/// So many rows of kind, actor and data.
fn event_rows(events: usize) -> String {
    let mut rows = String::new();
    for i in 0..events {
        let at = FIRST_EVENT + 3 * i;
        let comma = if i == 0 { "" } else { ", " };
        let _ = write!(rows, "{comma}(${at}, ${}, ${})", at + 1, at + 2);
    }
    rows
}

/// The nine values of a usage, from the parameter `at` on.
fn usage_values(at: usize) -> String {
    let one = |i| match i {
        // Sent to Postgres as text.
        7 => format!("cast(${} as double precision)", at + i),
        _ => format!("${}", at + i),
    };
    (0..9).map(one).collect::<Vec<_>>().join(", ")
}
