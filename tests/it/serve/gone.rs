//! The database goes away under a running site, and comes back: whoever asks is told when to ask again.

use std::time::Duration;

use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::net::{Answer, Net};
use crate::support::postgres::{Cluster, Database};

const TASK: &str = r#"{"slug":"local/shop","lane":"claude","title":"x","asked_by":"ann"}"#;

/// The probe asks the database at most once a second.
async fn ready(net: &Net) -> Answer {
    net.home.clock.advance(Duration::from_secs(2));
    net.get("/readyz").await
}

async fn titles(net: &Net) -> usize {
    net.admin("GET", "/api/v1/tasks", "").await.json()["tasks"].as_array().map_or(0, Vec::len)
}

#[track_caller]
fn assert_away(answer: &Answer, code: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (503, code), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("2"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pg_a_database_that_is_away_is_told_by_the_probe_and_by_every_write() {
    let Some(cluster) = Cluster::start() else { return };
    let database = Database::on(&cluster.url).await;
    let net = Net::open_on(&database.url).await;
    net.home.link("shop").await;
    assert_eq!(ready(&net).await.status, 200);
    cluster.down();
    for _ in 0..2 {
        assert_away(&ready(&net).await, "busy");
        let written = net.admin("POST", "/api/v1/tasks", TASK).await;
        assert_away(&written, "database_away");
        assert!(written.json()["hint"].is_string() && !written.body.contains("relay@"));
        assert_away(&net.admin("GET", "/api/v1/tasks", "").await, "database_away");
        net.is_well().await;
    }
    cluster.up();
    let back = async { while ready(&net).await.status != 200 {} };
    tokio::time::timeout(crate::support::PATIENCE, back).await.expect("it never came back");
    assert_eq!(titles(&net).await, 0, "what was refused was stored");
    assert_eq!(net.admin("POST", "/api/v1/tasks", TASK).await.status, 200);
    assert_eq!(titles(&net).await, 1);
    net.home.owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_program_holds_is_told_by_every_write_and_read_all_the_while() {
    let net = Net::open().await;
    net.home.link("shop").await;
    // What was linked is read by the site before it is shut out.
    net.home.rest().await;
    let file = net.home.folder.path().join("home/relay.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut other: SqliteConnection = options.connect().await.expect("the file");
    let held = other.begin_with("begin immediate").await.expect("the lock");
    let written = net.admin("POST", "/api/v1/tasks", TASK).await;
    assert_away(&written, "busy");
    assert_eq!((ready(&net).await.status, titles(&net).await), (200, 0));
    net.is_well().await;
    held.rollback().await.expect("the lock's end");
    assert_eq!(net.admin("POST", "/api/v1/tasks", TASK).await.status, 200);
    assert_eq!(titles(&net).await, 1);
    net.home.owner.close().await;
}
