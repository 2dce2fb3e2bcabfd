//! Who is at work on a Postgres database: one site alone, or several that tell each other. A lock
//! of a session, so it ends with its holder, however that ends.

use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, ConnectOptions, Connection, Row};

use super::{StoreError, error, postgres, without_login};

/// The lock's number within a database: "relay" in ASCII.
const ALONE: &str = "select case when pg_try_advisory_lock(491327873401) then 1 else 0 end";

/// A server that was left by a killed site may take a moment to notice.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The held lock.
#[derive(Debug)]
pub(super) struct Exclusive {
    connection: AnyConnection,
}

impl Exclusive {
    /// For one that tolerates no other.
    pub(super) async fn alone(url: &str) -> Result<Self, StoreError> {
        Self::take(url, ALONE).await
    }

    async fn take(url: &str, ask: &'static str) -> Result<Self, StoreError> {
        let name = without_login(url);
        let options: AnyConnectOptions = postgres::options(url, &name)?;
        let explained = |e: sqlx::Error| error::explain_postgres(&name, &e);
        let mut connection = options.connect().await.map_err(explained)?;
        for _ in 0..TRIES {
            let row = sqlx::query(ask).fetch_one(&mut connection).await.map_err(explained)?;
            if row.try_get::<i64, _>(0).map_err(explained)? == 1 {
                return Ok(Self { connection });
            }
            tokio::time::sleep(PAUSE).await;
        }
        let _ = connection.close().await;
        Err(StoreError::InUse { path: name })
    }

    /// Lets it go.
    pub(super) async fn close(self) {
        let _ = self.connection.close().await;
    }
}
