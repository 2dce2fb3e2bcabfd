//! The real clock, the real source of ids and the faults that were asked for. Everything else is
//! handed them behind [`Clock`], [`Ids`] and [`crate::model::Faults`].

pub mod faults;
pub mod notify;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

use crate::model::clock::{Clock, Ids, Sleep, Timestamp};

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the wall clock"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn uptime(&self) -> Duration {
        // CLOCK_BOOTTIME counts through suspend, so a deadline that passed while the lid was
        // closed has passed; CLOCK_MONOTONIC on macOS does the same there.
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let t = rustix::time::clock_gettime(id);
        Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let clock = *self;
        Box::pin(async move {
            // In pieces, so that a step of the wall clock is noticed within a minute.
            loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(Duration::from_secs(60))).await;
            }
        })
    }
}

/// UUIDv7 from the system's clock and random source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that makes ids")]
    fn uuid(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }

    fn random(&self) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(bytes)
    }
}
