//! What must hold between any two steps, and at the end.

use std::collections::BTreeMap;

use relay::model::{Effect, Epoch, Event, LEASE, StopReason, TaskId, TaskState};
use relay::queue::{DEATHS, QUICK, QUICK_DEATHS};

use super::world::{Held, World};
use super::{End, Line, WORKERS, Write};

impl World {
    pub async fn check(&mut self) {
        self.find_swept().await;
        let now = self.b.now();
        self.replay().await;
        for task in self.b.queue.tasks(None).await.expect("tasks") {
            assert_eq!(task.state.is_leased(), self.held.contains_key(&task.id), "{task:?}");
            if let Some(held) = self.held.get_mut(&task.id) {
                assert_eq!(task.epoch, held.epoch);
                let holder = &self.processes[held.holder].hand.worker.id;
                assert_eq!(task.worker.as_ref(), Some(holder));
                // A sweep brings what lies too far ahead nearer; nothing else moves it.
                let until = task.expires_at.expect("an end");
                let nearer = held.until.min(now + LEASE);
                assert!(until == held.until || until == nearer, "{task:?} and {held:?}");
                held.until = until;
            }
            let runs = self.b.queue.runs(&task.id).await.expect("runs");
            assert_eq!(i64::try_from(runs.len()), Ok(task.epoch.0));
            let open = runs.iter().filter(|run| run.finished_at.is_none()).count();
            assert_eq!(open, usize::from(task.state.is_leased()), "{runs:?}");
            let explained = match task.state {
                TaskState::Failed | TaskState::Cancelled => task.stop_reason.is_some(),
                TaskState::Parked => task.parked_until.is_some(),
                TaskState::Review => task.stop_reason == Some(StopReason::Finished),
                TaskState::Queued | TaskState::Claimed | TaskState::Running | TaskState::Done => {
                    true
                }
            };
            assert!(explained, "nobody can tell why: {task:?}");
            let (told, epoch) = self.told[&task.id];
            assert_eq!((told, epoch), (task.state, task.epoch), "the events say otherwise");
            for effect in self.b.queue.effects(&task.id).await.expect("effects") {
                let (Effect::Committed { commit, .. } | Effect::Pushed { commit, .. }) = effect
                else {
                    panic!("nobody recorded {effect:?}")
                };
                assert!(self.landed.contains(&commit), "{commit} never landed");
            }
        }
    }

    /// Leases that ran out and that a sweep has ended since, also one that a claim made.
    pub async fn find_swept(&mut self) {
        let now = self.b.now();
        let over: Vec<(TaskId, Held)> = self
            .held
            .iter()
            .filter(|(_, held)| held.until <= now)
            .map(|(id, held)| (id.clone(), *held))
            .collect();
        let before = self.held.clone();
        let mut ended = Vec::new();
        for (id, held) in over {
            let task = self.b.queue.task(&id).await.expect("a task");
            if task.state.is_leased() && task.epoch == held.epoch {
                continue;
            }
            assert!(!self.spared(), "a lease was ended that was to be spared: {task:?}");
            self.held.remove(&id);
            self.died(&id, held, &before).await;
            ended.push(((id.clone(), held.epoch), (held.holder, now)));
            self.lapsed.insert(id, (held.epoch, held.holder));
        }
        self.expired.extend(ended);
    }

    /// The worker of a run was not heard of: the task waits for another, or is set aside. `before`
    /// are the leases as they were: where it lost several together none of them is to blame.
    pub async fn died(&mut self, id: &TaskId, held: Held, before: &BTreeMap<TaskId, Held>) {
        let began = self.runs[&(id.clone(), held.epoch)].began;
        let worker = |process: usize| self.processes[process].name;
        let last_heard = held.until - LEASE;
        let together =
            before.iter().any(|(other, o)| other != id && worker(o.holder) == worker(held.holder))
                || self.expired.iter().any(|((other, _), (process, at))| {
                    other != id && *process == held.holder && *at > last_heard
                });
        let quick = last_heard < began + QUICK && !together;
        let quarantined = self.death(id, held.epoch, quick);
        let task = self.b.queue.task(id).await.expect("a task");
        if task.epoch == held.epoch {
            let state = if quarantined { TaskState::Failed } else { TaskState::Queued };
            assert_eq!(task.state, state, "{:?}", self.deaths[id]);
        } else {
            assert!(!quarantined, "it was set aside and taken all the same: {task:?}");
        }
    }

    /// Notes a death; true where it is the last that the task may have.
    pub fn death(&mut self, id: &TaskId, epoch: Epoch, quick: bool) -> bool {
        let row = self.deaths.entry(id.clone()).or_default();
        row.insert(epoch, quick);
        let most = |n: u32| usize::try_from(n).expect("a small number");
        let newest_quick = row.values().rev().take(most(QUICK_DEATHS)).filter(|quick| **quick);
        row.len() >= most(DEATHS) || newest_quick.count() >= most(QUICK_DEATHS)
    }

    /// Each change has told its event: the states follow from them alone.
    async fn replay(&mut self) {
        for event in self.b.queue.events(self.read, None, 1000).await.expect("events") {
            self.read = event.seq;
            let Some(id) = event.task.clone() else { continue };
            let before = self.told.get(&id).copied();
            self.told.insert(id, after(before, &event));
        }
    }

    /// With all of them well, every task comes to an end.
    pub async fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 100, "it does not settle");
            self.b.advance(4000);
            self.check().await;
            for worker in 0..WORKERS {
                let at = self.current[worker];
                self.claim(at, Line::Whole).await;
                for lease in self.processes[at].leases.clone() {
                    self.write(at, &lease, Write::Finish(End::Finished)).await;
                }
                self.check().await;
            }
            let tasks = self.b.queue.tasks(None).await.expect("tasks");
            if tasks.iter().all(|task| task.state.is_final() || task.state == TaskState::Review) {
                return;
            }
        }
    }
}

/// The state and epoch of a task after an event, which must fit what was before it.
fn after(before: Option<(TaskState, Epoch)>, event: &Event) -> (TaskState, Epoch) {
    use TaskState::*;
    let (state, epoch) = before.map_or((None, Epoch(0)), |(state, epoch)| (Some(state), epoch));
    let says = event.data["epoch"].as_i64().map(Epoch);
    let renewed = event.data["renewed"] == true;
    let leased = matches!(state, Some(Claimed | Running));
    let (fits, next) = match event.kind.as_str() {
        "task.queued" if event.data["why"] == "new" => (state.is_none(), Queued),
        "task.queued" if event.data["why"] == "unparked" => (state == Some(Parked), Queued),
        "task.queued" if event.data["why"] == "again" => (!leased, Queued),
        "task.queued" => (leased, Queued),
        "run.claimed" if renewed => {
            let started = event.data["started"] == true;
            let fits = matches!(state, Some(Queued | Failed)) && says == Some(epoch);
            return check(fits, (if started { Running } else { Claimed }, epoch), before, event);
        }
        "run.claimed" => {
            let fits = state == Some(Queued) && says == Some(Epoch(epoch.0 + 1));
            return check(fits, (Claimed, Epoch(epoch.0 + 1)), before, event);
        }
        "run.started" => (state == Some(Claimed), Running),
        "lease.expired" => (leased, Queued),
        "task.quarantined" => (matches!(state, Some(Queued | Failed)), Failed),
        "run.finished" => (leased, Review),
        "run.failed" => (leased, Failed),
        "task.parked" => (leased || state == Some(Failed), Parked),
        "task.retried" => {
            (matches!(state, Some(Review | Failed | Done | Cancelled | Parked)), Queued)
        }
        "task.cancelled" => (state != Some(Done), Cancelled),
        "task.done" => (state != Some(Done), Done),
        _ => return before.expect("told of no task before"),
    };
    check(fits && says.is_none_or(|says| says == epoch), (next, epoch), before, event)
}

fn check<T>(fits: bool, next: T, before: Option<(TaskState, Epoch)>, event: &Event) -> T {
    assert!(fits, "{event:?} after {before:?}");
    next
}
