//! The version of a vendor's program, asked once for each file that it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{WORKER_PATIENCE, asked, text};
use crate::work::lane::{Installed, Lanes};
use crate::work::stamp::Stamp;

/// What the vendors' programs said of their versions, for as long as each is the same file.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<Mutex<Known>>);

type Known = BTreeMap<PathBuf, (Stamp, Option<String>)>;

impl Versions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The version of the program that is there now.
pub async fn version(lanes: &Lanes, installed: &Installed) -> Option<String> {
    let (vendor, program) = (installed.vendor, installed.program.as_deref()?);
    let stamp = Stamp::of(program)?;
    let known = lanes.versions.known().get(program).filter(|known| known.0 == stamp).cloned();
    if let Some((_, version)) = known {
        return version;
    }
    let asked = asked(lanes, vendor, WORKER_PATIENCE);
    let out = asked.question(program, vendor.version_args).await.ok()?;
    let version = (vendor.version)(&text(&out.stdout));
    lanes.versions.known().insert(program.to_owned(), (stamp, version.clone()));
    version
}
