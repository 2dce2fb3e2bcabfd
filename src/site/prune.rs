//! What would grow without end in the owner's part of a home is cut back as it starts and once a
//! day after that. docs/home.md says how long each thing is kept.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use super::state::Site;
use crate::model::{RunId, Timestamp};
use crate::queue::{LOGS_KEPT, QueueError};

/// Between two rounds. The timer of a process wakes no machine that sleeps.
const EVERY: Duration = Duration::from_secs(86_400);

/// Goes round until `closing`, for the first time a day after `last`.
pub(super) async fn daily(site: Arc<Site>, mut last: Timestamp, closing: CancellationToken) {
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = site.clock.sleep_until(last + EVERY) => {}
        }
        last = site.clock.now();
        once(&site).await;
    }
}

/// One round. What cannot be done is told to the log and left for the next.
pub(super) async fn once(site: &Site) {
    if let Err(error) = round(site).await {
        tracing::warn!(%error, "what is no longer kept stays for another day");
    }
}

async fn round(site: &Site) -> Result<(), QueueError> {
    site.keep_used().await;
    let events = site.queue.forget_told().await?;
    let mut logs = 0_usize;
    for run in site.queue.forgettable_runs().await? {
        logs += usize::from(remove(&site.logs.folder().join(run.as_str())));
    }
    // Of a database that was put aside: nobody can ask for them.
    let before = site.clock.now() - LOGS_KEPT;
    for run in older_than(site.logs.folder(), before) {
        if !site.queue.knows_run(&run).await? {
            logs += usize::from(remove(&site.logs.folder().join(run.as_str())));
        }
    }
    tracing::debug!(events, logs, "what is no longer kept was removed");
    Ok(())
}

/// Runs whose folder was last written before `before`.
fn older_than(folder: &Path, before: Timestamp) -> Vec<RunId> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let old = |entry: &std::fs::DirEntry| {
        let written = entry.metadata().and_then(|meta| meta.modified()).ok()?;
        let written = i64::try_from(written.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
        (written < before.0).then(|| entry.file_name().to_str()?.parse().ok())?
    };
    entries.flatten().filter_map(|entry| old(&entry)).collect()
}

fn remove(folder: &Path) -> bool {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => {
            tracing::warn!(path = %folder.display(), %error, "a run's log stays");
            false
        }
    }
}
