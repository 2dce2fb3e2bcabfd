//! The database's clock: what leases are counted by, so that a site whose own clock is wrong is
//! right, and two sites agree.
//!
//! The database is asked when a connection is made and, while it is in use, once a minute. In
//! between, time goes on by the machine's uptime, which nobody sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{AnyConnection, Row};

use crate::model::{Clock, Timestamp, clock::Sleep};

/// The database is asked anew after so long. Good clocks part by some 3 ms in it.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// An answer that took longer says the time too badly, unless it is the first.
const SLOW: Duration = Duration::from_secs(1);

/// A sleeper looks at the clock again after so long: the database's may have been set.
const LOOK: Duration = Duration::from_secs(60);

/// See the module. Shared by the pool, which asks, and by those who read it.
#[derive(Debug)]
pub(super) struct Time {
    machine: Arc<dyn Clock>,
    /// Milliseconds from the machine's start to 1970, by the database.
    start: AtomicI64,
    /// The uptime in milliseconds at the last answer.
    asked: AtomicU64,
}

impl Time {
    /// Shows the machine's own time until the database is asked.
    pub(super) fn new(machine: Arc<dyn Clock>) -> Self {
        let start = machine.now().0.saturating_sub(millis(machine.uptime()));
        Self { machine, start: AtomicI64::new(start), asked: AtomicU64::new(0) }
    }

    /// Whether the last answer is old.
    pub(super) fn is_old(&self) -> bool {
        let asked = Duration::from_millis(self.asked.load(Ordering::Relaxed));
        asked.is_zero() || self.machine.uptime().saturating_sub(asked) > ASK_AGAIN
    }

    pub(super) fn uptime(&self) -> Duration {
        self.machine.uptime()
    }

    /// Asks the database.
    pub(super) async fn ask(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        let before = self.machine.uptime();
        let text = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
        let row = sqlx::query(text).fetch_one(connection).await?;
        let now: i64 = row.try_get(0)?;
        let took = self.machine.uptime().saturating_sub(before);
        let first = self.asked.load(Ordering::Relaxed) == 0;
        if first || took < SLOW {
            // It was read somewhere between asking and hearing.
            let middle = before + took / 2;
            self.start.store(now.saturating_sub(millis(middle)), Ordering::Relaxed);
            let at = u64::try_from(middle.as_millis()).unwrap_or(u64::MAX).max(1);
            self.asked.store(at, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The clock handed to whoever stamps or compares what is in the database.
#[derive(Debug)]
pub(super) struct DatabaseClock(pub(super) Arc<Time>);

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.start.load(Ordering::Relaxed).saturating_add(millis(self.0.uptime())))
    }

    fn uptime(&self) -> Duration {
        self.0.uptime()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let clock = Self(Arc::clone(&self.0));
        Box::pin(async move {
            loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LOOK)).await;
            }
        })
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
