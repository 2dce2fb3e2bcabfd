//! What may happen to a task: add, claim, renew, start, record, finish, sweep, park, prefer.

mod error;
mod types;

use std::sync::Arc;

use crate::model::*;

pub use crate::store::{LocalPullRow, Need, NewTask, NewWorker, Store, StoreError, Swept};
pub use error::QueueError;
pub use types::{Added, Changed, Claimant, Claimed, LeaseRenewal, Registered, RunEnd};

/// The queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    _inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    _store: Store,
    _clock: Arc<dyn Clock>,
    _ids: Arc<dyn Ids>,
}

type Answer<T> = Result<T, QueueError>;

fn later<T>() -> Answer<T> {
    Err(QueueError::Invalid("not built".to_owned()))
}

impl Queue {
    /// A queue over an open store.
    pub fn new(store: Store, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { _inner: Arc::new(Inner { _store: store, _clock: clock, _ids: ids }) }
    }
    /// Closes the store.
    pub async fn close(&self) {}
    /// A worker introduces itself.
    pub async fn register(&self, _r: NewWorker) -> Answer<Registered> {
        later()
    }
    /// Notes, without a statement, that a worker was heard of (it holds the doorbell).
    pub fn heard(&self, _worker: &WorkerId) {}
    /// Renews the leases named.
    pub async fn heartbeat(
        &self,
        _worker: &WorkerId,
        _instance: &InstanceId,
        _offline: bool,
        _interval_ms: Option<u64>,
        _leases: &[LeaseRef],
    ) -> Answer<Vec<LeaseRenewal>> {
        later()
    }
    /// Leases the oldest task that the claimant can take.
    pub async fn claim(&self, _c: &Claimant) -> Answer<Option<Claimed>> {
        later()
    }
    /// The lane starts.
    pub async fn start(&self, _l: &LeaseRef, _w: &WorkerId, _branch: &str) -> Answer<Task> {
        later()
    }
    /// An effect goes into the journal.
    pub async fn record(&self, _l: &LeaseRef, _w: &WorkerId, _effect: &Effect) -> Answer<()> {
        later()
    }
    /// The run ends.
    pub async fn finish(&self, _l: &LeaseRef, _w: &WorkerId, _end: RunEnd) -> Answer<Task> {
        later()
    }
    /// The run of a live lease.
    pub async fn check_lease(&self, _l: &LeaseRef, _w: &WorkerId) -> Answer<RunId> {
        later()
    }
    /// A task is asked for.
    pub async fn add(&self, _t: NewTask) -> Answer<Added> {
        later()
    }
    /// Calls a task off.
    pub async fn cancel(&self, _id: &TaskId, _by: Actor) -> Answer<Changed> {
        later()
    }
    /// Asks for another run.
    pub async fn retry(&self, _id: &TaskId, _by: Actor) -> Answer<Task> {
        later()
    }
    /// Ends a task well.
    pub async fn done(&self, _id: &TaskId, _by: Actor) -> Answer<Changed> {
        later()
    }
    /// Ends leases that ran out and unparks.
    pub async fn sweep(&self) -> Answer<Swept> {
        later()
    }
    /// When the next sweep has something to do.
    pub async fn next_timer(&self) -> Answer<Option<Timestamp>> {
        later()
    }
    /// Every queued task, oldest first.
    pub async fn needs(&self) -> Answer<Vec<Need>> {
        later()
    }
    /// Tasks, newest first.
    pub async fn tasks(&self, _state: Option<TaskState>) -> Answer<Vec<Task>> {
        later()
    }
    /// One task.
    pub async fn task(&self, _id: &TaskId) -> Answer<Task> {
        later()
    }
    /// Its runs, newest first.
    pub async fn runs(&self, _id: &TaskId) -> Answer<Vec<Run>> {
        later()
    }
    /// What its runs did outside, of the current request.
    pub async fn effects(&self, _id: &TaskId) -> Answer<Vec<Effect>> {
        later()
    }
    /// Why it waits.
    pub async fn waiting(&self, _id: &TaskId) -> Answer<Vec<WaitReason>> {
        later()
    }
    /// Every worker.
    pub async fn workers(&self) -> Answer<Vec<Worker>> {
        later()
    }
    /// Events with a greater `seq`, oldest first.
    pub async fn events(
        &self,
        _after: i64,
        _task: Option<&TaskId>,
        _limit: u32,
    ) -> Answer<Vec<Event>> {
        later()
    }
    /// Links a repository, or updates it.
    pub async fn link(&self, _p: Project) -> Answer<Project> {
        later()
    }
    /// Every linked repository.
    pub async fn projects(&self) -> Answer<Vec<Project>> {
        later()
    }
    /// One linked repository.
    pub async fn project(&self, _slug: &RepoName) -> Answer<Project> {
        later()
    }
    /// Sets a preference.
    pub async fn prefer(&self, _p: &Preference, _by: Actor) -> Answer<()> {
        later()
    }
    /// Takes a preference away.
    pub async fn unprefer(&self, _k: PreferenceKey, _s: &Scope, _by: Actor) -> Answer<()> {
        later()
    }
    /// All of them, widest first.
    pub async fn preferences(&self) -> Answer<Vec<Preference>> {
        later()
    }
    /// Opens, or updates, the pull request of a local repository.
    pub async fn open_local_pull(
        &self,
        _l: &LeaseRef,
        _w: &WorkerId,
        _pull: &LocalPullRow,
    ) -> Answer<()> {
        later()
    }
    /// The pull request of a local task.
    pub async fn local_pull(&self, _id: &TaskId) -> Answer<Option<LocalPullRow>> {
        later()
    }
    /// Tasks of a project in review or not ended, for intake.
    pub async fn open_reviews(&self, _slug: &RepoName) -> Answer<Vec<Task>> {
        later()
    }
}
