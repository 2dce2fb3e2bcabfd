//! The claim id on disk: written before the worker asks, so that an answer lost on the way, or
//! with the worker, can be asked for again.

use std::io;
use std::path::{Path, PathBuf};

use crate::files;
use crate::model::{ClaimId, Ids, WorkerName};

/// Where one worker keeps the id of its claim under way.
#[derive(Debug)]
pub struct ClaimFile {
    path: PathBuf,
}

impl ClaimFile {
    /// The file of worker `name` under `work`, the home's folder of copies.
    #[must_use]
    pub fn new(work: &Path, name: &WorkerName) -> Self {
        Self { path: work.join(format!("{name}.claim")) }
    }

    /// Where it stands.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The id to claim with: the one of an unanswered claim, else a new one, on disk either way.
    ///
    /// # Errors
    /// When the file cannot be written; then nothing may be claimed.
    pub fn open(&self, ids: &dyn Ids) -> io::Result<ClaimId> {
        if let Some(kept) =
            std::fs::read_to_string(&self.path).ok().and_then(|t| t.trim().parse().ok())
        {
            return Ok(kept);
        }
        let id: ClaimId = ids.uuid().parse().map_err(io::Error::other)?;
        files::replace(&self.path, id.as_str().as_bytes())?;
        Ok(id)
    }

    /// The claim was answered: the next one takes a new id.
    pub fn answered(&self) {
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Counting(std::sync::atomic::AtomicU32);
    impl Ids for Counting {
        fn uuid(&self) -> String {
            let n = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            format!("00000000-0000-7000-8000-{n:012x}")
        }

        fn random(&self) -> Option<[u8; 32]> {
            None
        }
    }

    #[test]
    fn an_unanswered_claim_keeps_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let ids = Counting(0.into());
        let name: WorkerName = "w".parse().unwrap();
        let first = ClaimFile::new(dir.path(), &name).open(&ids).unwrap();
        let again = ClaimFile::new(dir.path(), &name).open(&ids).unwrap();
        assert_eq!(first, again);
        let file = ClaimFile::new(dir.path(), &name);
        file.answered();
        assert_ne!(file.open(&ids).unwrap(), first);
    }
}
