//! Waiting for the bell: held where the site holds it, on the seed's ramp where it does not.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::{Ramp, jitter};
use crate::api::{Code, DoorbellQuery};
use crate::client::{Client, ClientError};
use crate::model::{Clock, Ids, InstanceId, LaneName, WorkerId};

/// A held answer that comes back sooner than this with nothing was not held.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Pauses while the site is away: short at first, since an owner on this machine restarts fast.
const AWAY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What the bell said.
#[derive(Debug)]
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
        match self.client.doorbell(&query).await {
            Ok(bell) => {
                self.away.reset();
                tracing::debug!(version = bell.version, queued = bell.queued, "doorbell");
                let moved = bell.version != self.since;
                self.since = bell.version;
                if !bell.revoked.is_empty() {
                    return Ring::Revoked;
                }
                let held = self.clock.uptime().saturating_sub(asked) >= AT_ONCE;
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
