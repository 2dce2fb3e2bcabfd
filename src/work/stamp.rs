//! By what a program's file is told from the one that an update puts in its place.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a file really is, its number, its size, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(PathBuf, u64, u64, u64, i64, i64);

impl Stamp {
    /// Of the file that is there now; `None` where there is none.
    #[must_use]
    pub fn of(program: &Path) -> Option<Self> {
        let path = fs::canonicalize(program).ok()?;
        let meta = fs::metadata(&path).ok()?;
        let (device, number, length) = (meta.dev(), meta.ino(), meta.len());
        Some(Self(path, device, number, length, meta.mtime(), meta.mtime_nsec()))
    }
}
