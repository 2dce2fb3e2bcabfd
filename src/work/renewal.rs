//! A job asks for its lease back before it believes that it is gone.
//!
//! After sleep a job's next word may reach the site before the first heartbeat does. The lease ran
//! out then, but where nobody took the task a heartbeat gives it back, and the work goes on.

use std::sync::Arc;
use std::time::Duration;

use super::heartbeat::Heartbeat;
use super::persist::{Patience, persistently};
use super::stop::StopSignal;
use crate::api::{Code, LeaseAnswer};
use crate::client::ClientError;
use crate::model::{Clock, Ids, LeaseRef, StopReason};

/// How long the site is asked that is there and fails. One that is away is waited for: it alone knows
/// whether the lease lives.
const PATIENCE: Patience = Patience::WhileAway(Duration::from_secs(60));

/// One job's way to its lease.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// Who beats for this worker.
    pub heartbeat: Heartbeat,
    /// The lease.
    pub lease: LeaseRef,
    /// The job.
    pub signal: StopSignal,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub ids: Arc<dyn Ids>,
}

impl Renewal {
    /// Says something under the lease, and once more where that was refused and the lease could be
    /// had back. Where it could not, the job is stopped with the reason the site gives.
    ///
    /// # Errors
    /// The client's.
    pub async fn saying<T, F>(&self, mut say: impl FnMut() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        match say().await {
            Err(error) if error.code() == Some(Code::LeaseLost) => {
                if self.is_alive().await {
                    say().await
                } else {
                    Err(error)
                }
            }
            answer => answer,
        }
    }

    /// Whether the lease lives, which asking renews. Where it does not, the job is stopped with the
    /// reason the site gives.
    pub async fn is_alive(&self) -> bool {
        if self.signal.reason().is_some() {
            return false;
        }
        let leases = [self.lease.clone()];
        let asking = || self.heartbeat.ask(&leases);
        let asking = persistently(&*self.clock, &*self.ids, PATIENCE, asking);
        let Ok(answer) = self.signal.guard(asking).await else { return false };
        match answer.as_deref() {
            Ok([LeaseAnswer::Renewed { .. }]) => true,
            Ok([LeaseAnswer::Lost { reason }]) => {
                self.signal.stop(reason.clone());
                false
            }
            _ => {
                self.signal.stop(StopReason::LeaseLost);
                false
            }
        }
    }
}
