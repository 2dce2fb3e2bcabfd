//! How many sites a database has: what each start takes for granted is held by a lock.

use std::collections::BTreeSet;
use std::time::Duration;

use relay::queue::StoreError;
use relay::site::owner::OwnerError;
use relay::store::CopyError;
use sqlx::{AnyConnection, Connection, Row};

use super::pair::{Pair, eventually, look_round, places, site};
use crate::site::fixture::until;
use crate::support::postgres::{Cluster, Database, number, run};

async fn refused(url: &str, many: bool) -> OwnerError {
    let error = site(url, many).await.map(|_| ()).expect_err("it was let in");
    assert!(matches!(&error, OwnerError::Store(StoreError::InUse { .. })), "{error:?}");
    let hint = error.hint().expect("a hint");
    assert!(hint.contains("relay serve --sites many"), "{hint}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_one_site_tolerates_no_other_and_many_tolerate_no_loner() {
    let Some(database) = Database::new().await else { return };
    let url = &database.url;
    let one = site(url, false).await.expect("a site");
    let error = refused(url, false).await.to_string();
    assert!(
        error.starts_with("another relay is at work on the database `postgres://…@"),
        "{error}"
    );
    refused(url, true).await;
    // Nor is its database copied from under it.
    let folder = tempfile::tempdir().expect("a folder");
    let to = format!("sqlite://{}", folder.path().join("relay.db").display());
    let copied = relay::store::copy(url, &to, &mut |_| {}).await.expect_err("it was copied");
    assert!(matches!(copied, CopyError::Store(StoreError::InUse { .. })), "{copied:?}");
    one.owner.close().await;
    // Closed, it has let the lock go.
    let pair = Pair::on(database).await;
    refused(&pair.database.url, false).await;
    let third = site(&pair.database.url, true).await.expect("a third");
    third.owner.close().await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_the_lock_is_taken_again_after_the_server_was_away() {
    let Some(cluster) = Cluster::start() else { return };
    let database = Database::on(&cluster.url).await;
    let one = site(&database.url, false).await.expect("a site");
    cluster.down();
    cluster.up();
    // Nobody asks it anything, so its server may sleep: other connections come and go.
    until(|| !one.owner.site().sites.is_seated()).await;
    for _ in 0..50 {
        assert_eq!(places(&database.url).await, 0);
    }
    // With the next question it has its place again.
    eventually(async || one.client.tasks(None).await.is_ok()).await;
    eventually(async || places(&database.url).await == 1).await;
    refused(&database.url, false).await;
    one.owner.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_site_whose_place_was_taken_meanwhile_stops() {
    let Some(database) = Database::new().await else { return };
    let url = database.url.as_str();
    let mut one = site(url, false).await.expect("a site");
    let worker = one.worker("w").await;
    let held = worker.hold(1, one.owner.site().bell.version());
    one.held(1).await;
    // Another stands in line for the lock, so that it has it as soon as it is lost.
    let mut other = AnyConnection::connect(url).await.expect("the server");
    let taking = tokio::spawn(async move {
        let lock = "select pg_advisory_lock(491327873401)";
        sqlx::raw_sql(lock).execute(&mut other).await.expect("the lock");
        other
    });
    let line = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    eventually(async || number(url, line).await == 1).await;
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'relay session %'";
    run(url, cut).await;
    until(|| !one.owner.site().sites.is_seated()).await;
    // The next question shows it.
    one.client.tasks(None).await.expect("it is answered");
    let error = one.owner.ousted().await;
    assert!(matches!(&error, StoreError::Ousted { .. }), "{error:?}");
    assert!(error.hint().expect("a hint").contains("--sites many"), "{error:?}");
    // Nobody is held there any longer, and no new connection is taken.
    held.await.expect("an answer");
    assert!(one.owner.site().stopping.is_cancelled());
    one.owner.close().await;
    drop(taking.await.expect("an end"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_session_that_the_server_still_believes_in_does_not_keep_its_own_site_out() {
    use relay::queue::{Company, Session};
    let Some(database) = Database::new().await else { return };
    let url = &database.url;
    // A network that broke: the server does not know yet.
    let _ghost = Session::open(url, Company::Alone, "me").await.expect("a place");
    let other = Session::open(url, Company::Alone, "you").await.expect_err("it was let in");
    assert!(matches!(other, StoreError::InUse { .. }), "{other:?}");
    Session::open(url, Company::Alone, "me").await.expect("its own place").close().await;
}

/// What each of relay's connections was last asked, and when.
async fn asked(url: &str) -> BTreeSet<(String, String, String)> {
    let mut connection = AnyConnection::connect(url).await.expect("the server");
    let text = "select pid::text, query_start::text, application_name from pg_stat_activity
        where datname = current_database() and application_name like 'relay%'";
    let rows = sqlx::query(text).fetch_all(&mut connection).await.expect("rows");
    connection.close().await.expect("an end");
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_site_alone_asks_an_idle_server_nothing() {
    let Some(database) = Database::new().await else { return };
    let one = site(&database.url, false).await.expect("a site");
    let worker = one.worker("w").await;
    one.rest().await;
    let held = worker.hold(1, one.owner.site().bell.version());
    one.held(1).await;
    let before = asked(&database.url).await;
    assert!(before.iter().any(|(_, _, name)| name.starts_with("relay session ")), "{before:?}");
    one.pass(Duration::from_secs(240)).await;
    assert_eq!(asked(&database.url).await, before);
    held.abort();
    one.owner.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_one_of_many_asks_an_idle_server_one_thing_a_beat() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let (here, there) = (&a.owner.site().queue, &b.owner.site().queue);
    let before = (here.statements(), there.statements());
    let lines = asked(&pair.database.url).await;
    for home in [a, b] {
        look_round(home).await;
    }
    assert_eq!((here.statements(), there.statements()), before, "the line alone was used");
    let now = asked(&pair.database.url).await;
    let used: Vec<_> = now.difference(&lines).collect();
    assert_eq!(used.len(), 2, "{used:?}");
    assert!(used.iter().all(|(_, _, name)| name.starts_with("relay session ")), "{used:?}");
    pair.close().await;
}
