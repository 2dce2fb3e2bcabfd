//! The doorbell over real HTTP: one wake a task, revoked leases, and nothing asked while idle.

use std::time::Duration;

use futures_util::future::join_all;
use relay::api::{Code, DoorbellQuery, HeartbeatRequest, LeaseAnswer};
use relay::model::{LEASE, StopReason, TaskState, WorkerState};

use super::fixture::{Home, TestWorker, instance, until};

#[tokio::test]
async fn one_task_wakes_one_of_three_workers_and_the_next_a_second_later() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let workers = join_all(["a", "b", "c"].map(|name| home.worker(name))).await;
    let mut held = Vec::new();
    for (n, worker) in workers.iter().enumerate() {
        held.push(worker.hold(1, 0));
        home.held(n + 1).await;
    }
    home.add(&project, "claude").await;
    home.held(2).await;
    let first = held.remove(0).await.expect("the first is woken");
    assert_eq!(first.queued, 1);

    // It does not claim. Not a moment before its second is over another is woken.
    home.clock.advance(Duration::from_millis(999));
    assert_eq!(workers[1].ring(0, 0, 0).await.queued, 0, "kept for the one that was woken");
    home.held(2).await;
    home.clock.advance(Duration::from_millis(1));
    home.held(1).await;
    assert!(workers[1].claim().await.is_some());
    home.clock.advance(Duration::from_secs(60));
    home.owner.site().bell.tick();
    assert_eq!(home.owner.site().bell.present().len(), 1, "the third sleeps on");
    home.owner.close().await;
}

#[tokio::test]
async fn three_tasks_are_claimed_by_three_waiting_workers() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let workers = join_all(["a", "b", "c"].map(|name| home.worker(name))).await;
    let held: Vec<_> = workers.iter().map(|worker| worker.hold(1, 0)).collect();
    home.held(3).await;
    join_all((0..3).map(|_| home.add(&project, "claude"))).await;
    join_all(held).await;
    let claims = join_all(workers.iter().map(TestWorker::claim)).await;
    let mut numbers: Vec<u64> = claims.iter().flatten().map(|c| c.task.id.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    home.owner.close().await;
}

#[tokio::test]
async fn a_cancel_reaches_a_busy_workers_bell_at_once() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let held = worker.hold(0, home.owner.site().bell.version());
    home.held(1).await;

    home.client.cancel(&task.id, "ann").await.expect("it is cancelled");
    let told = held.await.expect("it is told while it is busy");
    assert_eq!(told.revoked, [lease.reference()]);
    let heartbeat = HeartbeatRequest {
        instance_id: worker.request.instance_id.clone(),
        offline: false,
        interval_ms: None,
        leases: vec![lease.reference()],
    };
    let answer = home.client.heartbeat(&worker.worker.id, &heartbeat).await.expect("an answer");
    assert_eq!(answer.leases, [LeaseAnswer::Lost { reason: StopReason::Cancelled }]);
    let chunk = worker.chunk(&lease, 0, "late\n");
    let refused = home.client.log(&task.id, &chunk).await.expect_err("it is over");
    assert_eq!(refused.code(), Some(Code::LeaseLost));
    home.owner.close().await;
}

#[tokio::test]
async fn a_lease_that_runs_out_tells_its_holder_and_wakes_another() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (sleeper, other) = (home.worker("sleeper").await, home.worker("other").await);
    let task = home.add(&project, "claude").await;
    let lease = sleeper.claim().await.expect("the task").lease;
    home.pass(LEASE - Duration::from_secs(10)).await;
    let version = home.owner.site().bell.version();
    let (busy, free) = (sleeper.hold(0, version), other.hold(1, version));
    home.held(2).await;

    // Nobody claims and nobody asks: the timer alone finds it.
    home.clock.advance(Duration::from_secs(10));
    assert_eq!(busy.await.expect("an answer").revoked, [lease.reference()]);
    assert_eq!(free.await.expect("an answer").queued, 1);
    assert_eq!(home.client.task(&task.id).await.expect("it").task.state, TaskState::Queued);
    assert_eq!(other.claim().await.map(|c| c.lease.epoch.0), Some(lease.epoch.0 + 1));
    home.owner.close().await;
}

#[tokio::test]
async fn a_parked_task_rings_when_its_time_has_come() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let until = relay::model::Clock::now(&home.clock) + Duration::from_secs(100);
    let end = worker.end(&lease, StopReason::Quota { until });
    home.client.release(&lease.reference(), &end).await.expect("it is parked");
    let held = worker.hold(1, 0);
    home.held(1).await;
    home.clock.advance(Duration::from_secs(99));
    let parked = home.client.task(&task.id).await.expect("the task").task;
    assert_eq!(parked.state, TaskState::Parked);
    assert!(!held.is_finished());
    home.clock.advance(Duration::from_secs(1));
    assert_eq!(held.await.expect("an answer").queued, 1);
    home.owner.close().await;
}

#[tokio::test]
async fn a_doorbell_is_held_as_long_as_it_asks_and_no_longer_than_five_minutes() {
    let home = Home::open().await;
    let worker = home.worker("w").await;
    let (short, long) = (home.worker("short").await, worker.clone());
    let short = tokio::spawn(async move { short.ring(1, 0, 10).await });
    let long = tokio::spawn(async move { long.ring(1, 0, 100_000).await });
    home.held(2).await;
    home.clock.advance(Duration::from_secs(10));
    assert_eq!(short.await.expect("an answer").queued, 0);
    home.held(1).await;
    home.clock.advance(Duration::from_secs(290));
    assert_eq!(long.await.expect("an answer").queued, 0);
    home.owner.close().await;
}

#[tokio::test]
async fn a_new_instance_of_a_name_ends_the_old_ones_bell_and_lease() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let old = home.worker("w").await;
    home.add(&project, "claude").await;
    let lease = old.claim().await.expect("the task").lease;
    let held = old.hold(0, home.owner.site().bell.version());
    home.held(1).await;
    let new = TestWorker::register(home.client.clone(), "w", instance("w", 2)).await;
    assert_eq!(new.worker.id, old.worker.id);
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    let refused = home.client.doorbell(&old.query(1, 0, 300)).await.expect_err("it is replaced");
    assert_eq!(refused.code(), Some(Code::WorkerUnknown));
    assert_eq!(new.ring(1, 0, 300).await.queued, 1);
    home.owner.close().await;
}

#[tokio::test]
async fn a_worker_of_an_earlier_owner_is_known_again_and_its_old_instance_is_not() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let old = home.worker("w").await;
    let new = TestWorker::register(home.client.clone(), "w", instance("w", 2)).await;
    home.add(&project, "claude").await;
    let home = home.restart().await;
    let refused = home.client.doorbell(&old.query(1, 0, 0)).await.expect_err("it is replaced");
    assert_eq!(refused.code(), Some(Code::WorkerUnknown));
    let told = home.client.doorbell(&new.query(1, 0, 0)).await.expect("it is known");
    assert_eq!(told.queued, 1);
    home.owner.close().await;
}

#[tokio::test]
async fn idle_workers_at_the_bell_cost_no_statement() {
    let home = Home::open().await;
    let workers = join_all(["a", "b", "c"].map(|name| home.worker(name))).await;
    for worker in &workers {
        worker.ring(1, 0, 0).await;
    }
    home.rest().await;
    let before = home.owner.site().queue.statements();
    for round in 0..3 {
        let held: Vec<_> = workers.iter().map(|worker| worker.hold(1, 0)).collect();
        home.held(3).await;
        home.clock.advance(Duration::from_secs(300));
        for answer in join_all(held).await {
            assert_eq!(answer.expect("an answer").queued, 0, "round {round}");
        }
    }
    assert_eq!(home.owner.site().queue.statements(), before);
    home.owner.close().await;
}

#[tokio::test]
async fn whoever_holds_the_bell_is_online() {
    let home = Home::open().await;
    let worker = home.worker("w").await;
    let held = worker.hold(1, 0);
    home.held(1).await;
    home.clock.advance(Duration::from_secs(250));
    let workers = home.client.workers().await.expect("workers");
    assert_eq!(workers[0].state, WorkerState::Online);
    held.abort();
    home.held(0).await;
    home.clock.advance(Duration::from_secs(250));
    let workers = home.client.workers().await.expect("workers");
    assert_eq!(workers[0].state, WorkerState::Idle, "its line is gone");

    home.clock.advance(Duration::from_secs(3000));
    worker.ring(1, 0, 0).await;
    home.clock.advance(Duration::from_secs(200));
    let workers = home.client.workers().await.expect("workers");
    assert_eq!(workers[0].state, WorkerState::Idle, "its last ring was heard");
    home.owner.close().await;
}

#[tokio::test]
async fn a_reader_without_a_worker_looks_and_takes_no_wake() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let held = worker.hold(1, 0);
    home.held(1).await;
    let version = home.owner.site().bell.version();
    let client = home.client.clone();
    let reader = tokio::spawn(async move {
        let lanes = "claude".to_owned();
        client.doorbell(&DoorbellQuery { lanes, since: version, wait: 300, ..reader_query() }).await
    });
    home.add(&project, "claude").await;
    assert_eq!(held.await.expect("an answer").queued, 1);
    assert!(reader.await.expect("a task").expect("an answer").version > version);
    home.owner.close().await;
}

fn reader_query() -> DoorbellQuery {
    DoorbellQuery {
        lanes: String::new(),
        worker_id: None,
        instance_id: None,
        free: 0,
        since: 0,
        wait: 0,
        except: None,
        refused: None,
        limited: None,
        ending: false,
        told: None,
    }
}

#[tokio::test]
async fn a_worker_that_hangs_up_leaves_its_offer_to_the_next() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (a, b) = (home.worker("a").await, home.worker("b").await);
    let first = a.hold(1, 0);
    home.held(1).await;
    let second = b.hold(1, 0);
    home.held(2).await;
    first.abort();
    home.held(1).await;
    home.add(&project, "claude").await;
    assert_eq!(second.await.expect("an answer").queued, 1);
    until(|| home.owner.site().bell.present().is_empty()).await;
    home.owner.close().await;
}
