//! SIGTERM and Ctrl-C: the first drains, the second stops. A terminal that is closed stops at once.

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
        hangup: if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) },
    };
    tokio::spawn(async move {
        if signals.next().await == Word::End {
            progress.draining();
            shutdown.drain.cancel();
            signals.next().await;
        }
        shutdown.drain.cancel();
        progress.line("stopping: running jobs are stopped and queued again");
        shutdown.stop.cancel();
    });
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

/// What a signal asks for.
#[derive(PartialEq)]
enum Word {
    End,
    Stop,
}

impl Signals {
    async fn next(&mut self) -> Word {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Word::End,
            _ = self.interrupt.recv() => Word::End,
            // Whoever closes the terminal sees no drain; the worker says what it leaves.
            _ = hangup => Word::Stop,
        }
    }
}

/// Whether whoever started this process wants it to outlive the terminal, as `nohup` does. To
/// listen for the signal would undo that.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is 1: the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|m| m & 1 == 1)
}
