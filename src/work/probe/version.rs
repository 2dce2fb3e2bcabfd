//! The version of a vendor's program, asked once for each file that it is.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{WORKER_PATIENCE, asked, text};
use crate::work::lane::{Installed, Lanes};

/// What the vendors' programs said of their versions, for as long as each is the same file.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<Mutex<Known>>);

type Known = BTreeMap<PathBuf, (Stamp, Option<String>)>;

/// By what a file is known to be another: its number, its size, and when it was written.
type Stamp = (u64, u64, i64, i64);

impl Versions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The version of the program that is there now.
pub async fn version(lanes: &Lanes, installed: &Installed) -> Option<String> {
    let (vendor, program) = (installed.vendor, installed.program.as_deref()?);
    let file = std::fs::canonicalize(program).ok()?;
    let about = std::fs::metadata(&file).ok()?;
    let stamp = (about.ino(), about.len(), about.mtime(), about.mtime_nsec());
    let known = lanes.versions.known().get(&file).filter(|known| known.0 == stamp).cloned();
    if let Some((_, version)) = known {
        return version;
    }
    let asked = asked(lanes, vendor, WORKER_PATIENCE);
    let out = asked.question(program, vendor.version_args).await.ok()?;
    let version = (vendor.version)(&text(&out.stdout));
    lanes.versions.known().insert(file, (stamp, version.clone()));
    version
}
