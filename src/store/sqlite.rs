//! A file on this disk: one connection that writes, in a task of its own, and readers beside it.
//!
//! A write is one text of several statements in one transaction, sent in one call (2,300 claims
//! and finishes a second against 1,550 as statements of their own). Writes that come while another
//! is under way share the next transaction.

mod group;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection};
use tokio::sync::{mpsc, oneshot};

use self::group::Written;
use super::{Sql, StoreError, error, migrate};
use crate::model::DiskProblem;

/// How long a statement waits for another process that holds the file.
const BUSY: Duration = Duration::from_secs(5);

/// Readers beside the one writer; each is a thread, made when it is first needed.
const READERS: u32 = 2;

/// The open file.
#[derive(Debug)]
pub(super) struct Sqlite {
    writer: mpsc::UnboundedSender<Job>,
    readers: AnyPool,
    options: AnyConnectOptions,
    path: String,
}

/// What the writer does next.
enum Job {
    Write(Write),
    Close { done: oneshot::Sender<()> },
}

/// A write, and who waits for it.
struct Write {
    sql: Sql,
    reply: oneshot::Sender<Written>,
}

impl Sqlite {
    /// Makes the file for its owner alone where it is missing, and brings it up to date.
    pub(super) async fn open(path: &str) -> Result<Self, StoreError> {
        make_private(path)?;
        let options = options(path)?;
        let connected = connect(&options).await;
        let mut writer = connected.map_err(|e| error::explain(path, e))?;
        migrate::sqlite(&mut writer, path).await?;
        let (jobs, inbox) = mpsc::unbounded_channel();
        tokio::spawn(write_in_turn(writer, options.clone(), inbox));
        let readers = readers().connect_lazy_with(options.clone());
        Ok(Self { writer: jobs, readers, options, path: path.to_owned() })
    }

    /// Waits for what is under way and closes the file.
    pub(super) async fn close(&self) {
        self.readers.close().await;
        let (done, closed) = oneshot::channel();
        if self.writer.send(Job::Close { done }).is_ok() {
            // An error says that it was closed already.
            let _ = closed.await;
        }
    }

    /// Runs a write to its end, also when the caller goes away meanwhile.
    pub(super) async fn write(&self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        let closed = || StoreError::Closed { path: self.path.clone() };
        let (reply, answer) = oneshot::channel();
        self.writer.send(Job::Write(Write { sql, reply })).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?.map_err(|e| error::explain(&self.path, e))
    }

    pub(super) async fn read(&self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        match sql.for_sqlite("", "").fetch_all(&self.readers).await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(cause_of(&self.path, &self.options, error).await),
        }
    }
}

/// Does one write after another, and those that have gathered meanwhile together. Ends when the
/// store is closed or dropped.
async fn write_in_turn(
    connection: AnyConnection,
    options: AnyConnectOptions,
    mut inbox: mpsc::UnboundedReceiver<Job>,
) {
    let mut connection = Some(connection);
    let mut jobs = Vec::new();
    while inbox.recv_many(&mut jobs, group::MOST).await > 0 {
        let mut writes = Vec::with_capacity(jobs.len());
        let mut closing = None;
        for job in jobs.drain(..) {
            match job {
                Job::Write(write) => writes.push(write),
                Job::Close { done } => closing = Some(done),
            }
        }
        write_all(&mut connection, &options, writes).await;
        if let Some(done) = closing {
            inbox.close();
            // What was sent before the inbox was closed is still done.
            while let Some(job) = inbox.recv().await {
                if let Job::Write(write) = job {
                    write_all(&mut connection, &options, vec![write]).await;
                }
            }
            if let Some(connection) = connection.take() {
                let _ = connection.close().await;
            }
            let _ = done.send(());
        }
    }
}

/// Several in one transaction, where that can be; whoever asked may have gone, they are done all
/// the same.
async fn write_all(
    slot: &mut Option<AnyConnection>,
    options: &AnyConnectOptions,
    writes: Vec<Write>,
) {
    if writes.len() > 1
        && let Some(connection) = slot
    {
        let (texts, replies): (Vec<Sql>, Vec<_>) =
            writes.into_iter().map(|write| (write.sql, write.reply)).unzip();
        if let Some(written) = group::write(connection, &texts).await {
            for (reply, written) in replies.into_iter().zip(written) {
                let _ = reply.send(written);
            }
            return;
        }
        for (sql, reply) in texts.into_iter().zip(replies) {
            let _ = reply.send(write(slot, options, sql).await);
        }
        return;
    }
    for Write { sql, reply } in writes {
        let _ = reply.send(write(slot, options, sql).await);
    }
}

/// One write. A connection whose thread is gone is made anew for the next.
async fn write(slot: &mut Option<AnyConnection>, options: &AnyConnectOptions, sql: Sql) -> Written {
    let mut connection = match slot.take() {
        Some(connection) => connection,
        None => connect(options).await?,
    };
    let (before, after) = if sql.is_several() { ("begin immediate;", ";commit") } else { ("", "") };
    let rows = sql.for_sqlite(before, after).fetch_all(&mut connection).await;
    if rows.is_err() {
        // Where a transaction was begun it is still open; where none was, this is refused, which
        // is as good.
        let _ = sqlx::raw_sql("rollback").execute(&mut connection).await;
    }
    if !matches!(rows, Err(sqlx::Error::WorkerCrashed)) {
        *slot = Some(connection);
    }
    rows
}

/// How a file that is there is opened, whatever its name.
pub(super) fn options(path: &str) -> Result<AnyConnectOptions, StoreError> {
    let options = AnyConnectOptions::from_str(&format!("sqlite://{}?mode=rw", escaped(path)));
    let failed = |e: sqlx::Error| StoreError::Open {
        path: path.to_owned(),
        detail: e.to_string(),
        why: None,
    };
    Ok(options.map_err(failed)?.disable_statement_logging())
}

fn readers() -> AnyPoolOptions {
    AnyPoolOptions::new()
        .min_connections(0)
        .max_connections(READERS)
        .acquire_timeout(BUSY + Duration::from_secs(5))
        // With neither, no task of the pool wakes up by itself.
        .max_lifetime(None)
        .idle_timeout(None)
        // A ping a statement for a file on this disk would cost more than the statement.
        .test_before_acquire(false)
        .after_connect(|connection, _| Box::pin(prepare(connection)))
}

/// A connection of its own.
pub(super) async fn connect(options: &AnyConnectOptions) -> Result<AnyConnection, sqlx::Error> {
    let mut connection = AnyConnection::connect_with(options).await?;
    prepare(&mut connection).await?;
    Ok(connection)
}

/// What each connection is told first.
async fn prepare(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let pragmas = "pragma busy_timeout = 5000; pragma journal_mode = wal; \
                   pragma journal_size_limit = 16777216; \
                   pragma synchronous = full; pragma foreign_keys = on;";
    sqlx::raw_sql(pragmas).execute(connection).await.map(|_| ())
}

/// What an error of the readers means. One that waited in vain for a connection does not say why
/// none could be made; making one by hand does.
async fn cause_of(path: &str, options: &AnyConnectOptions, error: sqlx::Error) -> StoreError {
    let error = match error {
        sqlx::Error::PoolTimedOut => match connect(options).await {
            Err(cause) => cause,
            Ok(connection) => {
                let _ = connection.close().await;
                sqlx::Error::PoolTimedOut
            }
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

#[cfg(test)]
mod tests;
