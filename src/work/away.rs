//! How it stands with the site, as this worker hears it: an absence is said once, and its end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::observer::Observer;
use crate::api::Code;
use crate::client::{ClientError, Reach};
use crate::model::{Clock, Timestamp};

/// An absence is told of once it lasted so long: a site that is started anew is back sooner.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// How often it is looked whether the site is itself again.
const LOOK: Duration = Duration::from_secs(1);

/// Something in the site's place is told of once it has answered a request for so long, while the
/// site answers others: a proxy that is started anew is gone sooner.
const STRANGE_AFTER: Duration = Duration::from_secs(60);

/// A request that was not asked again for so long is nobody's any more. The longest pause between
/// two tries is a minute, and a proxy's `Retry-After` five.
const FORGOTTEN: Duration = Duration::from_secs(6 * 60);

/// So many requests are watched; a worker has few under way.
const WATCHED: usize = 100;

/// Hears of each request of a worker.
pub struct Standing {
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    absence: Mutex<Option<Absence>>,
    strange: Mutex<Strange>,
    /// Whether the site ever answered this process.
    met: AtomicBool,
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

/// What is answered by something that is no relay, while the site may answer the rest. All times are
/// by [`Clock::uptime`].
#[derive(Debug, Default)]
struct Strange {
    /// When it began and was last so, by route.
    routes: HashMap<String, (Duration, Duration)>,
    told: bool,
    /// When the site itself answered something last.
    answered: Option<Duration>,
}

impl Strange {
    /// Notes an answer that was not the site's. Whether a person should hear of it now.
    fn heard(&mut self, route: &str, now: Duration) -> bool {
        self.routes.retain(|_, (_, last)| now.saturating_sub(*last) < FORGOTTEN);
        if self.routes.is_empty() {
            self.told = false;
        }
        if self.routes.len() >= WATCHED && !self.routes.contains_key(route) {
            return false;
        }
        let (began, last) = self.routes.entry(route.to_owned()).or_insert((now, now));
        *last = now;
        let late = now.saturating_sub(*began) >= STRANGE_AFTER;
        let tells = late && !self.told && self.answered.is_some_and(|at| at > *began);
        self.told |= tells;
        tells
    }
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
            strange: Mutex::default(),
            met: AtomicBool::new(false),
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

    /// Whether a request of this worker is answered by something that is no relay, while the site
    /// answers others. One that is away behind a proxy answers nothing.
    pub fn is_strange(&self) -> bool {
        let now = self.clock.uptime();
        let strange = self.strange();
        let Some(answered) = strange.answered else { return false };
        strange
            .routes
            .values()
            .any(|(began, last)| answered > *began && now.saturating_sub(*last) < FORGOTTEN)
    }

    /// Completes once `drain` was said, `grace` has passed since this was asked, and something else
    /// answers in the site's place: waiting for that to end may have no end.
    pub async fn strange_after(&self, drain: &CancellationToken, grace: Duration) {
        drain.cancelled().await;
        tokio::time::sleep(grace).await;
        while !self.is_strange() {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn strange(&self) -> MutexGuard<'_, Strange> {
        self.strange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The site is there, whatever it said.
    fn is_there(&self) {
        let met = self.met.swap(true, Ordering::Relaxed);
        let absence = self.lock().take();
        if let Some(absence) = absence.filter(|absence| absence.told) {
            let after = self.clock.uptime().saturating_sub(absence.began);
            match met {
                true => self.observer.site_back(after),
                false => self.observer.site_answers(after),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Absence>> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reach for Standing {
    fn answered(&self, route: &str) {
        let now = self.clock.uptime();
        {
            let mut strange = self.strange();
            strange.routes.remove(route);
            strange.answered = Some(now);
        }
        self.is_there();
    }

    fn failed(&self, route: &str, error: &ClientError) {
        if let ClientError::Foreign { .. } = error {
            let now = self.clock.uptime();
            let tells = self.strange().heard(route, now);
            if tells {
                let hint = error.hint().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
                self.observer.warning(&format!(
                    "{error}, for a minute now, while the site answers other requests{hint}"
                ));
            }
        }
        if !error.is_passing() {
            if error.code() == Some(Code::Unauthorized) {
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.get_or_insert_with(|| error.clone());
                drop(refused);
                self.barred.cancel();
            }
            return self.answered(route);
        }
        if !error.is_away() {
            return;
        }
        let now = self.clock.uptime();
        let began = Absence { began: now, since: self.clock.now(), told: false };
        let met = self.met.load(Ordering::Relaxed);
        let tell = {
            let mut absence = self.lock();
            let absence = absence.get_or_insert(began);
            // Of one that never answered the address may be wrong, which nobody has to wait for.
            let late = !met || now.saturating_sub(absence.began) >= TELL_AFTER;
            let tell = late && !absence.told;
            absence.told |= late;
            tell.then_some(absence.since)
        };
        match tell {
            Some(since) if met => self.observer.site_away(since, &error.to_string()),
            // The worker does not wait for this one, and ends with it.
            Some(_) if matches!(error, ClientError::NoTls { .. }) => {}
            Some(_) => self.observer.site_silent(&error.to_string(), error.hint().as_deref()),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Problem;
    use crate::model::clock::Sleep;
    use std::sync::atomic::AtomicU64;

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
        fn site_silent(&self, why: &str, _: Option<&str>) {
            self.0.lock().unwrap().push(format!("silent: {why}"));
        }
        fn site_answers(&self, after: Duration) {
            self.0.lock().unwrap().push(format!("answers after {}", after.as_secs()));
        }
        fn warning(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
        fn site_back(&self, after: Duration) {
            self.0.lock().unwrap().push(format!("back after {}", after.as_secs()));
        }
    }

    #[test]
    fn an_absence_and_its_end_are_said_once() {
        let (clock, told) = (Arc::new(Seconds::default()), Arc::new(Told::default()));
        let standing = Standing::new(clock.clone(), told.clone());
        let gone = ClientError::Unreachable {
            endpoint: "x".to_owned(),
            why: "gone".to_owned(),
            sent: true,
        };
        standing.answered("/x");
        standing.failed("/x", &gone);
        clock.0.store(1, Ordering::Relaxed);
        standing.answered("/x");
        for second in 2..100 {
            clock.0.store(second, Ordering::Relaxed);
            standing.failed("/x", &gone);
        }
        // What is refused was answered.
        standing.failed("/x", &ClientError::Refused(Problem::new(Code::LeaseLost, "lost")));
        standing.answered("/x");
        let said = told.0.lock().unwrap().clone();
        assert_eq!(said, ["away since 2000", "back after 97"]);
        assert!(!standing.barred.is_cancelled());
        standing.failed("/x", &ClientError::Refused(Problem::new(Code::Unauthorized, "revoked")));
        assert!(standing.barred.is_cancelled());
    }

    #[test]
    fn a_site_that_never_answered_is_said_at_once_and_is_not_called_away() {
        let (clock, told) = (Arc::new(Seconds::default()), Arc::new(Told::default()));
        let standing = Standing::new(clock.clone(), told.clone());
        for second in 0..9 {
            clock.0.store(second, Ordering::Relaxed);
            let (endpoint, why) = ("http://x".to_owned(), "gone".to_owned());
            standing.failed("/x", &ClientError::Unreachable { endpoint, why, sent: false });
            assert_eq!(told.0.lock().unwrap().len(), 1, "after {second} s");
        }
        standing.answered("/x");
        let said = told.0.lock().unwrap().clone();
        let silent = "silent: the site at http://x could not be reached: gone";
        assert_eq!(said, [silent, "answers after 8"]);
    }

    fn page() -> ClientError {
        let (endpoint, route) = ("x".to_owned(), "/pulls".to_owned());
        ClientError::Foreign { endpoint, route, status: 404, retry_after: None }
    }

    #[test]
    fn what_answers_in_the_sites_place_is_said_once_after_a_minute() {
        let (clock, told) = (Arc::new(Seconds::default()), Arc::new(Told::default()));
        let standing = Standing::new(clock.clone(), told.clone());
        standing.answered("/register");
        for second in 0..300 {
            clock.0.store(second, Ordering::Relaxed);
            standing.failed("/pulls", &page());
            standing.answered("/heartbeat");
        }
        let said = told.0.lock().unwrap().clone();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("/pulls with 404") && said[0].contains("proxy"), "{said:?}");
        assert!(standing.is_strange());
        standing.answered("/pulls");
        assert!(!standing.is_strange());
    }

    #[tokio::test]
    async fn a_drain_waits_for_the_site_and_not_for_what_is_in_its_place() {
        let clock = Arc::new(Seconds::default());
        let standing = Standing::new(clock.clone(), Arc::new(Told::default()));
        let drain = CancellationToken::new();
        let waits = |grace| tokio::time::timeout(Duration::from_millis(50), grace);
        standing.failed("/pulls", &page());
        assert!(waits(standing.strange_after(&drain, Duration::ZERO)).await.is_err(), "no drain");
        drain.cancel();
        assert!(waits(standing.strange_after(&drain, Duration::ZERO)).await.is_err(), "all away");
        clock.0.store(1, Ordering::Relaxed);
        standing.answered("/heartbeat");
        let late = Duration::from_secs(3600);
        assert!(waits(standing.strange_after(&drain, late)).await.is_err(), "the grace");
        standing.strange_after(&drain, Duration::ZERO).await;
        standing.answered("/pulls");
        assert!(waits(standing.strange_after(&drain, Duration::ZERO)).await.is_err(), "it is back");
    }
}
