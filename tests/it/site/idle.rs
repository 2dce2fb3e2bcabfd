//! A site where nothing happens asks its database nothing.

use std::time::Duration;

use futures_util::future::join_all;
use relay::model::{Secret, StopReason, TaskState};
use sqlx::{AnyConnection, Connection, Row};

use super::fixture::{Home, until};
use super::tokens::{serving_in, worker};
use crate::support::postgres::Database;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_idle_hour_with_a_hundred_workers_runs_no_statement() {
    let home = Home::open().await;
    let project = read_after(&home, home.link("shop")).await;
    let names: Vec<String> = (0..100).map(|n| format!("w{n}")).collect();
    let workers = join_all(names.iter().map(|name| home.worker(name))).await;
    // There was work: a lease was given and renewed, a run ended, and a second of rest is over.
    read_after(&home, home.add(&project, "claude")).await;
    let lease = workers[0].claim().await.expect("the task").lease;
    let end = workers[0].end(&lease, StopReason::NoChanges);
    home.client.release(&lease.reference(), &end).await.expect("it is ended");
    read_after(&home, async { home.clock.advance(Duration::from_secs(1)) }).await;

    home.rest().await;
    let before = home.owner.site().queue.statements();
    for round in 0..12 {
        let held: Vec<_> = workers.iter().map(|worker| worker.hold(1, 0)).collect();
        home.held(100).await;
        home.pass(5 * MINUTE).await;
        for answer in join_all(held).await {
            assert_eq!(answer.expect("an answer").queued, 0, "round {round}");
        }
    }
    assert_eq!(home.owner.site().queue.statements() - before, 0);
    home.owner.close().await;
}

/// The same on a server and over TCP, each worker with a token of its own. The server's own book says
/// when a session of the site did anything last.
#[tokio::test]
async fn pg_an_idle_hour_with_a_hundred_workers_over_tcp_runs_no_statement() {
    let Some(database) = Database::new().await else { return };
    let url = Some(Secret::new(&database.url));
    let home = serving_in(tempfile::tempdir().expect("a folder"), |c| c.database = url).await;
    let project = home.link("shop").await;
    let mut workers = Vec::new();
    for n in 0..100 {
        workers.push(worker(&home, &format!("w{n}")).await.1);
    }
    home.add(&project, "claude").await;
    let lease = workers[0].claim().await.expect("the task").lease;
    let end = workers[0].end(&lease, StopReason::NoChanges);
    workers[0].client.release(&lease.reference(), &end).await.expect("it is ended");
    home.rest().await;

    let last = "select max(extract(epoch from state_change) * 1000000)::bigint
        from pg_stat_activity where application_name = 'relay' and datname = current_database()";
    let site = home.owner.site();
    let (asked, before) = (site.queue.statements(), number(&database.url, last).await);
    for round in 0..12 {
        let held: Vec<_> = workers.iter().map(|worker| worker.hold(1, 0)).collect();
        home.held(100).await;
        home.pass(5 * MINUTE).await;
        // The database's clock goes by this one, and its sleepers by the machine's time: they are
        // told to look.
        site.bell.stepped();
        for answer in join_all(held).await {
            assert_eq!(answer.expect("an answer").queued, 0, "round {round}");
        }
    }
    assert_eq!(site.queue.statements() - asked, 0);
    assert_eq!(number(&database.url, last).await, before, "a session of the site did something");
    workers[0].client.tasks(None).await.expect("tasks");
    assert!(number(&database.url, last).await > before, "the server's book shows nothing");
    home.owner.close().await;
}

/// A number that one statement gives, on a connection that is not the site's.
async fn number(url: &str, text: &'static str) -> i64 {
    let mut connection = AnyConnection::connect(url).await.expect("the server");
    let row = sqlx::query(text).fetch_one(&mut connection).await.expect("a row");
    connection.close().await.expect("an end");
    row.get(0)
}

#[tokio::test]
async fn the_end_of_a_run_is_read_over_once_within_a_second() {
    let home = Home::open().await;
    let project = read_after(&home, home.link("shop")).await;
    let worker = home.worker("w").await;
    for _ in 0..5 {
        read_after(&home, home.add(&project, "claude")).await;
    }
    let mut leases = Vec::new();
    for _ in 0..5 {
        leases.push(worker.claim().await.expect("a task").lease);
    }
    let queue = &home.owner.site().queue;
    home.rest().await;
    let version = home.owner.site().bell.version();
    let before = queue.statements();
    for lease in &leases {
        let end = worker.end(lease, StopReason::NoChanges);
        home.client.release(&lease.reference(), &end).await.expect("it is ended");
    }
    let released = queue.statements() - before;
    assert_eq!(released, 5, "what each end costs by itself: one write");
    assert!(home.owner.site().bell.version() > version, "readers hear of it at once");
    read_after(&home, async { home.clock.advance(Duration::from_secs(1)) }).await;
    home.pass(Duration::from_secs(3600)).await;
    assert_eq!(queue.statements() - before - released, 2, "the needs and the timers, once");
    home.owner.close().await;
}

#[tokio::test]
async fn a_run_that_gives_its_task_back_rings_the_next_worker_at_once() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (first, second) = (home.worker("first").await, home.worker("second").await);
    home.add(&project, "claude").await;
    let lease = first.claim().await.expect("the task").lease;
    let held = second.hold(1, home.owner.site().bell.version());
    home.held(1).await;
    let end = first.end(&lease, StopReason::WorkerStopped);
    let released = home.client.release(&lease.reference(), &end).await.expect("it is given back");
    assert_eq!(released.task.state, TaskState::Queued);
    // No time passes.
    assert_eq!(held.await.expect("an answer").queued, 1);
    home.owner.close().await;
}

/// Does what makes the site read its queue again, and waits until it has.
async fn read_after<T>(home: &Home, act: impl Future<Output = T>) -> T {
    let bell = &home.owner.site().bell;
    let before = bell.reading();
    let done = act.await;
    until(|| bell.reading() > before).await;
    done
}
