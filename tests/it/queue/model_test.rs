//! Any order of workers, expiries, new instances, retries, cancels and lost answers: at most one
//! live epoch a task, nothing of an old epoch lands, every task ends in a state a person can read.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use relay::model::{
    ClaimId, Epoch, LeaseRef, PushProblem, StopReason, TaskId, TaskState, Timestamp,
};
use relay::queue::{Claimant, LeaseRenewal, QueueError, RunEnd};

use super::bench::{Bench, Hand, ann, committed, new_worker, pushed};

const WORKERS: usize = 3;
const TASKS: u64 = 3;

#[derive(Clone, Debug)]
enum Step {
    /// The worker claims; of `lost` answers it hears nothing and asks again with the same id later.
    Claim {
        worker: usize,
        lost: bool,
    },
    /// The worker's process is started anew; the old one goes on as a zombie.
    Restart {
        worker: usize,
    },
    /// Some process that lives or should not, with a lease it once was given, writes.
    Write {
        process: usize,
        lease: usize,
        what: Write,
    },
    Heartbeat {
        process: usize,
    },
    Advance {
        seconds: u64,
    },
    Sweep,
    Ask {
        task: u64,
    },
    Cancel {
        task: u64,
    },
    Retry {
        task: u64,
    },
    Done {
        task: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Start,
    Commit,
    Push,
    Finish(End),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Finished,
    NoChanges,
    Crashed,
    Stopped,
    Refused,
    Quota,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = 0..WORKERS;
    let task = 1..=TASKS;
    let end = prop_oneof![
        Just(End::Finished),
        Just(End::NoChanges),
        Just(End::Crashed),
        Just(End::Stopped),
        Just(End::Refused),
        Just(End::Quota),
    ];
    let what = prop_oneof![
        Just(Write::Start),
        Just(Write::Commit),
        Just(Write::Push),
        end.prop_map(Write::Finish),
    ];
    let seconds = prop_oneof![Just(1_u64), Just(15), Just(60), Just(1799), Just(1800), Just(4000)];
    let step = prop_oneof![
        5 => (worker.clone(), any::<bool>()).prop_map(|(worker, lost)| Step::Claim { worker, lost }),
        1 => worker.prop_map(|worker| Step::Restart { worker }),
        8 => (any::<prop::sample::Index>(), any::<prop::sample::Index>(), what).prop_map(
            |(process, lease, what)| Step::Write {
                process: process.index(64),
                lease: lease.index(64),
                what,
            }
        ),
        3 => any::<prop::sample::Index>()
            .prop_map(|process| Step::Heartbeat { process: process.index(64) }),
        3 => seconds.prop_map(|seconds| Step::Advance { seconds }),
        1 => Just(Step::Sweep),
        2 => task.clone().prop_map(|task| Step::Ask { task }),
        1 => task.clone().prop_map(|task| Step::Cancel { task }),
        1 => task.clone().prop_map(|task| Step::Retry { task }),
        1 => task.prop_map(|task| Step::Done { task }),
    ];
    prop::collection::vec(step, 1..60)
}

/// One start of a worker, with every lease it was ever given.
struct Process {
    hand: Hand,
    name: usize,
    leases: Vec<LeaseRef>,
    /// A claim whose answer was lost.
    asked: Option<ClaimId>,
}

/// What the test knows by itself, without asking the queue.
struct World {
    b: Bench,
    processes: Vec<Process>,
    /// The process that speaks for each worker.
    current: [usize; WORKERS],
    /// For each task the epoch that may write, its process, and when it ends.
    live: BTreeMap<TaskId, (Epoch, usize, Timestamp)>,
    /// The highest epoch ever given for a task.
    highest: BTreeMap<TaskId, Epoch>,
    /// Leases that were the live one until their time came, and that nobody has taken.
    lapsed: BTreeMap<TaskId, (Epoch, usize)>,
    /// What landed in the journal under each lease.
    landed: BTreeMap<(TaskId, Epoch), Vec<String>>,
}

impl World {
    async fn new() -> Self {
        let b = Bench::sqlite().await;
        let mut processes = Vec::new();
        for name in 0..WORKERS {
            let hand = b.worker(&format!("w{name}"), &["claude"]).await;
            processes.push(Process { hand, name, leases: Vec::new(), asked: None });
        }
        Self {
            b,
            processes,
            current: [0, 1, 2],
            live: BTreeMap::new(),
            highest: BTreeMap::new(),
            lapsed: BTreeMap::new(),
            landed: BTreeMap::new(),
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Claim { worker, lost } => self.claim(worker, lost).await,
            Step::Restart { worker } => self.restart(worker).await,
            Step::Write { process, lease, what } => self.write(process, lease, what).await,
            Step::Heartbeat { process } => self.heartbeat(process).await,
            Step::Advance { seconds } => {
                self.b.advance(seconds);
                self.lapse();
            }
            Step::Sweep => {
                self.b.queue.sweep().await.expect("a sweep");
            }
            Step::Ask { task } => {
                let added = self.b.queue.add(self.b.wish(task)).await.expect("an answer");
                if matches!(added, relay::queue::Added::Again(_)) {
                    self.lapsed.remove(&added.task().id);
                }
            }
            Step::Cancel { task } => {
                let id = id_of(task);
                match self.b.queue.cancel(&id, ann()).await {
                    Ok(_) => self.ended(&id),
                    Err(QueueError::NotFound { .. } | QueueError::Conflict { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Retry { task } => match self.b.queue.retry(&id_of(task), ann()).await {
                Ok(_) | Err(QueueError::NotFound { .. } | QueueError::Conflict { .. }) => {}
                Err(other) => panic!("{other}"),
            },
            Step::Done { task } => {
                let id = id_of(task);
                match self.b.queue.done(&id, ann()).await {
                    Ok(_) => self.ended(&id),
                    Err(QueueError::NotFound { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    fn ended(&mut self, id: &TaskId) {
        self.live.remove(id);
        self.lapsed.remove(id);
    }

    /// Leases whose time has come stop being live.
    fn lapse(&mut self) {
        let now = self.b.now();
        let over: Vec<TaskId> = self
            .live
            .iter()
            .filter(|(_, (_, _, until))| *until <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            if let Some((epoch, process, _)) = self.live.remove(&id) {
                self.lapsed.insert(id, (epoch, process));
            }
        }
    }

    async fn claim(&mut self, worker: usize, lost: bool) {
        let at = self.current[worker];
        let process = &mut self.processes[at];
        let again = process.asked.take();
        let claimant = Claimant {
            claim_id: again.clone().unwrap_or_else(|| self.b.claim_id()),
            ..self.b.claimant(&process.hand)
        };
        let Some(claimed) = self.b.queue.claim(&claimant).await.expect("a claim") else { return };
        let lease = claimed.lease.reference();
        let held = self.live.get(&lease.task).copied_epoch();
        match held {
            Some((epoch, holder)) => {
                // Only the answer that was lost is given twice, and only to who asked.
                assert!(again.is_some(), "a task with a live lease was given again");
                assert_eq!((epoch, holder), (lease.epoch, at));
            }
            None => {
                let highest = self.highest.get(&lease.task).copied().unwrap_or_default();
                assert!(lease.epoch > highest, "an epoch was given twice");
                self.highest.insert(lease.task.clone(), lease.epoch);
            }
        }
        self.lapsed.remove(&lease.task);
        self.live.insert(lease.task.clone(), (lease.epoch, at, claimed.lease.expires_at));
        let process = &mut self.processes[at];
        if lost {
            process.asked = Some(claimant.claim_id);
        }
        // Heard or not, something in flight may name it.
        if !process.leases.contains(&lease) {
            process.leases.push(lease);
        }
    }

    async fn restart(&mut self, worker: usize) {
        let new = new_worker(&format!("w{worker}"), &["claude"]);
        let instance = new.instance.clone();
        let registered = self.b.queue.register(new).await.expect("a worker");
        let gone: Vec<TaskId> = self
            .live
            .iter()
            .filter(|(_, (_, holder, _))| self.processes[*holder].name == worker)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            let (epoch, _, _) = self.live.remove(id).expect("it is there");
            assert!(registered.ended.contains(&LeaseRef { task: id.clone(), epoch }));
        }
        let processes = &self.processes;
        self.lapsed.retain(|_, (_, holder)| processes[*holder].name != worker);
        self.current[worker] = self.processes.len();
        let hand = Hand { worker: registered.worker, instance };
        self.processes.push(Process { hand, name: worker, leases: Vec::new(), asked: None });
    }

    async fn write(&mut self, process: usize, lease: usize, what: Write) {
        let at = process % self.processes.len();
        let process = &self.processes[at];
        if process.leases.is_empty() {
            return;
        }
        let lease = process.leases[lease % process.leases.len()].clone();
        let hand = &process.hand;
        let may = self
            .live
            .get(&lease.task)
            .is_some_and(|(epoch, holder, _)| *epoch == lease.epoch && *holder == at);
        let queue = &self.b.queue;
        let answer = match what {
            Write::Start => {
                queue.start(&lease, &hand.worker.id, "relay/claude-1").await.map(|_| ())
            }
            Write::Commit | Write::Push => {
                let mark = format!("{}-{}", lease.task.number, lease.epoch);
                let effect =
                    if matches!(what, Write::Push) { pushed(&mark) } else { committed(&mark) };
                let answer = queue.record(&lease, &hand.worker.id, &effect).await;
                if answer.is_ok() {
                    let key = (lease.task.clone(), lease.epoch);
                    self.landed.entry(key).or_default().push(mark);
                }
                answer
            }
            Write::Finish(end) => {
                let before = queue.task(&lease.task).await.expect("a task");
                let end = RunEnd::bare(self.reason(end));
                match queue.finish(&lease, &hand.worker.id, end).await {
                    Ok(after) if may => {
                        assert!(!after.state.is_leased());
                        self.ended(&lease.task);
                        return;
                    }
                    // The end that was told before, told again: nothing moves.
                    Ok(after) => {
                        assert_eq!(after, before, "an end of {lease:?} landed");
                        return;
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match answer {
            Ok(()) => assert!(may, "{what:?} of {lease:?} landed"),
            Err(QueueError::LeaseLost(_)) => {
                assert!(!may, "{what:?} of the live lease was refused")
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn reason(&self, end: End) -> StopReason {
        match end {
            End::Finished => StopReason::Finished,
            End::NoChanges => StopReason::NoChanges,
            End::Crashed => StopReason::Crashed,
            End::Stopped => StopReason::WorkerStopped,
            End::Refused => StopReason::PushRefused { why: PushProblem::Protected },
            End::Quota => StopReason::Quota { until: self.b.now() },
        }
    }

    async fn heartbeat(&mut self, process: usize) {
        let at = process % self.processes.len();
        let process = &self.processes[at];
        let (worker, instance) = (&process.hand.worker.id, &process.hand.instance);
        let leases = process.leases.clone();
        let answers = self.b.queue.heartbeat(worker, instance, false, None, &leases).await;
        if self.current[process.name] != at {
            assert!(matches!(answers, Err(QueueError::WorkerUnknown(_))), "{answers:?}");
            return;
        }
        let answers = answers.expect("answers");
        assert_eq!(answers.len(), leases.len());
        for (lease, answer) in leases.into_iter().zip(answers) {
            let mine = |(epoch, holder): (Epoch, usize)| epoch == lease.epoch && holder == at;
            let live = self.live.get(&lease.task).copied_epoch().is_some_and(mine);
            let lapsed = self.lapsed.get(&lease.task).copied().is_some_and(mine);
            match answer {
                LeaseRenewal::Renewed { expires_at } => {
                    assert!(live || lapsed, "{lease:?} was given back");
                    self.lapsed.remove(&lease.task);
                    self.live.insert(lease.task, (lease.epoch, at, expires_at));
                }
                LeaseRenewal::Lost { .. } => assert!(!live, "{lease:?} is live and was lost"),
            }
        }
    }

    /// What must hold between any two steps.
    async fn check(&self) {
        let now = self.b.now();
        for task in self.b.queue.tasks(None).await.expect("tasks") {
            let live = self.live.get(&task.id);
            let leased = task.state.is_leased() && task.expires_at > Some(now);
            assert_eq!(leased, live.is_some(), "{task:?}");
            if let Some((epoch, holder, _)) = live {
                assert_eq!(task.epoch, *epoch);
                assert_eq!(task.worker.as_ref(), Some(&self.processes[*holder].hand.worker.id));
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
            for effect in self.b.queue.effects(&task.id).await.expect("effects") {
                let (relay::model::Effect::Committed { commit, .. }
                | relay::model::Effect::Pushed { commit, .. }) = effect
                else {
                    panic!("nobody recorded {effect:?}")
                };
                let known = self.landed.values().flatten().any(|mark| *mark == commit);
                assert!(known, "{commit} is in the journal and never landed");
            }
        }
    }

    /// With all of them well, every task comes to an end.
    async fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 200, "it does not settle");
            self.b.advance(4000);
            self.lapse();
            let mut idle = true;
            for worker in 0..WORKERS {
                self.claim(worker, false).await;
                let at = self.current[worker];
                for place in 0..self.processes[at].leases.len() {
                    self.write(at, place, Write::Finish(End::Finished)).await;
                    idle = false;
                }
                self.processes[at].leases.clear();
            }
            if idle {
                break;
            }
        }
        for task in self.b.queue.tasks(None).await.expect("tasks") {
            assert!(task.state.is_final() || task.state == TaskState::Review, "{task:?}");
        }
    }
}

/// The epoch and holder of a live lease.
trait CopiedEpoch {
    fn copied_epoch(self) -> Option<(Epoch, usize)>;
}

impl CopiedEpoch for Option<&(Epoch, usize, Timestamp)> {
    fn copied_epoch(self) -> Option<(Epoch, usize)> {
        self.map(|(epoch, holder, _)| (*epoch, *holder))
    }
}

fn id_of(number: u64) -> TaskId {
    format!("acme/shop#{number}").parse().expect("an id")
}

#[test]
fn any_order_of_things_keeps_the_rules() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            runtime.block_on(async {
                let mut world = World::new().await;
                for number in 1..=2 {
                    world.b.task(number).await;
                }
                for step in steps {
                    world.take(step).await;
                    world.check().await;
                }
                world.settle().await;
                world.check().await;
                world.b.queue.close().await;
            });
            Ok(())
        })
        .expect("a counterexample");
}
