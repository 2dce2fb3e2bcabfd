//! What several sites on one Postgres tell each other, and read where they may have missed it.

use std::sync::atomic::Ordering;

use super::{Sql, Store, StoreError};
use crate::model::{InstanceId, LeaseRef, Timestamp, WorkerId};

impl Store {
    /// Tells the sites that listen; at most [`super::NEWS_BYTES`]. To be called after the change
    /// that it tells of is committed.
    ///
    /// # Errors
    /// The database's.
    pub async fn tell(&self, text: &str) -> Result<(), StoreError> {
        // Only Postgres has it: a file has one site.
        let sql = Sql::new(
            "select case when pg_notify('relay_news', $1) is null then 0 else 1 end as told",
        );
        self.write(sql.bind(text)).await.map(|_| ())
    }

    /// Another site wrote: what was read before may be old ([`Store::writes`]).
    pub fn written_elsewhere(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Which start of each worker lives.
    ///
    /// # Errors
    /// The database's.
    pub async fn instances(&self) -> Result<Vec<(WorkerId, InstanceId)>, StoreError> {
        let rows = self.read(Sql::new("select id, instance_id from workers")).await?;
        let rows = rows.iter().map(|row| self.fields(row));
        rows.map(|row| Ok((row.parsed("id")?, row.parsed("instance_id")?))).collect()
    }

    /// Every lease that was given and has not ended.
    ///
    /// # Errors
    /// The database's.
    pub async fn live_leases(&self) -> Result<Vec<LeaseRef>, StoreError> {
        let sql = Sql::new("select id, epoch from tasks where worker_id is not null");
        self.read(sql).await?.iter().map(|row| self.fields(row).lease("id")).collect()
    }

    /// These workers were heard of at `now`, so that other sites know.
    ///
    /// # Errors
    /// The database's.
    pub async fn heard_of(&self, workers: &[WorkerId], now: Timestamp) -> Result<(), StoreError> {
        let ids: Vec<String> = workers.iter().map(ToString::to_string).collect();
        // Only Postgres has several sites.
        let sql = Sql::new(
            "update workers set last_seen = $2
            where id = any(string_to_array($1, ',')) and last_seen < $2",
        );
        self.write(sql.bind(ids.join(",")).bind(now.0)).await.map(|_| ())
    }
}
