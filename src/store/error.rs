//! What can go wrong with the database, named so that a person can act on it.

/// Why the database did not do it. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is of a kind this build does not open.
    #[error("cannot use the database `{url}`: only `sqlite:///absolute/path` is known")]
    Url {
        /// The URL, without what stands before an `@`.
        url: String,
    },
    /// The file is not there and could not be made, or may not be read.
    #[error("cannot open the database `{path}`: {detail}")]
    Open {
        /// The file.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// A newer relay made changes that this one does not know.
    #[error(
        "the database `{path}` is of a newer relay (schema {found}, this one knows up to {known})"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its newest migration.
        found: i64,
        /// The newest this build has.
        known: i64,
    },
    /// The file is damaged, or is no database.
    #[error("the database `{path}` is damaged: {detail}")]
    Corrupt {
        /// The file.
        path: String,
        /// What the database says.
        detail: String,
    },
    /// A migration failed, or one that was applied has been changed since.
    #[error("cannot bring the database `{path}` up to date: {detail}")]
    Migration {
        /// The file.
        path: String,
        /// Which, and why.
        detail: String,
    },
    /// Another process held the database for longer than the busy time-out.
    #[error("the database `{path}` is held by another process")]
    Busy {
        /// The file.
        path: String,
    },
    /// The disk is full, read-only or failing. Nothing was changed.
    #[error("cannot write the database `{path}`: {detail}")]
    Disk {
        /// The file.
        path: String,
        /// What the database says.
        detail: String,
    },
    /// A row holds what this build cannot read.
    #[error("unreadable value in the database `{path}`: column `{column}`: {detail}")]
    Row {
        /// The file.
        path: String,
        /// The column.
        column: String,
        /// Why.
        detail: String,
    },
    /// A statement failed for another reason: a defect of relay.
    #[error("the database `{path}` refused a statement: {detail}")]
    Statement {
        /// The file.
        path: String,
        /// What the database says.
        detail: String,
    },
    /// The store was closed, or the program is stopping.
    #[error("the database `{path}` is closed")]
    Closed {
        /// The file.
        path: String,
    },
}

/// Sorts what sqlx says. SQLite's result codes are those of sqlite.org/rescode.html; the low byte
/// is the kind, the rest refines it.
pub(super) fn explain(path: &str, error: sqlx::Error) -> StoreError {
    let path = path.to_owned();
    let detail = match &error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        other => other.to_string(),
    };
    let code = match &error {
        sqlx::Error::Database(database) => {
            database.code().and_then(|c| c.parse::<u32>().ok()).map(|c| c & 0xff)
        }
        _ => None,
    };
    match (code, error) {
        (Some(5 | 6), _) => StoreError::Busy { path },
        (Some(8 | 10 | 13), _) => StoreError::Disk { path, detail },
        (Some(11 | 26), _) => StoreError::Corrupt { path, detail },
        (Some(3 | 14 | 23), _) => StoreError::Open { path, detail },
        (_, sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed) => StoreError::Closed { path },
        (_, sqlx::Error::PoolTimedOut) => StoreError::Busy { path },
        (_, sqlx::Error::ColumnDecode { index, source }) => {
            StoreError::Row { path, column: index, detail: source.to_string() }
        }
        _ => StoreError::Statement { path, detail },
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AnyPool, Connection, raw_sql};

    use super::*;

    #[tokio::test]
    async fn what_sqlite_says_is_sorted_by_what_a_person_can_do() {
        sqlx::any::install_default_drivers();
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/relay.db", dir.path().display());
        let pool = AnyPool::connect(&format!("{url}?mode=rwc")).await.expect("a pool");
        raw_sql("create table t (n integer check (n > 0))").execute(&pool).await.expect("a table");

        let mut holder = pool.acquire().await.expect("a connection");
        raw_sql("begin immediate").execute(&mut *holder).await.expect("the lock");
        let mut other = sqlx::AnyConnection::connect(&url).await.expect("a connection");
        let refused = raw_sql("pragma busy_timeout = 0; insert into t values (1)");
        let error = refused.execute(&mut other).await.expect_err("it was held");
        assert!(matches!(explain("p", error), StoreError::Busy { .. }));
        raw_sql("rollback").execute(&mut *holder).await.expect("the lock is free");

        let mut reader =
            sqlx::AnyConnection::connect(&format!("{url}?mode=ro")).await.expect("a connection");
        let error = raw_sql("insert into t values (1)").execute(&mut reader).await;
        let error = explain("p", error.expect_err("it was read-only"));
        assert!(matches!(&error, StoreError::Disk { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot write the database `p`: "), "{error}");

        let error = raw_sql("insert into t values (0)").execute(&pool).await;
        let error = explain("p", error.expect_err("it was taken"));
        assert!(matches!(&error, StoreError::Statement { .. }), "{error:?}");
    }
}
