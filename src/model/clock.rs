//! Time as a value, and the clock as something handed in.

use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, as stored and sent.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A boxed sleep, so that [`Clock`] stays usable behind `dyn`.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where time comes from. Rooms are handed one; none reads a clock by itself.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock, for what is stored and shown.
    fn now(&self) -> Timestamp;
    /// Time since some fixed point that keeps counting while the machine sleeps
    /// (`CLOCK_BOOTTIME`), for deadlines in the worker.
    fn uptime(&self) -> Duration;
    /// Completes once `now()` has reached `at`.
    fn sleep_until(&self, at: Timestamp) -> Sleep;
}

/// Where new ids and secrets come from. Handed in like the clock, so that tests can name them beforehand.
pub trait Ids: Send + Sync + fmt::Debug {
    /// A new UUIDv7 in its usual text form.
    fn uuid(&self) -> String;

    /// 256 bits that nobody can guess, for a token; `None` where the system gives none.
    fn random(&self) -> Option<[u8; 32]>;
}
