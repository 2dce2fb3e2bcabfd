//! Leases that end without a word of their worker, and how often a task may lose one.

use std::time::Duration;

/// When a run counts as a death, and how many of them a task may have. The numbers are the queue's.
#[derive(Clone, Copy, Debug)]
pub struct DeathLimits {
    /// How long a claim or a heartbeat makes a lease live: it tells when its worker was last
    /// heard of.
    pub lease: Duration,
    /// A death is quick where the worker was last heard of within this time of the run's start, and
    /// held no other lease then.
    pub quick: Duration,
    /// So many quick deaths in a row set a task aside.
    pub quick_most: u32,
    /// So many deaths in a row, however slow, do too.
    pub most: u32,
}

/// Which leases end, and what is told of it. Texts of SQL, none of them from outside.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    /// A condition on `tasks`.
    pub which: &'a str,
    /// The parameter that holds the time.
    pub now: &'a str,
    /// Who tells.
    pub actor: &'a str,
    /// `runs.ended_by`.
    pub by: &'a str,
    /// The event's word.
    pub why: &'a str,
    /// The task's one line.
    pub message: &'a str,
}

impl DeathLimits {
    /// The statements that end leases: events, runs, a row `ended, epoch, worker_id` a lease, tasks.
    pub(super) fn end(&self, ends: &Ends<'_>) -> String {
        let Ends { which, now, actor, by, why, message } = ends;
        let (lease, quick) = (self.lease.as_millis(), self.quick.as_millis());
        let (aside, together) = (self.set_aside(), self.together());
        format!(
            "insert into events (at, kind, actor, task_id, data)
                select {now}, 'lease.expired', {actor}, id,
                    '{{\"epoch\":' || epoch || ',\"worker\":\"' || worker_id
                        || '\",\"why\":\"{why}\"}}'
                from tasks where {which} order by expires_at, id;
            update runs set finished_at = {now}, ended_by = '{by}', outcome = 'released',
                stop_reason = '{{\"reason\":\"lease_lost\"}}',
                death = case
                    when (select t.expires_at from tasks t where t.id = runs.task_id) - {lease}
                        < coalesce(started_at, claimed_at) + {quick}
                      and not {together}
                    then 'quick' else 'slow' end
            where (task_id, epoch) in (select id, epoch from tasks where {which});
            insert into events (at, kind, actor, task_id, data)
                select {now}, 'task.quarantined', {actor}, id,
                    '{{\"epoch\":' || epoch || ',\"why\":\"worker_died\",'
                        || '\"hint\":\"relay task retry ''' || id || '''\"}}'
                from tasks where {which} and {aside} order by expires_at, id;
            select id as ended, epoch, worker_id from tasks where {which}
                order by expires_at, id;
            update tasks set
                state = case when {aside} then 'failed' else 'queued' end,
                stop_reason = case when {aside} then '{{\"reason\":\"quarantined\"}}'
                    else '{{\"reason\":\"lease_lost\"}}' end,
                message = case when {aside}
                    then 'its runs end with their worker, so it is not tried again by itself'
                    else '{message}' end,
                worker_id = null, claim_id = null, expires_at = null, updated_at = {now}
            where {which};"
        )
    }

    /// The condition on `runs` under which its worker held other leases when it was last heard of:
    /// which of its tasks took it down, if one did, cannot be told. Those that run out later are
    /// held still; those that ran out before did so after this one was renewed for the last time.
    fn together(&self) -> String {
        let lease = self.lease.as_millis();
        format!(
            "(exists (select 1 from tasks o
                    where o.worker_id = runs.worker_id and o.id <> runs.task_id)
              or exists (select 1 from runs k
                    where k.worker_id = runs.worker_id and k.ended_by = 'expiry'
                      and k.instance_id = runs.instance_id and k.task_id <> runs.task_id
                      and k.finished_at > (
                          select t.expires_at from tasks t where t.id = runs.task_id) - {lease}))"
        )
    }

    /// The condition on `tasks` under which it has had its deaths.
    fn set_aside(&self) -> String {
        let (quick_most, most) = (self.quick_most, self.most);
        format!(
            "((select count(*) from runs d where d.task_id = tasks.id
                    and d.epoch > tasks.deaths_from and d.death is not null) >= {most}
              or (select count(*) from (
                    select d.death from runs d where d.task_id = tasks.id
                        and d.epoch > tasks.deaths_from and d.death is not null
                    order by d.epoch desc limit {quick_most}) as l
                  where l.death = 'quick') >= {quick_most})"
        )
    }
}
