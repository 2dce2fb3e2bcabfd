//! Writes that come together are one transaction, so that they wait for the disk once. Each is a
//! savepoint of its own: one that fails leaves the others whole.

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::Sql;

/// How many writes go into one transaction at most: a reader of the log behind it, and a caller
/// that came first, wait no longer than these take.
pub(super) const MOST: usize = 64;

/// What became of one write.
pub(super) type Written = Result<Vec<AnyRow>, sqlx::Error>;

/// Does all of them in one transaction; what became of each, once all of it is on the disk. `None`
/// where nothing of it stands: then each has to be done by itself, and finds its own error.
pub(super) async fn write(connection: &mut AnyConnection, writes: &[Sql]) -> Option<Vec<Written>> {
    let done = attempt(connection, writes).await;
    if done.is_none() {
        // Refused where the database has ended the transaction by itself, which is as good.
        let _ = sqlx::raw_sql("rollback").execute(connection).await;
    }
    done
}

async fn attempt(connection: &mut AnyConnection, writes: &[Sql]) -> Option<Vec<Written>> {
    sqlx::raw_sql("begin immediate").execute(&mut *connection).await.ok()?;
    let mut done = Vec::with_capacity(writes.len());
    for sql in writes {
        let one = sql.clone().for_sqlite("savepoint one;", ";release one");
        let written = one.fetch_all(&mut *connection).await;
        if written.is_err() {
            // A full or broken disk ends the whole transaction; then there is no savepoint either.
            let undo = "rollback to one; release one";
            sqlx::raw_sql(undo).execute(&mut *connection).await.ok()?;
        }
        done.push(written);
    }
    sqlx::raw_sql("commit").execute(connection).await.ok()?;
    Some(done)
}
