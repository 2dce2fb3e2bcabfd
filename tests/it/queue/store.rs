//! The database file itself.

use std::os::unix::fs::PermissionsExt;

use relay::queue::{Store, StoreError};

use super::bench::Bench;

fn url(path: &std::path::Path) -> String {
    format!("sqlite://{}", path.display())
}

#[tokio::test]
async fn the_file_is_its_owners_alone_whatever_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a b%41?c#é.db");
    let store = Store::open(&url(&path)).await.expect("a store");
    let mode = std::fs::metadata(&path).expect("the file under that very name").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    store.close().await;
}

#[tokio::test]
async fn what_was_written_is_there_for_the_next_process() {
    let b = Bench::sqlite().await;
    let id = b.task(1).await;
    b.queue.close().await;
    let next = b.another_process().await;
    assert_eq!(next.task(&id).await.expect("a task").id, id);
    next.close().await;
    let closed = next.task(&id).await.expect_err("it answered after it was closed");
    assert!(closed.to_string().contains("is closed"), "{closed}");
}

#[tokio::test]
async fn what_is_no_database_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("relay.db");
    std::fs::write(&path, vec![7_u8; 8192]).expect("a file");
    let error = Store::open(&url(&path)).await.expect_err("it was opened");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("relay.db"), "{error}");
    assert_eq!(std::fs::read(&path).expect("the file"), vec![7_u8; 8192]);

    let error = Store::open(&url(&dir.path().join("no/such/folder.db"))).await;
    assert!(matches!(error, Err(StoreError::Open { .. })), "{error:?}");
    let error = Store::open("mysql://ann:hunter2@host/db").await.expect_err("it was opened");
    assert!(matches!(error, StoreError::Url { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_damaged_page_is_named_when_it_is_met() {
    let b = Bench::sqlite().await;
    let hand = b.worker("desk", &["claude"]).await;
    for number in 1..=40 {
        b.task(number).await;
    }
    b.claim(&hand).await.expect("work");
    b.queue.close().await;
    let path = b.url.trim_start_matches("sqlite://");
    let mut bytes = std::fs::read(path).expect("the file");
    // The schema's page stays; every page of data after it is rubbish.
    bytes[4096..].fill(0xa5);
    std::fs::write(path, bytes).expect("the file");
    let error = match Store::open(&b.url).await {
        Err(error) => error,
        Ok(store) => {
            let queue = relay::queue::Queue::new(
                store,
                std::sync::Arc::new(b.clock.clone()),
                b.ids.clone(),
            );
            match queue.tasks(None).await.expect_err("it read rubbish") {
                relay::queue::QueueError::Store(error) => error,
                other => panic!("{other}"),
            }
        }
    };
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("relay.db"), "{error}");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_half_write() {
    let b = Bench::sqlite().await;
    let hand = b.worker("desk", &["claude"]).await;
    for number in 1..=30 {
        b.task(number).await;
    }
    for polls in 1..=30 {
        let claimant = b.claimant(&hand);
        let mut claim = Box::pin(b.queue.claim(&claimant));
        // Abandoned after so many steps, wherever it is then.
        for _ in 0..polls % 5 {
            if futures_util::poll!(claim.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(claim);
    }
    // The database takes writes, and each lease has its run and its event.
    b.queue.sweep().await.expect("a sweep");
    for task in b.queue.tasks(None).await.expect("tasks") {
        let runs = b.queue.runs(&task.id).await.expect("runs").len();
        assert_eq!(i64::try_from(runs), Ok(task.epoch.0));
        let told = b.told(&task.id).await;
        assert_eq!(told.len(), 1 + runs, "{told:?}");
    }
}
