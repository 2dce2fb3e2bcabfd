//! Who is at work on a Postgres database: one site alone, or several that tell each other. One
//! connection holds both: the lock, which ends with its holder however that ends, and the line on
//! which sites hear each other.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{ConnectOptions, Row};

use super::{StoreError, error, without_login};

/// Where sites tell each other. A database is one queue, and a channel belongs to one database.
const CHANNEL: &str = "relay_news";

/// The longest text that is told; the server takes less than 8,000 bytes.
pub const NEWS_BYTES: usize = 7_000;

/// The lock's number within a database: "relay" in ASCII. The other one is its neighbour.
const ALONE: &str = "select pg_try_advisory_lock(491327873401)";
const SHARED: &str = "select pg_try_advisory_lock_shared(491327873401)";

/// A server that was left by a killed site may take a moment to notice.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// A connection is tried, and an answer waited for, so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nothing runs on it while all is quiet. The server notices within a minute that the holder's
/// machine is gone, and no router on the way forgets the line.
const SETTINGS: &str = "set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; \
     set tcp_keepalives_count = 3";

/// Whose line it is. One of the same holder from before may still stand: its end broke, and the
/// server has not noticed. It would keep the lock from the next.
const NAME: &str = "select set_config('application_name', 'relay session ' || $1, false)";
const END_OLD: &str = "select pg_terminate_backend(pid) from pg_stat_activity
     where $1 <> '' and application_name = 'relay session ' || $1
         and pid <> pg_backend_pid() and usename = current_user";

/// How many others are tolerated on the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// None.
    Alone,
    /// Those that tolerate others as well.
    Shared,
}

/// The held lock and the line.
#[derive(Debug)]
pub struct Session {
    listener: PgListener,
    name: String,
}

/// What a site finds when it looks round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Whether it is the one of several sites that watches the forges.
    pub watches: bool,
    /// Something that differs from an earlier one where tasks, workers or tokens changed meanwhile.
    pub mark: String,
}

impl Session {
    /// Takes the lock; with [`Company::Shared`] it hears the others from here on. `holder` is the
    /// site's own word for itself, or empty: a session that it lost is ended for good.
    ///
    /// # Errors
    /// [`StoreError::InUse`] where others are there that do not fit, or the server cannot be
    /// reached.
    pub async fn open(url: &str, company: Company, holder: &str) -> Result<Self, StoreError> {
        let name = without_login(url);
        let late = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
        let opened = tokio::time::timeout(PATIENCE, Self::take(url, company, holder));
        match opened.await.unwrap_or_else(late) {
            Ok(Some(listener)) => Ok(Self { listener, name }),
            Ok(None) => Err(StoreError::InUse { path: name }),
            Err(error) => Err(error::explain_postgres(&name, &error)),
        }
    }

    async fn take(
        url: &str,
        company: Company,
        holder: &str,
    ) -> Result<Option<PgListener>, sqlx::Error> {
        let options = PgConnectOptions::from_str(url)?.disable_statement_logging();
        // The listener wants a pool; it is never to make another connection by itself, which
        // would hold no lock.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_with(options)
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.ignore_pool_close_event(true);
        listener.eager_reconnect(false);
        sqlx::raw_sql(SETTINGS).execute(&mut listener).await?;
        sqlx::query(NAME).bind(holder).execute(&mut listener).await?;
        sqlx::query(END_OLD).bind(holder).execute(&mut listener).await?;
        let ask = match company {
            Company::Alone => ALONE,
            Company::Shared => SHARED,
        };
        for tries in 1..=TRIES {
            if sqlx::query(ask).fetch_one(&mut listener).await?.try_get(0)? {
                if company == Company::Shared {
                    listener.listen(CHANNEL).await?;
                }
                return Ok(Some(listener));
            }
            if tries < TRIES {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(None)
    }

    /// Waits for what another site tells, or this one. May be dropped while it waits.
    ///
    /// # Errors
    /// The connection is lost and the lock with it: this session is over.
    pub async fn next(&mut self) -> Result<String, StoreError> {
        match self.listener.try_recv().await {
            Ok(Some(told)) => Ok(told.payload().to_owned()),
            Ok(None) => Err(self.lost("the connection ended")),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Looks round, in one statement; with `watch` it becomes the one that watches the forges,
    /// where none does.
    ///
    /// # Errors
    /// The session is over.
    pub async fn pulse(&mut self, watch: bool) -> Result<Pulse, StoreError> {
        // The newest event tells of tasks, leases and workers; tokens and preferences have none.
        let text = "select case when $1 then pg_try_advisory_lock(491327873402) else false end,
            concat_ws(' ', (select max(seq) from events),
                (select count(*) || ' ' || count(revoked_at) from tokens),
                (select count(*) from projects),
                (select count(*) || ' ' || coalesce(max(set_at), 0) from preferences))";
        let asking = sqlx::query(text).bind(watch).fetch_one(&mut self.listener);
        let row = match tokio::time::timeout(PATIENCE, asking).await {
            Ok(row) => row.map_err(|e| error::explain_postgres(&self.name, &e))?,
            Err(_) => return Err(self.lost("no answer")),
        };
        let read =
            || Ok::<_, sqlx::Error>(Pulse { watches: row.try_get(0)?, mark: row.try_get(1)? });
        read().map_err(|e| error::explain_postgres(&self.name, &e))
    }

    /// Lets the locks go before this returns.
    pub async fn close(mut self) {
        let release = sqlx::query("select pg_advisory_unlock_all()").execute(&mut self.listener);
        // Where the server is away it has let them go by itself.
        let _ = tokio::time::timeout(PATIENCE, release).await;
    }

    fn lost(&self, detail: &str) -> StoreError {
        StoreError::Away { path: self.name.clone(), detail: detail.to_owned() }
    }
}
