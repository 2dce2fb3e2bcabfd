//! Writes that come together.

use futures_util::future::join_all;

use super::super::{Store, StoreError};
use super::*;

async fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}/relay.db", dir.path().display());
    let store = Store::open(&url).await.expect("a store");
    (dir, store)
}

fn event(at: i64) -> Sql {
    Sql::new("insert into events (at, kind, actor, data) values ($1, 'task.queued', 'site', '{}')")
        .bind(at)
}

/// An event, and then what the schema does not take.
fn broken(at: i64) -> Sql {
    Sql::new(
        "insert into events (at, kind, actor, data) values ($1, 'task.queued', 'site', '{}');
        insert into worker_traits (worker_id, kind, value) values ('nobody', 'lane', 'x')",
    )
    .bind(at)
}

/// The same, where the schema is only asked when the transaction ends.
fn broken_at_the_end(at: i64) -> Sql {
    Sql::new(
        "pragma defer_foreign_keys = on;
        insert into events (at, kind, actor, data) values ($1, 'task.queued', 'site', '{}');
        insert into worker_traits (worker_id, kind, value) values ('nobody', 'lane', 'x')",
    )
    .bind(at)
}

/// Each is sent before the writer gets to any: there is one thread.
async fn together(store: &Store, writes: Vec<Sql>) -> Vec<bool> {
    let done = join_all(writes.into_iter().map(|sql| store.write(sql))).await;
    let refused = done.iter().filter_map(|done| done.as_ref().err());
    assert!(refused.clone().all(|error| matches!(error, StoreError::Statement { .. })));
    done.iter().map(Result::is_ok).collect()
}

async fn told(store: &Store) -> Vec<i64> {
    let events = store.events(0, None, 1000).await.expect("events");
    events.into_iter().map(|event| event.at.0).collect()
}

#[tokio::test]
async fn writes_that_come_together_go_to_the_disk_once() {
    let (dir, store) = store().await;
    let log = dir.path().join("relay.db-wal");
    let size = || std::fs::metadata(&log).expect("the log").len();
    store.write(event(0)).await.expect("a write");
    let before = size();
    store.write(event(1)).await.expect("a write");
    let one = size() - before;
    assert!(one > 0);
    let before = size();
    assert_eq!(together(&store, (2..50).map(event).collect()).await, [true; 48]);
    assert!(size() - before <= 2 * one, "{} for one, {} for 48", one, size() - before);
    assert_eq!(told(&store).await, (0..50).collect::<Vec<_>>(), "in the order they came");
}

#[tokio::test]
async fn one_that_fails_among_others_leaves_them_whole_and_nothing_of_itself() {
    let (_dir, store) = store().await;
    let writes = vec![event(1), broken(2), event(3), broken(4), event(5)];
    assert_eq!(together(&store, writes).await, [true, false, true, false, true]);
    assert_eq!(told(&store).await, [1, 3, 5]);
    store.write(event(6)).await.expect("no transaction is left open");
}

#[tokio::test]
async fn where_the_transaction_itself_fails_each_write_is_judged_by_itself() {
    let (_dir, store) = store().await;
    let writes = vec![event(1), broken_at_the_end(2), event(3)];
    assert_eq!(together(&store, writes).await, [true, false, true]);
    assert_eq!(told(&store).await, [1, 3]);
    store.write(event(4)).await.expect("no transaction is left open");
}

#[tokio::test]
async fn more_than_one_transaction_takes_are_all_done_and_so_is_what_a_close_finds() {
    let (dir, store) = store().await;
    let many = i64::try_from(group::MOST * 3).expect("few");
    let writes = join_all((0..many).map(|at| store.write(event(at))));
    let (done, ()) = tokio::join!(writes, store.close());
    assert!(done.iter().all(Result::is_ok), "each was sent before the close");
    let url = format!("sqlite://{}/relay.db", dir.path().display());
    let again = Store::open(&url).await.expect("a store");
    assert_eq!(again.events(0, None, 1000).await.expect("events").len(), done.len());
}
