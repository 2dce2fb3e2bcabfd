//! One run at a time under a login: whoever runs holds a lock beside the login's file, which all
//! of this user's relays find, whichever home they have. The kernel lets go of it when its process
//! dies.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::Whose;
use crate::model::Timestamp;

/// What is done while a site is asked for a task: for a moment only.
pub const CLAIMING: &str = "relay work";
/// How long whoever claims is waited for, and how often it is looked at.
const MOMENT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
/// A file that goes away between two looks is looked for again so often.
const TRIES: usize = 16;
/// What is read of a note at most.
const NOTE: u64 = 4096;

/// Who holds a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Its RELAY_HOME.
    pub home: PathBuf,
    /// What it does: the command, then the task.
    pub doing: String,
    /// Since when.
    pub since: Timestamp,
}

/// The right to run under a login, held until it is dropped.
#[derive(Debug)]
pub struct Seat {
    whose: Whose,
    lock: Option<Lock>,
}

#[derive(Debug)]
struct Lock {
    file: File,
    /// Where its file is; `None` where the folder itself is locked.
    path: Option<PathBuf>,
    holder: Holder,
}

/// Why there is no seat.
#[derive(Debug, thiserror::Error)]
pub enum NoSeat {
    /// Another run is under the login; by whom is not known for a moment as it begins.
    #[error("another run is under this login")]
    Taken(Option<Holder>),
    /// The lock cannot be made.
    #[error("{}: {source}", path.display())]
    Lock {
        /// Its place.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, process {} of {}", self.doing, self.pid, self.home.display())
    }
}

impl Seat {
    /// Takes the login, at once or not at all. A login that is never refreshed is always free.
    ///
    /// # Errors
    /// Where another has it, or the lock cannot be made.
    pub fn take(whose: Whose, holder: &Holder) -> Result<Self, NoSeat> {
        let lock = whose.lock.as_deref().map(|path| Lock::take(path, holder)).transpose()?;
        Ok(Self { whose, lock })
    }

    /// The same, past others that only ask a site for work just now.
    ///
    /// # Errors
    /// As [`Seat::take`].
    pub async fn take_soon(whose: &Whose, holder: &Holder) -> Result<Self, NoSeat> {
        let claims = |by: &Option<Holder>| by.as_ref().is_none_or(|by| by.doing == CLAIMING);
        for _ in 0..MOMENT.as_millis() / LOOK.as_millis() {
            match Self::take(whose.clone(), holder) {
                Err(NoSeat::Taken(by)) if claims(&by) => tokio::time::sleep(LOOK).await,
                taken => return taken,
            }
        }
        Self::take(whose.clone(), holder)
    }

    /// The login.
    #[must_use]
    pub fn whose(&self) -> &Whose {
        &self.whose
    }

    /// Says what is done under it now, for whoever waits.
    pub fn doing(&mut self, what: &str) {
        if let Some(lock) = &mut self.lock {
            what.clone_into(&mut lock.holder.doing);
            lock.note();
        }
    }
}

/// Whether the login whose lock is at `path` is free now. Looking takes it only where a killed
/// process left its file, or none can be made.
///
/// # Errors
/// As [`Seat::take`].
pub fn look(path: &Path) -> Result<(), NoSeat> {
    let folder = path.parent().unwrap_or(path);
    if fs::symlink_metadata(path).is_err() && (is_writable(folder) || !folder.exists()) {
        return Ok(());
    }
    let doing = CLAIMING.to_owned();
    let for_a_moment = Holder { pid: 0, home: PathBuf::new(), doing, since: Timestamp(0) };
    Lock::take(path, &for_a_moment).map(drop)
}

impl Lock {
    fn take(path: &Path, holder: &Holder) -> Result<Self, NoSeat> {
        let failed = |source| NoSeat::Lock { path: path.to_owned(), source };
        for _ in 0..TRIES {
            let (mut file, kept) = match open(path) {
                Ok(file) => (file, Some(path)),
                // Nothing can be made there, so everybody meets at the folder.
                Err(error) if is_forbidden(&error) => {
                    (File::open(path.parent().unwrap_or(path)).map_err(failed)?, None)
                }
                Err(error) => return Err(failed(error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(NoSeat::Taken(read(&mut file))),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Whoever had it may have removed it meanwhile: then nobody else would find this one.
            if kept.is_none_or(|path| is_at(&file, path)) {
                let mut lock =
                    Self { file, path: kept.map(Path::to_owned), holder: holder.clone() };
                lock.note();
                return Ok(lock);
            }
        }
        Err(NoSeat::Taken(None))
    }

    /// Nothing hangs on the note but a sentence.
    fn note(&mut self) {
        if self.path.is_none() {
            return;
        }
        let text = serde_json::to_vec(&self.holder).unwrap_or_default();
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(&text));
        if let Err(error) = written {
            tracing::debug!(%error, "who holds the login is not noted");
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked, so it is this one's own.
        if let Some(path) = &self.path {
            let _gone_already = fs::remove_file(path);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    match options.open(path) {
        // A login of a keychain needs no folder.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            super::private_folder(path.parent().unwrap_or(path))?;
            options.open(path)
        }
        opened => opened,
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

fn is_at(file: &File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(path)) => same(file, path),
        _ => false,
    }
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    file.take(NOTE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn holder(doing: &str) -> Holder {
        Holder {
            pid: 7,
            home: "/home/ada/.harness".into(),
            doing: doing.into(),
            since: Timestamp(5),
        }
    }

    fn whose(lock: Option<&Path>) -> Whose {
        Whose { key: "k".into(), tokens: "t".into(), lock: lock.map(Path::to_owned) }
    }

    fn by(taken: Result<Seat, NoSeat>) -> Option<String> {
        match taken {
            Err(NoSeat::Taken(holder)) => Some(holder.map(|by| by.doing).unwrap_or_default()),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        }
    }

    #[test]
    fn one_has_it_and_the_others_are_told_who_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.json.relay-lock");
        let take = |doing| Seat::take(whose(Some(&path)), &holder(doing));
        assert!(look(&path).is_ok());
        let mut first = take("relay work").unwrap();
        assert_eq!(by(take("relay probe")), Some("relay work".to_owned()));
        first.doing("relay work, acme/shop#12 of a long, long name");
        first.doing("relay work, a/b#1");
        assert_eq!(by(take("relay probe")), Some("relay work, a/b#1".to_owned()));
        assert!(matches!(look(&path), Err(NoSeat::Taken(Some(_)))));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(first);
        assert!(!path.exists());
        // What a killed process leaves is no lock.
        fs::write(&path, "x").unwrap();
        assert!(look(&path).is_ok());
        assert_eq!(by(take("relay probe")), None);
        let free = [whose(None), whose(None)].map(|whose| Seat::take(whose, &holder("x")));
        assert!(free.iter().all(Result::is_ok), "what is never refreshed is never locked");
    }

    /// Whoever opened the file before it was removed must not believe to have what the next has.
    #[test]
    fn a_lock_whose_file_was_removed_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let early = open(&path).unwrap();
        drop(Lock::take(&path, &holder("first")).unwrap());
        early.try_lock().unwrap();
        assert!(!is_at(&early, &path));
        let second = Lock::take(&path, &holder("second")).unwrap();
        assert!(is_at(&second.file, &path));
        drop(second);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..2000 {
                        let Ok(lock) = Lock::take(&path, &holder("one of many")) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_locked_itself() {
        if rustix::process::geteuid().is_root() {
            // Nothing is forbidden to root.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
        let first = Seat::take(whose(Some(&path)), &holder("first")).unwrap();
        assert_eq!(by(Seat::take(whose(Some(&path)), &holder("second"))), Some(String::new()));
        assert!(look(&path).is_err());
        drop(first);
        assert!(look(&path).is_ok());
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("lock"), dir.path().join("other"));
        symlink(&other, &path).unwrap();
        assert!(matches!(Seat::take(whose(Some(&path)), &holder("x")), Err(NoSeat::Lock { .. })));
        assert!(matches!(look(&path), Err(NoSeat::Lock { .. })) && !other.exists());
    }
}
