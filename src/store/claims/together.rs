//! Claims of several workers as one statement: the oldest tasks that fit are dealt to them in the
//! order in which they asked.
//!
//! That is right where the same tasks fit all of them. Lanes and labels are the same by the text
//! and its parameters. Of those who ask, the statement serves the first and all who have its
//! forges' logins, was told the same, and, where there are local projects on a machine, its machine;
//! it tells the others that they stand alone, and each of them asks by itself. A claim that leaves
//! repositories out never comes here.

use super::super::row::Fields;
use super::super::sql::{Arg, Joint};
use super::{
    Claim, LIVE_TOKEN, MODEL, fits, lane_rows, no_budget_left, run_preferences, task_columns,
};

/// How `claim` is asked together with others.
pub(super) fn joint(claim: &Claim<'_>) -> Joint {
    let lanes = claim.lanes.iter().map(|lane| Arg::from(lane.to_string()));
    let labels = claim.labels.iter().map(|label| Arg::from(label.to_string()));
    let ask = serde_json::json!({
        "worker": claim.worker, "instance": claim.instance, "claim": claim.claim_id,
        "run": claim.run, "now": claim.now.0, "ends": claim.expires_at.0,
    });
    Joint {
        text: claim_text_together(claim.lanes.len(), claim.labels.len()).into(),
        shared: lanes.chain(labels).collect(),
        ask: ask.to_string(),
        about: claim.claim_id.to_string(),
    }
}

/// Whether the asker of this row was not served, because other tasks may fit it.
pub(super) fn stands_alone(row: &Fields<'_>) -> bool {
    row.has("alone") && row.int("alone").is_ok_and(|alone| alone == 1)
}

/// The text for so many lanes and labels. What it says of one asker is what the claim's own text
/// says; `turn` is an asker's place among those served, and a task's among those found.
pub(in crate::store) fn claim_text_together(lanes: usize, labels: usize) -> String {
    format!(
        "with disks as materialized (
            select host from projects where forge = 'local' group by host
        ), asked as materialized (
            select a.*, w.name, w.host,
                case when w.host in (select host from disks) then w.host else '' end as disk,
                array(
                    select f.value from worker_traits f
                    where f.worker_id = a.worker and f.kind = 'forge' order by f.value) as forges,
                array(
                    select distinct o.lane from orders o
                    where o.worker_id = a.worker order by o.lane) as told
            from jsonb_to_recordset($1::jsonb) as a(
                ask bigint, worker text, instance text, claim text, run text, now bigint,
                ends bigint)
            cross join lateral (
                select name, host from workers
                where id = a.worker and instance_id = a.instance and {LIVE_TOKEN} limit 1) as w
        ), first as materialized (
            select worker as id, host, disk, forges, told from asked order by ask limit 1
        ), fresh as materialized (
            select a.*, row_number() over (order by a.ask) as turn
            from asked a join first
                on first.disk = a.disk and first.forges = a.forges and first.told = a.told
            where not exists (select 1 from tasks where claim_id = a.claim)
              and not exists (select 1 from runs where claim_id = a.claim and ended_by = 'worker')
        ), oldest as materialized (
            select t.id, row_number() over (order by t.asked_at, t.slug, t.number) as turn
            from first w
            cross join (values {lane_rows}) as l
            cross join lateral (
                select q.id, q.asked_at, q.slug, q.number
                from tasks q join projects p on p.slug = q.slug
                where {fits}
                order by q.asked_at, q.slug, q.number
                limit (select count(*) from fresh) for update of q skip locked) as t
            order by t.asked_at, t.slug, t.number
            limit (select count(*) from fresh)
        ), taken as (
            update tasks set state = 'claimed', epoch = epoch + 1, worker_id = a.worker,
                claim_id = a.claim, expires_at = a.ends, updated_at = a.now
            from oldest join fresh a on a.turn = oldest.turn
            where tasks.id = oldest.id and tasks.state = 'queued'
            returning tasks.*, a.ask, a.run, a.instance, a.name
        ), run as (
            insert into runs (id, task_id, epoch, worker_id, instance_id, claim_id, claimed_at)
                select run, id, epoch, worker_id, instance, claim_id, updated_at from taken
        ), told as (
            insert into events (at, kind, actor, task_id, data)
                select updated_at, 'run.claimed', 'runner:' || name, id,
                    '{{\"epoch\":' || epoch || ',\"run\":\"' || run || '\"{MODEL}
                from taken as tasks
        )
        select a.ask,
            case when first.disk = a.disk and first.forges = a.forges and first.told = a.told
                then 0 else 1 end as alone,
            {columns}, {preferences},
            coalesce(
                tasks.run,
                (select r.id from runs r where r.task_id = tasks.id and r.epoch = tasks.epoch)
            ) as run_id,
            p.slug, p.forge, p.host, p.remote, p.api_base, p.default_branch, p.linked_at
        from asked a
        cross join first
        left join lateral (
            select taken.* from taken where taken.ask = a.ask
            union all
            select t.*, a.ask, null, null, null from tasks t
            where t.claim_id = a.claim and t.worker_id = a.worker and t.expires_at > a.now
        ) as tasks on true
        left join projects p on p.slug = tasks.slug",
        lane_rows = lane_rows(2, lanes),
        fits = fits(2 + lanes, labels, false, no_budget_left!("(select max(now) from asked)")),
        columns = task_columns!(),
        preferences = run_preferences!(),
    )
}
