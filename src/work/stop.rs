//! How a run is told to stop, and why.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::model::StopReason;

/// Tells one job to stop. The first reason given is the one that is kept.
#[derive(Clone, Debug, Default)]
pub struct StopSignal {
    token: CancellationToken,
    reason: Arc<OnceLock<StopReason>>,
}

impl StopSignal {
    /// Stops the job for `reason`; a later call changes nothing.
    pub fn stop(&self, reason: StopReason) {
        if self.reason.set(reason).is_ok() {
            self.token.cancel();
        }
    }

    /// Why it was stopped, once it was.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        self.reason.get().cloned()
    }

    /// For a room that only needs to know when.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs `step` unless the job is stopped first; a step that is dropped ends what it started.
    ///
    /// # Errors
    /// The reason the job was stopped for.
    pub async fn guard<T>(&self, step: impl Future<Output = T>) -> Result<T, StopReason> {
        tokio::select! {
            biased;
            () = self.token.cancelled() => Err(self.reason().unwrap_or(StopReason::WorkerStopped)),
            value = step => Ok(value),
        }
    }
}

/// How the worker as a whole is told to end: first softly, then at once.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// No more claims; running jobs finish.
    pub drain: CancellationToken,
    /// Running jobs are stopped, and say so to the site.
    pub stop: CancellationToken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_is_kept() {
        let signal = StopSignal::default();
        assert_eq!(signal.guard(async { 7 }).await, Ok(7));
        signal.stop(StopReason::Cancelled);
        signal.stop(StopReason::WorkerStopped);
        assert_eq!(signal.guard(std::future::pending::<()>()).await, Err(StopReason::Cancelled));
    }
}
