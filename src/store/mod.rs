//! The only room that knows sqlx: migrations and the statements, each in the method that uses it.
//!
//! SQLite and Postgres. One text serves both where it can: it keeps to what both take (`$1`,
//! `on conflict`, `returning`, partial indexes, `(values …)` with `column1`), and says
//! `changes() = 1` for "only where the statement before it found its row". The few writes that are
//! made all day have a second text for Postgres: one statement, one round trip.
//!
//! A write is a value ([`sql::Sql`]) that runs to its end in a task of its own: a caller that goes
//! away cannot leave a transaction half done. docs/design/postgres.md tells the rest.

mod backup;
mod budgets;
mod claims;
mod copy;
mod deaths;
mod error;
mod events;
mod finish;
mod growth;
mod health;
mod invites;
mod leases;
mod migrate;
mod orders;
mod pauses;
mod people;
#[cfg(test)]
mod plans;
mod postgres;
mod preferences;
mod projects;
mod ready;
mod restore;
mod row;
mod runs;
mod session;
mod sites;
mod sql;
mod sqlite;
mod tasks;
mod timers;
mod tokens;
mod types;
mod unanswered;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::any::AnyRow;

use crate::model::{Clock, Task};

pub use backup::{BackupError, backup, dump_command};
pub use budgets::{Budget, BudgetStop};
pub use claims::{Claim, ClaimedRow};
pub use copy::{Copied, CopyError, CopyStep, Sum, copy};
pub use deaths::DeathLimits;
pub use error::StoreError;
pub use finish::Finish;
pub use health::Health;
pub use invites::Redeemed;
pub use leases::HeartbeatRow;
pub use people::{Ended, Ending};
pub use restore::{EPOCHS_ON, Restored, restore};
pub use row::Fields;
pub use runs::{JournalEntry, RunHead};
pub use session::{Company, NEWS_BYTES, Pulse, Session};
pub use tasks::Asked;
pub use timers::{NextTimers, Sweep, SweepRules, Swept};
pub use tokens::{KnownToken, RevokedToken};
pub use types::{LocalPullRow, Need, NewTask, NewWorker};
pub use unanswered::{EndedAt, Unanswered};

use postgres::Postgres;
use sql::Sql;
use sqlite::Sqlite;

/// The open database.
#[derive(Debug)]
pub struct Store {
    database: Database,
    /// For messages: the file, or the URL without a login.
    path: String,
    /// Calls of [`Store::write`] and [`Store::read`].
    asked: AtomicU64,
    /// Writes that were begun, and those whose end was seen. One whose caller went away meanwhile
    /// is never seen to end.
    begun: AtomicU64,
    ended: AtomicU64,
}

#[derive(Debug)]
enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    /// Opens the database and brings its schema up to date: `sqlite:///absolute/path`, where the
    /// rest of the text is the path as it is and a missing file is made for its owner alone, or
    /// `postgres://…`, where the database must be there.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let shown = without_login(url);
        let (database, path) = match url.split_once("://") {
            Some(("sqlite", path)) if path.starts_with('/') => {
                (Database::Sqlite(Sqlite::open(path).await?), path.to_owned())
            }
            Some(("postgres" | "postgresql", _)) => {
                (Database::Postgres(Postgres::open(url, shown.clone()).await?), shown)
            }
            _ => return Err(StoreError::Url { url: shown }),
        };
        Ok(Self {
            database,
            path,
            asked: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
    }

    /// The clock that what is stored is stamped and compared by: of a server the server's, asked
    /// here and kept by `machine`'s uptime; of a file `machine` itself.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn clock(&self, machine: Arc<dyn Clock>) -> Result<Arc<dyn Clock>, StoreError> {
        match &self.database {
            Database::Sqlite(_) => Ok(machine),
            Database::Postgres(server) => server.clock(machine).await,
        }
    }

    /// Waits for what is under way and closes the database.
    pub async fn close(&self) {
        match &self.database {
            Database::Sqlite(file) => file.close().await,
            Database::Postgres(server) => server.close().await,
        }
    }

    /// The file, where it is one.
    fn file(&self) -> Option<&str> {
        matches!(self.database, Database::Sqlite(_)).then_some(self.path.as_str())
    }

    /// How often the database was asked since it was opened.
    pub fn statements(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// How much was written, as far as it is known here; `None` while something is being written.
    pub fn writes(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        (begun == ended).then_some(begun)
    }

    /// Runs a write to its end and gives the rows of all its statements in order.
    async fn write(&self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::SeqCst);
        let written = match &self.database {
            Database::Sqlite(file) => file.write(sql).await,
            Database::Postgres(server) => server.write(sql).await,
        };
        self.ended.fetch_add(1, Ordering::SeqCst);
        written
    }

    /// Reads.
    async fn read(&self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match &self.database {
            Database::Sqlite(file) => file.read(sql).await,
            Database::Postgres(server) => server.read(sql).await,
        }
    }

    /// The task, where the write before it touched exactly one row.
    fn touched_task(&self, rows: &[AnyRow]) -> Result<Option<Task>, StoreError> {
        match rows {
            [touched, .., task] | [touched @ task] if self.fields(touched).has("touched") => {
                self.fields(task).task().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A row with its columns by name.
    fn fields<'a>(&'a self, row: &'a AnyRow) -> Fields<'a> {
        Fields { row, path: &self.path }
    }
}

/// A URL that can be shown: without name and password.
pub fn without_login(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_that_fails_half_way_leaves_nothing_and_no_transaction() {
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/relay.db", dir.path().display());
        let store = Store::open(&url).await.expect("a store");
        let failed = store
            .write(Sql::new(
                "insert into events (at, kind, actor, data) values (1, 'task.queued', 'site', '{}');
                insert into worker_traits (worker_id, kind, value) values ('nobody', 'lane', 'x')",
            ))
            .await;
        assert!(matches!(failed, Err(StoreError::Statement { .. })));
        let next = Sql::new("update workers set offline = 0; update workers set offline = 0");
        store.write(next).await.expect("the next write");
        assert_eq!(store.events(0, None, 10).await.expect("events"), []);
    }

    #[test]
    fn what_is_shown_of_a_url_has_no_login() {
        assert_eq!(without_login("postgres://ann:pw@db/x"), "postgres://…@db/x");
        assert_eq!(without_login("relative.db"), "relative.db");
    }
}
