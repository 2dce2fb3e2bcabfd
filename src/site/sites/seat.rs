//! The task that keeps a site's place on its database, as the site's owner holds it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::line::{End, Line};
use crate::queue::{Session, StoreError};
use crate::site::state::Site;

/// A kept place. Dropped without [`Seat::leave`] it is given up, as by a killed process.
#[derive(Debug)]
pub struct Seat {
    task: JoinHandle<Option<Session>>,
    ousted: oneshot::Receiver<StoreError>,
    _dropped: DropGuard,
}

impl Seat {
    /// Keeps the place from now on. Where somebody else has it after it was lost, the site takes
    /// no new connection and holds nobody: what it knows is no longer looked after.
    pub(in crate::site) fn keep(line: Line, site: Arc<Site>) -> Self {
        let (say, ousted) = oneshot::channel();
        let given_up = CancellationToken::new();
        let dropped = given_up.clone().drop_guard();
        let task = tokio::spawn(async move {
            let end = tokio::select! {
                end = line.run(Arc::clone(&site)) => end,
                () = given_up.cancelled() => End::Closed(None),
            };
            match end {
                End::Closed(session) => session,
                End::Ousted(error) => {
                    tracing::error!(%error, "this site stops");
                    site.stopping.cancel();
                    site.bell.close();
                    // Nobody may wait for it.
                    let _ = say.send(error);
                    None
                }
            }
        });
        Self { task, ousted, _dropped: dropped }
    }

    /// Completes where somebody else has the place.
    pub async fn ousted(&mut self) -> StoreError {
        match (&mut self.ousted).await {
            Ok(error) => error,
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until the others were told everything, at most for `patience`; the lock is held as
    /// long as the session is.
    pub(in crate::site) async fn leave(mut self, patience: Duration) -> Option<Session> {
        match tokio::time::timeout(patience, &mut self.task).await {
            Ok(session) => session.ok().flatten(),
            Err(_) => None,
        }
    }
}
