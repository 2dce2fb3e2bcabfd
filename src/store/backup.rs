//! A copy of a SQLite file as it stood at one moment, while its owner goes on working.
//!
//! `vacuum into` reads one snapshot beside the writer, which it does not hold up: the write-ahead
//! log only grows meanwhile. The copy gets its name when it is whole, checked and on the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Connection, Row};

use super::{StoreError, error, sqlite};
use crate::model::DiskProblem;
use crate::model::disk::quoted;

/// Why there is no backup. What had been written of it is gone again.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no database.
    #[error("there is no database {}", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// There is no backup to put back.
    #[error("there is no backup {}", path.display())]
    NoBackup {
        /// Where it should be.
        path: PathBuf,
    },
    /// A file that is no database, or a damaged one.
    #[error("{} is not a backup of relay", path.display())]
    NotABackup {
        /// The file.
        path: PathBuf,
        /// The database's words.
        #[source]
        cause: StoreError,
    },
    /// A backup never replaces anything.
    #[error("{} is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The disk.
    #[error("{} cannot be {what}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// The system's words.
        cause: io::Error,
    },
    /// A path that cannot be told to the database.
    #[error("{} is not UTF-8", path.display())]
    Name {
        /// The path.
        path: PathBuf,
    },
    /// A database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupError {
    /// For a person: what helps.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { .. } => {
                Some("name it with --database sqlite:///PATH, or set RELAY_HOME".to_owned())
            }
            Self::NoBackup { .. } => Some("check the path of the backup".to_owned()),
            Self::NotABackup { .. } => Some("name a file that `relay db backup` wrote".to_owned()),
            Self::Exists { .. } => Some("name a file that is not there yet".to_owned()),
            Self::File { path, cause, .. } => DiskProblem::of(cause).map(|why| why.mend(path)),
            Self::Name { .. } => None,
            Self::Store(cause) => cause.hint(),
        }
    }
}

/// Writes a copy of the file `from` to `to`, which must not be there, for its owner alone. Gives
/// its size in bytes.
///
/// # Errors
/// See [`BackupError`].
pub async fn backup(from: &Path, to: &Path) -> Result<u64, BackupError> {
    if !from.exists() {
        return Err(BackupError::Missing { path: from.to_owned() });
    }
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    let part = Part::beside(to)?;
    snapshot(from, &part.path).await?;
    check(&part.path).await?;
    let bytes = sync(&part.path)?;
    let named = renameat_with(CWD, &part.path, CWD, to, RenameFlags::NOREPLACE);
    named.map_err(|e| match io::Error::from(e) {
        cause if cause.kind() == io::ErrorKind::AlreadyExists => {
            BackupError::Exists { path: to.to_owned() }
        }
        cause => BackupError::File { path: to.to_owned(), what: "named", cause },
    })?;
    sync(folder(to))?;
    Ok(bytes)
}

/// Writes what `from` holds at one moment, its write-ahead log included, to the empty file `to`.
pub(super) async fn snapshot(from: &Path, to: &Path) -> Result<(), BackupError> {
    sqlx::any::install_default_drivers();
    let to = text(to)?.to_owned();
    let mut connection = open(from).await?;
    let done = sqlx::query("vacuum into $1").bind(to).execute(&mut connection).await;
    let done = done.map_err(|e| error::explain(&from.display().to_string(), e));
    let _ = connection.close().await;
    Ok(done.map(|_| ())?)
}

/// Reads every page, and looks whether each row points at one that is there.
pub(super) async fn check(path: &Path) -> Result<(), BackupError> {
    let name = path.display().to_string();
    let explained = |e: sqlx::Error| error::explain(&name, e);
    let mut connection = open(path).await?;
    let said = sqlx::query("pragma integrity_check(1)").fetch_one(&mut connection).await;
    let said: String = said.and_then(|row| row.try_get(0)).map_err(explained)?;
    let loose = sqlx::query("select \"table\" from pragma_foreign_key_check limit 1");
    let loose = loose.fetch_optional(&mut connection).await.map_err(explained)?;
    let _ = connection.close().await;
    let detail = match (said.as_str(), loose) {
        ("ok", None) => return Ok(()),
        ("ok", Some(row)) => {
            let table: String = row.try_get(0).map_err(explained)?;
            format!("`{table}` has a row that points at none")
        }
        _ => said,
    };
    Err(StoreError::Corrupt { path: name, detail }.into())
}

/// The tokens that are revoked in the file, with when and by whom.
pub(super) async fn revoked(path: &Path) -> Result<Vec<(String, i64, String)>, BackupError> {
    let name = path.display().to_string();
    let explained = |e: sqlx::Error| error::explain(&name, e);
    let mut connection = open(path).await?;
    let sql = "select id, revoked_at, coalesce(revoked_by, 'site') from tokens
        where revoked_at is not null order by revoked_at, id";
    let rows = sqlx::query(sql).fetch_all(&mut connection).await;
    let _ = connection.close().await;
    let read = |row: &AnyRow| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    let read = rows.and_then(|rows| rows.iter().map(read).collect());
    Ok(read.map_err(explained)?)
}

/// A plain connection, which brings nothing up to date.
async fn open(path: &Path) -> Result<AnyConnection, BackupError> {
    let name = text(path)?;
    let connected = sqlite::connect(&sqlite::options(name)?).await;
    Ok(connected.map_err(|e| error::explain(name, e))?)
}

/// Brings a file or a folder to the disk; its size in bytes.
pub(super) fn sync(path: &Path) -> Result<u64, BackupError> {
    let synced = File::open(path).and_then(|file| {
        file.sync_all()?;
        Ok(file.metadata()?.len())
    });
    synced.map_err(|cause| BackupError::File {
        path: path.to_owned(),
        what: "written to the disk",
        cause,
    })
}

pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn text(path: &Path) -> Result<&str, BackupError> {
    path.to_str().ok_or_else(|| BackupError::Name { path: path.to_owned() })
}

/// A file that has no name of its own yet; what is left of it goes with the value.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
}

impl Part {
    /// An empty file for its owner alone, on the disk of `to`.
    pub(super) fn beside(to: &Path) -> Result<Self, BackupError> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        // The database is told a path from the root, whatever its own idea of here.
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |cause| BackupError::File { path, what: "made", cause }
        };
        let path = folder(to).canonicalize().map_err(failed(to))?.join(name);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(failed(&path))?;
        Ok(Self { path })
    }

    /// Whether a part of what was written is still in a file beside it.
    pub(super) fn has_log(&self) -> bool {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for end in ["", "-journal", "-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(end);
            // Named by now, or never made.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A command that does for a server what a backup does for a file.
#[must_use]
pub fn dump_command(to: &Path) -> String {
    format!("pg_dump --format=custom --file={} \"$DATABASE_URL\"", quoted(to))
}
