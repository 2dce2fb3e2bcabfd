//! Work that could not be delivered: kept as a bundle in a file of its own, named in the event, and
//! let go once it is delivered after all.
//!
//! The file is called after the commit, so that a later claim, which knows the commit from the
//! journal, finds it, also where the mirror was made anew since.

use std::path::PathBuf;

use super::effects::Done;
use super::run::Work;
use super::{Job, Report, Stop};
use crate::git::{Commit, Copy, Mirror, SnapshotRequest};
use crate::model::{Passage, StopReason};

impl Job {
    /// Does a step of the delivery; where it is refused, the work is kept, and the error says where.
    pub(super) async fn keeping<T>(
        &self,
        work: &Work,
        report: &mut Report,
        step: impl Future<Output = Result<T, Stop>>,
    ) -> Result<T, Stop> {
        let stop = match step.await {
            Err(stop) if is_refusal(&stop.reason) => stop,
            other => return other,
        };
        let path = self.place_of(&work.commit);
        let bundling = work.mirror.bundle(&work.base, &work.commit, &self.claim.branch, &path);
        let kept = match self.pass(Passage::Keep, bundling).await {
            Ok(()) => {
                let said = format!("the work is kept in {}", path.display());
                report.kept = Some(path);
                said
            }
            Err(error) => {
                tracing::error!(task = %self.lease.task, %error, "the work could not be bundled");
                format!("the work is commit {} in relay's own mirror", work.commit)
            }
        };
        Err(stop.and(&kept))
    }

    /// Keeps what a refused copy has of work; the copy itself goes. It is for a person to look at:
    /// a retry runs the lane again.
    pub(super) async fn rescue(
        &self,
        mirror: &Mirror,
        copy: &Copy,
        request: &SnapshotRequest<'_>,
    ) -> Option<PathBuf> {
        let name = format!("{}-refused-{}.bundle", self.file_stem(), self.lease.epoch);
        let path = self.folder().join(name);
        match mirror.rescue(copy, request, &self.claim.branch, &path).await {
            Ok(kept) => kept.then_some(path),
            Err(error) => {
                tracing::warn!(task = %self.lease.task, %error, "the refused work was not kept");
                None
            }
        }
    }

    /// The bundle of an earlier run, while it is not known whether this one delivers it.
    pub(super) fn kept_before(&self, done: &Done) -> Option<PathBuf> {
        let commit = done.committed.as_ref()?.commit.parse().ok()?;
        Some(self.place_of(&commit)).filter(|path| path.is_file())
    }

    /// Whether the mirror has an earlier run's commit, or gets it back from its bundle.
    pub(super) async fn has(&self, mirror: &Mirror, commit: &Commit) -> Result<bool, Stop> {
        if mirror.holds(commit).map_err(super::run::git_stop)? {
            return Ok(true);
        }
        let path = self.place_of(commit);
        if !path.is_file() {
            return Ok(false);
        }
        let back = mirror.unbundle(&path, commit).await.map_err(super::run::git_stop)?;
        if !back {
            self.log.line(&format!("   {} cannot be read into the mirror", path.display()));
        }
        Ok(back)
    }

    /// The work is delivered: nothing of it has to be kept here.
    pub(super) async fn let_go(&self, work: &Work, report: &mut Report) {
        if let Err(error) = work.mirror.forget(&work.commit) {
            tracing::debug!(task = %self.lease.task, %error, "the kept commit stays in the mirror");
        }
        let Some(path) = report.kept.take() else { return };
        if let Err(error) = tokio::fs::remove_file(&path).await {
            tracing::debug!(path = %path.display(), %error, "the bundle stays");
        }
    }

    pub(super) fn place_of(&self, commit: &Commit) -> PathBuf {
        let short: String = commit.as_str().chars().take(12).collect();
        self.folder().join(format!("{}-{short}.bundle", self.file_stem()))
    }

    fn folder(&self) -> PathBuf {
        self.shared.kept.join(self.lease.task.repo.to_string().replace('/', "_"))
    }

    fn file_stem(&self) -> String {
        self.claim.branch.replace('/', "-")
    }
}

/// Whether a reason says that somebody refused: the lease, the worker and the task go on or end
/// without that anything has to be kept for a person.
fn is_refusal(reason: &StopReason) -> bool {
    matches!(
        reason,
        StopReason::RepoUnusable { .. }
            | StopReason::PushRefused { .. }
            | StopReason::ForgeRefused { .. }
    )
}
