//! The one timer of a site: it reads what is queued after a change, ends leases that ran out,
//! unparks, and moves the bell's offers on. While nothing changes it sleeps without a statement,
//! and looks at the clocks once a minute.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::attention::{Attention, GRACE, LOOK_EVERY};
use super::bell::Bell;
use super::logs::Logs;
use super::sites::{Notice, Sites};
use crate::model::{Clock, Task, TaskState, Timestamp};
use crate::queue::{Queue, QueueError};

/// After a database error, and against a timer that stays due.
const PAUSE: Duration = Duration::from_secs(1);

/// How soon what is queued is read again, where nothing says that there is more of it: a run ended.
const SETTLE: Duration = Duration::from_secs(1);

/// From one reading to the next, so that a flood of new tasks is read in a few turns. The first of
/// a flood is read at once.
const BETWEEN: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub struct Timers {
    clock: Arc<dyn Clock>,
    queue: Queue,
    bell: Arc<Bell>,
    logs: Arc<Logs>,
    sites: Arc<Sites>,
    state: Mutex<State>,
    attention: Mutex<Attention>,
    wake: Notify,
    /// One reading or sweep at a time: an older reading must not overwrite a newer one.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The earliest expiry or unpark.
    due: Option<Timestamp>,
    /// What is queued has to be read again, not before this.
    stale: Option<Timestamp>,
}

impl Timers {
    /// Nothing is armed until [`Timers::settle`].
    pub fn new(
        clock: Arc<dyn Clock>,
        queue: Queue,
        bell: Arc<Bell>,
        logs: Arc<Logs>,
        sites: Arc<Sites>,
    ) -> Self {
        Self {
            clock,
            queue,
            bell,
            logs,
            sites,
            state: Mutex::default(),
            attention: Mutex::default(),
            wake: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// A write was made that can change what a claim would return, or when the timer is due.
    pub fn changed(&self) {
        self.heard();
        self.sites.tell(Notice::Changed);
    }

    /// The same, told by another site.
    pub(super) fn heard(&self) {
        self.bell.moved();
        self.reread();
    }

    /// A run ended, and this is its task now. Where it is queued again others hear of it at once;
    /// else there is nothing new to claim, and what is armed is looked over within a second.
    pub fn released(&self, task: &Task) {
        if task.state == TaskState::Queued {
            return self.changed();
        }
        self.bell.moved();
        if let Some(at) = task.parked_until {
            self.no_later_than(at);
        }
        let mut state = self.lock();
        if state.stale.is_none() {
            state.stale = Some(self.clock.now() + SETTLE);
            self.wake.notify_one();
        }
    }

    /// The bell's picture of the queue was found to be old.
    pub fn reread(&self) {
        self.lock().stale = Some(self.clock.now());
        self.wake.notify_one();
    }

    /// A lease was given or renewed until `at`.
    pub fn no_later_than(&self, at: Timestamp) {
        let mut state = self.lock();
        if state.due.is_none_or(|due| at < due) {
            state.due = Some(at);
            self.wake.notify_one();
        }
    }

    /// Sweeps and reads once: what a new owner does before it serves.
    ///
    /// # Errors
    /// The queue's.
    pub async fn settle(&self) -> Result<(), QueueError> {
        self.look();
        let _turn = self.turn.lock().await;
        let now = self.clock.now();
        self.sweep().await?;
        self.read(Some(now)).await
    }

    /// Ends what ran out, where the timer is due: what a claim does before it looks, so that
    /// holders hear of it.
    ///
    /// # Errors
    /// The queue's.
    pub async fn sweep_if_due(&self) -> Result<(), QueueError> {
        self.look();
        if self.lock().due.is_none_or(|due| due > self.clock.now()) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        self.sweep().await
    }

    /// Runs until `closing`.
    pub async fn run(&self, closing: CancellationToken) {
        let mut pause = None;
        loop {
            let next = self.next();
            let sleep = async {
                match next {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = closing.cancelled() => return,
                () = self.wake.notified() => {}
                () = self.bell.rearmed() => {}
                () = sleep => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if let Some(pause) = pause.take() {
                tokio::select! {
                    () = closing.cancelled() => return,
                    () = pause => {}
                }
            }
            pause = self.turn().await.then(|| tokio::time::sleep(BETWEEN));
        }
    }

    /// Looks at the clocks: leases that only seem to have run out are left to their workers for a
    /// while, and what was stamped before the clock went back is brought nearer.
    fn look(&self) {
        let noticed =
            self.attention.lock().unwrap_or_else(PoisonError::into_inner).look(&*self.clock);
        if noticed.missed {
            tracing::info!("this machine slept or its clock was set forward: leases are spared");
            self.queue.spare_leases(GRACE);
        }
        if noticed.set_back {
            tracing::info!("the clock was set back: leases and pauses are cut to their length");
            self.lock().due = Some(self.clock.now());
            self.bell.stepped();
        }
    }

    /// Does what is due now. True where what is queued was read.
    async fn turn(&self) -> bool {
        self.look();
        let _turn = self.turn.lock().await;
        let now = self.clock.now();
        let (due, stale) = {
            let state = self.lock();
            let past = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
            (past(state.due), past(state.stale))
        };
        let mut done = Ok(());
        if due {
            done = self.sweep().await;
        }
        if done.is_ok() && (due || stale) {
            done = self.read(due.then_some(now)).await;
        }
        let read = due || stale;
        if let Err(error) = done {
            tracing::warn!(%error, "the queue cannot be read; trying again in a second");
            let mut state = self.lock();
            state.stale = Some(now + PAUSE);
            state.due = state.due.map(|at| at.max(now + PAUSE));
        }
        self.bell.tick();
        read
    }

    async fn sweep(&self) -> Result<(), QueueError> {
        let swept = self.queue.sweep().await?;
        for (worker, lease) in &swept.expired {
            self.logs.ended(lease);
            self.bell.revoke(worker, lease.clone());
            self.sites.tell(Notice::revoked(worker, lease));
        }
        if !swept.expired.is_empty() || !swept.unparked.is_empty() || swept.budgets {
            self.changed();
        }
        Ok(())
    }

    /// Reads what is queued and when the next timer is due; `swept` says when a sweep was
    /// just made.
    async fn read(&self, swept: Option<Timestamp>) -> Result<(), QueueError> {
        // From here on: what is changed while the reading runs sets these again.
        let before = std::mem::take(&mut *self.lock());
        self.bell.reading_begins();
        let read = async {
            // Whoever waits is rung before the timer is looked at.
            self.bell.read(self.queue.needs().await?);
            self.queue.next_timer().await
        };
        let read: Result<_, QueueError> = read.await;
        let mut state = self.lock();
        match read {
            Ok(due) => {
                // A timer that is due although it was just swept would spin.
                let floor = swept.map(|at| at + PAUSE);
                let due = due.map(|at| floor.map_or(at, |floor| at.max(floor)));
                state.due = earliest(state.due, due);
                Ok(())
            }
            Err(error) => {
                state.due = earliest(state.due, before.due);
                state.stale = earliest(state.stale, before.stale);
                Err(error)
            }
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let state = self.lock();
        earliest(earliest(state.due, state.stale), self.bell.next())
    }

    /// Each change is one assignment, so a panic elsewhere leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
