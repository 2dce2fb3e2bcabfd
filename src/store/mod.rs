//! The only room that knows sqlx: migrations and the statements, each in the method that uses it.
//!
//! SQLite today. The texts keep to what Postgres takes as well (`$1`, `on conflict`, `returning`,
//! partial indexes, `(values …)` with `column1`), but for three things its half will spell
//! differently: `begin immediate`, `changes()`, and the growth of `events.seq`.
//!
//! A write is one text of several statements in one transaction, sent in one call (2,300 claims
//! and finishes a second against 1,550 as statements of their own), and it runs to its end in a
//! task of its own: a caller that goes away cannot leave a transaction half done.

mod claims;
mod deaths;
mod error;
mod events;
mod growth;
mod health;
mod leases;
mod migrate;
mod people;
#[cfg(test)]
mod plans;
mod preferences;
mod projects;
mod row;
mod runs;
mod tasks;
mod timers;
mod types;
mod workers;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::any::{AnyArguments, AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection};

use crate::model::{DiskProblem, Task};

pub use claims::{Claim, ClaimedRow};
pub use deaths::DeathLimits;
pub use error::StoreError;
pub use health::Health;
pub use leases::{Finish, HeartbeatRow};
pub use people::{Ended, Ending};
pub use row::Fields;
pub use runs::{JournalEntry, RunHead};
pub use tasks::Asked;
pub use timers::{NextTimers, Sweep, SweepRules, Swept};
pub use types::{LocalPullRow, Need, NewTask, NewWorker};

/// How long a statement waits for another process that holds the file.
const BUSY: Duration = Duration::from_secs(5);

/// Readers beside the one writer; each is a thread, made when it is first needed.
const READERS: u32 = 2;

/// The open database.
#[derive(Debug)]
pub struct Store {
    writer: AnyPool,
    readers: AnyPool,
    options: AnyConnectOptions,
    path: String,
    /// Calls of [`Store::write`] and [`Store::read`].
    asked: AtomicU64,
}

/// A statement, or several, with what is bound to them.
type Sql = Query<'static, Any, AnyArguments>;

impl Store {
    /// Opens `sqlite:///absolute/path` (the rest of the text is the path as it is), makes the file
    /// for its owner alone where it is missing, and brings the schema up to date.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let path = url
            .strip_prefix("sqlite://")
            .filter(|path| path.starts_with('/'))
            .ok_or_else(|| StoreError::Url { url: without_login(url) })?
            .to_owned();
        make_private(&path)?;
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(&format!("sqlite://{}?mode=rw", escaped(&path)))
            .map_err(|e| StoreError::Open { path: path.clone(), detail: e.to_string(), why: None })?
            .disable_statement_logging();
        first_contact(&options).await.map_err(|e| error::explain(&path, e))?;
        let writer =
            pool().min_connections(1).max_connections(1).connect_with(options.clone()).await;
        let writer = match writer {
            Ok(writer) => writer,
            Err(error) => return Err(cause_of(&path, &options, error).await),
        };
        migrate::migrate(&writer, &path).await?;
        let readers =
            pool().min_connections(0).max_connections(READERS).connect_lazy_with(options.clone());
        Ok(Self { writer, readers, options, path, asked: AtomicU64::new(0) })
    }

    /// Waits for what is under way and closes the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// How often the database was asked since it was opened.
    pub fn statements(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Runs a write to its end and gives the rows of all its statements in order.
    async fn write(&self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let pool = self.writer.clone();
        let done = tokio::spawn(async move {
            let mut connection = pool.acquire().await?;
            let rows = sql.fetch_all(&mut *connection).await;
            if rows.is_err() {
                // Where the text had begun a transaction it is still open; where it had not,
                // this is refused, which is as good.
                let _ = sqlx::raw_sql("rollback").execute(&mut *connection).await;
            }
            rows
        });
        match done.await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(cause_of(&self.path, &self.options, error).await),
            Err(_) => Err(StoreError::Closed { path: self.path.clone() }),
        }
    }

    /// Reads.
    async fn read(&self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match sql.fetch_all(&self.readers).await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(cause_of(&self.path, &self.options, error).await),
        }
    }

    /// The task, where the write before it touched exactly one row.
    fn touched_task(&self, rows: &[AnyRow]) -> Result<Option<Task>, StoreError> {
        match rows {
            [touched, task] if self.fields(touched).has("touched") => {
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

fn pool() -> AnyPoolOptions {
    AnyPoolOptions::new()
        .acquire_timeout(BUSY + Duration::from_secs(5))
        // With neither, no task of the pool wakes up by itself.
        .max_lifetime(None)
        .idle_timeout(None)
        // A ping a statement for a file on this disk would cost more than the statement.
        .test_before_acquire(false)
        .after_connect(|connection, _| Box::pin(prepare(connection)))
}

/// What each connection is told first.
async fn prepare(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let pragmas = "pragma busy_timeout = 5000; pragma journal_mode = wal; \
                   pragma journal_size_limit = 16777216; \
                   pragma synchronous = full; pragma foreign_keys = on;";
    sqlx::raw_sql(pragmas).execute(connection).await.map(|_| ())
}

/// Opens the file once outside the pool, which would try for ten seconds and then not say why.
async fn first_contact(options: &AnyConnectOptions) -> Result<(), sqlx::Error> {
    let mut connection = AnyConnection::connect_with(options).await?;
    prepare(&mut connection).await?;
    connection.close().await
}

/// What an error of a pool means. One that waited in vain for a connection does not say why none
/// could be made; making one by hand does.
async fn cause_of(path: &str, options: &AnyConnectOptions, error: sqlx::Error) -> StoreError {
    let error = match error {
        sqlx::Error::PoolTimedOut => match first_contact(options).await {
            Err(cause) => cause,
            Ok(()) => sqlx::Error::PoolTimedOut,
        },
        other => other,
    };
    error::explain(path, error)
}

/// Makes the file for its owner alone: it holds the texts of private issues. SQLite gives the
/// files beside it the same mode.
fn make_private(path: &str) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(StoreError::Open {
            path: path.to_owned(),
            detail: e.to_string(),
            why: DiskProblem::of(&e),
        }),
    }
}

/// The path as it must stand in a URL.
fn escaped(path: &str) -> String {
    path.bytes().fold(String::with_capacity(path.len()), |mut url, byte| {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
        url
    })
}

/// A URL that can be shown: without name and password.
fn without_login(url: &str) -> String {
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
            .write(sqlx::query(
                "begin immediate;
                insert into events (at, kind, actor, data) values (1, 'task.queued', 'site', '{}');
                insert into worker_traits (worker_id, kind, value) values ('nobody', 'lane', 'x');
                commit",
            ))
            .await;
        assert!(matches!(failed, Err(StoreError::Statement { .. })));
        let next = sqlx::query("begin immediate; update workers set offline = 0; commit");
        store.write(next).await.expect("the next write");
        assert_eq!(store.events(0, None, 10).await.expect("events"), []);
    }

    #[test]
    fn what_is_shown_of_a_url_has_no_login() {
        assert_eq!(without_login("postgres://ann:pw@db/x"), "postgres://…@db/x");
        assert_eq!(without_login("relative.db"), "relative.db");
    }
}
