//! The doorbell: holds a worker's request until there is something for that worker, wakes one
//! worker a task, and tells of leases that were called off. In memory; reading it writes nothing.

mod backlog;
mod board;
mod crowd;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

pub use board::{Ask, Reading};
use board::{Board, Place, Told};

use crate::api::Doorbell;
use crate::model::{
    Clock, InstanceId, LaneName, LeaseRef, Orders, RepoName, TaskId, Timestamp, Worker, WorkerId,
};
use crate::queue::Need;

/// The longest a doorbell is held (DESIGN §3).
pub const WAIT_MAX: Duration = Duration::from_secs(300);

/// The bell of one owner.
#[derive(Debug)]
pub struct Bell {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Rung where [`Bell::next`] has changed.
    rearmed: Notify,
}

#[derive(Debug)]
struct Inner {
    board: Board,
    /// One a held doorbell. A permit is kept, so a wake between looking and sleeping counts.
    lines: HashMap<Place, Arc<Notify>>,
    /// What [`Bell::next`] was when somebody was last told that it changed.
    next: Option<Timestamp>,
}

impl Bell {
    /// A bell that knows nothing yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let inner = Inner { board: Board::new(clock.now()), lines: HashMap::new(), next: None };
        Self { clock, inner: Mutex::new(inner), rearmed: Notify::new() }
    }

    /// Answers a doorbell at once where there is something for the asker, else when there is,
    /// else after `wait` (at most [`WAIT_MAX`]).
    pub async fn ring(&self, ask: Ask, wait: Duration) -> Doorbell {
        let end = self.clock.uptime() + wait.min(WAIT_MAX);
        let held = match Held::enter(self, ask, wait.is_zero()) {
            Ok(answer) => return answer,
            Err(held) => held,
        };
        loop {
            if let Some(answer) = held.take() {
                return answer;
            }
            // Anew each time: where the wall clock was set, its line is rung.
            let left = end.saturating_sub(self.clock.uptime());
            if left.is_zero() {
                return held.answer();
            }
            tokio::select! {
                () = held.line.notified() => {}
                () = self.clock.sleep_until(self.clock.now() + left) => return held.answer(),
            }
        }
    }

    /// A write was made that can change what a claim would return. The version moves now; what is
    /// queued is told with [`Bell::read`].
    pub fn moved(&self) {
        self.with(Board::moved);
    }

    /// The version as it stands.
    pub fn version(&self) -> i64 {
        self.lock().board.version()
    }

    /// To be called before the queue's needs are read for [`Bell::read`].
    pub fn reading_begins(&self) {
        self.lock().board.reading_begins();
    }

    /// Every queued task, oldest first. Calls must not overlap.
    pub fn read(&self, needs: Vec<Need>) {
        self.with(|board, now| board.read(needs, now));
    }

    /// A worker registered; `ended` are the leases of the instance before it.
    pub fn registered(&self, worker: &Worker, instance: Option<InstanceId>, ended: &[LeaseRef]) {
        self.with(|board, now| board.registered(worker, instance, ended, now));
    }

    /// People told the worker something, and this is all that it was told: it hears of it at once.
    pub fn ordered(&self, worker: &WorkerId, orders: Orders) {
        self.with(|board, now| board.ordered(worker, orders, now));
    }

    /// What people told the worker; `None` where memory does not tell.
    pub fn orders(&self, worker: &WorkerId) -> Option<Orders> {
        self.lock().board.orders(worker)
    }

    /// Whether this is the worker's living instance; `None` where memory does not tell.
    pub fn knows(&self, worker: &WorkerId, instance: Option<&InstanceId>) -> Option<bool> {
        self.lock().board.knows(worker, instance)
    }

    /// The worker said that it goes.
    pub fn left(&self, worker: &WorkerId) {
        self.lock().board.left(worker);
    }

    /// The workers that hold the bell now: a held doorbell is a heartbeat.
    pub fn present(&self) -> Vec<WorkerId> {
        self.lock().board.present()
    }

    /// How many tasks are queued, as far as they were read.
    pub fn queued(&self) -> usize {
        self.lock().board.queued()
    }

    /// A lease was called off or ran out: its holder hears of it, also while it is busy.
    pub fn revoke(&self, worker: &WorkerId, lease: LeaseRef) {
        self.with(|board, now| board.revoke(worker, lease, now));
    }

    /// The worker knows how it stands with the lease.
    pub fn settled(&self, worker: &WorkerId, lease: &LeaseRef) {
        self.lock().board.settled(worker, lease);
    }

    /// A heartbeat renewed the lease, also one that had run out and nobody took.
    pub fn renewed(&self, worker: &WorkerId, lease: &LeaseRef) {
        self.with(|board, now| board.renewed(worker, lease, now));
    }

    /// To be remembered when a claim begins, for [`Bell::declined`].
    pub fn reading(&self) -> Reading {
        self.lock().board.reading()
    }

    /// A claim got this task. True where the needs have to be read again: the queue is longer than
    /// what was read, and that comes to an end.
    pub fn claimed(&self, worker: &WorkerId, task: &TaskId) -> bool {
        self.with(|board, now| board.claimed(worker, task, now))
    }

    /// A claim at another site got this task; see [`Bell::claimed`].
    pub fn taken(&self, task: &TaskId) -> bool {
        self.with(|board, now| board.taken(task, now))
    }

    /// A claim came back empty. True where the bell had expected otherwise.
    pub fn declined(
        &self,
        worker: &WorkerId,
        lanes: Option<&[LaneName]>,
        except: &[RepoName],
        began: Reading,
    ) -> bool {
        self.with(|board, now| board.declined(worker, lanes, except, began, now))
    }

    /// When [`Bell::tick`] is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.lock().board.next()
    }

    /// Offers that nobody took go to the next worker.
    pub fn tick(&self) {
        self.with(Board::tick);
    }

    /// The wall clock was set back.
    pub fn stepped(&self) {
        self.with(Board::stepped);
    }

    /// Completes when [`Bell::next`] has changed since this was last asked.
    pub async fn rearmed(&self) {
        self.rearmed.notified().await;
    }

    /// Answers every held doorbell as things stand, and holds none from now on.
    pub fn close(&self) {
        self.with(|board, _| board.close());
    }

    /// Changes the board and wakes those who have something to hear.
    fn with<T>(&self, change: impl FnOnce(&mut Board, Timestamp) -> T) -> T {
        self.change(|inner, now| change(&mut inner.board, now))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner, Timestamp) -> T) -> T {
        let now = self.clock.now();
        let mut inner = self.lock();
        let changed = change(&mut inner, now);
        let woken = inner.board.woken();
        for line in woken.iter().filter_map(|place| inner.lines.get(place)) {
            line.notify_one();
        }
        let next = inner.board.next();
        if next != inner.next {
            inner.next = next;
            self.rearmed.notify_one();
        }
        changed
    }

    /// A panic elsewhere leaves the board as whole as it was: each change is one call.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One held doorbell. Dropped before it was answered, what was offered to it goes to the next.
struct Held<'a> {
    bell: &'a Bell,
    place: Place,
    line: Arc<Notify>,
}

impl<'a> Held<'a> {
    /// The answer, where there is one already or `at_once` is all the time there is: then nothing is
    /// held. One turn at the lock, since this is what most doorbells come to.
    fn enter(bell: &'a Bell, ask: Ask, at_once: bool) -> Result<Doorbell, Self> {
        let entered = bell.change(|inner, now| {
            let place = inner.board.enter(ask, now);
            let mut told = inner.board.take(place, now);
            if told.is_none() && at_once {
                told = inner.board.answer(place, now);
            }
            told.map(|told| told.at(now)).ok_or_else(|| {
                let line = Arc::new(Notify::new());
                inner.lines.insert(place, Arc::clone(&line));
                (place, line)
            })
        });
        entered.map_err(|(place, line)| Self { bell, place, line })
    }

    fn take(&self) -> Option<Doorbell> {
        self.told(|board, now| board.take(self.place, now))
    }

    fn answer(&self) -> Doorbell {
        self.told(|board, now| board.answer(self.place, now)).unwrap_or_else(|| {
            let (version, queued, revoked) = (self.bell.version(), 0, Vec::new());
            let none = Told { version, queued, revoked, orders: None };
            none.at(self.bell.clock.now())
        })
    }

    fn told(&self, ask: impl FnOnce(&mut Board, Timestamp) -> Option<Told>) -> Option<Doorbell> {
        self.bell.with(|board, now| ask(board, now).map(|told| told.at(now)))
    }
}

impl Told {
    fn at(self, ts: Timestamp) -> Doorbell {
        let Self { version, queued, revoked, orders } = self;
        Doorbell { version, queued, ts, revoked, orders }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.bell.lock().lines.remove(&self.place);
        self.bell.with(|board, now| board.leave(self.place, now));
    }
}
