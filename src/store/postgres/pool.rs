//! The connections. None is asked whether it lives before each statement, which would cost as much
//! as the statement: only one that lay idle for a while is, and where one is found dead all are let
//! go of. Nothing here runs by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, Connection};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::clock::Time;
use crate::store::{StoreError, error};

/// Connections at most: so many commits share one flush of the disk. Writes that find all of them
/// busy share a transaction, which is cheaper than a connection more.
const MOST: u32 = 8;

/// A new connection is tried for so long.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a call waits for another to give its connection back.
const WAIT: Duration = Duration::from_secs(10);

/// A connection that lay idle for longer is asked whether it lives.
const IDLE: Duration = Duration::from_secs(1);

/// What each connection is told first: each statement is planned once, for any values, and by its
/// indexes, since it is planned when the tables may still be empty; none runs for ever.
const SETTINGS: &str = "set application_name = 'relay'; \
     set plan_cache_mode = force_generic_plan; set jit = off; \
     set enable_seqscan = off; set enable_bitmapscan = off; \
     set enable_hashjoin = off; set enable_mergejoin = off; \
     set statement_timeout = '20s'; set idle_in_transaction_session_timeout = '30s'";

/// See the module.
#[derive(Debug)]
pub(super) struct Pool {
    options: AnyConnectOptions,
    /// As many as there may be connections.
    permits: Semaphore,
    idle: Mutex<Vec<Idle>>,
    /// Moves on when a connection was found dead: those made before are not used again.
    era: AtomicU64,
    /// Handed in once the database is open.
    pub(super) time: OnceLock<Arc<Time>>,
}

#[derive(Debug)]
struct Idle {
    connection: AnyConnection,
    era: u64,
    since: Duration,
}

/// A connection that is lent.
#[derive(Debug)]
pub(super) struct Line<'a> {
    connection: AnyConnection,
    era: u64,
    _permit: SemaphorePermit<'a>,
}

impl Line<'_> {
    pub(super) const fn connection(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }
}

impl Pool {
    pub(super) fn new(options: AnyConnectOptions) -> Self {
        Self {
            options,
            permits: Semaphore::new(MOST as usize),
            idle: Mutex::default(),
            era: AtomicU64::new(0),
            time: OnceLock::new(),
        }
    }

    /// A connection that lives, as far as one can tell.
    pub(super) async fn line(&self, name: &str) -> Result<Line<'_>, StoreError> {
        let permit = self.permit(name).await?;
        self.line_by(permit, name).await
    }

    /// Waits for one of the connections to be free.
    pub(super) async fn permit(&self, name: &str) -> Result<SemaphorePermit<'_>, StoreError> {
        match tokio::time::timeout(WAIT, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_closed)) => Err(StoreError::Closed { path: name.to_owned() }),
            Err(_) => Err(StoreError::Busy { path: name.to_owned() }),
        }
    }

    /// The connection that was waited for.
    pub(super) async fn line_by<'a>(
        &'a self,
        permit: SemaphorePermit<'a>,
        name: &str,
    ) -> Result<Line<'a>, StoreError> {
        // The one used last: those not needed stay idle.
        while let Some(mut idle) = self.take() {
            if self.uptime().saturating_sub(idle.since) < IDLE
                || matches!(tokio::time::timeout(CONNECT, idle.connection.ping()).await, Ok(Ok(())))
            {
                return Ok(Line { connection: idle.connection, era: idle.era, _permit: permit });
            }
            self.found_dead(idle.era);
        }
        let era = self.era.load(Ordering::Acquire);
        let connected = connect(&self.options).await;
        let mut connection = connected.map_err(|e| error::explain_postgres(name, &e))?;
        // It may be another server than before.
        self.ask_the_time(&mut connection).await.map_err(|e| error::explain_postgres(name, &e))?;
        Ok(Line { connection, era, _permit: permit })
    }

    /// Gives it back, but where the time is to be asked for on it first.
    pub(super) fn put_away<'a>(&self, line: Line<'a>) -> Option<Line<'a>> {
        if self.time.get().is_some_and(|time| time.is_old()) {
            return Some(line);
        }
        self.give_back(line);
        None
    }

    /// Asks for the time and gives the connection back. Nobody waits for it.
    pub(super) async fn keep_the_time(&self, mut line: Line<'_>) {
        match self.ask_the_time(line.connection()).await {
            Ok(()) => self.give_back(line),
            Err(_) => self.lost(line),
        }
    }

    async fn ask_the_time(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        let Some(time) = self.time.get() else { return Ok(()) };
        let late = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
        tokio::time::timeout(CONNECT, time.ask(connection)).await.unwrap_or_else(late)
    }

    /// It answered.
    pub(super) fn give_back(&self, line: Line<'_>) {
        if line.era == self.era.load(Ordering::Acquire) && !self.permits.is_closed() {
            let since = self.uptime();
            self.lock().push(Idle { connection: line.connection, era: line.era, since });
        }
    }

    /// It is dead; what was made before it most likely is, too.
    pub(super) fn lost(&self, line: Line<'_>) {
        self.found_dead(line.era);
    }

    pub(super) async fn close(&self) {
        // Each one lent has to come back first.
        if let Ok(all) = self.permits.acquire_many(MOST).await {
            self.permits.close();
            drop(all);
        }
        let idle = std::mem::take(&mut *self.lock());
        for idle in idle {
            let _ = tokio::time::timeout(CONNECT, idle.connection.close()).await;
        }
    }

    fn found_dead(&self, era: u64) {
        // Once for each era, however many of its connections are found dead.
        let moved =
            self.era.compare_exchange(era, era + 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if moved {
            self.lock().clear();
        }
    }

    fn take(&self) -> Option<Idle> {
        self.lock().pop()
    }

    fn uptime(&self) -> Duration {
        self.time.get().map_or(Duration::ZERO, |time| time.uptime())
    }

    /// A panic elsewhere leaves a whole list: each change is one step.
    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new connection.
pub(super) async fn connect(options: &AnyConnectOptions) -> Result<AnyConnection, sqlx::Error> {
    let connecting = async {
        let mut connection = AnyConnection::connect_with(options).await?;
        sqlx::raw_sql(SETTINGS).execute(&mut connection).await?;
        Ok(connection)
    };
    let late = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
    tokio::time::timeout(CONNECT, connecting).await.unwrap_or_else(late)
}
