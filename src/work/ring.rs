//! Waiting for the bell: held where the site holds it, for as long as what stands in between lets it
//! be held; on the seed's ramp where it is not held.

use std::sync::Arc;
use std::time::Duration;

use super::away::Standing;
use super::backoff::{Backoff, Ramp, jitter};
use crate::api::{Code, Doorbell, DoorbellQuery, Problem};
use crate::client::{Client, ClientError, Reach as _};
use crate::model::{Clock, Ids, InstanceId, LaneName, Orders, RepoName, WorkerId};

/// A held answer that comes back sooner than this with nothing was not held.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The bound of the first pause while the site is away: an owner on this machine restarts fast.
const AWAY: Duration = Duration::from_millis(500);
/// A held request that breaks later than this was cut in between, or the site ended. One that breaks
/// sooner never reached it: to connect may take 10 s.
const CUT: Duration = Duration::from_secs(15);
/// The bell is not asked to be held for less.
const WAIT_LEAST: Duration = Duration::from_secs(10);
/// After so many answers held to their end a longer wait is tried again.
const GROW_AFTER: u32 = 30;

/// Bytes of a list of repositories: a site takes 8 KiB of path and query.
const LISTED: usize = 4096;

/// The longest a site holds it (DESIGN §3).
const HELD_MOST: Duration = Duration::from_secs(300);

/// What the bell said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ring {
    /// It is worth claiming.
    Claim,
    /// Some of this worker's leases may have been called off.
    Revoked,
    /// Another instance of this worker's name took over: nothing more to do here.
    Replaced,
    /// The site does not let this worker ask.
    Barred(ClientError),
    /// Nothing; ask again.
    Quiet,
}

/// One worker's ear.
#[derive(Debug)]
pub struct Bell {
    client: Client,
    worker: WorkerId,
    instance: InstanceId,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    longest: Duration,
    since: i64,
    /// What people told the worker, as the site said last.
    orders: Orders,
    /// Lanes of the worker that are shut since their login was refused.
    refused: Vec<LaneName>,
    /// Lanes of the worker that are at their limit.
    limited: Vec<LaneName>,
    /// Whether the worker was told to end.
    ending: bool,
    /// Whether the site hears what stands beside the question: one of before refuses it all.
    tells: bool,
    ramp: Ramp,
    away: Backoff,
    standing: Arc<Standing>,
    /// How long it is asked to be held: less than `longest` behind a proxy that cuts.
    wait: Duration,
    /// After how long the last one was cut.
    cut: Option<Duration>,
    /// Answers in a row that were held to their end.
    whole: u32,
    /// Waited for before the next request: the site answers at once, or is away.
    pause: Option<Duration>,
}

impl Bell {
    /// `ramp` runs from `--interval` to `--max-interval`.
    #[must_use]
    pub fn new(
        client: Client,
        worker: WorkerId,
        instance: InstanceId,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        ramp: Ramp,
        standing: Arc<Standing>,
    ) -> Self {
        let longest = ramp.longest();
        Self {
            client,
            worker,
            instance,
            clock,
            ids,
            longest,
            since: 0,
            orders: Orders::default(),
            refused: Vec::new(),
            limited: Vec::new(),
            ending: false,
            tells: true,
            ramp,
            away: Backoff::new(AWAY),
            standing,
            wait: longest.min(HELD_MOST),
            cut: None,
            whole: 0,
            pause: None,
        }
    }

    /// The same, which knows already what people told the worker.
    #[must_use]
    pub fn knowing(self, orders: Orders) -> Self {
        Self { orders, ..self }
    }

    /// What people told the worker, as far as is known.
    #[must_use]
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Which lanes the site is to know of as shut for their login.
    pub fn tell_refused(&mut self, lanes: Vec<LaneName>) {
        self.refused = lanes;
    }

    /// Which lanes the site is to know of as at their limit.
    pub fn tell_limited(&mut self, lanes: Vec<LaneName>) {
        self.limited = lanes;
    }

    /// The site is to know that the worker ends once its runs have.
    pub fn tell_ending(&mut self) {
        self.ending = true;
    }

    /// There may be something new: what is waited for before the next question is not.
    pub fn hurry(&mut self) {
        self.pause = None;
    }

    /// Work was taken: the ramp starts over.
    pub fn reset(&mut self) {
        self.ramp.reset();
        self.pause = None;
    }

    /// Waits for the bell. It may be dropped and called again at any time: what it learned is
    /// kept, and the site takes a dropped request as gone. Nothing is wanted of the repositories of
    /// `except`.
    pub async fn next(&mut self, free: usize, lanes: &[LaneName], except: &[RepoName]) -> Ring {
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
            self.pause = None;
        }
        let asked = self.clock.uptime();
        let query = DoorbellQuery {
            lanes: names(lanes),
            worker_id: Some(self.worker.clone()),
            instance_id: Some(self.instance.clone()),
            free: u32::try_from(free).unwrap_or(u32::MAX),
            since: self.since,
            wait: u32::try_from(self.wait.as_secs()).unwrap_or(u32::MAX),
            except: listed(except),
            refused: self.told(&self.refused),
            limited: self.told(&self.limited),
            ending: self.ending && self.tells,
            told: Some(self.orders.digest()),
        };
        let answer = self.client.doorbell(&query).await;
        self.weigh(answer, free, self.clock.uptime().saturating_sub(asked))
    }

    fn told(&self, lanes: &[LaneName]) -> Option<String> {
        Some(names(lanes)).filter(|names| self.tells && !names.is_empty())
    }

    fn has_to_tell(&self) -> bool {
        self.ending || !self.refused.is_empty() || !self.limited.is_empty()
    }

    /// What an answer means that came after `took`, and how long to pause before the next question.
    fn weigh(
        &mut self,
        answer: Result<Doorbell, ClientError>,
        free: usize,
        took: Duration,
    ) -> Ring {
        let error = match answer {
            Ok(bell) => return self.heard(bell, free, took),
            Err(error) => error,
        };
        match &error {
            ClientError::Refused(problem) if problem.code == Code::WorkerUnknown => Ring::Replaced,
            error if error.is_barring() => Ring::Barred(error.clone()),
            // A site, or a proxy, without the doorbell: claim on every tick.
            ClientError::Refused(Problem { status: 404, .. })
            | ClientError::Foreign { status: 404 | 405 | 501, .. } => {
                self.pause_on_ramp();
                if free > 0 { Ring::Claim } else { Ring::Quiet }
            }
            ClientError::Refused(Problem { status: 400, .. })
                if self.tells && self.has_to_tell() =>
            {
                self.tells = false;
                Ring::Quiet
            }
            error if took >= CUT && was_cut(error) => {
                self.shorten(took, matches!(error, ClientError::Foreign { status: 504, .. }));
                Ring::Quiet
            }
            error => {
                self.standing.failed("/work/doorbell", error);
                let wait = self.away.wait(jitter(&self.ids.uuid()), error.retry_after());
                tracing::debug!(%error, wait_ms = wait.as_millis(), "the bell cannot be asked");
                self.pause = Some(wait);
                Ring::Quiet
            }
        }
    }

    fn heard(&mut self, bell: Doorbell, free: usize, took: Duration) -> Ring {
        let held = took >= AT_ONCE;
        tracing::debug!(version = bell.version, queued = bell.queued, held, "doorbell");
        self.away.reset();
        self.cut = None;
        self.grow(took);
        let moved = bell.version != self.since;
        self.since = bell.version;
        let told = bell.orders.is_some_and(|orders| {
            let new = orders != self.orders;
            self.orders = orders;
            new
        });
        if !bell.revoked.is_empty() {
            return Ring::Revoked;
        }
        let news = moved && bell.queued > 0;
        if !held && !news && !told {
            self.pause_on_ramp();
        }
        if free > 0 && bell.queued > 0 { Ring::Claim } else { Ring::Quiet }
    }

    /// It was cut on its way, which is no failure: it is asked again. Where it is cut again after
    /// the same time, or a proxy says that it does not wait so long, it is asked for less.
    fn shorten(&mut self, after: Duration, said: bool) {
        let about = after / 10 + Duration::from_secs(1);
        let again = self.cut.replace(after).is_some_and(|cut| cut.abs_diff(after) <= about);
        if (said || again) && after <= self.wait {
            self.wait = (after * 4 / 5).max(WAIT_LEAST);
            self.cut = None;
            tracing::debug!(wait_s = self.wait.as_secs(), "the bell is held for less");
        }
        self.whole = 0;
        self.pause = Some(AWAY.mul_f64(jitter(&self.ids.uuid())));
    }

    /// What cut may be gone.
    fn grow(&mut self, took: Duration) {
        let to_its_end = took + AT_ONCE >= self.wait;
        self.whole = if to_its_end { self.whole + 1 } else { self.whole };
        if self.whole >= GROW_AFTER {
            self.whole = 0;
            self.wait = (self.wait * 3 / 2).min(self.longest).min(HELD_MOST);
        }
    }

    fn pause_on_ramp(&mut self) {
        let wait = self.ramp.wait(jitter(&self.ids.uuid()));
        tracing::debug!(wait_ms = wait.as_millis(), "the bell was not held");
        self.pause = Some(wait);
    }
}

fn names(lanes: &[LaneName]) -> String {
    lanes.iter().map(LaneName::as_str).collect::<Vec<_>>().join(",")
}

/// Repositories between commas, as many as surely fit into a request's head. It is a hint: the claim
/// has them all.
fn listed(slugs: &[RepoName]) -> Option<String> {
    let mut text = String::new();
    for slug in slugs.iter().map(ToString::to_string) {
        if text.len() + slug.len() > LISTED {
            break;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&slug);
    }
    (!text.is_empty()).then_some(text)
}

/// Whether a request that was held broke in between. An answer that is no answer is one that was
/// ended in the middle of its blanks.
fn was_cut(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::BadAnswer { .. } => true,
        ClientError::Foreign { status, .. } => matches!(status, 200 | 502..=504),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Endpoint;
    use crate::model::{Epoch, LeaseRef, Timestamp};
    use crate::system::SystemClock;

    #[derive(Debug)]
    struct NoJitter;
    impl Ids for NoJitter {
        fn uuid(&self) -> String {
            "00000000-0000-7000-8000-0000ffffffff".to_owned()
        }

        fn random(&self) -> Option<[u8; 32]> {
            None
        }
    }

    const HELD: Duration = Duration::from_secs(2);
    const NOT_HELD: Duration = Duration::ZERO;

    struct Nobody;
    impl crate::work::Observer for Nobody {}

    fn bell() -> Bell {
        let id = NoJitter.uuid();
        Bell::new(
            Client::new(Endpoint::Unix("/nowhere".into())).unwrap(),
            id.parse().unwrap(),
            id.parse().unwrap(),
            Arc::new(SystemClock),
            Arc::new(NoJitter),
            Ramp::new(Duration::from_secs(15), Duration::from_secs(300)),
            Arc::new(Standing::new(Arc::new(SystemClock), Arc::new(Nobody))),
        )
    }

    fn answer(version: i64, queued: u64) -> Result<Doorbell, ClientError> {
        Ok(Doorbell { version, queued, ts: Timestamp(0), revoked: vec![], orders: None })
    }

    fn refused(code: Code, status: u16) -> Result<Doorbell, ClientError> {
        let problem = Problem::new(code, "no");
        Err(ClientError::Refused(Problem { status, ..problem }))
    }

    fn paused(bell: &mut Bell) -> Option<u64> {
        bell.pause.take().map(|wait| wait.as_secs())
    }

    #[test]
    fn a_site_that_holds_the_bell_is_asked_again_at_once() {
        let mut bell = bell();
        assert_eq!(bell.weigh(answer(7, 0), 1, HELD), Ring::Quiet);
        assert_eq!((paused(&mut bell), bell.since), (None, 7));
        assert_eq!(bell.weigh(answer(8, 1), 1, HELD), Ring::Claim);
    }

    #[test]
    fn a_site_that_answers_at_once_is_polled_on_the_ramp() {
        let mut bell = bell();
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert_eq!(bell.weigh(answer(7, 0), 1, NOT_HELD), Ring::Quiet);
            waits.push(paused(&mut bell).unwrap());
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 300]);
        // Work it cannot take does not reset the ramp; news is claimed for without a pause.
        assert_eq!(bell.weigh(answer(7, 1), 1, NOT_HELD), Ring::Claim);
        assert_eq!(paused(&mut bell), Some(300));
        assert_eq!(bell.weigh(answer(8, 1), 1, NOT_HELD), Ring::Claim);
        assert_eq!(paused(&mut bell), None);
        bell.reset();
        assert_eq!(bell.weigh(answer(8, 0), 1, NOT_HELD), Ring::Quiet);
        assert_eq!(paused(&mut bell), Some(15));
    }

    #[test]
    fn a_site_that_knows_less_is_asked_again_at_once_without_what_it_refused() {
        let mut bell = bell();
        let lanes = vec!["claude".parse().unwrap()];
        assert_eq!(bell.weigh(refused(Code::BadRequest, 400), 1, NOT_HELD), Ring::Quiet);
        assert!(paused(&mut bell).is_some(), "nothing was told, so it is a fault");
        bell.tell_limited(lanes.clone());
        assert_eq!(bell.told(&bell.limited).as_deref(), Some("claude"));
        assert_eq!(bell.weigh(refused(Code::BadRequest, 400), 1, NOT_HELD), Ring::Quiet);
        assert_eq!((paused(&mut bell), bell.told(&bell.limited)), (None, None));
        assert_eq!(bell.weigh(refused(Code::BadRequest, 400), 1, NOT_HELD), Ring::Quiet);
        assert!(paused(&mut bell).is_some(), "asked without it, it refused again");
    }

    #[test]
    fn a_site_without_the_bell_is_claimed_from_on_every_tick() {
        let mut bell = bell();
        assert_eq!(bell.weigh(refused(Code::NotFound, 404), 1, NOT_HELD), Ring::Claim);
        assert_eq!(paused(&mut bell), Some(15));
        assert_eq!(bell.weigh(refused(Code::NotFound, 404), 0, NOT_HELD), Ring::Quiet);
        assert_eq!(paused(&mut bell), Some(30));
    }

    #[test]
    fn a_site_that_is_away_is_looked_for_soon_at_first() {
        let mut bell = bell();
        let away = || {
            let (endpoint, route) = ("unix:/nowhere".to_owned(), "doorbell".to_owned());
            Err(ClientError::TimedOut { endpoint, route, after: Duration::from_secs(1) })
        };
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert_eq!(bell.weigh(away(), 1, NOT_HELD), Ring::Quiet);
            waits.push(bell.pause.take().unwrap().as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000]);
    }

    fn foreign(status: u16, retry_after: Option<u32>) -> Result<Doorbell, ClientError> {
        let (endpoint, route) = ("https://x".to_owned(), "doorbell".to_owned());
        Err(ClientError::Foreign { endpoint, route, status, retry_after })
    }

    #[test]
    fn behind_a_proxy_that_cuts_it_is_held_for_less_and_that_is_no_failure() {
        let mut bell = bell();
        let secs = Duration::from_secs;
        let cut = || {
            Err(ClientError::Unreachable {
                endpoint: "x".to_owned(),
                why: "closed".to_owned(),
                sent: true,
            })
        };
        assert_eq!(bell.weigh(cut(), 1, secs(60)), Ring::Quiet);
        assert!(bell.pause.take().unwrap() <= AWAY);
        assert_eq!(bell.wait, secs(300), "once may be a site that was started anew");
        bell.weigh(cut(), 1, secs(61));
        assert!(bell.pause.take().unwrap() <= AWAY);
        assert!((48..=49).contains(&bell.wait.as_secs()), "{:?}", bell.wait);
        // Held to its end for long, a longer wait is tried.
        for _ in 0..GROW_AFTER {
            bell.weigh(answer(7, 0), 1, bell.wait);
        }
        assert!((72..=74).contains(&bell.wait.as_secs()), "{:?}", bell.wait);
        // A site that ends at any time is none that cuts.
        for after in [70, 20, 45, 16] {
            bell.weigh(cut(), 1, secs(after));
        }
        assert!(bell.wait > secs(70), "{:?}", bell.wait);
    }

    #[test]
    fn a_gateway_that_does_not_wait_is_believed_at_once() {
        let mut bell = bell();
        bell.weigh(foreign(504, None), 1, Duration::from_secs(60));
        assert_eq!(bell.wait, Duration::from_secs(48));
        // At once it is a site that is away, and how long it asks for is waited.
        bell.weigh(foreign(503, Some(7)), 1, Duration::ZERO);
        assert_eq!(bell.wait, Duration::from_secs(48));
        assert!(bell.pause.take().unwrap() >= Duration::from_secs(7));
    }

    #[test]
    fn a_token_that_is_refused_ends_the_worker_and_a_proxys_refusal_does_not() {
        let mut bell = bell();
        let revoked = bell.weigh(refused(Code::Unauthorized, 401), 1, HELD);
        assert!(matches!(revoked, Ring::Barred(_)), "{revoked:?}");
        assert_eq!(bell.weigh(foreign(401, None), 1, NOT_HELD), Ring::Quiet);
    }

    #[test]
    fn what_people_told_is_taken_up_at_once_and_kept_where_a_site_says_nothing() {
        let mut bell = bell();
        let drain = crate::model::Drain { by: crate::model::Actor::user("ann"), at: Timestamp(1) };
        let orders = Orders { paused: Vec::new(), drain: Some(drain) };
        let told = || answer(8, 0).map(|bell| Doorbell { orders: Some(orders.clone()), ..bell });
        assert_eq!(bell.weigh(told(), 1, NOT_HELD), Ring::Quiet);
        assert_eq!((bell.orders(), bell.pause), (&orders, None));
        // It is no news any more: a site that answers at once is asked on the ramp.
        bell.weigh(told(), 1, NOT_HELD);
        assert!(bell.pause.is_some());
        bell.hurry();
        assert_eq!(bell.pause, None, "a heartbeat said that there is more");
        bell.weigh(answer(9, 0), 1, HELD);
        assert_eq!(bell.orders(), &orders);
    }

    #[test]
    fn repositories_are_listed_as_far_as_a_request_has_room() {
        assert_eq!(listed(&[]), None);
        let slugs: Vec<RepoName> =
            (0..64).map(|n| format!("acme/{}{n}", "x".repeat(90)).parse().unwrap()).collect();
        assert_eq!(listed(&slugs[..2]), Some(format!("{},{}", slugs[0], slugs[1])));
        let all = listed(&slugs).unwrap();
        assert!((3900..=LISTED + 1).contains(&all.len()), "{}", all.len());
        assert!(all.split(',').all(|slug| slug.parse::<RepoName>().is_ok()));
    }

    #[test]
    fn a_busy_worker_hears_only_what_concerns_its_leases() {
        let mut bell = bell();
        assert_eq!(bell.weigh(answer(8, 3), 0, HELD), Ring::Quiet);
        let lease = LeaseRef { task: "a/b#1".parse().unwrap(), epoch: Epoch(1) };
        let revoked = answer(9, 3).map(|bell| Doorbell { revoked: vec![lease], ..bell });
        assert_eq!(bell.weigh(revoked, 0, HELD), Ring::Revoked);
        let replaced = refused(Code::WorkerUnknown, 409);
        assert_eq!(bell.weigh(replaced, 0, HELD), Ring::Replaced);
    }
}
