//! What workers do, over a line that loses calls and answers.

use relay::model::{Effect, LEASE, LeaseRef, PushProblem, StopReason, TaskId};
use relay::queue::{Claimant, LeaseRenewal, QUICK, QueueError, RunEnd};

use super::world::{Held, KnownRun, Process, World};
use super::{End, Line, Write};
use crate::queue::bench::{Hand, committed, new_worker, pushed};

impl World {
    /// The process claims, with the id of a claim that had no answer if there is one.
    pub async fn claim(&mut self, at: usize, line: Line) {
        let process = &mut self.processes[at];
        let again = process.asked.take();
        let asked_before = again.is_some();
        let claim_id = again.unwrap_or_else(|| self.b.claim_id());
        if line != Line::Whole {
            process.asked = Some(claim_id.clone());
        }
        if line == Line::CallLost {
            return;
        }
        let claimant = Claimant { claim_id, ..self.b.claimant(&self.processes[at].hand) };
        let claimed = self.b.queue.claim(&claimant).await.expect("a claim");
        // A claim sweeps first.
        self.find_swept().await;
        let Some(claimed) = claimed else { return };
        let lease = claimed.lease.reference();
        let key = (lease.task.clone(), lease.epoch);
        match self.live(&lease.task) {
            Some(held) => {
                // Only the answer that was lost is given twice, and only to who asked.
                assert!(asked_before, "a task with a live lease was given again");
                assert_eq!((held.epoch, held.holder), (lease.epoch, at));
                assert_eq!(self.runs[&key].claim, claimant.claim_id);
            }
            None => {
                let highest = self.runs.keys().filter(|(id, _)| *id == lease.task).map(|k| k.1);
                let highest = highest.max().unwrap_or_default();
                assert!(lease.epoch > highest, "an epoch was given twice");
                let spent = self.runs.values().any(|r| r.claim == claimant.claim_id && r.told);
                assert!(!spent, "a claim that was finished was given more");
                let claim = claimant.claim_id;
                let began = self.b.now();
                self.runs.insert(key, KnownRun { claim, began, started: false, told: false });
            }
        }
        self.lapsed.remove(&lease.task);
        let until = claimed.lease.expires_at;
        self.held.insert(lease.task.clone(), Held { epoch: lease.epoch, holder: at, until });
        // Heard or not, something in flight may name it.
        let process = &mut self.processes[at];
        if !process.leases.contains(&lease) {
            process.leases.push(lease);
        }
    }

    pub async fn zombie_claim(&mut self, process: usize) {
        let at = process % self.processes.len();
        if self.current[self.processes[at].name] == at {
            return;
        }
        let claimant = self.b.claimant(&self.processes[at].hand);
        let answer = self.b.queue.claim(&claimant).await;
        assert!(matches!(answer, Err(QueueError::WorkerUnknown(_))), "{answer:?}");
    }

    /// The worker starts anew: its leases end now.
    pub async fn restart(&mut self, worker: usize, line: Line) {
        if line == Line::CallLost {
            return;
        }
        let new = new_worker(&format!("w{worker}"), &["claude"]);
        let instance = new.instance.clone();
        let mut registered = self.b.queue.register(new.clone()).await.expect("a worker");
        let gone: Vec<TaskId> = self
            .held
            .iter()
            .filter(|(_, held)| self.processes[held.holder].name == worker)
            .map(|(id, _)| id.clone())
            .collect();
        assert_eq!(registered.ended.len(), gone.len());
        let before = self.held.clone();
        for id in &gone {
            let held = self.held.remove(id).expect("it is there");
            assert!(registered.ended.contains(&LeaseRef { task: id.clone(), epoch: held.epoch }));
            self.died(id, held, &before).await;
        }
        let processes = &self.processes;
        self.lapsed.retain(|_, (_, holder)| processes[*holder].name != worker);
        if line == Line::AnswerLost {
            registered = self.b.queue.register(new).await.expect("a worker");
            assert_eq!(registered.ended, []);
        }
        // The id of a claim under way is on the worker's disk.
        let asked = self.processes[self.current[worker]].asked.clone();
        self.current[worker] = self.processes.len();
        let hand = Hand { worker: registered.worker, instance };
        self.processes.push(Process { asked, ..Process::new(hand, worker) });
    }

    /// Some process writes under some lease: mostly its own, now and then another's.
    pub async fn some_write(&mut self, process: usize, lease: usize, what: Write, line: Line) {
        let at = process % self.processes.len();
        let own = &self.processes[at].leases;
        let lease = if own.is_empty() || lease.is_multiple_of(5) {
            let all: Vec<&LeaseRef> = self.processes.iter().flat_map(|p| &p.leases).collect();
            if all.is_empty() {
                return;
            }
            all[lease % all.len()].clone()
        } else {
            own[lease % own.len()].clone()
        };
        self.processes[at].keep(&lease, what, line);
        if line != Line::CallLost {
            self.write(at, &lease, what).await;
        }
    }

    pub async fn again(&mut self, process: usize) {
        let at = process % self.processes.len();
        if let Some((lease, what)) = self.processes[at].unanswered.pop_front() {
            self.write(at, &lease, what).await;
        }
    }

    pub async fn write(&mut self, at: usize, lease: &LeaseRef, what: Write) {
        let may = self.may(lease, self.processes[at].name);
        let worker = self.processes[at].hand.worker.id.clone();
        let before = self.b.queue.task(&lease.task).await.expect("a task");
        let queue = &self.b.queue;
        let answer = match what {
            Write::Start => queue.start(lease, &worker, "relay/claude-1").await.map(|_| ()),
            Write::Commit | Write::Push => {
                self.marks += 1;
                let mark = format!("mark-{}", self.marks);
                let effect = if what == Write::Push { pushed(&mark) } else { committed(&mark) };
                let answer = queue.record(lease, &worker, &effect).await;
                if answer.is_ok() {
                    self.landed.insert(mark);
                    let journal: Vec<Effect> = queue.effects(&lease.task).await.expect("effects");
                    assert!(!may || journal.contains(&effect), "{effect:?} was lost");
                }
                answer
            }
            Write::Finish(end) => {
                let end = RunEnd::bare(self.reason(end));
                let reason = end.reason.clone();
                let told = self.told_before(at, lease, before.epoch);
                match queue.finish(lease, &worker, end).await {
                    Ok(after) if may => return self.finished(lease, &reason, &after),
                    Ok(after) => {
                        assert!(told, "an end of {lease:?} landed");
                        assert_eq!(after, before, "an end of {lease:?} landed twice");
                        return;
                    }
                    Err(error) => {
                        assert!(!told, "an end told again was refused");
                        Err(error)
                    }
                }
            }
        };
        match answer {
            Ok(()) => assert!(may, "{what:?} of {lease:?} landed"),
            Err(QueueError::LeaseLost(_)) => {
                assert!(!may, "{what:?} of the live lease was refused");
                let after = self.b.queue.task(&lease.task).await.expect("a task");
                assert_eq!(after, before, "a refused {what:?} changed its task");
            }
            Err(other) => panic!("{other}"),
        }
        if what == Write::Start && may {
            let now = self.b.now();
            let run = self.runs.get_mut(&(lease.task.clone(), lease.epoch)).expect("a run");
            if !std::mem::replace(&mut run.started, true) {
                run.began = now;
            }
        }
    }

    /// Whether the worker has told the end of this run, and the task has not moved on.
    fn told_before(&self, at: usize, lease: &LeaseRef, epoch: relay::model::Epoch) -> bool {
        let name = self.processes[at].name;
        let given = |p: &Process| p.name == name && p.leases.contains(lease);
        epoch == lease.epoch
            && self.processes.iter().any(given)
            && self.runs.get(&(lease.task.clone(), lease.epoch)).is_some_and(|run| run.told)
    }

    fn finished(&mut self, lease: &LeaseRef, reason: &StopReason, after: &relay::model::Task) {
        assert!(!after.state.is_leased());
        let run = self.runs.get_mut(&(lease.task.clone(), lease.epoch)).expect("a run");
        run.told = true;
        let quick = self.b.now().since(run.began) < QUICK;
        let quarantined = match reason {
            StopReason::Crashed if quick => self.death(&lease.task, lease.epoch, true),
            StopReason::Crashed | StopReason::WorkerStopped => false,
            _ => {
                self.deaths.remove(&lease.task);
                false
            }
        };
        assert_eq!(after.stop_reason == Some(StopReason::Quarantined), quarantined, "{after:?}");
        if *reason == StopReason::VendorUnreachable {
            assert_eq!(after.state, relay::model::TaskState::Parked, "an outage fails no task");
        }
        self.ended(&lease.task);
    }

    fn reason(&self, end: End) -> StopReason {
        let seconds = std::time::Duration::from_secs;
        match end {
            End::Finished => StopReason::Finished,
            End::NoChanges => StopReason::NoChanges,
            End::Crashed => StopReason::Crashed,
            End::Unreachable => StopReason::VendorUnreachable,
            End::Stopped => StopReason::WorkerStopped,
            End::Refused => StopReason::PushRefused { why: PushProblem::Protected },
            End::Quota(after) => StopReason::Quota { until: self.b.now() + seconds(after) },
        }
    }

    /// A process names every lease it was ever given.
    pub async fn heartbeat(&mut self, process: usize, line: Line) {
        if line == Line::CallLost {
            return;
        }
        let at = process % self.processes.len();
        let leases = self.processes[at].leases.clone();
        let asks = if line == Line::AnswerLost { 2 } else { 1 };
        for _ in 0..asks {
            let Process { hand, name, .. } = &self.processes[at];
            let (worker, instance) = (&hand.worker.id, &hand.instance);
            let answers = self.b.queue.heartbeat(worker, instance, false, None, &leases).await;
            if self.current[*name] != at {
                assert!(matches!(answers, Err(QueueError::WorkerUnknown(_))), "{answers:?}");
                return;
            }
            let answers = answers.expect("answers");
            assert_eq!(answers.len(), leases.len());
            for (lease, answer) in leases.iter().zip(answers) {
                self.answered(at, lease, &answer);
            }
        }
    }

    fn answered(&mut self, at: usize, lease: &LeaseRef, answer: &LeaseRenewal) {
        let held = self.held.get(&lease.task);
        let held = held.is_some_and(|held| held.epoch == lease.epoch && held.holder == at);
        let lapsed = self.lapsed.get(&lease.task) == Some(&(lease.epoch, at));
        // The claim may have been asked again after the sweep, and got another task.
        let claim = &self.runs[&(lease.task.clone(), lease.epoch)].claim;
        let taken = self.held.iter().any(|(id, held)| {
            *id != lease.task && self.runs[&(id.clone(), held.epoch)].claim == *claim
        });
        match answer {
            LeaseRenewal::Renewed { expires_at } => {
                assert!(held || lapsed && !taken, "{lease:?} was given back");
                assert_eq!(*expires_at, self.b.now() + LEASE);
                if lapsed && let Some(deaths) = self.deaths.get_mut(&lease.task) {
                    deaths.remove(&lease.epoch);
                }
                self.expired.remove(&(lease.task.clone(), lease.epoch));
                self.lapsed.remove(&lease.task);
                let held = Held { epoch: lease.epoch, holder: at, until: *expires_at };
                self.held.insert(lease.task.clone(), held);
            }
            LeaseRenewal::Lost { .. } => {
                assert!(!held && (!lapsed || taken), "{lease:?} was nobody else's and was lost");
            }
        }
    }
}
