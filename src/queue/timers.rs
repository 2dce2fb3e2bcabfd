//! What time does to tasks. The site calls [`Queue::sweep`] when [`Queue::next_timer`] has come.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::deaths::LIMITS;
use super::lease::RETRY_MOST;
use super::{Queue, QueueError, Swept};
use crate::model::{Passage, Timestamp};
use crate::store::{NextTimers, SweepRules};

/// A claim looks for what has run out at least so often, whatever this process knows: another
/// one may have written to the same database, and the clock may have gone back.
const SWEEP_AGAIN: Duration = Duration::from_secs(60);

impl Queue {
    /// Ends leases that ran out, queues parked tasks whose time has come, and looks at the budgets:
    /// a new day has new ones. After the clock went
    /// back, a lease is not held longer than a whole one from now, nor a retry parked for longer
    /// than the longest pause.
    pub async fn sweep(&self) -> Result<Swept, QueueError> {
        let now = self.inner.clock.now();
        // First never, then what was found: a claim between the two brings it forward again.
        self.inner.due.store(i64::MAX, Ordering::Release);
        let again = self.inner.clock.uptime() + SWEEP_AGAIN;
        let again = u64::try_from(again.as_millis()).unwrap_or(u64::MAX);
        self.inner.again.store(again, Ordering::Release);
        let end_leases = self.spared().is_zero();
        let rules = SweepRules { limits: LIMITS, longest_pause: RETRY_MOST, end_leases };
        let sweep = self.inner.store.sweep(now, &rules);
        let sweep = self.write(Passage::QueueSweep, sweep).await;
        match &sweep {
            Ok(sweep) => self.earliest(sweep.next).into_iter().for_each(|at| self.due_at(at)),
            Err(_) => self.due_at(now),
        }
        let mut swept = sweep?.swept;
        match self.settle_budgets().await {
            Ok(changed) => swept.budgets = changed,
            // What was swept is told all the same; the next sweep looks again.
            Err(error) => {
                tracing::warn!(%error, "the budgets cannot be looked at");
                self.due_at(now);
            }
        }
        Ok(swept)
    }

    /// Whether a claim has to sweep before it looks.
    pub(super) fn is_due(&self) -> bool {
        let again = Duration::from_millis(self.inner.again.load(Ordering::Acquire));
        self.inner.clock.now().0 >= self.inner.due.load(Ordering::Acquire)
            || self.inner.clock.uptime() >= again
    }

    /// When the next sweep has something to do.
    pub async fn next_timer(&self) -> Result<Option<Timestamp>, QueueError> {
        Ok(self.earliest(self.inner.store.next_timers().await?))
    }

    /// Leaves leases that run out to their workers for so long, which have had nobody to renew
    /// them with, or were told another time. Nothing else waits.
    pub fn spare_leases(&self, time: Duration) {
        let until = self.inner.clock.uptime() + time;
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.inner.spared_until.fetch_max(until, Ordering::AcqRel);
    }

    /// For how much longer leases are spared.
    fn spared(&self) -> Duration {
        let until = Duration::from_millis(self.inner.spared_until.load(Ordering::Acquire));
        until.saturating_sub(self.inner.clock.uptime())
    }

    fn earliest(&self, next: NextTimers) -> Option<Timestamp> {
        let spared = self.spared();
        let floor = self.inner.clock.now() + spared;
        let expiry = next.expiry.map(|at| if spared.is_zero() { at } else { at.max(floor) });
        expiry.into_iter().chain(next.unpark).chain(next.budget).min()
    }

    /// Something runs out at `at`.
    pub(super) fn due_at(&self, at: Timestamp) {
        self.inner.due.fetch_min(at.0, Ordering::AcqRel);
    }
}
