//! A Postgres server: a few connections, each used by one write or read at a time.
//!
//! A write with a text of its own for Postgres is one statement: one round trip, committed by
//! itself. Any other write of several statements is one transaction that sees one state of the
//! database, takes its turn after the other such writes, and is made anew where a quick write came
//! between. What cannot be told apart from "done" is never sent twice.

mod clock;
mod group;
mod joint;
mod pool;
mod statements;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::any::{AnyConnectOptions, AnyRow};
use sqlx::{AnyConnection, ConnectOptions, Either, Executor};
use tokio::sync::oneshot;

use super::{Sql, StoreError, error, migrate};
use crate::model::Clock;
use clock::{DatabaseClock, Time};
use group::Waiting;
use joint::Asking;
use pool::{Line, Pool};
use statements::{Statement, statements};

/// A statement that runs longer is given up with its connection: the line is dead. The server is
/// told to stop sooner (`statement_timeout` in [`pool`]).
const GIVE_UP: Duration = Duration::from_secs(30);

/// How often a write is made anew that the database undid because another came between.
const TRIES: u32 = 8;

/// Before the statements of a write that has several. A lock is taken before the state is fixed
/// that the transaction sees, which a lock by a function would not do.
const BEGIN: &str = "begin isolation level repeatable read; \
                     lock table write_turn in exclusive mode";

/// The server, as this process uses it.
#[derive(Debug)]
pub(super) struct Postgres {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    /// Writes that may share a transaction and have none yet.
    waiting: Waiting,
    /// Writes that may be one statement and are in none yet.
    asking: Asking,
    /// For messages: the URL without a login.
    name: String,
}

/// What one connection is asked to do.
#[derive(Debug)]
enum Work {
    /// One statement that may be asked again.
    Read(Statement),
    /// One statement.
    Quick(Statement),
    /// Several, in one transaction.
    Several(Vec<Statement>),
}

impl Postgres {
    /// Connects and brings the schema up to date; of several that start at once one does it.
    pub(super) async fn open(url: &str, name: String) -> Result<Self, StoreError> {
        let options = options(url, &name)?;
        let explained = |error| error::explain_postgres(&name, &error);
        let mut first = pool::connect(&options).await.map_err(explained)?;
        migrate::postgres(&mut first, &name).await?;
        // Not kept: the lock of the migration goes with it, whatever happened.
        drop(first);
        Ok(Self {
            inner: Arc::new(Inner {
                pool: Pool::new(options),
                waiting: Waiting::default(),
                asking: Asking::default(),
                name,
            }),
        })
    }

    /// The database's clock, with the uptime of this machine.
    pub(super) async fn clock(
        &self,
        machine: Arc<dyn Clock>,
    ) -> Result<Arc<dyn Clock>, StoreError> {
        let Inner { pool, name, .. } = &*self.inner;
        let time = Arc::clone(pool.time.get_or_init(|| Arc::new(Time::new(machine))));
        let mut line = pool.line(name).await?;
        let asked = time.ask(line.connection()).await;
        asked.map_err(|error| error::explain_postgres(name, &error))?;
        pool.give_back(line);
        Ok(Arc::new(DatabaseClock(time)))
    }

    /// Waits for what is under way and closes the connections.
    pub(super) async fn close(&self) {
        self.inner.pool.close().await;
    }

    /// Runs a write to its end, also when the caller goes away meanwhile.
    pub(super) async fn write(&self, mut sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        let joint = sql.take_joint();
        let mut statements = statements(&sql);
        let work = match (statements.len(), statements.pop()) {
            (1, Some(only)) if let Some(joint) = joint => {
                return self.write_jointly(only, joint).await;
            }
            (1, Some(only)) if sql.is_grouped() => return self.write_grouped(only).await,
            (1, Some(only)) => Work::Quick(only),
            (_, Some(last)) => {
                statements.push(last);
                Work::Several(statements)
            }
            (_, None) => return Ok(Vec::new()),
        };
        self.run(work).await
    }

    pub(super) async fn read(&self, sql: Sql) -> Result<Vec<AnyRow>, StoreError> {
        match statements(&sql).pop() {
            Some(statement) => self.run(Work::Read(statement)).await,
            None => Ok(Vec::new()),
        }
    }

    /// In a task of its own: a connection is never left in the middle of an answer.
    async fn run(&self, work: Work) -> Result<Vec<AnyRow>, StoreError> {
        let inner = Arc::clone(&self.inner);
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            let (rows, line) = match inner.run(&work).await {
                Ok((rows, line)) => (Ok(rows), inner.pool.put_away(line)),
                Err(error) => (Err(error), None),
            };
            // Whoever asked may have gone; it is done all the same.
            let _ = reply.send(rows);
            if let Some(line) = line {
                inner.pool.keep_the_time(line).await;
            }
        });
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed { path: self.inner.name.clone() }))
    }
}

impl Inner {
    /// The rows, and the connection they came from.
    async fn run(&self, work: &Work) -> Result<(Vec<AnyRow>, Line<'_>), StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let line = self.pool.line(&self.name).await?;
            let Some(done) = self.run_on(line, work, tries).await else { continue };
            return done;
        }
    }

    /// One try; `None` where it is to be made anew.
    async fn run_on<'a>(
        &'a self,
        mut line: Line<'a>,
        work: &Work,
        tries: u32,
    ) -> Option<Result<(Vec<AnyRow>, Line<'a>), StoreError>> {
        let Ok(done) = tokio::time::timeout(GIVE_UP, work.on(line.connection())).await else {
            self.pool.lost(line);
            return Some(Err(self.no_answer()));
        };
        let error = match done {
            Ok(rows) => return Some(Ok((rows, line))),
            Err(error) => error,
        };
        if error::is_line_lost(&error) {
            self.pool.lost(line);
            let again = tries == 1 && matches!(work, Work::Read(_));
            return (!again).then(|| Err(error::explain_postgres(&self.name, &error)));
        }
        self.pool.give_back(line);
        // The database has undone all of it.
        let again = tries < TRIES && error::is_undone_for_another(&error);
        (!again).then(|| Err(error::explain_postgres(&self.name, &error)))
    }

    fn no_answer(&self) -> StoreError {
        let detail = format!("no answer in {} seconds", GIVE_UP.as_secs());
        StoreError::Away { path: self.name.clone(), detail }
    }
}

impl Work {
    async fn on(&self, connection: &mut AnyConnection) -> Result<Vec<AnyRow>, sqlx::Error> {
        match self {
            Self::Read(statement) | Self::Quick(statement) => {
                statement.query(0).fetch_all(connection).await
            }
            Self::Several(statements) => {
                let done = transaction(connection, statements).await;
                if done.is_err() {
                    let _ = sqlx::raw_sql("rollback").execute(connection).await;
                }
                done
            }
        }
    }
}

/// How a connection is made; `name` is the URL without a login.
pub(super) fn options(url: &str, name: &str) -> Result<AnyConnectOptions, StoreError> {
    let options = AnyConnectOptions::from_str(url);
    let options = options.map_err(|_| StoreError::Url { url: name.to_owned() })?;
    Ok(options.disable_statement_logging())
}

/// The statements one after another, each told how many rows the write before it touched.
async fn transaction(
    connection: &mut AnyConnection,
    statements: &[Statement],
) -> Result<Vec<AnyRow>, sqlx::Error> {
    sqlx::raw_sql(BEGIN).execute(&mut *connection).await?;
    let (mut all, mut changes) = (Vec::new(), 0);
    for statement in statements {
        let mut found = connection.fetch_many(statement.query(changes));
        while let Some(step) = found.try_next().await? {
            match step {
                Either::Right(row) => all.push(row),
                Either::Left(result) if statement.writes => {
                    changes = i64::try_from(result.rows_affected()).unwrap_or(i64::MAX);
                }
                Either::Left(_) => {}
            }
        }
    }
    sqlx::raw_sql("commit").execute(connection).await?;
    Ok(all)
}
