//! Waiting for the bell: held where the site holds it, on the seed's ramp where it does not.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::{Ramp, jitter};
use crate::api::{Code, Doorbell, DoorbellQuery};
use crate::client::{Client, ClientError};
use crate::model::{Clock, Ids, InstanceId, LaneName, WorkerId};

/// A held answer that comes back sooner than this with nothing was not held.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Pauses while the site is away: short at first, since an owner on this machine restarts fast.
const AWAY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What the bell said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// It is worth claiming.
    Claim,
    /// Some of this worker's leases may have been called off.
    Revoked,
    /// Another instance of this worker's name took over: nothing more to do here.
    Replaced,
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
    ramp: Ramp,
    away: Ramp,
    /// Waited for before the next request: the site answers at once, or is away.
    pause: Option<Duration>,
}

impl Bell {
    /// `first` and `longest` are `--interval` and `--max-interval`.
    #[must_use]
    pub fn new(
        client: Client,
        worker: WorkerId,
        instance: InstanceId,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        first: Duration,
        longest: Duration,
    ) -> Self {
        Self {
            client,
            worker,
            instance,
            clock,
            ids,
            longest,
            since: 0,
            ramp: Ramp::new(first, longest),
            away: Ramp::new(AWAY.0, AWAY.1),
            pause: None,
        }
    }

    /// Work was taken: the ramp starts over.
    pub fn reset(&mut self) {
        self.ramp.reset();
        self.pause = None;
    }

    /// Waits for the bell. It may be dropped and called again at any time: what it learned is
    /// kept, and the site takes a dropped request as gone.
    pub async fn next(&mut self, free: usize, lanes: &[LaneName]) -> Ring {
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
            self.pause = None;
        }
        let asked = self.clock.uptime();
        let query = DoorbellQuery {
            lanes: lanes.iter().map(LaneName::as_str).collect::<Vec<_>>().join(","),
            worker_id: Some(self.worker.clone()),
            instance_id: Some(self.instance.clone()),
            free: u32::try_from(free).unwrap_or(u32::MAX),
            since: self.since,
            wait: u32::try_from(self.longest.as_secs().min(300)).unwrap_or(300),
        };
        let answer = self.client.doorbell(&query).await;
        let held = self.clock.uptime().saturating_sub(asked) >= AT_ONCE;
        self.weigh(answer, free, held)
    }

    /// What an answer means, and how long to pause before the next question.
    fn weigh(&mut self, answer: Result<Doorbell, ClientError>, free: usize, held: bool) -> Ring {
        match answer {
            Ok(bell) => {
                self.away.reset();
                tracing::debug!(version = bell.version, queued = bell.queued, held, "doorbell");
                let moved = bell.version != self.since;
                self.since = bell.version;
                if !bell.revoked.is_empty() {
                    return Ring::Revoked;
                }
                let news = moved && bell.queued > 0;
                if !held && !news {
                    self.pause_on_ramp();
                }
                if free > 0 && bell.queued > 0 { Ring::Claim } else { Ring::Quiet }
            }
            Err(ClientError::Refused(problem)) if problem.code == Code::WorkerUnknown => {
                Ring::Replaced
            }
            // A site from before the doorbell: claim on every tick.
            Err(ClientError::Refused(problem)) if problem.status == 404 => {
                self.pause_on_ramp();
                if free > 0 { Ring::Claim } else { Ring::Quiet }
            }
            Err(error) => {
                let wait = self.away.wait(jitter(&self.ids.uuid()));
                tracing::warn!(%error, wait_ms = wait.as_millis(), "the site cannot be asked");
                self.pause = Some(wait);
                Ring::Quiet
            }
        }
    }

    fn pause_on_ramp(&mut self) {
        let wait = self.ramp.wait(jitter(&self.ids.uuid()));
        tracing::debug!(wait_ms = wait.as_millis(), "the bell was not held");
        self.pause = Some(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Problem;
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

    fn bell() -> Bell {
        let id = NoJitter.uuid();
        Bell::new(
            Client::new(Endpoint::Unix("/nowhere".into())).unwrap(),
            id.parse().unwrap(),
            id.parse().unwrap(),
            Arc::new(SystemClock),
            Arc::new(NoJitter),
            Duration::from_secs(15),
            Duration::from_secs(300),
        )
    }

    fn answer(version: i64, queued: u64) -> Result<Doorbell, ClientError> {
        Ok(Doorbell { version, queued, ts: Timestamp(0), revoked: vec![] })
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
        assert_eq!(bell.weigh(answer(7, 0), 1, true), Ring::Quiet);
        assert_eq!((paused(&mut bell), bell.since), (None, 7));
        assert_eq!(bell.weigh(answer(8, 1), 1, true), Ring::Claim);
    }

    #[test]
    fn a_site_that_answers_at_once_is_polled_on_the_ramp() {
        let mut bell = bell();
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert_eq!(bell.weigh(answer(7, 0), 1, false), Ring::Quiet);
            waits.push(paused(&mut bell).unwrap());
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 300]);
        // Work it cannot take does not reset the ramp; news is claimed for without a pause.
        assert_eq!(bell.weigh(answer(7, 1), 1, false), Ring::Claim);
        assert_eq!(paused(&mut bell), Some(300));
        assert_eq!(bell.weigh(answer(8, 1), 1, false), Ring::Claim);
        assert_eq!(paused(&mut bell), None);
        bell.reset();
        assert_eq!(bell.weigh(answer(8, 0), 1, false), Ring::Quiet);
        assert_eq!(paused(&mut bell), Some(15));
    }

    #[test]
    fn a_site_without_the_bell_is_claimed_from_on_every_tick() {
        let mut bell = bell();
        assert_eq!(bell.weigh(refused(Code::NotFound, 404), 1, false), Ring::Claim);
        assert_eq!(paused(&mut bell), Some(15));
        assert_eq!(bell.weigh(refused(Code::NotFound, 404), 0, false), Ring::Quiet);
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
            assert_eq!(bell.weigh(away(), 1, false), Ring::Quiet);
            waits.push(bell.pause.take().unwrap().as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn a_busy_worker_hears_only_what_concerns_its_leases() {
        let mut bell = bell();
        assert_eq!(bell.weigh(answer(8, 3), 0, true), Ring::Quiet);
        let lease = LeaseRef { task: "a/b#1".parse().unwrap(), epoch: Epoch(1) };
        let revoked = Doorbell { version: 9, queued: 3, ts: Timestamp(0), revoked: vec![lease] };
        assert_eq!(bell.weigh(Ok(revoked), 0, true), Ring::Revoked);
        let replaced = refused(Code::WorkerUnknown, 409);
        assert_eq!(bell.weigh(replaced, 0, true), Ring::Replaced);
    }
}
