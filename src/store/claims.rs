//! Leasing the oldest task that a worker can take.

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

use super::row::task_columns;
use super::{Store, StoreError};
use crate::model::{
    ClaimId, InstanceId, Label, LaneName, Project, RunId, Task, Timestamp, WorkerId,
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
    },
}

impl Store {
    /// Leases the oldest queued task that the worker can take, makes its run and tells
    /// `run.claimed`. Asked again with the same claim id while that lease lives, it changes
    /// nothing and gives the same. A claim id whose run the worker itself has ended gets nothing:
    /// only a question that was overtaken on its way can still carry it.
    pub async fn claim(&self, claim: &Claim<'_>) -> Result<ClaimedRow, StoreError> {
        let mut sql = sqlx::query(AssertSqlSafe(claim_text(claim.lanes.len(), claim.labels.len())))
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
        let rows = self.write(sql).await?;
        let Some(row) = rows.first() else { return Ok(ClaimedRow::Unknown) };
        let row = self.fields(row);
        if row.is_null("run_id") {
            return Ok(ClaimedRow::Nothing);
        }
        Ok(ClaimedRow::Leased {
            task: Box::new(row.task()?),
            project: Box::new(row.project()?),
            run: row.parsed("run_id")?,
        })
    }
}

/// The text for so many lanes and labels: `Any` has no arrays, and there are few of either.
///
/// `changes() = 1` after an update says that it found its row: what follows happens only then.
pub(super) fn claim_text(lanes: usize, labels: usize) -> String {
    let mut lane_rows = String::new();
    for i in 0..lanes {
        let _ = write!(lane_rows, "{}(${})", if i == 0 { "" } else { ", " }, 7 + i);
    }
    // No label is empty; it keeps the list from being so.
    let mut label_list = "''".to_owned();
    for i in 0..labels {
        let _ = write!(label_list, ", ${}", 7 + lanes + i);
    }
    format!(
        "begin immediate;
        update tasks set state = 'claimed', epoch = epoch + 1, worker_id = $1, claim_id = $3,
            expires_at = $6, updated_at = $5
        where id = (
            -- The oldest of each lane is one step in its index; then the oldest of those.
            select t.id from (values {lane_rows}) as l
            join tasks t on t.id = (
                select q.id from tasks q
                join projects p on p.slug = q.slug
                join workers w on w.id = $1
                where q.state = 'queued' and q.lane = l.column1
                  and case p.forge
                      when 'local' then p.host = w.host
                      else exists (
                          select 1 from worker_traits f
                          where f.worker_id = w.id and f.kind = 'forge' and f.value = p.host)
                      end
                  and not exists (
                      select 1 from preference_labels n
                      where n.label not in ({label_list})
                        and n.slug in ('', q.slug) and n.lane in ('', q.lane)
                        and n.rank = (
                            select max(r.rank) from preferences r
                            where r.key = 'lane.labels'
                              and r.slug in ('', q.slug) and r.lane in ('', q.lane)))
                order by q.asked_at, q.slug, q.number
                limit 1)
            order by t.asked_at, t.slug, t.number
            limit 1)
          and state = 'queued'
          and exists (select 1 from workers where id = $1 and instance_id = $2)
          and not exists (select 1 from tasks where claim_id = $3)
          and not exists (select 1 from runs where claim_id = $3 and ended_by = 'worker');
        insert into runs (id, task_id, epoch, worker_id, instance_id, claim_id, claimed_at)
            select $4, id, epoch, worker_id, $2, claim_id, $5
            from tasks where claim_id = $3 and changes() = 1;
        insert into events (at, kind, actor, task_id, data)
            select $5, 'run.claimed', 'runner:' || w.name, t.id,
                '{{\"epoch\":' || t.epoch || ',\"run\":\"' || $4 || '\"}}'
            from tasks t join workers w on w.id = t.worker_id
            where t.claim_id = $3 and changes() = 1;
        select {columns}, runs.id as run_id, p.slug, p.forge, p.host, p.remote, p.api_base,
            p.default_branch, p.linked_at
        from workers w
        left join tasks on tasks.claim_id = $3 and tasks.worker_id = w.id
            and tasks.expires_at > $5
        left join runs on runs.task_id = tasks.id and runs.epoch = tasks.epoch
        left join projects p on p.slug = tasks.slug
        where w.id = $1 and w.instance_id = $2;
        commit",
        columns = task_columns!(),
    )
}
