//! A clock that moves when told, and ids that can be named beforehand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use relay::model::clock::{Clock, Ids, Sleep, Timestamp};
use tokio::sync::watch;

/// Where every [`ManualClock::default`] starts.
pub const START: Timestamp = Timestamp(1_700_000_000_000);

/// Stands still until [`ManualClock::advance`] or [`ManualClock::step`]; clones share one time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<watch::Sender<Timestamp>>,
    /// Milliseconds that have passed, whatever the wall clock was set to.
    passed: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows `start`.
    pub fn new(start: Timestamp) -> Self {
        Self { now: Arc::new(watch::Sender::new(start)), passed: Arc::default() }
    }

    /// Moves the time on and wakes every sleeper whose time has come.
    pub fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).expect("a short time");
        self.passed.fetch_add(ms, Ordering::Relaxed);
        self.now.send_modify(|now| *now = *now + by);
    }

    /// Sets the wall clock forward or back, while no time passes.
    pub fn step(&self, seconds: i64) {
        self.now.send_modify(|now| now.0 += seconds * 1000);
    }

    /// How many sleeps are being waited for.
    pub fn sleepers(&self) -> usize {
        self.now.receiver_count()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new(START)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.passed.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            // An error means that the clock is gone: its time never comes.
            if now.wait_for(|now| *now >= at).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Counts up from one; `series` keeps two sources apart.
#[derive(Debug, Default)]
pub struct CountingIds {
    series: u16,
    next: AtomicU64,
}

impl CountingIds {
    /// A source whose ids carry `series`.
    pub fn new(series: u16) -> Self {
        Self { series, next: AtomicU64::new(0) }
    }

    /// The `n`th id (from 1) of a series.
    pub fn nth(series: u16, n: u64) -> String {
        format!("{series:08x}-0000-7000-8000-{n:012x}")
    }
}

impl Ids for CountingIds {
    fn uuid(&self) -> String {
        Self::nth(self.series, self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// No secret: it counts on as well.
    fn random(&self) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        let text = self.uuid();
        bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        bytes[31] = self.next.load(Ordering::Relaxed).to_le_bytes()[0];
        Some(bytes)
    }
}

#[tokio::test]
async fn a_sleeper_wakes_when_its_time_has_come() {
    let clock = ManualClock::default();
    let sleep = clock.sleep_until(START + Duration::from_secs(10));
    tokio::pin!(sleep);
    assert_eq!(clock.sleepers(), 1);
    clock.advance(Duration::from_secs(9));
    assert!(futures_util::poll!(sleep.as_mut()).is_pending());
    clock.advance(Duration::from_secs(1));
    sleep.await;
    assert_eq!(clock.uptime(), Duration::from_secs(10));
}

#[test]
fn ids_are_counted_and_valid() {
    let ids = CountingIds::new(7);
    assert_eq!(ids.uuid(), CountingIds::nth(7, 1));
    assert!(ids.uuid().parse::<relay::model::WorkerId>().is_ok());
}
