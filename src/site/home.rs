//! RELAY_HOME and its lock: one owner at a time, and who that is.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::owner::{OwnerError, Role};

/// The lock's name in the home.
const LOCK: &str = "relay.lock";

/// A prepared home: a folder of this user's that nobody else can enter.
#[derive(Clone, Debug)]
pub(super) struct Home {
    path: PathBuf,
}

/// Who holds a home, as the lock's text says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holder {
    pub pid: u32,
    pub role: Role,
    pub version: String,
}

/// The held lock. The system lets it go with the process, however that ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Home {
    /// Makes the folder where it is missing, and closes it to others.
    pub(super) fn prepare(path: &Path) -> Result<Self, OwnerError> {
        let failed = |what: &'static str| {
            move |cause| OwnerError::Home { path: path.to_owned(), what, cause }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed("cannot be made"))?;
        let path = path.canonicalize().map_err(failed("cannot be read"))?;
        let meta = path.metadata().map_err(failed("cannot be read"))?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(OwnerError::NotOurs { path, uid: meta.uid() });
        }
        if meta.mode() & 0o077 != 0 {
            std::fs::set_permissions(&path, Permissions::from_mode(0o700))
                .map_err(failed("cannot be closed to others"))?;
        }
        Ok(Self { path })
    }

    /// The folder, without symbolic links in its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock, or tells who has it. A holder that has not written its name yet is `None`.
    pub(super) fn lock(&self, holder: &Holder) -> Result<Result<Lock, Option<Holder>>, OwnerError> {
        let path = self.path.join(LOCK);
        let failed = |cause| OwnerError::Lock { path: path.clone(), cause };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Err(read(&mut file))),
            Err(TryLockError::Error(cause)) => return Err(failed(cause)),
        }
        let text = serde_json::to_string(holder)
            .map_err(|e| failed(std::io::Error::new(ErrorKind::InvalidData, e)))?;
        file.set_len(0).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Ok(Lock { _file: file }))
    }
}

/// Who wrote the lock of this folder last, who may be gone.
pub(super) fn holder(home: &Path) -> Option<Holder> {
    read(&mut File::open(home.join(LOCK)).ok()?)
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
