//! How the database file is: what `relay doctor` is told.

use std::fs;

use super::{Store, StoreError};
use crate::model::Timestamp;

/// A larger file is not read through only to be looked at: a second for each 300 MB or so.
const READ_THROUGH: u64 = 256 << 20;

/// What was seen of an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Its file and its write-ahead log, in bytes.
    pub bytes: u64,
    /// Whether every page was read and found sound; a large file is not read through.
    pub read_through: bool,
    /// When the newest event was told.
    pub newest_event: Option<Timestamp>,
}

impl Store {
    /// Reads the file through, where it is not large.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] with what is damaged.
    pub async fn health(&self) -> Result<Health, StoreError> {
        let size = |path: &str| fs::metadata(path).map_or(0, |file| file.len());
        let bytes = size(&self.path).saturating_add(size(&format!("{}-wal", self.path)));
        let read_through = bytes <= READ_THROUGH;
        if read_through {
            let rows = self.read(sqlx::query("pragma quick_check(1)")).await?;
            let said = rows.first().map(|row| self.fields(row).text("quick_check")).transpose()?;
            if let Some(detail) = said.filter(|said| said != "ok") {
                return Err(StoreError::Corrupt { path: self.path.clone(), detail });
            }
        }
        let newest = self.read(sqlx::query("select at from events order by seq desc limit 1"));
        let newest = newest.await?;
        let newest_event = newest.first().map(|row| self.fields(row).time("at")).transpose()?;
        Ok(Health { bytes, read_through, newest_event })
    }
}
