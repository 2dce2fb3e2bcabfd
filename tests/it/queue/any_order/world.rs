//! What the test knows by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use relay::model::{ClaimId, Epoch, LeaseRef, TaskId, TaskState, Timestamp};

use super::{Line, Step, WORKERS, Write};
use crate::queue::bench::{Bench, Hand};

/// One start of a worker.
pub struct Process {
    pub hand: Hand,
    pub name: usize,
    /// Every lease it was ever given.
    pub leases: Vec<LeaseRef>,
    /// A claim without an answer.
    pub asked: Option<ClaimId>,
    /// Writes without an answer.
    pub unanswered: VecDeque<(LeaseRef, Write)>,
}

/// A lease that nobody has ended.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub epoch: Epoch,
    pub holder: usize,
    pub until: Timestamp,
}

/// What is known of one run.
#[derive(Clone, Debug)]
pub struct KnownRun {
    pub claim: ClaimId,
    /// When it was claimed, and then when it was started.
    pub began: Timestamp,
    pub started: bool,
    /// Its own worker ended it.
    pub told: bool,
}

pub struct World {
    pub b: Bench,
    pub processes: Vec<Process>,
    /// The process that speaks for each worker.
    pub current: [usize; WORKERS],
    /// For each task the lease on it, also one that ran out and that nobody has ended yet.
    pub held: BTreeMap<TaskId, Held>,
    /// Leases that a sweep ended and that nobody has taken.
    pub lapsed: BTreeMap<TaskId, (Epoch, usize)>,
    /// Runs by lease.
    pub runs: BTreeMap<(TaskId, Epoch), KnownRun>,
    /// The row of deaths of each task, and whether each was quick.
    pub deaths: BTreeMap<TaskId, BTreeMap<Epoch, bool>>,
    /// Runs whose lease ran out: whose it was, and when it was ended.
    pub expired: BTreeMap<(TaskId, Epoch), (usize, Timestamp)>,
    /// What landed in the journal; each mark is written once.
    pub landed: BTreeSet<String>,
    pub marks: u64,
    /// Leases are spared up to this uptime.
    pub spared_until: Duration,
    /// Events read so far, and the state each task is in by them.
    pub read: i64,
    pub told: BTreeMap<TaskId, (TaskState, Epoch)>,
}

impl World {
    pub async fn on(b: Bench) -> Self {
        let mut processes = Vec::new();
        for name in 0..WORKERS {
            let hand = b.worker(&format!("w{name}"), &["claude"]).await;
            processes.push(Process::new(hand, name));
        }
        Self {
            b,
            processes,
            current: std::array::from_fn(|name| name),
            held: BTreeMap::new(),
            lapsed: BTreeMap::new(),
            runs: BTreeMap::new(),
            deaths: BTreeMap::new(),
            expired: BTreeMap::new(),
            landed: BTreeSet::new(),
            marks: 0,
            spared_until: Duration::ZERO,
            read: 0,
            told: BTreeMap::new(),
        }
    }

    pub async fn take(&mut self, step: Step) {
        match step {
            Step::Claim { worker, line } => self.claim(self.current[worker], line).await,
            Step::ZombieClaim { process } => self.zombie_claim(process).await,
            Step::Restart { worker, line } => self.restart(worker, line).await,
            Step::Write { process, lease, what, line } => {
                self.some_write(process, lease, what, line).await;
            }
            Step::Again { process } => self.again(process).await,
            Step::Heartbeat { process, line } => self.heartbeat(process, line).await,
            Step::Advance { seconds } => self.b.advance(seconds),
            Step::SetClock { seconds } => self.b.clock.step(seconds),
            Step::Sweep => self.sweep().await,
            Step::Spare => {
                self.b.queue.spare_leases(Duration::from_secs(120));
                self.spared_until = self.uptime() + Duration::from_secs(120);
            }
            Step::Ask { task } => self.ask(task).await,
            Step::Cancel { task } => self.cancel(task).await,
            Step::Retry { task } => self.retry(task).await,
            Step::Done { task } => self.done(task).await,
        }
    }

    pub fn uptime(&self) -> Duration {
        use relay::model::Clock as _;
        self.b.clock.uptime()
    }

    pub fn spared(&self) -> bool {
        self.uptime() < self.spared_until
    }

    /// The lease that may write now.
    pub fn live(&self, id: &TaskId) -> Option<Held> {
        self.held.get(id).filter(|held| held.until > self.b.now()).copied()
    }

    pub fn may(&self, lease: &LeaseRef, worker: usize) -> bool {
        self.live(&lease.task).is_some_and(|held| {
            held.epoch == lease.epoch && self.processes[held.holder].name == worker
        })
    }

    /// Somebody said that the task is over.
    pub fn ended(&mut self, id: &TaskId) {
        self.held.remove(id);
        self.lapsed.remove(id);
    }
}

impl Process {
    pub fn new(hand: Hand, name: usize) -> Self {
        Self { hand, name, leases: Vec::new(), asked: None, unanswered: VecDeque::new() }
    }

    /// A call that had no answer will be made again.
    pub fn keep(&mut self, lease: &LeaseRef, what: Write, line: Line) {
        if line != Line::Whole {
            self.unanswered.push_back((lease.clone(), what));
        }
    }
}

pub fn id_of(number: u64) -> TaskId {
    format!("acme/shop#{number}").parse().expect("an id")
}
