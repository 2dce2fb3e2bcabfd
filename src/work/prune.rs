//! What would grow without end in the worker's part of a home is cut back as it starts and once a
//! day after that: transcripts, kept bundles, mirrors, kept commits. docs/home.md says how long each
//! is kept. What a task that is neither done nor cancelled may still need stays, whatever its age.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::job::Context;
use crate::client::ClientError;
use crate::model::{Effect, RepoName, Task, TaskState, Timestamp};

/// Between two rounds. The timer of a process wakes no machine that sleeps.
const EVERY: Duration = Duration::from_secs(86_400);
/// A bundle of a task that is done, cancelled or not known.
pub const BUNDLES_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// A commit that was made and that no task needs.
pub const COMMITS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// A mirror that was not brought up to date for so long.
pub const MIRRORS_KEPT: Duration = Duration::from_secs(60 * 86_400);

/// A transcript, from the day on which its run ended.
pub const TRANSCRIPTS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// The most bytes of all transcripts together; of more the oldest go.
pub const TRANSCRIPTS_BYTES: u64 = 1 << 30;

/// Goes round until it is dropped.
pub async fn daily(shared: Arc<Context>) {
    loop {
        if let Err(error) = round(&shared).await {
            tracing::debug!(%error, "what is no longer kept stays for another day");
        }
        shared.clock.sleep_until(shared.clock.now() + EVERY).await;
    }
}

/// One round. The site is asked only where something is old enough.
async fn round(shared: &Context) -> Result<(), ClientError> {
    let now = shared.clock.now();
    prune_transcripts(&shared.runs, now - TRANSCRIPTS_KEPT, TRANSCRIPTS_BYTES);
    let bundles = old_bundles(&shared.kept, now - BUNDLES_KEPT);
    let mirrors = shared.git.mirrors();
    let (unused, used): (Vec<_>, Vec<_>) =
        mirrors.into_iter().partition(|(_, at)| *at < now - MIRRORS_KEPT);
    let mut commits = Vec::new();
    for (repo, _) in used {
        match shared.git.kept_before(&repo, now - COMMITS_KEPT) {
            Ok(old) if !old.is_empty() => commits.push((repo, old)),
            Ok(_) => {}
            Err(error) => tracing::debug!(%repo, %error, "a mirror was not looked at"),
        }
    }
    if bundles.is_empty() && unused.is_empty() && commits.is_empty() {
        return Ok(());
    }
    let open: Vec<Task> =
        shared.client.tasks(None).await?.into_iter().filter(|task| !is_over(task)).collect();
    let needs = |repo: &RepoName| open.iter().any(|task| task.id.repo == *repo);
    for (repo, _) in unused.into_iter().filter(|(repo, _)| !needs(repo)) {
        if let Err(error) = shared.git.remove_mirror(&repo) {
            tracing::warn!(%repo, %error, "a mirror that is not used stays");
        }
    }
    for bundle in bundles {
        if !open.iter().any(|task| is_of(&bundle, task))
            && let Err(error) = fs::remove_file(&bundle)
        {
            tracing::warn!(path = %bundle.display(), %error, "a bundle stays");
        }
    }
    for (repo, old) in commits {
        let needed = needed_commits(shared, &repo, &open).await?;
        if let Err(error) = shared.git.let_go(&repo, &old, &needed) {
            tracing::warn!(%repo, %error, "commits that nobody needs stay");
        }
    }
    Ok(())
}

/// Removes transcripts that were last written before `before`, and of more than `most` bytes of them
/// the oldest.
fn prune_transcripts(runs: &Path, before: Timestamp, most: u64) {
    let mut found: Vec<(i64, u64, PathBuf)> = Vec::new();
    for run in fs::read_dir(runs).into_iter().flatten().flatten() {
        // A run that is just beginning, or never began, has no file.
        let about = fs::symlink_metadata(run.path().join("transcript"));
        let Ok(about) = about.or_else(|_| run.metadata()) else { continue };
        let written = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let written = written.and_then(|at| i64::try_from(at.as_millis()).ok());
        let bytes = if about.is_file() { about.len() } else { 0 };
        found.push((written.unwrap_or_default(), bytes, run.path()));
    }
    found.sort_by_key(|(written, ..)| std::cmp::Reverse(*written));
    let mut kept: u64 = 0;
    for (written, bytes, run) in found {
        kept = kept.saturating_add(bytes);
        if written >= before.0 && kept <= most {
            continue;
        }
        let _gone_already = fs::remove_file(run.join("transcript"));
        if let Err(error) = fs::remove_dir(&run) {
            tracing::warn!(path = %run.display(), %error, "a run's transcript stays");
        }
    }
}

fn is_over(task: &Task) -> bool {
    matches!(task.state, TaskState::Done | TaskState::Cancelled)
}

/// Bundles that were last written before `before`.
fn old_bundles(kept: &Path, before: Timestamp) -> Vec<PathBuf> {
    let mut old = Vec::new();
    for folder in fs::read_dir(kept).into_iter().flatten().flatten() {
        for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_bundle = path.extension().is_some_and(|e| e == "bundle" || e == "part");
            let written = entry.metadata().and_then(|meta| meta.modified()).ok();
            let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let is_old = written.is_some_and(|at| i128::from(before.0) > at.as_millis() as i128);
            if is_bundle && is_old {
                old.push(path);
            }
        }
    }
    old
}

/// Whether the bundle `…/<owner>_<repo>/relay-<lane>-<number>-<epoch>.bundle` may be this task's.
fn is_of(bundle: &Path, task: &Task) -> bool {
    let folder = bundle.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let name = bundle.file_stem().and_then(|name| name.to_str());
    let branch = format!("relay-{}-{}-", task.lane.dashed(), task.id.number);
    folder == Some(&task.id.repo.to_string().replace('/', "_"))
        && name.is_some_and(|name| name.starts_with(&branch))
}

/// The commits that the journals of the open tasks of `repo` name.
async fn needed_commits(
    shared: &Context,
    repo: &RepoName,
    open: &[Task],
) -> Result<HashSet<String>, ClientError> {
    let mut needed = HashSet::new();
    for task in open.iter().filter(|task| task.id.repo == *repo) {
        for effect in shared.client.task(&task.id).await?.effects {
            if let Effect::Committed { commit, .. } | Effect::Pushed { commit, .. } = effect {
                needed.insert(commit);
            }
        }
    }
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_go_by_age_and_the_oldest_by_room() {
        let dir = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(86_400);
        let days_after_1970 = |n: u32| UNIX_EPOCH + day * n;
        for (name, days) in [("old", 1), ("second", 11), ("newest", 12), ("first", 10)] {
            let file = dir.path().join(name).join("transcript");
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(&file, "12345").unwrap();
            fs::File::open(&file).unwrap().set_modified(days_after_1970(days)).unwrap();
        }
        fs::create_dir(dir.path().join("beginning")).unwrap();
        fs::create_dir(dir.path().join("never-began")).unwrap();
        let folder = fs::File::open(dir.path().join("never-began")).unwrap();
        folder.set_modified(days_after_1970(1)).unwrap();
        let left = || {
            let names = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name());
            let mut names: Vec<_> = names.map(|n| n.into_string().unwrap()).collect();
            names.sort();
            names
        };
        let before = Timestamp(i64::try_from((day * 5).as_millis()).unwrap());
        prune_transcripts(dir.path(), before, 100);
        assert_eq!(left(), ["beginning", "first", "newest", "second"]);
        prune_transcripts(dir.path(), before, 14);
        assert_eq!(left(), ["beginning", "newest", "second"]);
        prune_transcripts(&dir.path().join("nowhere"), before, 14);
    }
}
