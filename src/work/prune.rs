//! What would grow without end in the worker's part of a home is cut back as it starts and once a
//! day after that: kept bundles, mirrors, kept commits. docs/home.md says how long each is kept.
//! What a task that is neither done nor cancelled may still need stays, whatever its age.

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
