//! The ends of several runs as one statement, each under its own lease. No two of one task are in
//! one statement.

use serde_json::{Value, json};

use super::super::leases::bounded;
use super::super::row::{json_text, task_columns, word_text};
use super::super::sql::{Joint, storable};
use super::{Finish, USAGE};

/// How `end` is asked together with others.
pub(super) fn joint(end: &Finish<'_>) -> Joint {
    let text = |text: Option<&str>| text.map_or(Value::Null, |text| storable(text).into());
    let events = end.events.iter().map(|(kind, by_agent, data)| {
        json!({ "kind": kind.as_str(), "by_agent": by_agent, "data": storable(&data.to_string()) })
    });
    let usage = end.usage.map(|usage| {
        json!({
            "model": text(usage.model.as_deref()),
            "input_tokens": usage.input_tokens.map(bounded),
            "cache_read_tokens": usage.cache_read_tokens.map(bounded),
            "cache_write_tokens": usage.cache_write_tokens.map(bounded),
            "output_tokens": usage.output_tokens.map(bounded),
            "model_calls": usage.model_calls.map(bounded),
            "turns": usage.turns.map(bounded),
            "cost_usd": usage.cost_usd,
            "duration_ms": usage.duration_ms.map(bounded),
        })
    });
    let ask = json!({
        "of_task": end.lease.task, "under": end.lease.epoch, "holder": end.worker, "now": end.now.0,
        "next": end.state.as_str(), "until": end.parked_until.map(|at| at.0),
        "failures": end.retries, "why": json_text(end.reason),
        "task_why": json_text(end.task_reason), "says": text(end.message),
        "number": end.pr.map(bounded), "url": text(end.pr_url),
        "came_to": word_text(&end.outcome), "said": text(end.summary), "wrong": text(end.error),
        "died": end.quick_death.then_some("quick"), "ends_row": end.ends_row,
        "place": text(end.kept), "events": events.collect::<Vec<_>>(), "spent": usage,
    });
    Joint {
        text: finish_text_together().into(),
        shared: Vec::new(),
        ask: ask.to_string(),
        about: end.lease.task.to_string(),
    }
}

/// What it says of one end is what the text of one end says.
pub(in crate::store) fn finish_text_together() -> String {
    format!(
        "with ended as materialized (
            select * from jsonb_to_recordset($1::jsonb) as e(
                ask bigint, of_task text, under bigint, holder text, now bigint, next text,
                until bigint, failures bigint, why text, task_why text, says text, number bigint,
                url text, came_to text, said text, wrong text, died text, ends_row boolean,
                place text, events jsonb, spent jsonb)
            -- Rows are locked in one order whoever asks.
            order by of_task
        ), moved as (
            update tasks set state = e.next, parked_until = e.until, retries = e.failures,
                stop_reason = e.task_why,
                deaths_from = case when e.ends_row then epoch else deaths_from end,
                message = e.says, pr = coalesce(e.number, pr), pr_url = coalesce(e.url, pr_url),
                worker_id = null, claim_id = null, expires_at = null, updated_at = e.now
            from ended e
            where tasks.id = e.of_task and tasks.epoch = e.under and tasks.worker_id = e.holder
              and tasks.state in ('claimed', 'running') and tasks.expires_at > e.now
            returning tasks.*, e.ask, e.holder, e.why, e.came_to, e.said, e.wrong, e.died,
                e.place, e.events, e.spent
        ), run as (
            update runs set finished_at = m.updated_at, ended_by = 'worker', outcome = m.came_to,
                stop_reason = m.why, summary = m.said, error = m.wrong, death = m.died,
                kept = m.place
            from moved m where runs.task_id = m.id and runs.epoch = m.epoch
            returning runs.id, runs.task_id, runs.worker_id, m.lane, m.updated_at, m.spent
        ), told as (
            insert into events (at, kind, actor, task_id, data)
                select m.updated_at, e.value ->> 'kind',
                    case when (e.value ->> 'by_agent')::boolean then 'agent:' || m.lane
                        else 'runner:' || w.name end,
                    m.id, e.value ->> 'data'
                from moved m
                cross join lateral (select name from workers where id = m.holder limit 1) as w
                cross join lateral jsonb_array_elements(m.events) with ordinality as e
                order by m.ask, e.ordinality
        ), spent as (
            {USAGE}
                select run.id, run.task_id, run.lane, run.worker_id, run.updated_at, u.*
                from run cross join lateral jsonb_to_record(run.spent) as u(
                    model text, input_tokens bigint, cache_read_tokens bigint,
                    cache_write_tokens bigint, output_tokens bigint, model_calls bigint,
                    turns bigint, cost_usd double precision, duration_ms bigint)
                where jsonb_typeof(run.spent) = 'object'
        )
        select tasks.ask, 1 as touched, {columns} from moved as tasks",
        columns = task_columns!(),
    )
}
