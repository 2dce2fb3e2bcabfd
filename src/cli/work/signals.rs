//! SIGTERM and Ctrl-C: the first drains, the second stops.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::progress::Progress;
use crate::work::Shutdown;
use std::sync::Arc;

/// Listens from now on, so that no signal is lost, and tells `shutdown`.
///
/// # Errors
/// When the system does not let it listen.
pub(super) fn listen(shutdown: Shutdown, progress: Arc<Progress>) -> io::Result<()> {
    let mut signals = Signals {
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
    };
    tokio::spawn(async move {
        signals.next().await;
        progress
            .line("ending: nothing new is taken, running jobs finish; a second Ctrl-C stops them");
        shutdown.drain.cancel();
        signals.next().await;
        progress.line("stopping: running jobs are stopped and queued again");
        shutdown.stop.cancel();
    });
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
