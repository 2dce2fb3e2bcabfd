//! What a job has for the site, on this disk until the site took it: results of finished runs, and
//! effects that could not be recorded. So a site that is away for a day, or a worker that is killed
//! meanwhile, costs no work.
//!
//! One file a run, of this user alone, whole or not there. It goes once it was taken, or its lease
//! is lost; it stays where the site refuses the token.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::api::ReleaseRequest;
use crate::files;
use crate::model::{Effect, InstanceId, LeaseRef, RunId, Timestamp, Usage, WorkerId, WorkerName};

/// The longest text of a result that is kept and sent, in bytes. A proxy lets through a megabyte.
const TEXT_MAX: usize = 128 * 1024;

/// A file that is longer was not written here.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// So many runs are kept at the most. A worker that cannot hand in claims nothing either.
const RUNS_MAX: usize = 1000;

/// One run's news.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The site it is for.
    pub site: String,
    /// The holder of the lease.
    pub worker: WorkerId,
    /// The start of it that held the lease: it alone can have a lease back that ran out.
    pub instance: InstanceId,
    /// The run.
    pub run: RunId,
    /// Its lease.
    pub lease: LeaseRef,
    /// When it was written.
    pub at: Timestamp,
    /// What was done and is not known to be recorded, in order.
    pub effects: Vec<Effect>,
    /// How it ended, where it has.
    pub release: Option<ReleaseRequest>,
}

/// One worker's results. Clones share what was left to be handed in.
#[derive(Clone, Debug)]
pub struct Outbox {
    folder: PathBuf,
    left: Arc<Left>,
}

#[derive(Debug, Default)]
struct Left {
    entries: Mutex<Vec<Entry>>,
    news: Notify,
}

impl Outbox {
    /// The results of worker `name` under `root`. Nothing is made yet.
    #[must_use]
    pub fn new(root: &Path, name: &WorkerName) -> Self {
        Self { folder: root.join(format!("worker-{name}")), left: Arc::default() }
    }

    /// Where they stand.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the run's file is, and beside it what is left of its log.
    #[must_use]
    pub fn place(&self, run: &RunId) -> PathBuf {
        self.folder.join(format!("{run}.json"))
    }

    /// Keeps an entry, over an earlier one of the run. On disk when this returns.
    ///
    /// # Errors
    /// The disk's, or that far too many are kept.
    pub fn put(&self, entry: &Entry) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.place(&entry.run);
        if !path.exists() && self.files()?.len() >= RUNS_MAX {
            return Err(io::Error::other(format!("{RUNS_MAX} results are kept already")));
        }
        files::replace(&path, &serde_json::to_vec(&bounded(entry.clone()))?)
    }

    /// Lets an entry go: it was taken, or is of no use any more.
    pub fn remove(&self, run: &RunId) {
        let _gone_already = std::fs::remove_file(self.place(run));
    }

    /// The entries for `site`, oldest first. What cannot be read is told and left for a person.
    #[must_use]
    pub fn read(&self, site: &str) -> Vec<Entry> {
        let mut entries = Vec::new();
        for path in self.files().unwrap_or_default() {
            match read(&path) {
                Ok(entry) if entry.site == site => entries.push(entry),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a kept result cannot be read");
                }
            }
        }
        entries.sort_by(|a, b| (a.at, &a.run).cmp(&(b.at, &b.run)));
        entries
    }

    /// Gives an entry to whoever hands in beside the jobs.
    pub fn leave(&self, entry: Entry) {
        self.left.entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        self.left.news.notify_one();
    }

    /// The entries that were left. Waits for one where there is none.
    pub async fn take_left(&self) -> Vec<Entry> {
        loop {
            let entries = std::mem::take(
                &mut *self.left.entries.lock().unwrap_or_else(PoisonError::into_inner),
            );
            if !entries.is_empty() {
                return entries;
            }
            self.left.news.notified().await;
        }
    }

    /// Removes what belongs to no entry: a run that ended with its worker left it.
    pub fn sweep(&self) {
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let Some(name) = name.to_str() else { continue };
            let Some((run, rest)) = name.split_once('.') else { continue };
            let is_left = files::is_unfinished(name)
                || rest.ends_with("part") && !path.with_file_name(format!("{run}.json")).exists();
            if is_left && let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "it stays");
            }
        }
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        Ok(paths.filter(|path| path.extension().is_some_and(|e| e == "json")).collect())
    }
}

fn read(path: &Path) -> io::Result<Entry> {
    let meta = path.symlink_metadata()?;
    if !meta.is_file() || meta.len() > FILE_MAX {
        return Err(io::Error::other("it is no file of relay's"));
    }
    // An earlier version may have kept more.
    Ok(bounded(serde_json::from_slice(&std::fs::read(path)?)?))
}

/// The same with texts that are not too long to be sent.
fn bounded(mut entry: Entry) -> Entry {
    if let Some(release) = &mut entry.release {
        bound(release);
    }
    for effect in &mut entry.effects {
        if let Effect::Committed { summary: Some(summary), .. } = effect {
            shorten(summary);
        }
    }
    entry
}

/// Shortens what a proxy in front of the site would not let through, and leaves out what the site
/// would not believe.
pub fn bound(release: &mut ReleaseRequest) {
    let ReleaseRequest { summary, error, note, usage, .. } = release;
    *usage = usage.take().map(Usage::believable);
    for text in [summary, error, note].into_iter().flatten() {
        shorten(text);
    }
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
        text.push_str("\n(cut: it was longer)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Epoch, StopReason};
    use std::os::unix::fs::PermissionsExt;

    pub(crate) fn entry(n: u8, site: &str) -> Entry {
        let id = format!("00000000-0000-7000-8000-0000000000{n:02x}");
        Entry {
            site: site.to_owned(),
            worker: id.parse().unwrap(),
            instance: id.parse().unwrap(),
            run: id.parse().unwrap(),
            lease: LeaseRef { task: "acme/shop#1".parse().unwrap(), epoch: Epoch(1) },
            at: Timestamp(i64::from(n)),
            effects: vec![Effect::Commented { id: "7".to_owned() }],
            release: Some(ReleaseRequest {
                worker_id: id.parse().unwrap(),
                epoch: Epoch(1),
                reason: StopReason::Finished,
                pr: Some(3),
                pr_url: None,
                summary: Some("é".repeat(TEXT_MAX)),
                error: None,
                kept: None,
                usage: None,
                note: None,
            }),
        }
    }

    #[test]
    fn what_a_lane_cannot_have_cost_is_left_out_of_its_result() {
        let mut release = entry(1, "").release.unwrap();
        release.usage = Some(Usage { cost_usd: Some(-1.0), turns: Some(3), ..Usage::default() });
        bound(&mut release);
        assert_eq!(release.usage, Some(Usage { turns: Some(3), ..Usage::default() }));
    }

    #[test]
    fn what_is_kept_is_read_again_bounded_private_and_for_its_site_alone() {
        let dir = tempfile::tempdir().unwrap();
        let outbox = Outbox::new(dir.path(), &"w".parse().unwrap());
        assert_eq!(outbox.read("https://a"), []);
        outbox.put(&entry(2, "https://a")).unwrap();
        outbox.put(&entry(1, "https://a")).unwrap();
        outbox.put(&entry(3, "https://b")).unwrap();
        std::fs::write(outbox.folder().join("torn.json"), "{\"site\":").unwrap();
        let read = outbox.read("https://a");
        assert_eq!(read.iter().map(|e| e.at.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(read[0].effects, entry(1, "").effects);
        let summary = read[0].release.as_ref().unwrap().summary.as_ref().unwrap();
        assert!(summary.len() < TEXT_MAX + 100 && summary.ends_with("longer)"));
        let path = outbox.place(&read[0].run);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(outbox.folder().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for left in ["x.12.part", ".relay-new-y"] {
            std::fs::write(outbox.folder().join(left), "").unwrap();
        }
        std::fs::write(path.with_extension("12.part"), "").unwrap();
        outbox.sweep();
        assert_eq!(std::fs::read_dir(outbox.folder()).unwrap().count(), 5);
        outbox.remove(&read[0].run);
        assert_eq!(outbox.read("https://a").len(), 1);
    }
}
