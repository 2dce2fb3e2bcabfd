//! A copy of the index a checkout wrote, in which no entry is in doubt.
//!
//! git compares whole seconds. Of a file written in the same second as the index it cannot say
//! from its times whether it changed since, so it reads it; and then a committed CRLF file that
//! the attributes would normalise looks changed. A small repository is written in one second, so
//! all of it is in doubt. The index also has the nanoseconds, and with them there is no doubt: a
//! file whose times are the same to the nanosecond was not written again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use super::GitError;

/// Copies the index `from` to `to`, so that git trusts the times of each file of `dir` that was
/// not written since the checkout, and reads each that was.
pub(super) fn warm_copy(from: &Path, to: &Path, dir: &Path) -> Result<(), GitError> {
    fs::copy(from, to).map_err(GitError::disk(to))?;
    let written = fs::metadata(from).map_err(GitError::disk(from))?.mtime();
    let mut newest = written;
    for entry in git2::Index::open(from)?.iter() {
        // Unsigned in the file: it lasts until 2106.
        let second = i64::from(entry.mtime.seconds() as u32);
        if second < written {
            continue;
        }
        newest = newest.max(second);
        let path = dir.join(OsStr::from_bytes(&entry.path));
        let Ok(file) = fs::symlink_metadata(&path) else { continue };
        let as_checked_out = same(file.mtime(), file.mtime_nsec(), entry.mtime)
            && same(file.ctime(), file.ctime_nsec(), entry.ctime);
        // A disk that keeps no nanoseconds cannot tell.
        let can_tell = file.mtime_nsec() != 0 || file.ctime_nsec() != 0;
        if !(as_checked_out && can_tell) {
            mark_as_written(&path, second - 1)?;
        }
    }
    let after = UNIX_EPOCH + Duration::from_secs(u64::try_from(newest + 1).unwrap_or(0));
    let file = File::options().write(true).open(to).map_err(GitError::disk(to))?;
    file.set_modified(after).map_err(GitError::disk(to))
}

/// The index keeps 32 bits of each.
fn same(seconds: i64, nanoseconds: i64, kept: git2::IndexTime) -> bool {
    seconds as i32 == kept.seconds() && nanoseconds as u32 == kept.nanoseconds()
}

/// Gives the file another second than the index has, so that git reads it.
fn mark_as_written(path: &Path, second: i64) -> Result<(), GitError> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: second, tv_nsec: 0 };
    let times = Timestamps { last_access, last_modification };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| GitError::disk(path)(error.into()))
}
