//! A run's log over HTTP: fenced, idempotent, followed.

use relay::api::{Code, LogQuery};
use relay::model::StopReason;

use super::fixture::Home;

fn follow(offset: u64) -> LogQuery {
    LogQuery { run: None, offset, wait: 60 }
}

#[tokio::test]
async fn a_follower_gets_each_piece_as_it_is_written_and_then_the_end() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    let follower = |offset| {
        let (client, id) = (home.client.clone(), task.id.clone());
        tokio::spawn(async move { client.task_log(&id, &follow(offset)).await.expect("a log") })
    };
    let waiting = follower(0);
    let lease = worker.claim().await.expect("the task").lease;
    home.client.log(&task.id, &worker.chunk(&lease, 0, "one\n")).await.expect("a log");
    let first = waiting.await.expect("a piece");
    assert_eq!((first.text.as_str(), first.next, first.end), ("one\n", 4, false));

    let waiting = follower(4);
    let end = worker.end(&lease, StopReason::NoChanges);
    home.client.release(&lease.reference(), &end).await.expect("it ends");
    let last = waiting.await.expect("the end");
    assert_eq!((last.text.as_str(), last.end), ("", true));
    home.owner.close().await;
}

#[tokio::test]
async fn an_old_epoch_writes_nothing_and_a_chunk_costs_no_statement() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (old, new) = (home.worker("old").await, home.worker("new").await);
    let task = home.add(&project, "claude").await;
    let lost = old.claim().await.expect("the task").lease;
    home.client.log(&task.id, &old.chunk(&lost, 0, "mine\n")).await.expect("a log");
    home.pass(relay::model::LEASE).await;
    let lease = new.claim().await.expect("the task again").lease;
    let refused = home.client.log(&task.id, &old.chunk(&lost, 5, "zombie\n")).await;
    assert_eq!(refused.expect_err("it is lost").code(), Some(Code::LeaseLost));

    home.rest().await;
    let before = home.owner.site().queue.statements();
    for n in 0..10 {
        let chunk = new.chunk(&lease, n * 5, "line\n");
        assert_eq!(home.client.log(&task.id, &chunk).await.map(|t| t.next), Ok(n * 5 + 5));
    }
    assert_eq!(home.owner.site().queue.statements(), before);
    let runs = home.client.task(&task.id).await.expect("the task").runs;
    let of_old = LogQuery { run: Some(runs[1].id.clone()), ..LogQuery::default() };
    assert_eq!(home.client.task_log(&task.id, &of_old).await.expect("a log").text, "mine\n");
    home.owner.close().await;
}

#[tokio::test]
async fn a_chunk_that_is_too_long_is_refused_and_one_of_control_characters_is_not() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let most = relay::site::logs::CHUNK_MAX;
    let taken = home.client.log(&task.id, &worker.chunk(&lease, 0, &"\u{1b}".repeat(most))).await;
    assert_eq!(taken.map(|t| t.next), Ok(most as u64));
    let refused = home.client.log(&task.id, &worker.chunk(&lease, 0, &"x".repeat(most + 1))).await;
    assert_eq!(refused.expect_err("too long").code(), Some(Code::TooLarge));
    let refused = home.client.log(&task.id, &worker.chunk(&lease, u64::MAX, "x")).await;
    assert_eq!(refused.expect_err("no such place").code(), Some(Code::BadRequest));
    let refused = home.client.log(&task.id, &worker.chunk(&lease, 0, &"x".repeat(9 * most))).await;
    assert_eq!(refused.expect_err("far too long").code(), Some(Code::TooLarge));
    home.owner.close().await;
}

#[tokio::test]
async fn a_run_that_is_not_the_tasks_is_not_found() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let task = home.add(&project, "claude").await;
    let none = home.client.task_log(&task.id, &LogQuery::default()).await.expect("no log yet");
    assert_eq!((none.run, none.end), (None, false));
    let run = "00000000-0000-7000-8000-000000000001".parse().expect("a run");
    let query = LogQuery { run: Some(run), ..LogQuery::default() };
    let refused = home.client.task_log(&task.id, &query).await.expect_err("no such run");
    assert_eq!(refused.code(), Some(Code::NotFound));
    home.owner.close().await;
}
