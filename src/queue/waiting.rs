//! Why a task waits. Worked out when asked, never stored.

use std::collections::HashMap;
use std::time::Duration;

use super::{LeftOut, Need, Queue, QueueError};
use crate::model::{
    ForgeKind, Label, LaneName, Orders, TaskId, TaskState, Timestamp, WaitReason, Worker, WorkerId,
    WorkerState,
};
use crate::store::BudgetStop;

/// Of each lane of each project, so many queued tasks are told at most. A longer queue is read
/// again before these are all taken.
pub const NEEDS_MOST: u32 = 128;

/// A worker that was not heard of for so long is taken to be another's former name where its machine
/// has another worker now: nobody starts it again.
const FORGOTTEN: Duration = Duration::from_secs(24 * 60 * 60);

impl Queue {
    /// What the queued tasks ask of a worker, in the order in which they are claimed; of each lane
    /// of each project the oldest [`NEEDS_MOST`].
    pub async fn needs(&self) -> Result<Vec<Need>, QueueError> {
        Ok(self.inner.store.needs(NEEDS_MOST, self.inner.clock.now()).await?)
    }

    /// Why a task waits; empty where it does not.
    pub async fn waiting(&self, id: &TaskId) -> Result<Vec<WaitReason>, QueueError> {
        let task = self.task(id).await?;
        match (task.state, task.parked_until) {
            (TaskState::Parked, Some(until)) => {
                return Ok(vec![WaitReason::Parked { until, stopped: task.stop_reason }]);
            }
            (TaskState::Queued, _) => {}
            _ => return Ok(Vec::new()),
        }
        // No worker helps against a budget.
        let stops = self.budget_stops().await?.into_iter();
        let stops = stops.filter(|stop| stop.scope.covers(&task.id.repo, &task.lane));
        let budgets: Vec<WaitReason> = stops.map(budget).collect();
        if !budgets.is_empty() {
            return Ok(budgets);
        }
        let project = self.project(&task.id.repo).await?;
        let need = Need {
            task: task.id,
            lane: task.lane,
            labels: task.required_labels,
            forge: project.forge,
            host: project.host,
        };
        let now = self.inner.clock.now();
        let paused = self.inner.store.paused(&need.lane, now).await?;
        let workers = self.workers().await?;
        let known = Known { paused: &paused, left: &self.inner.leftouts.of(&workers), now };
        Ok(vec![why(&need, &workers, &known)])
    }
}

fn budget(stop: BudgetStop) -> WaitReason {
    let BudgetStop { scope, usd_day, spent_usd, until } = stop;
    WaitReason::Budget { scope, usd_day, spent_usd, until }
}

/// What is known of workers that are there and may take nothing of it.
struct Known<'a> {
    /// Those that take nothing of its lane before a time.
    paused: &'a [(WorkerId, Timestamp)],
    /// What they leave out for now.
    left: &'a HashMap<WorkerId, LeftOut>,
    /// The time.
    now: Timestamp,
}

/// Why nobody has it yet.
fn why(need: &Need, workers: &[Worker], known: &Known<'_>) -> WaitReason {
    let (mut gone, there): (Vec<&Worker>, Vec<&Worker>) =
        workers.iter().partition(|worker| worker.state == WorkerState::Offline);
    let able = match able(need, there.clone()) {
        Ok(able) => able,
        Err(demand) => {
            gone.retain(|gone| {
                let replaced = there.iter().any(|there| there.host == gone.host);
                !replaced || known.now.since(gone.last_seen) < FORGOTTEN
            });
            let back = self::able(need, gone).unwrap_or_default();
            // One that needs no new token is the easiest to start again.
            return match back.iter().max_by_key(|worker| (!worker.revoked, worker.last_seen)) {
                Some(last) => WaitReason::Offline {
                    worker: last.name.clone(),
                    last_seen: last.last_seen,
                    revoked: last.revoked,
                    paused: last.orders.pause_of(&need.lane).is_some(),
                },
                None => demand,
            };
        }
    };
    if let Some(reason) = told_not_to(&need.lane, &able) {
        return reason;
    }
    let able = able.into_iter().filter(|worker| worker.orders.let_take(&need.lane));
    let (ending, able): (Vec<&Worker>, Vec<&Worker>) = able.partition(|worker| worker.ending);
    if able.is_empty() {
        let workers = ending.iter().map(|worker| worker.name.clone()).collect();
        return WaitReason::Ending { workers };
    }
    let left = |worker: &Worker| known.left.get(&worker.id);
    let is_refused =
        |worker: &&Worker| left(worker).is_some_and(|l| l.refused.contains(&need.lane));
    let (refused, able): (Vec<&Worker>, Vec<&Worker>) = able.into_iter().partition(is_refused);
    if able.is_empty() {
        let workers = refused.iter().map(|worker| worker.name.clone()).collect();
        return WaitReason::LoginRefused { lane: need.lane.clone(), workers };
    }
    let until = |worker: &&Worker| known.paused.iter().find(|(id, _)| *id == worker.id);
    let (paused, able): (Vec<&Worker>, Vec<&Worker>) =
        able.into_iter().partition(|worker| until(worker).is_some());
    if able.is_empty()
        && let Some(first) = paused.iter().filter_map(until).map(|(_, until)| *until).min()
    {
        return WaitReason::Paused { until: first };
    }
    if able.iter().all(|worker| worker.state == WorkerState::Idle)
        && let Some(last) = able.iter().max_by_key(|worker| worker.last_seen)
    {
        let (worker, last_seen, interval_ms) =
            (last.name.clone(), last.last_seen, last.interval_ms);
        return WaitReason::Silent { worker, last_seen, interval_ms };
    }
    let is_limited =
        |worker: &&Worker| left(worker).is_some_and(|left| left.limited.contains(&need.lane));
    if able.iter().all(is_limited) {
        let workers = able.iter().map(|worker| worker.name.clone()).collect();
        return WaitReason::LaneFull { lane: need.lane.clone(), workers };
    }
    let repo = &need.task.repo;
    let is_full = |worker: &&Worker| left(worker).is_some_and(|left| left.full.contains(repo));
    let of_repo = able.iter().flat_map(|worker| &worker.leases).map(|lease| lease.task.clone());
    let runs: Vec<TaskId> = of_repo.filter(|task| task.repo == *repo).collect();
    match able.iter().all(is_full) && !runs.is_empty() {
        true => WaitReason::RepoFull { runs },
        false => WaitReason::Busy,
    }
}

/// Where people told all of these to take nothing of the lane.
fn told_not_to(lane: &LaneName, workers: &[&Worker]) -> Option<WaitReason> {
    let word = |worker: &&Worker| {
        let Orders { drain, .. } = &worker.orders;
        let pause = worker.orders.pause_of(lane).map(|pause| (pause.at, pause.by.clone()));
        pause.or(drain.as_ref().map(|drain| (drain.at, drain.by.clone())))
    };
    let words: Vec<_> = workers.iter().map(word).collect::<Option<_>>()?;
    let (since, by) = words.into_iter().max_by_key(|(at, _)| *at)?;
    let workers = workers.iter().map(|worker| worker.name.clone()).collect();
    Some(WaitReason::WorkersPaused { workers, by, since })
}

/// The workers that could take it, at least one; else the first demand that no worker is left to
/// meet, in the order in which a person can mend it.
fn able<'a>(need: &Need, mut left: Vec<&'a Worker>) -> Result<Vec<&'a Worker>, WaitReason> {
    if left.is_empty() {
        return Err(WaitReason::NoWorker);
    }
    if need.forge == ForgeKind::Local {
        left.retain(|w| w.host == need.host);
        if left.is_empty() {
            return Err(WaitReason::OtherHost { host: need.host.clone() });
        }
    }
    left.retain(|w| w.lanes.contains(&need.lane));
    if left.is_empty() {
        return Err(WaitReason::NoLane { lane: need.lane.clone() });
    }
    if need.forge == ForgeKind::Github {
        left.retain(|w| w.forges.contains(&need.host));
        if left.is_empty() {
            return Err(WaitReason::NoForgeLogin { forge: need.host.clone() });
        }
    }
    // What the worker that comes closest lacks.
    let lacks = |w: &&Worker| -> Vec<Label> {
        need.labels.iter().filter(|label| !w.labels.contains(label)).cloned().collect()
    };
    let missing = left.iter().map(lacks).min_by_key(Vec::len).unwrap_or_default();
    if !missing.is_empty() {
        return Err(WaitReason::NoLabel { missing });
    }
    left.retain(|worker| lacks(worker).is_empty());
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Actor, Epoch, LeaseRef, Pause, WorkerName};

    fn worker() -> Worker {
        Worker {
            id: "00000000-0000-7000-8000-000000000001".parse().expect("an id"),
            name: "desk".parse().expect("a name"),
            host: "desk".to_owned(),
            lanes: vec!["claude".parse().expect("a lane")],
            labels: vec!["gpu".parse().expect("a label")],
            forges: vec!["github.com".to_owned()],
            version: "0".to_owned(),
            state: WorkerState::Online,
            last_seen: Timestamp(0),
            interval_ms: None,
            leases: Vec::new(),
            ending: false,
            revoked: false,
            orders: Orders::default(),
        }
    }

    fn need() -> Need {
        Need {
            task: "acme/shop#1".parse().expect("an id"),
            lane: "claude".parse().expect("a lane"),
            labels: vec!["gpu".parse().expect("a label")],
            forge: ForgeKind::Github,
            host: "github.com".to_owned(),
        }
    }

    /// Of workers that leave nothing out.
    fn reason(
        need: &Need,
        workers: &[Worker],
        paused: &[(WorkerId, Timestamp)],
        now: Timestamp,
    ) -> WaitReason {
        why(need, workers, &Known { paused, left: &HashMap::new(), now })
    }

    #[test]
    fn the_demand_that_nobody_meets_is_named() {
        let lacking = |change: &dyn Fn(&mut Worker)| {
            let mut changed = worker();
            change(&mut changed);
            reason(&need(), &[changed], &[], Timestamp(9))
        };
        let codex: crate::model::LaneName = "codex".parse().expect("a lane");
        let claude = "claude".parse().expect("a lane");
        assert_eq!(reason(&need(), &[], &[], Timestamp(9)), WaitReason::NoWorker);
        let gone = |w: &mut Worker| w.state = WorkerState::Offline;
        let (desk, last_seen) = (worker().name, Timestamp(0));
        assert_eq!(
            lacking(&gone),
            WaitReason::Offline { worker: desk, last_seen, revoked: false, paused: false }
        );
        let gone_and_unfit = |w: &mut Worker| {
            gone(w);
            w.lanes.clear();
        };
        assert_eq!(lacking(&gone_and_unfit), WaitReason::NoWorker);
        assert_eq!(
            lacking(&|w| w.lanes = vec![codex.clone()]),
            WaitReason::NoLane { lane: claude }
        );
        assert_eq!(
            lacking(&|w| w.forges.clear()),
            WaitReason::NoForgeLogin { forge: "github.com".to_owned() }
        );
        assert_eq!(lacking(&|w| w.labels.clear()), WaitReason::NoLabel { missing: need().labels });
        assert_eq!(lacking(&|_| ()), WaitReason::Busy);
        let local = Need { forge: ForgeKind::Local, host: "attic".to_owned(), ..need() };
        assert_eq!(
            reason(&local, &[worker()], &[], Timestamp(9)),
            WaitReason::OtherHost { host: "attic".to_owned() }
        );
    }

    #[test]
    fn a_worker_that_is_away_is_named_where_those_that_are_there_cannot() {
        let away = Worker { state: WorkerState::Offline, last_seen: Timestamp(7), ..worker() };
        let longer = Worker {
            name: "attic".parse().expect("a name"),
            last_seen: Timestamp(6),
            ..away.clone()
        };
        let unfit = Worker { labels: Vec::new(), ..worker() };
        let offline = |worker: &Worker| WaitReason::Offline {
            worker: worker.name.clone(),
            last_seen: worker.last_seen,
            revoked: worker.revoked,
            paused: !worker.orders.paused.is_empty(),
        };
        let of = |away: &Worker| {
            reason(&need(), &[longer.clone(), unfit.clone(), away.clone()], &[], Timestamp(9))
        };
        assert_eq!(of(&away), offline(&away));
        let pause = Pause { lane: None, by: Actor::user("ann"), at: Timestamp(5) };
        let orders = Orders { paused: vec![pause], drain: None };
        let paused = Worker { orders, ..away.clone() };
        assert_eq!(of(&paused), offline(&paused), "it is paused as well");
        let revoked = Worker { revoked: true, ..away.clone() };
        assert_eq!(of(&revoked), offline(&longer), "to start it again is enough");
        assert_eq!(
            reason(&need(), std::slice::from_ref(&revoked), &[], Timestamp(9)),
            offline(&revoked)
        );
        assert_eq!(reason(&need(), &[away, worker()], &[], Timestamp(9)), WaitReason::Busy);
    }

    #[test]
    fn a_worker_that_nothing_was_heard_of_for_minutes_is_not_called_busy() {
        let idle = |name: &str, at| Worker {
            name: name.parse().expect("a name"),
            state: WorkerState::Idle,
            last_seen: Timestamp(at),
            interval_ms: Some(300_000),
            ..worker()
        };
        let now = Timestamp(200_000);
        let (desk, attic) = (idle("desk", 2), idle("attic", 1));
        let silent = WaitReason::Silent {
            worker: desk.name.clone(),
            last_seen: Timestamp(2),
            interval_ms: Some(300_000),
        };
        assert_eq!(reason(&need(), &[attic, desk.clone()], &[], now), silent);
        assert_eq!(reason(&need(), &[desk.clone(), worker()], &[], now), WaitReason::Busy);
        // What is known for certain is told first.
        let until = Timestamp(300_000);
        let paused = [(desk.id.clone(), until)];
        assert_eq!(reason(&need(), &[desk], &paused, now), WaitReason::Paused { until });
    }

    #[test]
    fn a_name_that_its_machine_gave_up_long_ago_is_not_waited_for() {
        let (day, seen) = (24 * 3_600_000, Timestamp(7));
        let away = |host: &str| Worker {
            name: "before".parse().expect("a name"),
            host: host.to_owned(),
            state: WorkerState::Offline,
            last_seen: seen,
            ..worker()
        };
        let codex = "codex".parse().expect("a lane");
        let there = Worker { lanes: vec![codex], ..worker() };
        let after =
            |host, ms| reason(&need(), &[away(host), there.clone()], &[], Timestamp(7 + ms));
        let offline = WaitReason::Offline {
            worker: away("").name,
            last_seen: seen,
            revoked: false,
            paused: false,
        };
        assert_eq!(after("desk", day - 1), offline);
        assert_eq!(after("desk", day), WaitReason::NoLane { lane: need().lane });
        assert_eq!(after("attic", 30 * day), offline, "its machine has no other worker");
        let alone = reason(&need(), &[away("desk")], &[], Timestamp(30 * day));
        assert_eq!(alone, offline, "nobody is there in its place");
    }

    #[test]
    fn all_that_could_take_it_are_paused_until_the_first_goes_on() {
        let other: WorkerId = "00000000-0000-7000-8000-000000000002".parse().expect("an id");
        let second = Worker { id: other.clone(), ..worker() };
        let workers = [worker(), second];
        let paused = [(other, Timestamp(5)), (worker().id, Timestamp(9))];
        assert_eq!(
            reason(&need(), &workers, &paused, Timestamp(9)),
            WaitReason::Paused { until: Timestamp(5) }
        );
        assert_eq!(reason(&need(), &workers, &paused[..1], Timestamp(9)), WaitReason::Busy);
    }

    #[test]
    fn a_worker_that_ends_is_not_waited_for_where_another_could_take_it() {
        let ends = Worker { ending: true, ..worker() };
        let workers = vec![ends.name.clone()];
        let ending = WaitReason::Ending { workers };
        assert_eq!(reason(&need(), std::slice::from_ref(&ends), &[], Timestamp(9)), ending);
        assert_eq!(reason(&need(), &[ends, worker()], &[], Timestamp(9)), WaitReason::Busy);
    }

    #[test]
    fn what_workers_leave_out_is_named_where_none_could_take_it() {
        let other: WorkerId = "00000000-0000-7000-8000-000000000002".parse().expect("an id");
        let run = |task: &str| LeaseRef { task: task.parse().expect("an id"), epoch: Epoch(1) };
        let busy = Worker { leases: vec![run("acme/shop#7"), run("acme/attic#8")], ..worker() };
        let attic: WorkerName = "attic".parse().expect("a name");
        let second = Worker { id: other.clone(), name: attic.clone(), ..worker() };
        let refused = LeftOut { refused: vec![need().lane], ..LeftOut::default() };
        let limited = LeftOut { limited: vec![need().lane], ..LeftOut::default() };
        let full = LeftOut { full: vec![need().task.repo], ..LeftOut::default() };
        let why = |left: &[(&WorkerId, &LeftOut)], paused: &[(WorkerId, Timestamp)]| {
            let left = left.iter().map(|(id, left)| ((*id).clone(), (*left).clone())).collect();
            let known = Known { paused, left: &left, now: Timestamp(9) };
            super::why(&need(), &[busy.clone(), second.clone()], &known)
        };
        let desk = &busy.id;
        let workers = vec![busy.name.clone(), attic];
        let lane = need().lane;
        let both = why(&[(desk, &refused), (&other, &refused)], &[]);
        assert_eq!(both, WaitReason::LoginRefused { lane, workers });
        // Whoever could still take it says why it does not.
        assert_eq!(why(&[(desk, &refused)], &[]), WaitReason::Busy);
        let until = Timestamp(99);
        let paused = [(other.clone(), until)];
        assert_eq!(why(&[(desk, &refused)], &paused), WaitReason::Paused { until });
        let lane_full = |names: &[&WorkerName]| WaitReason::LaneFull {
            lane: need().lane,
            workers: names.iter().map(|name| (*name).clone()).collect(),
        };
        let both = lane_full(&[&busy.name, &second.name]);
        assert_eq!(why(&[(desk, &limited), (&other, &limited)], &[]), both);
        assert_eq!(why(&[(desk, &limited), (&other, &refused)], &[]), lane_full(&[&busy.name]));
        assert_eq!(why(&[(desk, &limited)], &paused), lane_full(&[&busy.name]));
        assert_eq!(why(&[(desk, &limited)], &[]), WaitReason::Busy, "the other has room");
        let runs = vec!["acme/shop#7".parse().expect("an id")];
        let of_the_repo = WaitReason::RepoFull { runs };
        assert_eq!(why(&[(desk, &full), (&other, &refused)], &[]), of_the_repo);
        assert_eq!(why(&[(desk, &full)], &paused), of_the_repo);
        assert_eq!(why(&[(desk, &full)], &[]), WaitReason::Busy, "the other has room");
        assert_eq!(
            why(&[(&other, &full), (desk, &refused)], &[]),
            WaitReason::Busy,
            "no run of it"
        );
    }
}
