//! Whether the database answers at all.

use super::{Sql, Store, StoreError};

impl Store {
    /// Asks for nothing.
    ///
    /// # Errors
    /// The database's.
    pub async fn answers(&self) -> Result<(), StoreError> {
        self.read(Sql::new("select 1")).await.map(|_| ())
    }
}
