//! A push to a repository of this disk that was killed in the middle leaves the lock of its ref, and
//! from then on git refuses every push to that ref. Over a network the host sees to that; here relay
//! takes away what it left itself: locks of its own refs alone, once nothing can be at work on them.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use super::isolation::Address;
use crate::model::Timestamp;

/// A ref of a local repository is locked for milliseconds, and for as long as the repository's own
/// hooks take.
const ABANDONED: Duration = Duration::from_secs(60);

/// Lets go of the locks of `refs` in a repository on this disk that are older than [`ABANDONED`].
pub(super) fn let_go(remote: &Address, refs: &[&str], now: Timestamp) {
    let repository = Path::new(&remote.url);
    if !repository.is_absolute() {
        return;
    }
    let inside = repository.join(".git");
    let folder = if inside.is_dir() { inside } else { repository.to_owned() };
    for name in refs {
        let lock = folder.join(format!("{name}.lock"));
        if is_abandoned(&lock, now) {
            tracing::warn!(lock = %lock.display(), "a push that was killed left it: removed");
            // Where it cannot be removed git says what is in the way.
            let _ = fs::remove_file(&lock);
        }
    }
}

fn is_abandoned(lock: &Path, now: Timestamp) -> bool {
    let Ok(meta) = fs::symlink_metadata(lock) else { return false };
    let since = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let now = u64::try_from(now.0).ok().map(Duration::from_millis);
    let age = now.zip(since).and_then(|(now, since)| now.checked_sub(since));
    meta.is_file() && age.is_some_and(|age| age > ABANDONED)
}
