//! What a worker writes under its lease. Each text names `(task, epoch)` and the holder, and
//! changes nothing unless that lease is the live one.

use std::fmt::Write as _;

use super::row::{json_text, task_columns};
use super::{LocalPullRow, Sql, Store, StoreError};
use crate::model::{Effect, InstanceId, LeaseRef, RunId, StopReason, Task, Timestamp, WorkerId};

/// The condition of every write of a worker: `$1` the task, `$2` the epoch, `$3` the holder, `$4`
/// now.
macro_rules! live {
    () => {
        "tasks.id = $1 and tasks.epoch = $2 and tasks.worker_id = $3 \
         and tasks.state in ('claimed', 'running') and tasks.expires_at > $4"
    };
}
pub(super) use live;

/// A heartbeat.
#[derive(Debug)]
pub struct HeartbeatRow<'a> {
    /// Whose.
    pub worker: &'a WorkerId,
    /// Which start of it.
    pub instance: &'a InstanceId,
    /// Whether it goes.
    pub offline: bool,
    /// How often it checks in; `None` leaves what was said.
    pub interval_ms: Option<u64>,
    /// The leases to renew.
    pub leases: &'a [LeaseRef],
    /// Now.
    pub now: Timestamp,
    /// When renewed leases end.
    pub expires_at: Timestamp,
}

impl Store {
    /// Notes that a worker lives and renews the leases it names, also those that ran out and that
    /// nobody took. Gives the leases renewed; `None` where the instance is not the worker's.
    pub async fn heartbeat(
        &self,
        beat: &HeartbeatRow<'_>,
    ) -> Result<Option<Vec<LeaseRef>>, StoreError> {
        let (text, postgres) = heartbeat_texts(beat.leases.len());
        let mut sql = Sql::made(text)
            .postgres(postgres)
            .bind(beat.worker.to_string())
            .bind(beat.instance.to_string())
            .bind(beat.now.0)
            .bind(i64::from(beat.offline))
            .bind(beat.interval_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)))
            .bind(beat.expires_at.0);
        for lease in beat.leases {
            sql = sql.bind(lease.task.to_string()).bind(lease.epoch.0);
        }
        let rows = self.write(sql).await?;
        let (mut known, mut renewed) = (false, Vec::new());
        for row in rows.iter().map(|row| self.fields(row)) {
            known |= row.has("known");
            if row.has("renewed") && !row.is_null("renewed") {
                renewed.push(row.lease("renewed")?);
            }
        }
        Ok(known.then_some(renewed))
    }

    /// Gives back a lease that was swept and that nobody took: its task is still queued under the
    /// same epoch and the same request. `Err(reason)` inside says why the lease is lost instead.
    pub async fn revive(
        &self,
        lease: &LeaseRef,
        beat: &HeartbeatRow<'_>,
    ) -> Result<Result<(), StopReason>, StoreError> {
        let sql = Sql::new(
            "update tasks set
                state = case when (
                    select r.started_at from runs r where r.task_id = $1 and r.epoch = $2
                ) is null then 'claimed' else 'running' end,
                worker_id = $3,
                claim_id = (select r.claim_id from runs r where r.task_id = $1 and r.epoch = $2),
                expires_at = $6, updated_at = $4, stop_reason = null, message = null
            where id = $1 and epoch = $2 and epoch > request_epoch
              and (state = 'queued'
                  or state = 'failed' and stop_reason = '{\"reason\":\"quarantined\"}')
              and exists (
                  select 1 from runs r join workers w on w.id = r.worker_id
                  where r.task_id = $1 and r.epoch = $2 and r.worker_id = $3
                    and r.ended_by = 'expiry'
                    and r.instance_id = $5 and w.instance_id = $5
                    and not exists (select 1 from tasks o where o.claim_id = r.claim_id));
            update runs set finished_at = null, ended_by = null, outcome = null,
                stop_reason = null, death = null
            where task_id = $1 and epoch = $2 and changes() = 1;
            insert into events (at, kind, actor, task_id, data)
                select $4, 'run.claimed', 'runner:' || name, $1,
                    '{\"epoch\":' || $2 || ',\"renewed\":true,\"started\":' || case when (
                        select r.started_at from runs r where r.task_id = $1 and r.epoch = $2
                    ) is null then 'false' else 'true' end || '}'
                from workers where id = $3 and changes() = 1;
            select ended_by, stop_reason from runs
            where task_id = $1 and epoch = $2 and worker_id = $3",
        )
        .bind(lease.task.to_string())
        .bind(lease.epoch.0)
        .bind(beat.worker.to_string())
        .bind(beat.now.0)
        .bind(beat.instance.to_string())
        .bind(beat.expires_at.0);
        let rows = self.write(sql).await?;
        let Some(row) = rows.first() else { return Ok(Err(StopReason::LeaseLost)) };
        let row = self.fields(row);
        if row.is_null("ended_by") {
            return Ok(Ok(()));
        }
        let by_person = row.text("ended_by")? == "person";
        Ok(Err(if by_person { StopReason::Cancelled } else { StopReason::LeaseLost }))
    }

    /// The lane starts on `branch`; told once. `None` where the lease is not the live one.
    pub async fn start(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        now: Timestamp,
        branch: &str,
    ) -> Result<Option<Task>, StoreError> {
        let sql = Sql::new(concat!(
            "insert into events (at, kind, actor, task_id, data)
                select $4, 'run.started', 'runner:' || w.name, tasks.id, $6
                from tasks join workers w on w.id = tasks.worker_id
                where tasks.state = 'claimed' and ",
            live!(),
            ";
            update runs set started_at = coalesce(started_at, $4)
            where task_id = $1 and epoch = $2 and exists (select 1 from tasks where ",
            live!(),
            ");
            update tasks set state = 'running', branch = $5,
                updated_at = case state when 'claimed' then $4 else updated_at end
            where ",
            live!(),
            " returning id as touched;
            select ",
            task_columns!(),
            " from tasks where id = $1"
        ))
        .postgres(concat!(
            "with held as materialized (
                select id, state, worker_id from tasks where ",
            live!(),
            " for update
            ), run as (
                update runs set started_at = coalesce(started_at, $4)
                from held where task_id = $1 and epoch = $2
            ), running as (
                update tasks set state = 'running', branch = $5,
                    updated_at = case held.state when 'claimed' then $4 else updated_at end
                from held where tasks.id = held.id returning tasks.*
            ), told as (
                insert into events (at, kind, actor, task_id, data)
                    select $4, 'run.started', 'runner:' || w.name, held.id, $6
                    from held join workers w on w.id = held.worker_id
                    where held.state = 'claimed'
            )
            select 1 as touched, ",
            task_columns!(),
            " from running as tasks"
        ))
        .grouped()
        .bind(lease.task.to_string())
        .bind(lease.epoch.0)
        .bind(worker.to_string())
        .bind(now.0)
        .bind(branch.to_owned())
        .bind(serde_json::json!({ "epoch": lease.epoch, "branch": branch }).to_string());
        let rows = self.write(sql).await?;
        self.touched_task(&rows)
    }

    /// An effect goes into the journal, over the same kind's of this epoch; what it says of branch
    /// and pull request goes to the task. False where the lease is not the live one.
    pub async fn record(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        now: Timestamp,
        effect: &Effect,
    ) -> Result<bool, StoreError> {
        let (branch, pr, url) = match effect {
            Effect::Pushed { branch, .. } => (Some(branch.clone()), None, None),
            Effect::PullRequest { number, url } => (None, Some(*number), Some(url.clone())),
            Effect::Committed { .. } | Effect::Commented { .. } => (None, None, None),
        };
        let sql = Sql::new(concat!(
            "insert into effects (task_id, epoch, kind, body, recorded_at)
                select $1, $2, $5, $6, $4 from tasks where ",
            live!(),
            " on conflict (task_id, epoch, kind) do update
                set body = excluded.body, recorded_at = excluded.recorded_at
            returning task_id as touched;
            update tasks set branch = coalesce($7, branch), pr = coalesce($8, pr),
                pr_url = coalesce($9, pr_url)
            where ",
            live!(),
            ""
        ))
        .postgres(concat!(
            "with held as materialized (
                select id from tasks where ",
            live!(),
            " for update
            ), noted as (
                update tasks set branch = coalesce($7, branch), pr = coalesce($8, pr),
                    pr_url = coalesce($9, pr_url)
                from held where tasks.id = held.id
                    and ($7 is not null or $8 is not null or $9 is not null)
            )
            insert into effects (task_id, epoch, kind, body, recorded_at)
                select $1, $2, $5, $6, $4 from held
            on conflict (task_id, epoch, kind) do update
                set body = excluded.body, recorded_at = excluded.recorded_at
            returning task_id as touched"
        ))
        .grouped()
        .bind(lease.task.to_string())
        .bind(lease.epoch.0)
        .bind(worker.to_string())
        .bind(now.0)
        .bind(effect.kind())
        .bind(json_text(effect))
        .bind(branch)
        .bind(pr.map(bounded))
        .bind(url);
        Ok(self.write(sql).await?.len() == 1)
    }

    /// The run of a live lease.
    pub async fn live_run(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        now: Timestamp,
    ) -> Result<Option<RunId>, StoreError> {
        let sql = Sql::new(concat!(
            "select runs.id as run_id from tasks
            join runs on runs.task_id = tasks.id and runs.epoch = tasks.epoch where ",
            live!()
        ))
        .bind(lease.task.to_string())
        .bind(lease.epoch.0)
        .bind(worker.to_string())
        .bind(now.0);
        let rows = self.read(sql).await?;
        rows.first().map(|row| self.fields(row).parsed("run_id")).transpose()
    }

    /// Opens, or updates, the pull request of a local repository. A comment stays until another
    /// is given. False where the lease is not the live one.
    pub async fn open_local_pull(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        now: Timestamp,
        pull: &LocalPullRow,
    ) -> Result<bool, StoreError> {
        let sql = Sql::new(concat!(
            "insert into local_pulls (task_id, number, title, body, branch, base, head, diff,
                comment, updated_at)
            select $1, $5, $6, $7, $8, $9, $10, $11, $12, $4 from tasks where ",
            live!(),
            " on conflict (task_id) do update set number = excluded.number,
                title = excluded.title, body = excluded.body, branch = excluded.branch,
                base = excluded.base, head = excluded.head, diff = excluded.diff,
                comment = coalesce(excluded.comment, local_pulls.comment),
                updated_at = excluded.updated_at
            returning task_id as touched"
        ))
        .bind(lease.task.to_string())
        .bind(lease.epoch.0)
        .bind(worker.to_string())
        .bind(now.0)
        .bind(bounded(pull.number))
        .bind(pull.title.clone())
        .bind(pull.body.clone())
        .bind(pull.branch.clone())
        .bind(pull.base.clone())
        .bind(pull.head.clone())
        .bind(pull.diff.clone())
        .bind(pull.comment.clone());
        Ok(self.write(sql).await?.len() == 1)
    }
}

/// The text of a heartbeat that names so many leases, and the one statement for Postgres. A worker's
/// row is locked, so that of two heartbeats at once one tells that it is back.
fn heartbeat_texts(leases: usize) -> (String, String) {
    let mut text = String::from(
        "insert into events (at, kind, actor, data)
            select $3, case $4 when 1 then 'worker.offline' else 'worker.online' end,
                'runner:' || name, '{}'
            from workers where id = $1 and instance_id = $2 and offline <> $4;
        update workers set last_seen = $3, offline = $4, interval_ms = coalesce($5, interval_ms)
            where id = $1 and instance_id = $2 returning id as known;",
    );
    let mut postgres = String::from(
        "with w as materialized (
            select id, name, offline from workers where id = $1 and instance_id = $2
            for no key update
        ), told as (
            insert into events (at, kind, actor, data)
                select $3, case $4 when 1 then 'worker.offline' else 'worker.online' end,
                    'runner:' || name, '{}'
                from w where offline <> $4
        ), seen as (
            update workers set last_seen = $3, offline = $4,
                interval_ms = coalesce($5, interval_ms)
            from w where workers.id = w.id
        )",
    );
    if leases == 0 {
        // The parameter of a lease's end is bound all the same.
        postgres.push_str(" select id as known from w where $6 is not null");
        return (text, postgres);
    }
    let mut named = String::new();
    for i in 0..leases {
        let comma = if i == 0 { "" } else { ", " };
        let _ = write!(named, "{comma}(${}, ${})", 7 + 2 * i, 8 + 2 * i);
    }
    let _ = write!(
        text,
        "update tasks set expires_at = $6
            where worker_id = $1 and state in ('claimed', 'running')
              and exists (select 1 from workers where id = $1 and instance_id = $2)
              and (id, epoch) in (values {named}) returning id as renewed, epoch"
    );
    let _ = write!(
        postgres,
        ", renewed as (
            update tasks set expires_at = $6
            from w, (values {named}) as named
            where tasks.id = named.column1 and tasks.epoch = named.column2
              and tasks.worker_id = w.id and tasks.state in ('claimed', 'running')
            returning tasks.id, tasks.epoch
        )
        select w.id as known, renewed.id as renewed, renewed.epoch
        from w left join renewed on true"
    );
    (text, postgres)
}

/// A count as the database's integer; none of them comes near the bound.
pub(super) fn bounded(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
