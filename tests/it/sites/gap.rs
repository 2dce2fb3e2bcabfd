//! The line between two sites is broken while things change.

use std::collections::BTreeSet;
use std::time::Duration;

use relay::api::{Code, DoorbellQuery};

use super::pair::{Pair, eventually, places, with_token};
use super::wire::Wire;
use crate::site::fixture::{Home, TestWorker, until};
use crate::site::tokens::{code, stranger};
use crate::support::postgres::{Cluster, Database};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_what_was_told_while_the_line_was_broken_is_read_when_it_stands_again() {
    let Some(database) = Database::new().await else { return };
    let wire = Wire::to(&database.url).await;
    let pair = Pair::over(database, &wire.url).await;
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let (token, _, gone) = with_token(b, "gone").await;
    let (busy, free) = (b.worker("busy").await, b.worker("free").await);
    let task = a.add(&project, "claude").await;
    let lease = busy.claim().await.expect("the task").lease;
    let called_off = busy.hold(0, b.owner.site().bell.version());
    b.held(1).await;
    Pair::heard(a, b).await;
    let version = b.owner.site().bell.version();
    let waiting = free.hold(1, version);
    let asker = gone.clone();
    let refused =
        tokio::spawn(async move { asker.client.doorbell(&asker.query(1, version, 300)).await });
    b.held(3).await;
    wire.cut();
    until(|| !b.owner.site().sites.is_seated()).await;
    a.client.cancel(&task.id, "ann").await.expect("it is called off");
    a.client.revoke_token(&token.id, "ann").await.expect("it is revoked");
    a.add(&project, "claude").await;
    assert_eq!(b.owner.site().bell.present().len(), 3, "nothing was heard of it");
    wire.mend();
    assert_eq!(called_off.await.expect("an answer").revoked, [lease.reference()]);
    assert_eq!(code(refused.await.expect("an end")), Code::Unauthorized);
    assert_eq!(waiting.await.expect("an answer").queued, 1);
    pair.close().await;
}

/// What no database has cannot be read anew: it is forgotten, but of those who wait here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_what_workers_left_out_is_forgotten_where_news_of_them_may_have_been_missed() {
    let Some(database) = Database::new().await else { return };
    let wire = Wire::to(&database.url).await;
    let pair = Pair::over(database, &wire.url).await;
    let (a, b) = (&pair.a, &pair.b);
    let (there, here) = (a.worker("there").await, b.worker("here").await);
    let ending = |worker: &TestWorker, hold| DoorbellQuery {
        ending: true,
        ..worker.query(0, b.owner.site().bell.version(), hold)
    };
    there.client.doorbell(&ending(&there, 0)).await.expect("an answer");
    let (client, query) = (here.client.clone(), ending(&here, 300));
    let held = tokio::spawn(async move { client.doorbell(&query).await });
    b.held(1).await;
    Pair::heard(a, b).await;
    let end = async || {
        let workers = b.client.workers().await.expect("workers");
        let end = workers.iter().filter(|worker| worker.ending);
        end.map(|worker| worker.name.to_string()).collect::<BTreeSet<_>>()
    };
    assert_eq!(end().await, BTreeSet::from(["here", "there"].map(str::to_owned)));
    wire.cut();
    until(|| !b.owner.site().sites.is_seated()).await;
    a.worker("there").await;
    a.rest().await;
    wire.mend();
    until(|| b.owner.site().sites.is_seated()).await;
    Pair::heard(a, b).await;
    assert_eq!(end().await, BTreeSet::from(["here".to_owned()]));
    held.abort();
    pair.close().await;
}

/// A worker that was told that its token is none would give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_token_is_not_called_none_while_the_database_cannot_say_so() {
    let Some(database) = Database::new().await else { return };
    let wire = Wire::to(&database.url).await;
    let pair = Pair::over(database, &wire.url).await;
    let (a, b) = (&pair.a, &pair.b);
    wire.cut();
    until(|| !b.owner.site().sites.is_seated()).await;
    let (_, secret, _) = with_token(a, "w").await;
    let client = stranger(b).with_token(secret);
    let unknown = client.tasks(None).await.expect_err("the database is away");
    assert_eq!((unknown.code(), unknown.is_away()), (Some(Code::DatabaseAway), true), "{unknown}");
    wire.mend();
    eventually(async || client.tasks(None).await.is_ok()).await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_both_sites_go_on_by_themselves_after_the_server_was_away() {
    let Some(cluster) = Cluster::start() else { return };
    let pair = Pair::on(Database::on(&cluster.url).await).await;
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let worker = b.worker("w").await;
    let held = worker.hold(1, b.owner.site().bell.version());
    b.held(1).await;
    cluster.down();
    cluster.up();
    eventually(async || create(a, &project).await).await;
    assert_eq!(held.await.expect("an answer").queued, 1);
    eventually(async || places(&pair.database.url).await == 2).await;
    // The lines stand again: what is told is heard, without a gap that would be read anew.
    Pair::heard(a, b).await;
    Pair::heard(b, a).await;
    pair.close().await;
}

/// A site whose connections were cut says so once to each.
async fn create(site: &Home, project: &relay::model::Project) -> bool {
    let request = relay::api::CreateTask {
        slug: project.slug.clone(),
        lane: "claude".parse().expect("a lane"),
        issue: None,
        title: Some("Mend the shop".to_owned()),
        body: None,
        asked_by: "ann".to_owned(),
    };
    match site.client.create_task(&request).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.code(), Some(Code::DatabaseAway), "{error:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
            false
        }
    }
}
