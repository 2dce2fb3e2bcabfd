//! How it stands with the site, as this worker hears it: an absence is said once, and its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::observer::Observer;
use crate::api::Code;
use crate::client::{ClientError, Reach};
use crate::model::{Clock, Timestamp};

/// An absence is told of once it lasted so long: a site that is started anew is back sooner.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// Hears of each request of a worker.
pub struct Standing {
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    absence: Mutex<Option<Absence>>,
    refused: Mutex<Option<ClientError>>,
    barred: CancellationToken,
}

/// The site has not answered since.
#[derive(Clone, Copy, Debug)]
struct Absence {
    /// By [`Clock::uptime`].
    began: Duration,
    since: Timestamp,
    told: bool,
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standing").field("absence", &self.absence).finish_non_exhaustive()
    }
}

impl Standing {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Self {
        Self {
            clock,
            observer,
            absence: Mutex::default(),
            refused: Mutex::default(),
            barred: CancellationToken::new(),
        }
    }

    /// Completes once the site has refused this worker's token: it was revoked, or never known.
    pub async fn barred(&self) -> ClientError {
        self.barred.cancelled().await;
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        refused.unwrap_or_else(|| ClientError::BadAnswer {
            route: "the token".to_owned(),
            why: "it was refused".to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Absence>> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reach for Standing {
    fn answered(&self) {
        let absence = self.lock().take();
        if let Some(absence) = absence.filter(|absence| absence.told) {
            self.observer.site_back(self.clock.uptime().saturating_sub(absence.began));
        }
    }

    fn failed(&self, error: &ClientError) {
        if !error.is_passing() {
            if error.code() == Some(Code::Unauthorized) {
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.get_or_insert_with(|| error.clone());
                drop(refused);
                self.barred.cancel();
            }
            return self.answered();
        }
        if !error.is_away() {
            return;
        }
        let now = self.clock.uptime();
        let began = Absence { began: now, since: self.clock.now(), told: false };
        let tell = {
            let mut absence = self.lock();
            let absence = absence.get_or_insert(began);
            let late = now.saturating_sub(absence.began) >= TELL_AFTER;
            let tell = late && !absence.told;
            absence.told |= late;
            tell.then_some(absence.since)
        };
        if let Some(since) = tell {
            self.observer.site_away(since, &error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Problem;
    use crate::model::clock::Sleep;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    struct Seconds(AtomicU64);
    impl Clock for Seconds {
        fn now(&self) -> Timestamp {
            Timestamp(0) + self.uptime()
        }
        fn uptime(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
        fn sleep_until(&self, _: Timestamp) -> Sleep {
            Box::pin(std::future::pending())
        }
    }

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);
    impl Observer for Told {
        fn site_away(&self, since: Timestamp, _: &str) {
            self.0.lock().unwrap().push(format!("away since {since}"));
        }
        fn site_back(&self, after: Duration) {
            self.0.lock().unwrap().push(format!("back after {}", after.as_secs()));
        }
    }

    #[test]
    fn an_absence_and_its_end_are_said_once() {
        let (clock, told) = (Arc::new(Seconds::default()), Arc::new(Told::default()));
        let standing = Standing::new(clock.clone(), told.clone());
        let gone = ClientError::Unreachable { endpoint: "x".to_owned(), why: "gone".to_owned() };
        standing.failed(&gone);
        clock.0.store(1, Ordering::Relaxed);
        standing.answered();
        for second in 2..100 {
            clock.0.store(second, Ordering::Relaxed);
            standing.failed(&gone);
        }
        // What is refused was answered.
        standing.failed(&ClientError::Refused(Problem::new(Code::LeaseLost, "lost")));
        standing.answered();
        let said = told.0.lock().unwrap().clone();
        assert_eq!(said, ["away since 2000", "back after 97"]);
        assert!(!standing.barred.is_cancelled());
        standing.failed(&ClientError::Refused(Problem::new(Code::Unauthorized, "revoked")));
        assert!(standing.barred.is_cancelled());
    }
}
