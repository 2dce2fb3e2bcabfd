//! Leasing the oldest task that a worker can take.

pub(super) mod together;

use std::fmt::Write as _;

use super::budgets::no_budget_left;
use super::preferences::run_preferences;
use super::row::task_columns;
use super::{Sql, Store, StoreError};
use crate::model::{
    ClaimId, InstanceId, Label, LaneName, Project, RepoName, RunId, RunPreferences, Task,
    Timestamp, WorkerId,
};

/// A claim with all that decides it.
#[derive(Debug)]
pub struct Claim<'a> {
    /// Who asks.
    pub worker: &'a WorkerId,
    /// Which start of it.
    pub instance: &'a InstanceId,
    /// The question's own id.
    pub claim_id: &'a ClaimId,
    /// The id of the run, if there is one.
    pub run: &'a RunId,
    /// Lanes it would take; not empty.
    pub lanes: &'a [LaneName],
    /// Labels it has.
    pub labels: &'a [Label],
    /// Repositories it would take nothing of.
    pub except: &'a [RepoName],
    /// Now.
    pub now: Timestamp,
    /// When the lease ends.
    pub expires_at: Timestamp,
}

/// What a claim found.
#[derive(Debug)]
pub enum ClaimedRow {
    /// There is no such worker, or another start of it speaks for it.
    Unknown,
    /// Nothing to do.
    Nothing,
    /// A leased task; `run` is that of the first answer where the claim is asked again.
    Leased {
        /// The task under its new epoch.
        task: Box<Task>,
        /// Its project.
        project: Box<Project>,
        /// Its run.
        run: RunId,
        /// What the preferences say of it.
        preferences: RunPreferences,
    },
}

impl Store {
    /// Leases the oldest queued task that the worker can take, makes its run and tells
    /// `run.claimed`. Asked again with the same claim id while that lease lives, it changes
    /// nothing and gives the same. A claim id whose run the worker itself has ended gets nothing:
    /// only a question that was overtaken on its way can still carry it.
    ///
    /// A worker that is to end gets nothing, and of a paused lane there is nothing. What decides
    /// is the database as it was when the claim's statement began: on SQLite the one of claim and
    /// pause that is written first wins; on Postgres a claim that had begun before the pause was
    /// committed may be answered a moment after it, and is kept.
    pub async fn claim(&self, claim: &Claim<'_>) -> Result<ClaimedRow, StoreError> {
        let (lanes, labels) = (claim.lanes.len(), claim.labels.len());
        let limited = !claim.except.is_empty();
        let mut sql = Sql::made(claim_text(lanes, labels, limited))
            .postgres(claim_text_postgres(lanes, labels, limited, "skip locked"))
            .bind(claim.worker.to_string())
            .bind(claim.instance.to_string())
            .bind(claim.claim_id.to_string())
            .bind(claim.run.to_string())
            .bind(claim.now.0)
            .bind(claim.expires_at.0);
        for lane in claim.lanes {
            sql = sql.bind(lane.to_string());
        }
        for label in claim.labels {
            sql = sql.bind(label.to_string());
        }
        if limited {
            sql = sql.bind(listed(claim.except));
        }
        // What one would not take others would.
        let asked = if limited { sql.clone() } else { sql.clone().joint(together::joint(claim)) };
        let mut rows = self.write(asked).await?;
        if rows.first().is_some_and(|row| together::stands_alone(&self.fields(row))) {
            rows = self.write(sql.clone()).await?;
        }
        if self.file().is_none()
            && rows.first().is_some_and(|row| self.fields(row).is_null("run_id"))
        {
            // Another claim may have held what this one could take, and not have taken it: this
            // time it is waited for.
            let wait = claim_text_postgres(lanes, labels, limited, "");
            rows = self.write(sql.postgres(wait)).await?;
        }
        let Some(row) = rows.first() else { return Ok(ClaimedRow::Unknown) };
        let row = self.fields(row);
        if row.is_null("run_id") {
            return Ok(ClaimedRow::Nothing);
        }
        Ok(ClaimedRow::Leased {
            task: Box::new(row.task()?),
            project: Box::new(row.project()?),
            run: row.parsed("run_id")?,
            preferences: row.run_preferences()?,
        })
    }
}

/// The text for so many lanes and labels: `Any` has no arrays, and there are few of either.
///
/// `changes() = 1` after an update says that it found its row: what follows happens only then.
pub(super) fn claim_text(lanes: usize, labels: usize, limited: bool) -> String {
    format!(
        "update tasks set state = 'claimed', epoch = epoch + 1, worker_id = $1, claim_id = $3,
            expires_at = $6, updated_at = $5
        where id = (
            -- The oldest of each lane is one step in its index; then the oldest of those.
            select t.id from (values {lane_rows}) as l
            join tasks t on t.id = (
                select q.id from tasks q
                join projects p on p.slug = q.slug
                join workers w on w.id = $1
                where {fits}
                order by q.asked_at, q.slug, q.number
                limit 1)
            order by t.asked_at, t.slug, t.number
            limit 1)
          and state = 'queued'
          and exists (select 1 from workers where id = $1 and instance_id = $2 and {LIVE_TOKEN})
          and not exists (select 1 from tasks where claim_id = $3)
          and not exists (select 1 from runs where claim_id = $3 and ended_by = 'worker');
        insert into runs (id, task_id, epoch, worker_id, instance_id, claim_id, claimed_at)
            select $4, id, epoch, worker_id, $2, claim_id, $5
            from tasks where claim_id = $3 and changes() = 1;
        insert into events (at, kind, actor, task_id, data)
            select $5, 'run.claimed', 'runner:' || w.name, tasks.id,
                '{{\"epoch\":' || tasks.epoch || ',\"run\":\"' || $4 || '\"{MODEL}
            from tasks join workers w on w.id = tasks.worker_id
            where tasks.claim_id = $3 and changes() = 1;
        select {columns}, {preferences}, runs.id as run_id, p.slug, p.forge, p.host, p.remote, p.api_base,
            p.default_branch, p.linked_at
        from workers w
        left join tasks on tasks.claim_id = $3 and tasks.worker_id = w.id
            and tasks.expires_at > $5
        left join runs on runs.task_id = tasks.id and runs.epoch = tasks.epoch
        left join projects p on p.slug = tasks.slug
        where w.id = $1 and w.instance_id = $2",
        lane_rows = lane_rows(7, lanes),
        fits = fits(7 + lanes, labels, limited, no_budget_left!("$5")),
        columns = task_columns!(),
        preferences = run_preferences!(),
    )
}

/// The same as one statement. All its parts see the database as it was before, so what was taken is
/// handed from part to part. A task that another claim is about to take is passed by
/// (`skip locked`), or waited for (empty).
pub(super) fn claim_text_postgres(
    lanes: usize,
    labels: usize,
    limited: bool,
    locked: &str,
) -> String {
    format!(
        "with w as materialized (
            select id, name, host from workers
            where id = $1 and instance_id = $2 and {LIVE_TOKEN}
        ), oldest as materialized (
            select t.id from w
            cross join (values {lane_rows}) as l
            cross join lateral (
                select q.id, q.asked_at, q.slug, q.number
                from tasks q join projects p on p.slug = q.slug
                where {fits}
                order by q.asked_at, q.slug, q.number
                limit 1 for update of q {locked}) as t
            where not exists (select 1 from tasks where claim_id = $3)
              and not exists (select 1 from runs where claim_id = $3 and ended_by = 'worker')
            order by t.asked_at, t.slug, t.number
            limit 1
        ), taken as (
            update tasks set state = 'claimed', epoch = epoch + 1, worker_id = $1, claim_id = $3,
                expires_at = $6, updated_at = $5
            from oldest where tasks.id = oldest.id and tasks.state = 'queued'
            returning tasks.*
        ), run as (
            insert into runs (id, task_id, epoch, worker_id, instance_id, claim_id, claimed_at)
                select $4, id, epoch, worker_id, $2, claim_id, $5 from taken
        ), told as (
            insert into events (at, kind, actor, task_id, data)
                select $5, 'run.claimed', 'runner:' || w.name, tasks.id,
                    '{{\"epoch\":' || tasks.epoch || ',\"run\":\"' || $4 || '\"{MODEL}
                from taken as tasks cross join w
        )
        select {columns}, {preferences},
            coalesce(
                (select r.id from runs r where r.task_id = tasks.id and r.epoch = tasks.epoch),
                case when tasks.id is not null then $4 end) as run_id,
            p.slug, p.forge, p.host, p.remote, p.api_base, p.default_branch, p.linked_at
        from w
        left join (
            select * from taken
            union all
            select * from tasks where claim_id = $3 and worker_id = $1 and expires_at > $5
        ) as tasks on true
        left join projects p on p.slug = tasks.slug",
        lane_rows = lane_rows(7, lanes),
        fits = fits(7 + lanes, labels, limited, no_budget_left!("$5")),
        columns = task_columns!(),
        preferences = run_preferences!(),
    )
}

/// The end of what `run.claimed` tells: the model that the preferences name for the run, or null. Its
/// name has no character that JSON would write otherwise.
const MODEL: &str = concat!(
    ",\"model\":' || coalesce('\"' || ",
    run_preferences!("lane.model"),
    " || '\"', 'null') || '}'"
);

/// That the token a worker registered with was not revoked, perhaps at another site a moment ago. Who
/// came by the home's socket has none.
const LIVE_TOKEN: &str = "not exists (select 1 from tokens k \
    where k.id = workers.token_id and k.revoked_at is not null)";

/// The lanes as rows, from the parameter `first` on.
fn lane_rows(first: usize, lanes: usize) -> String {
    let mut rows = String::new();
    for i in 0..lanes {
        let _ = write!(rows, "{}(${})", if i == 0 { "" } else { ", " }, first + i);
    }
    rows
}

/// Repositories as one text, each between commas: no name holds one.
fn listed(slugs: &[RepoName]) -> String {
    slugs.iter().fold(String::from(","), |text, slug| format!("{text}{slug},"))
}

/// The condition under which the worker `w` may take `q`, a task of the lane `l` and of the project
/// `p`: it is queued, the worker has its forge's login, or its disk, and its labels, from the
/// parameter `first` on, it was not told to take nothing, and no budget that covers it is used up,
/// which is `stopped`. Where the worker is `limited`, the parameter after the labels has the
/// repositories it would take nothing of.
fn fits(first: usize, labels: usize, limited: bool, stopped: &str) -> String {
    // No label is empty; it keeps the list from being so.
    let mut label_list = "''".to_owned();
    for i in 0..labels {
        let _ = write!(label_list, ", ${}", first + i);
    }
    let full = if limited {
        let list = first + labels;
        format!("and replace(${list}, ',' || q.slug || ',', '') = ${list}")
    } else {
        String::new()
    };
    format!(
        "q.state = 'queued' and q.lane = l.column1
          and case p.forge
              when 'local' then p.host = w.host
              else exists (
                  select 1 from worker_traits f
                  where f.worker_id = w.id and f.kind = 'forge' and f.value = p.host)
              end
          and not exists (
              select 1 from orders o where o.worker_id = w.id and o.lane in ('', q.lane))
          and not exists (
              select 1 from preference_labels n
              where n.label not in ({label_list})
                and n.slug in ('', q.slug) and n.lane in ('', q.lane)
                and n.rank = (
                    select max(r.rank) from preferences r
                    where r.key = 'lane.labels'
                      and r.slug in ('', q.slug) and r.lane in ('', q.lane)))
          {full}
          and not {stopped}"
    )
}
