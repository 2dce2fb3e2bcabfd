//! What can go wrong with the database, named so that a person can act on it.

use std::path::Path;

use rustix::fs::{Access, access};

use crate::model::DiskProblem;
use crate::model::disk::quoted;

/// Why the database did not do it. Every message names the file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is of a kind this build does not open.
    #[error(
        "cannot use the database `{url}`: it is neither `sqlite:///absolute/path` nor `postgres://…`"
    )]
    Url {
        /// The URL, without what stands before an `@`.
        url: String,
    },
    /// The file is not there and could not be made, or may not be read.
    #[error("cannot open the database `{path}`: {detail}")]
    Open {
        /// The file.
        path: String,
        /// The system's words.
        detail: String,
        /// What it was, where that is known.
        why: Option<DiskProblem>,
    },
    /// A newer relay made changes that this one does not know.
    #[error(
        "the database `{path}` is of a newer relay (schema {found}, this one knows up to {known})"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its newest migration.
        found: i64,
        /// The newest this build has.
        known: i64,
    },
    /// The file is damaged, or is no database.
    #[error("the database `{path}` is damaged: {detail}")]
    Corrupt {
        /// The file.
        path: String,
        /// What the database says.
        detail: String,
    },
    /// A migration failed, or one that was applied has been changed since.
    #[error("cannot bring the database `{path}` up to date: {detail}")]
    Migration {
        /// The file.
        path: String,
        /// Which, and why.
        detail: String,
    },
    /// Another process held the database for longer than the busy time-out.
    #[error("the database `{path}` is held by another process")]
    Busy {
        /// The file.
        path: String,
    },
    /// The server cannot be reached, or is starting, stopping or full of connections. A write that
    /// was under way may have been done.
    #[error("the database `{path}` cannot be reached: {detail}")]
    Away {
        /// The URL without a login.
        path: String,
        /// What the system or the server says.
        detail: String,
    },
    /// The server does not let relay in, or has no such database.
    #[error("the database `{path}` does not let relay in: {detail}")]
    Login {
        /// The URL without a login.
        path: String,
        /// What the server says.
        detail: String,
    },
    /// Another site is at work on the server's database, or a pooler in front of it keeps its lock.
    #[error("another relay is at work on the database `{path}`")]
    InUse {
        /// The URL without a login.
        path: String,
    },
    /// Another site took the server's database while this one had lost its connection.
    #[error(
        "another relay took the database `{path}` while this site had lost its connection to it"
    )]
    Ousted {
        /// The URL without a login.
        path: String,
    },
    /// The server's word does not come through: something between keeps it.
    #[error("the database `{path}` does not pass on what one site tells another")]
    Deaf {
        /// The URL without a login.
        path: String,
    },
    /// The disk is full, read-only or failing. Nothing was changed.
    #[error("cannot write the database `{path}`: {detail}")]
    Disk {
        /// The file.
        path: String,
        /// What the database says.
        detail: String,
        /// What it was, where that is known.
        why: Option<DiskProblem>,
    },
    /// A row holds what this build cannot read.
    #[error("unreadable value in the database `{path}`: column `{column}`: {detail}")]
    Row {
        /// The file.
        path: String,
        /// The column.
        column: String,
        /// Why.
        detail: String,
    },
    /// A statement failed for another reason: a defect of relay.
    #[error("the database `{path}` refused a statement: {detail}")]
    Statement {
        /// The file.
        path: String,
        /// What the database says.
        detail: String,
    },
    /// The store was closed, or the program is stopping.
    #[error("the database `{path}` is closed")]
    Closed {
        /// The file.
        path: String,
    },
}

impl StoreError {
    /// For a person: what helps.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::InUse { .. } => {
                "stop the other one; to run several sites on one Postgres, start \
                 each with `relay serve --sites many` (and name the server itself, no pooler)"
                    .to_owned()
            }
            Self::Ousted { .. } => {
                "one of the two is too many: stop the other one and start this again, or start \
                 both with `relay serve --sites many`"
                    .to_owned()
            }
            Self::Deaf { .. } => "name the server itself, not a pooler in front of it \
                 (`--database postgres://HOST:5432/NAME`): several sites need LISTEN"
                .to_owned(),
            Self::Disk { path, .. } if path.starts_with("postgres") => {
                "look at the disk of the database's server; nothing was changed".to_owned()
            }
            Self::Open { path, why, .. } | Self::Disk { path, why, .. } => match why {
                Some(why) => why.mend(Path::new(path)),
                None => format!("`relay doctor` looks at the disk: ls -ld {}", shown(path)),
            },
            Self::Away { .. } => {
                "`pg_isready -d URL` asks whether the server answers; a site that \
                 runs goes on by itself once it does, one that is starting has to be started again"
                    .to_owned()
            }
            Self::Login { .. } => {
                "try the same URL with `psql URL`: user, password and database must be there"
                    .to_owned()
            }
            Self::Newer { .. } => {
                "use the newer relay, or set RELAY_HOME to another folder; nothing was changed"
                    .to_owned()
            }
            Self::Corrupt { path, .. } | Self::Row { path, .. } if path.starts_with("postgres") => {
                return None;
            }
            Self::Corrupt { path, .. } | Self::Row { path, .. } => {
                let path = shown(path);
                format!(
                    "keep it aside and begin anew (`mv {path} {path}.damaged`, and the same for \
                     `-wal` and `-shm` beside it), then `relay link` each repository: labelled \
                     issues come back by themselves, other tasks do not; \
                     `sqlite3 {path}.damaged .recover` reads what is left"
                )
            }
            Self::Busy { path } => format!(
                "another program holds it (`fuser {}` names it): end that one, then try again",
                shown(path)
            ),
            Self::Url { .. }
            | Self::Migration { .. }
            | Self::Statement { .. }
            | Self::Closed { .. } => return None,
        })
    }
}

fn shown(path: &str) -> String {
    quoted(Path::new(path))
}

/// Sorts what sqlx says. SQLite's result codes are those of sqlite.org/rescode.html; the low byte
/// is the kind, the rest refines it.
pub(super) fn explain(path: &str, error: sqlx::Error) -> StoreError {
    let path = path.to_owned();
    let detail = match &error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        other => other.to_string(),
    };
    let code = match &error {
        sqlx::Error::Database(database) => {
            database.code().and_then(|c| c.parse::<u32>().ok()).map(|c| c & 0xff)
        }
        _ => None,
    };
    match (code, error) {
        (Some(5 | 6), _) => StoreError::Busy { path },
        (Some(13), _) => StoreError::Disk { path, detail, why: Some(DiskProblem::Full) },
        (Some(8 | 10), _) => {
            let why = look(&path);
            StoreError::Disk { path, detail, why }
        }
        (Some(11 | 26), _) => StoreError::Corrupt { path, detail },
        (Some(3 | 14 | 23), _) => {
            let why = look(&path);
            StoreError::Open { path, detail, why }
        }
        (_, sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed) => StoreError::Closed { path },
        (_, sqlx::Error::PoolTimedOut) => StoreError::Busy { path },
        (_, sqlx::Error::ColumnDecode { index, source }) => {
            StoreError::Row { path, column: index, detail: source.to_string() }
        }
        _ => StoreError::Statement { path, detail },
    }
}

/// The same for Postgres. The codes are those of postgresql.org/docs/current/errcodes-appendix.html.
pub(super) fn explain_postgres(name: &str, error: &sqlx::Error) -> StoreError {
    let path = name.to_owned();
    let detail = match error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        other => other.to_string(),
    };
    let code = code_of(error);
    match code.as_deref() {
        Some("28000" | "28P01" | "3D000" | "42501") => StoreError::Login { path, detail },
        Some("53100") => StoreError::Disk { path, detail, why: None },
        Some("XX001" | "XX002") => StoreError::Corrupt { path, detail },
        Some("40001" | "40P01" | "55P03" | "57014") => StoreError::Busy { path },
        _ if is_line_lost(error) => StoreError::Away { path, detail },
        _ => match error {
            sqlx::Error::ColumnDecode { index, source } => {
                StoreError::Row { path, column: index.clone(), detail: source.to_string() }
            }
            _ => StoreError::Statement { path, detail },
        },
    }
}

/// Whether the connection is of no more use: it broke, or the server ends it. Whether the statement
/// was done cannot be told.
pub(super) fn is_line_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(_) => code_of(error).is_some_and(|code| {
            code.starts_with("08") || code.starts_with("57P") || code.starts_with("53")
        }),
        _ => false,
    }
}

/// Whether the database has undone the write because another came between, so that it may be made
/// anew: it could not be put in an order with the other, both waited for each other, or the other
/// wrote the same row first.
pub(super) fn is_undone_for_another(error: &sqlx::Error) -> bool {
    code_of(error).is_some_and(|code| matches!(code.as_str(), "40001" | "40P01" | "23505"))
}

fn code_of(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Database(database) => database.code().map(|code| code.into_owned()),
        _ => None,
    }
}

/// What stands in the way of writing the file: the database says less than the system does. The
/// file is not opened: closing it would let go of the locks that the database holds in this process.
pub(super) fn look(path: &str) -> Option<DiskProblem> {
    let path = Path::new(path);
    if path.metadata().is_ok_and(|file| !file.is_file()) {
        return Some(DiskProblem::InTheWay);
    }
    if let Err(error) = access(path, Access::READ_OK | Access::WRITE_OK) {
        return DiskProblem::of(&error.into());
    }
    // The files beside it are made and removed at each start.
    let folder = path.parent()?;
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return DiskProblem::of(&error.into());
    }
    let disk = rustix::fs::statvfs(folder).ok()?;
    (disk.f_bavail == 0).then_some(DiskProblem::Full)
}

#[cfg(test)]
mod tests {
    use sqlx::{AnyPool, Connection, raw_sql};

    use super::*;

    #[tokio::test]
    async fn what_sqlite_says_is_sorted_by_what_a_person_can_do() {
        sqlx::any::install_default_drivers();
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/relay.db", dir.path().display());
        let pool = AnyPool::connect(&format!("{url}?mode=rwc")).await.expect("a pool");
        raw_sql("create table t (n integer check (n > 0))").execute(&pool).await.expect("a table");

        let mut holder = pool.acquire().await.expect("a connection");
        raw_sql("begin immediate").execute(&mut *holder).await.expect("the lock");
        let mut other = sqlx::AnyConnection::connect(&url).await.expect("a connection");
        let refused = raw_sql("pragma busy_timeout = 0; insert into t values (1)");
        let error = refused.execute(&mut other).await.expect_err("it was held");
        assert!(matches!(explain("p", error), StoreError::Busy { .. }));
        raw_sql("rollback").execute(&mut *holder).await.expect("the lock is free");

        let mut reader =
            sqlx::AnyConnection::connect(&format!("{url}?mode=ro")).await.expect("a connection");
        let error = raw_sql("insert into t values (1)").execute(&mut reader).await;
        let error = explain("p", error.expect_err("it was read-only"));
        assert!(matches!(&error, StoreError::Disk { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot write the database `p`: "), "{error}");

        let error = raw_sql("insert into t values (0)").execute(&pool).await;
        let error = explain("p", error.expect_err("it was taken"));
        assert!(matches!(&error, StoreError::Statement { .. }), "{error:?}");
    }
}
