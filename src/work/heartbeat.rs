//! Keeps the leases of running jobs alive, apart from everything the jobs do.
//!
//! It ticks coarsely on the runtime's timer, which stands still while the machine sleeps, and
//! compares with a clock that does not: so the first thing after waking is a renewal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::backoff::{Backoff, jitter};
use super::stop::StopSignal;
use crate::api::{Code, HeartbeatAnswer, HeartbeatRequest, LeaseAnswer};
use crate::client::{Client, ClientError};
use crate::model::{Clock, Ids, InstanceId, LeaseRef, Orders, StopReason, WorkerId};

/// Between renewals while a lease is held (seed 002, "The protocol").
pub const EVERY: Duration = Duration::from_secs(60);
/// How often the clock is looked at; also the longest a wake-up from sleep goes unnoticed.
const TICK: Duration = Duration::from_secs(5);
/// The bound of the first pause after a heartbeat that did not reach the site.
const AGAIN: Duration = Duration::from_secs(5);

/// The leases this worker holds, and how to stop each one's job.
#[derive(Clone, Debug, Default)]
pub struct Held {
    jobs: Arc<Mutex<HashMap<LeaseRef, StopSignal>>>,
    changed: Arc<Notify>,
    urgent: Arc<Notify>,
    /// What the site said last that people told this worker.
    orders: Arc<watch::Sender<Orders>>,
}

impl Held {
    /// A job began; it is held until the value is dropped.
    #[must_use]
    pub fn hold(&self, lease: LeaseRef, stop: StopSignal) -> Holding {
        self.lock().insert(lease.clone(), stop);
        self.changed.notify_one();
        Holding { held: self.clone(), lease }
    }

    /// Asks the site about the leases at once: the bell told that one of them was called off.
    pub fn ask_now(&self) {
        self.urgent.notify_one();
    }

    /// To hear what the site says with a heartbeat that people told this worker. It may be older
    /// than what the bell says.
    #[must_use]
    pub fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    /// The leases held now, in a stable order.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseRef> {
        let mut leases: Vec<LeaseRef> = self.lock().keys().cloned().collect();
        leases.sort();
        leases
    }

    /// Stops the job of one lease.
    pub fn stop(&self, lease: &LeaseRef, reason: StopReason) {
        if let Some(signal) = self.lock().get(lease) {
            signal.stop(reason);
        }
    }

    /// Stops every job.
    pub fn stop_all(&self, reason: &StopReason) {
        for signal in self.lock().values() {
            signal.stop(reason.clone());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseRef, StopSignal>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One held lease; let go of when dropped.
#[derive(Debug)]
pub struct Holding {
    held: Held,
    lease: LeaseRef,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.held.lock().remove(&self.lease);
    }
}

/// Who beats.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The site.
    pub client: Client,
    /// The worker.
    pub worker: WorkerId,
    /// This start of it.
    pub instance: InstanceId,
    /// How often the worker checks in, for the workers list; zero says nothing.
    pub interval: Duration,
}

impl Heartbeat {
    /// Renews what is held until it is dropped.
    pub async fn run(self, held: Held, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) {
        let mut due = clock.uptime();
        let mut backoff = Backoff::new(AGAIN);
        loop {
            if held.leases().is_empty() {
                held.changed.notified().await;
                // A claim has just set the lease; the next minute is soon enough.
                due = clock.uptime() + EVERY;
            }
            let now = clock.uptime();
            if now < due {
                tokio::select! {
                    () = tokio::time::sleep((due - now).min(TICK)) => {}
                    () = held.urgent.notified() => due = now,
                }
                continue;
            }
            due = match self.beat(&held).await {
                Ok(()) => {
                    backoff.reset();
                    clock.uptime() + EVERY
                }
                Err(error) => {
                    tracing::debug!(worker = %self.worker, %error, "a heartbeat failed");
                    clock.uptime() + backoff.wait(jitter(&ids.uuid()), error.retry_after())
                }
            };
        }
    }

    async fn beat(&self, held: &Held) -> Result<(), ClientError> {
        let leases = held.leases();
        let answers = match self.say(&leases).await {
            // Another instance has the name: nothing held here lives any more.
            Err(ClientError::Refused(problem)) if problem.code == Code::WorkerUnknown => {
                held.stop_all(&StopReason::LeaseLost);
                return Ok(());
            }
            answers => answers?,
        };
        if let Some(orders) = answers.orders {
            held.orders.send_if_modified(|known| {
                let new = *known != orders;
                *known = orders;
                new
            });
        }
        let answers = answers.leases;
        for (lease, answer) in leases.iter().zip(answers) {
            if let LeaseAnswer::Lost { reason } = answer {
                held.stop(lease, reason);
            }
        }
        Ok(())
    }

    /// Renews these leases; what became of each, in their order.
    ///
    /// # Errors
    /// When the site cannot be asked, or another instance has the worker's name.
    pub async fn ask(&self, leases: &[LeaseRef]) -> Result<Vec<LeaseAnswer>, ClientError> {
        Ok(self.say(leases).await?.leases)
    }

    async fn say(&self, leases: &[LeaseRef]) -> Result<HeartbeatAnswer, ClientError> {
        self.client.heartbeat(&self.worker, &self.request(false, leases.to_vec())).await
    }

    /// Tells the site that the worker goes.
    ///
    /// # Errors
    /// When the site could not be told.
    pub async fn offline(&self) -> Result<(), ClientError> {
        self.client.heartbeat(&self.worker, &self.request(true, Vec::new())).await.map(drop)
    }

    fn request(&self, offline: bool, leases: Vec<LeaseRef>) -> HeartbeatRequest {
        HeartbeatRequest {
            instance_id: self.instance.clone(),
            offline,
            interval_ms: u64::try_from(self.interval.as_millis()).ok().filter(|ms| *ms > 0),
            leases,
        }
    }
}
