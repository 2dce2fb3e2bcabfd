//! Whether the home's disk has room for another run. A worker does not claim what it could not
//! even fail in order: the end of a run is written on the same disk.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::model::DiskProblem;

/// With less than this nothing is claimed: the database, a run's log (8 MiB) and a small copy.
pub const LEAST_BYTES: u64 = 100 << 20;
/// With fewer inodes nothing is claimed, on a disk that counts them.
pub const LEAST_INODES: u64 = 1_000;
/// How often a disk without room is looked at again, by a worker and by a step that waits for it.
pub const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// A disk is as good as full below this, for what a lane meant to write.
const NOTHING: u64 = 1 << 20;

/// What a disk lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// So many bytes are free.
    Bytes(u64),
    /// So many inodes are free.
    Inodes(u64),
    /// It is mounted read-only.
    Writable,
}

/// What the disk under `folder` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free for this user.
    pub bytes: u64,
    /// Free inodes; `None` on a disk that does not count them.
    pub inodes: Option<u64>,
    /// Mounted for writing.
    pub writable: bool,
}

impl Room {
    /// Asks the system.
    ///
    /// # Errors
    /// Where there is no such folder.
    pub fn of(folder: &Path) -> std::io::Result<Self> {
        let disk = statvfs(folder)?;
        Ok(Self {
            bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
            inodes: (disk.f_files > 0).then_some(disk.f_favail),
            writable: !disk.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }

    /// What is missing for a run.
    #[must_use]
    pub fn lacking(self) -> Option<Lacking> {
        if !self.writable {
            return Some(Lacking::Writable);
        }
        if self.bytes < LEAST_BYTES {
            return Some(Lacking::Bytes(self.bytes));
        }
        self.inodes.filter(|free| *free < LEAST_INODES).map(Lacking::Inodes)
    }

    /// Whether hardly anything could still be written.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.bytes < NOTHING || self.inodes == Some(0)
    }
}

impl Lacking {
    /// For a person: what helps at `folder`.
    #[must_use]
    pub fn mend(self, folder: &Path) -> String {
        let inside = folder.join("relay.db");
        match self {
            Self::Bytes(_) | Self::Inodes(_) => DiskProblem::Full.mend(&inside),
            Self::Writable => DiskProblem::ReadOnly.mend(&inside),
        }
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(free) => write!(
                f,
                "{} MB are free, a run needs {}",
                free / 1_000_000,
                LEAST_BYTES / 1_000_000
            ),
            Self::Inodes(free) => write!(f, "{free} inodes are free, a run needs {LEAST_INODES}"),
            Self::Writable => f.write_str("it is mounted read-only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_needs_bytes_and_inodes_where_they_are_counted() {
        let room = Room { bytes: LEAST_BYTES, inodes: Some(LEAST_INODES), writable: true };
        assert_eq!(room.lacking(), None);
        assert_eq!(Room { bytes: 5, ..room }.lacking(), Some(Lacking::Bytes(5)));
        assert_eq!(Room { inodes: Some(5), ..room }.lacking(), Some(Lacking::Inodes(5)));
        assert_eq!(Room { inodes: None, ..room }.lacking(), None);
        assert_eq!(Room { writable: false, ..room }.lacking(), Some(Lacking::Writable));
        assert!(Room { bytes: 5, ..room }.is_full() && !room.is_full());
    }
}
