//! What time does to tasks: leases run out, parked tasks come back.

use std::time::Duration;

use super::deaths::Ends;
use super::row::Fields;
use super::{DeathLimits, Sql, Store, StoreError};
use crate::model::{LeaseRef, TaskId, Timestamp, WorkerId};

/// What the timers did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases that ran out; their tasks are queued again, or set aside.
    pub expired: Vec<(WorkerId, LeaseRef)>,
    /// Parked tasks whose time has come.
    pub unparked: Vec<TaskId>,
    /// Whether a budget was used up, or is there again.
    pub budgets: bool,
}

/// A sweep, and when the next one has something to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// What it did.
    pub swept: Swept,
    /// What is left.
    pub next: NextTimers,
}

/// What a sweep goes by, beside the time. The numbers are the queue's.
#[derive(Clone, Copy, Debug)]
pub struct SweepRules {
    /// Of leases, and what becomes of their tasks.
    pub limits: DeathLimits,
    /// The longest that a task is parked for anything but a time that a vendor or forge named.
    pub longest_pause: Duration,
    /// Whether leases that ran out end now, or are left to their workers for a while.
    pub end_leases: bool,
}

/// When the next timers are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextTimers {
    /// The earliest end of a lease.
    pub expiry: Option<Timestamp>,
    /// The earliest end of a pause.
    pub unpark: Option<Timestamp>,
    /// The earliest end of a day whose budget is used up.
    pub budget: Option<Timestamp>,
}

impl Store {
    /// Ends leases that ran out by `now` and queues parked tasks whose time has come. What lies
    /// further ahead than it can was stamped before the clock went back, and is brought nearer.
    pub async fn sweep(&self, now: Timestamp, rules: &SweepRules) -> Result<Sweep, StoreError> {
        let sql = Sql::made(sweep_text(rules)).bind(now.0);
        let mut sweep = Sweep::default();
        for row in self.write(sql).await?.iter().map(|row| self.fields(row)) {
            if row.has("ended") {
                sweep.swept.expired.push((row.parsed("worker_id")?, row.lease("ended")?));
            } else if row.has("unparked") {
                sweep.swept.unparked.push(row.parsed("unparked")?);
            } else {
                sweep.next = row.timers()?;
            }
        }
        Ok(sweep)
    }

    /// When the next timers are due.
    pub async fn next_timers(&self) -> Result<NextTimers, StoreError> {
        let sql = Sql::new(
            "select (select min(expires_at) from tasks where expires_at is not null) as expiry,
                (select min(parked_until) from tasks where parked_until is not null) as unpark,
                (select min(until) from budget_stops) as budget",
        );
        let rows = self.read(sql).await?;
        rows.first().map_or(Ok(NextTimers::default()), |row| self.fields(row).timers())
    }
}

impl Fields<'_> {
    fn timers(&self) -> Result<NextTimers, StoreError> {
        let (expiry, unpark) = (self.optional_time("expiry")?, self.optional_time("unpark")?);
        Ok(NextTimers { expiry, unpark, budget: self.optional_time("budget")? })
    }
}

/// The text of a sweep; `$1` is now.
pub(super) fn sweep_text(rules: &SweepRules) -> String {
    let lease = rules.limits.lease.as_millis();
    let pause = rules.longest_pause.as_millis();
    let mut text = format!(
        "update tasks set expires_at = $1 + {lease} where expires_at > $1 + {lease};
            update tasks set parked_until = $1 + {pause}
            where parked_until > $1 + {pause}
              and coalesce(stop_reason, '') not like '%\"until\":%';
            update workers set last_seen = $1 where last_seen > $1;"
    );
    if rules.end_leases {
        text.push_str(&rules.limits.end(&Ends {
            which: "tasks.expires_at <= $1",
            now: "$1",
            actor: "'site'",
            by: "expiry",
            why: "time",
            message: "its worker was not heard of until the lease ran out",
        }));
    }
    text.push_str(
        "insert into events (at, kind, actor, task_id, data)
                select $1, 'task.queued', 'site', id, '{\"why\":\"unparked\"}'
                from tasks where parked_until <= $1 order by parked_until, id;
            select id as unparked from tasks where parked_until <= $1
                order by parked_until, id;
            update tasks set state = 'queued', parked_until = null, updated_at = $1
            where parked_until <= $1;
            select (select min(expires_at) from tasks where expires_at is not null) as expiry,
                (select min(parked_until) from tasks where parked_until is not null) as unpark,
                (select min(until) from budget_stops) as budget",
    );
    text
}
