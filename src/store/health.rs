//! How the database is: what `relay doctor` is told.

use std::fs;

use super::{Sql, Store, StoreError};
use crate::model::Timestamp;

/// A larger file is not read through only to be looked at: a second for each 300 MB or so.
const READ_THROUGH: u64 = 256 << 20;

/// What was seen of an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Its size, of a file with its write-ahead log, in bytes.
    pub bytes: u64,
    /// Whether every page was read and found sound; a large file is not read through.
    pub read_through: bool,
    /// When the newest event was told.
    pub newest_event: Option<Timestamp>,
}

impl Store {
    /// Reads a file through, where it is not large. A server looks after its own.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] with what is damaged.
    pub async fn health(&self) -> Result<Health, StoreError> {
        let (bytes, read_through) = match self.file() {
            Some(path) => self.look_through(path).await?,
            None => {
                let sql = Sql::new("select pg_database_size(current_database()) as bytes");
                let rows = self.read(sql).await?;
                let bytes = rows.first().map(|row| self.fields(row).count("bytes")).transpose()?;
                (bytes.flatten().unwrap_or_default(), false)
            }
        };
        let newest = self.read(Sql::new("select at from events order by seq desc limit 1"));
        let newest = newest.await?;
        let newest_event = newest.first().map(|row| self.fields(row).time("at")).transpose()?;
        Ok(Health { bytes, read_through, newest_event })
    }

    /// The size of a file, and whether it was read through.
    async fn look_through(&self, path: &str) -> Result<(u64, bool), StoreError> {
        let size = |path: &str| fs::metadata(path).map_or(0, |file| file.len());
        let bytes = size(path).saturating_add(size(&format!("{path}-wal")));
        if bytes > READ_THROUGH {
            return Ok((bytes, false));
        }
        let rows = self.read(Sql::new("pragma quick_check(1)")).await?;
        let said = rows.first().map(|row| self.fields(row).text("quick_check")).transpose()?;
        if let Some(detail) = said.filter(|said| said != "ok") {
            return Err(StoreError::Corrupt { path: path.to_owned(), detail });
        }
        Ok((bytes, true))
    }
}
