//! The runs' logs: who may write, where it is written, and who waits for more.

mod file;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

pub use file::{CHUNK_MAX, Piece};

use crate::model::{Clock, LeaseRef, RunId, TaskId, Timestamp, WorkerId};

/// A lease that the database was asked about is believed in for so long without asking again,
/// unless its end is known to be sooner. Ends that happen here are known at once.
const BELIEVED: Duration = Duration::from_secs(60);

/// The logs of one home.
#[derive(Debug)]
pub struct Logs {
    clock: Arc<dyn Clock>,
    folder: PathBuf,
    /// Held while a chunk is written, so that nothing lands after a lease's end was noted.
    leases: Mutex<Leases>,
    /// Moves whenever the task's log grows or a run of it begins or ends; of tasks that somebody
    /// follows.
    followed: Mutex<HashMap<TaskId, watch::Sender<u64>>>,
}

#[derive(Debug, Default)]
struct Leases {
    live: HashMap<TaskId, Live>,
    /// Counts ends, so that an answer of the database from before an end is not believed.
    ends: u64,
}

#[derive(Debug)]
struct Live {
    lease: LeaseRef,
    worker: WorkerId,
    run: RunId,
    until: Timestamp,
}

/// Taken before the database is asked whether a lease lives, for [`Logs::believe`].
#[derive(Clone, Copy, Debug)]
pub struct Asked(u64);

impl Logs {
    /// Logs under `folder`, which is made at the first write.
    pub fn new(clock: Arc<dyn Clock>, folder: PathBuf) -> Self {
        Self { clock, folder, leases: Mutex::default(), followed: Mutex::default() }
    }

    /// Where the logs stand.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A claim gave this lease; the task's earlier one has ended.
    pub fn claimed(&self, lease: LeaseRef, worker: WorkerId, run: RunId, until: Timestamp) {
        let mut leases = self.lock();
        leases.ends += 1;
        let task = lease.task.clone();
        leases.live.insert(task.clone(), Live { lease, worker, run, until });
        drop(leases);
        self.moved(&task);
    }

    /// A heartbeat renewed this lease.
    pub fn renewed(&self, lease: &LeaseRef, until: Timestamp) {
        if let Some(live) = self.lock().live.get_mut(&lease.task).filter(|l| l.lease == *lease) {
            live.until = until;
        }
    }

    /// The lease has ended, however: nothing is written under it from now on.
    pub fn ended(&self, lease: &LeaseRef) {
        let mut leases = self.lock();
        leases.ends += 1;
        if leases.live.get(&lease.task).is_some_and(|live| live.lease == *lease) {
            leases.live.remove(&lease.task);
        }
        drop(leases);
        self.moved(&lease.task);
    }

    /// How many leases are known to live at `now`.
    pub fn live(&self, now: Timestamp) -> usize {
        self.lock().live.values().filter(|live| live.until > now).count()
    }

    /// The leases that are taken for live here, with their workers.
    pub fn believed(&self) -> Vec<(WorkerId, LeaseRef)> {
        let leases = self.lock();
        leases.live.values().map(|live| (live.worker.clone(), live.lease.clone())).collect()
    }

    /// Whether anything of this run's log is, or may come to be, on this disk.
    pub fn keeps(&self, run: &RunId) -> bool {
        let live = self.lock().live.values().any(|live| live.run == *run);
        live || self.run_folder(run).is_dir()
    }

    /// To be called before the database is asked about a lease.
    pub fn asking(&self) -> Asked {
        Asked(self.lock().ends)
    }

    /// The database said that the lease lives. False where a lease has ended since it was asked:
    /// then it has to be asked again.
    pub fn believe(&self, asked: Asked, lease: LeaseRef, worker: WorkerId, run: RunId) -> bool {
        let until = self.clock.now() + BELIEVED;
        let mut leases = self.lock();
        let fresh = leases.ends == asked.0;
        if fresh {
            leases.live.insert(lease.task.clone(), Live { lease, worker, run, until });
        }
        fresh
    }

    /// Writes `text` at `offset` of the lease's run and returns the log's end. `None` where this
    /// lease is not known to live: ask the database. Blocks on the disk.
    ///
    /// # Errors
    /// The disk's. What was written stays, and the same chunk may be sent again.
    pub fn append(
        &self,
        lease: &LeaseRef,
        worker: &WorkerId,
        offset: u64,
        text: &str,
    ) -> std::io::Result<Option<u64>> {
        let now = self.clock.now();
        let leases = self.lock();
        let live = leases
            .live
            .get(&lease.task)
            .filter(|live| live.lease == *lease && live.worker == *worker && live.until > now);
        let Some(live) = live else { return Ok(None) };
        let end = file::append(&self.run_folder(&live.run), offset, text.as_bytes())?;
        drop(leases);
        self.moved(&lease.task);
        Ok(Some(end))
    }

    /// A piece of a run's log from `offset`, empty at its end. Blocks on the disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(&self, run: &RunId, offset: u64) -> std::io::Result<Piece> {
        file::read(&self.run_folder(run), offset)
    }

    /// Completes on the next growth, begin or end of a run of `task` after this call.
    pub fn follow(&self, task: &TaskId) -> watch::Receiver<u64> {
        let mut followed = self.followed();
        followed.retain(|_, moved| moved.receiver_count() > 0);
        followed.entry(task.clone()).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    fn moved(&self, task: &TaskId) {
        if let Some(moved) = self.followed().get(task) {
            moved.send_modify(|n| *n += 1);
        }
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<TaskId, watch::Sender<u64>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_folder(&self, run: &RunId) -> PathBuf {
        self.folder.join(run.as_str())
    }

    /// Each change is one insertion or removal, so a panic elsewhere leaves the map whole.
    fn lock(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Epoch;
    use crate::system::SystemClock;

    fn logs() -> (tempfile::TempDir, Logs) {
        let folder = tempfile::tempdir().expect("a folder");
        let logs = Logs::new(Arc::new(SystemClock), folder.path().join("logs"));
        (folder, logs)
    }

    fn lease(epoch: i64) -> LeaseRef {
        LeaseRef { task: "a/b#1".parse().expect("a task"), epoch: Epoch(epoch) }
    }

    fn worker(n: u8) -> WorkerId {
        format!("00000000-0000-7000-8000-0000000000{n:02x}").parse().expect("a worker")
    }

    fn run(n: u8) -> RunId {
        format!("00000000-0000-7000-a000-0000000000{n:02x}").parse().expect("a run")
    }

    fn later(logs: &Logs) -> Timestamp {
        logs.clock.now() + Duration::from_secs(1800)
    }

    #[test]
    fn only_the_live_lease_writes_and_no_question_is_asked_for_it() {
        let (_folder, logs) = logs();
        logs.claimed(lease(1), worker(1), run(1), later(&logs));
        assert_eq!(logs.append(&lease(1), &worker(1), 0, "one\n").expect("a disk"), Some(4));
        assert_eq!(logs.append(&lease(1), &worker(2), 4, "not mine\n").expect("a disk"), None);
        logs.claimed(lease(2), worker(2), run(2), later(&logs));
        assert_eq!(logs.append(&lease(1), &worker(1), 4, "old\n").expect("a disk"), None);
        assert_eq!(logs.append(&lease(2), &worker(2), 0, "two\n").expect("a disk"), Some(4));
        logs.claimed(lease(3), worker(2), run(3), later(&logs));
        assert_eq!(logs.append(&lease(2), &worker(2), 4, "mine before\n").expect("a disk"), None);
        logs.ended(&lease(3));
        assert_eq!(logs.append(&lease(3), &worker(2), 0, "late\n").expect("a disk"), None);
        assert_eq!(logs.read(&run(1), 0).expect("a disk").text, "one\n");
        assert_eq!(logs.read(&run(2), 0).expect("a disk").text, "two\n");
    }

    #[test]
    fn who_follows_a_task_hears_of_that_task_alone() {
        let (_folder, logs) = logs();
        let other: TaskId = "a/b#2".parse().expect("a task");
        let (mut mine, theirs) = (logs.follow(&lease(1).task), logs.follow(&other));
        logs.claimed(lease(1), worker(1), run(1), later(&logs));
        assert!(mine.has_changed().expect("it lives"));
        mine.mark_unchanged();
        logs.append(&lease(1), &worker(1), 0, "x\n").expect("a disk");
        assert!(mine.has_changed().expect("it lives"));
        assert!(!theirs.has_changed().expect("it lives"));
        drop((mine, theirs));
        let _third = logs.follow(&other);
        assert_eq!(logs.followed().len(), 1, "nobody follows the first any more");
    }

    #[test]
    fn a_lease_whose_time_is_over_is_asked_about() {
        let (_folder, logs) = logs();
        logs.claimed(lease(1), worker(1), run(1), logs.clock.now() - Duration::from_secs(1));
        assert_eq!(logs.append(&lease(1), &worker(1), 0, "x\n").expect("a disk"), None);
        logs.renewed(&lease(1), later(&logs));
        assert_eq!(logs.append(&lease(1), &worker(1), 0, "x\n").expect("a disk"), Some(2));
    }

    #[test]
    fn an_answer_from_before_an_end_is_not_believed() {
        let (_folder, logs) = logs();
        let asked = logs.asking();
        logs.ended(&lease(1));
        assert!(!logs.believe(asked, lease(1), worker(1), run(1)));
        assert_eq!(logs.append(&lease(1), &worker(1), 0, "x\n").expect("a disk"), None);
        let asked = logs.asking();
        assert!(logs.believe(asked, lease(1), worker(1), run(1)));
        assert_eq!(logs.append(&lease(1), &worker(1), 0, "x\n").expect("a disk"), Some(2));
    }
}
