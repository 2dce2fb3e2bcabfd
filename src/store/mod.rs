//! The only room that knows sqlx: migrations and the statements, each in the method that uses it.

mod error;
mod types;

pub use error::StoreError;
pub use types::{LocalPullRow, Need, NewTask, NewWorker, Swept};

/// The open database.
#[derive(Debug)]
pub struct Store {}

impl Store {
    /// Opens `sqlite:///absolute/path`, makes the file where it is missing and brings it up to date.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Err(StoreError::Url { url: url.to_owned() })
    }

    /// Waits for what is under way and closes the file.
    pub async fn close(&self) {}
}
