//! What time does to tasks: leases run out, parked tasks come back.

use super::{Store, StoreError};
use crate::model::{LeaseRef, TaskId, Timestamp, WorkerId};

/// What the timers did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases that ran out; their tasks are queued again.
    pub expired: Vec<(WorkerId, LeaseRef)>,
    /// Parked tasks whose time has come.
    pub unparked: Vec<TaskId>,
}

/// A sweep, and when the next one has something to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// What it did.
    pub swept: Swept,
    /// The earliest expiry or unpark left.
    pub next: Option<Timestamp>,
}

impl Store {
    /// Ends leases that ran out by `now` and queues parked tasks whose time has come.
    pub async fn sweep(&self, now: Timestamp) -> Result<Sweep, StoreError> {
        let sql = sqlx::query(
            "begin immediate;
            insert into events (at, kind, actor, task_id, data)
                select $1, 'lease.expired', 'site', id,
                    '{\"epoch\":' || epoch || ',\"worker\":\"' || worker_id
                        || '\",\"why\":\"time\"}'
                from tasks where expires_at <= $1 order by expires_at, id;
            update runs set finished_at = $1, ended_by = 'expiry', outcome = 'released',
                stop_reason = '{\"reason\":\"lease_lost\"}'
            where (task_id, epoch) in (select id, epoch from tasks where expires_at <= $1);
            select id as expired, epoch, worker_id from tasks where expires_at <= $1
                order by expires_at, id;
            update tasks set state = 'queued', worker_id = null, claim_id = null,
                expires_at = null, updated_at = $1, stop_reason = '{\"reason\":\"lease_lost\"}',
                message = 'its worker was not heard of until the lease ran out'
            where expires_at <= $1;
            insert into events (at, kind, actor, task_id, data)
                select $1, 'task.queued', 'site', id, '{\"why\":\"unparked\"}'
                from tasks where parked_until <= $1 order by parked_until, id;
            select id as unparked from tasks where parked_until <= $1
                order by parked_until, id;
            update tasks set state = 'queued', parked_until = null, updated_at = $1
            where parked_until <= $1;
            select (select min(expires_at) from tasks where expires_at is not null) as expiry,
                (select min(parked_until) from tasks where parked_until is not null) as unpark;
            commit",
        )
        .bind(now.0);
        let mut sweep = Sweep::default();
        for row in self.write(sql).await?.iter().map(|row| self.fields(row)) {
            if row.has("expired") {
                sweep.swept.expired.push((row.parsed("worker_id")?, row.lease("expired")?));
            } else if row.has("unparked") {
                sweep.swept.unparked.push(row.parsed("unparked")?);
            } else {
                let times = [row.optional_time("expiry")?, row.optional_time("unpark")?];
                sweep.next = times.into_iter().flatten().min();
            }
        }
        Ok(sweep)
    }

    /// The earliest expiry or unpark.
    pub async fn next_timer(&self) -> Result<Option<Timestamp>, StoreError> {
        let sql = sqlx::query(
            "select (select min(expires_at) from tasks where expires_at is not null) as expiry,
                (select min(parked_until) from tasks where parked_until is not null) as unpark",
        );
        let rows = self.read(sql).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let row = self.fields(row);
        let times = [row.optional_time("expiry")?, row.optional_time("unpark")?];
        Ok(times.into_iter().flatten().min())
    }
}
