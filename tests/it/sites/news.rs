//! What is done at one site, seen at the other.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use relay::api::{Code, DoorbellQuery, HeartbeatRequest, LeaseAnswer, LogQuery};
use relay::model::{LeaseRef, StopReason, TaskState, WaitReason, WorkerState};

use super::pair::{BEAT, Pair, eventually, moved, with_token};
use crate::site::fixture::{Home, TestWorker, instance, until};
use crate::site::tokens::{code, stranger};
use crate::support::postgres::{number, run};

fn beat(worker: &TestWorker, leases: &[LeaseRef]) -> HeartbeatRequest {
    HeartbeatRequest {
        instance_id: worker.request.instance_id.clone(),
        offline: false,
        interval_ms: None,
        leases: leases.to_vec(),
    }
}

async fn answer(worker: &TestWorker, lease: &LeaseRef) -> LeaseAnswer {
    let beat = beat(worker, std::slice::from_ref(lease));
    let answer = worker.client.heartbeat(&worker.worker.id, &beat).await;
    answer.expect("an answer").leases.pop().expect("one answer")
}

/// Holds the bell with all hands busy, at the version that the site has: only a lease that was
/// called off rings.
async fn busy(home: &Home, worker: &TestWorker) -> tokio::task::JoinHandle<relay::api::Doorbell> {
    let held = worker.hold(0, home.owner.site().bell.version());
    home.held(1).await;
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_task_made_at_one_site_wakes_one_worker_at_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let workers = join_all(["u", "v", "w"].map(|name| b.worker(name))).await;
    let held: Vec<_> = workers.iter().map(|worker| worker.hold(1, 0)).collect();
    b.held(3).await;
    a.add(&project, "claude").await;
    let (woken, which, left) = futures_util::future::select_all(held).await;
    assert_eq!(woken.expect("an answer").queued, 1);
    Pair::heard(a, b).await;
    assert_eq!(b.owner.site().bell.present().len(), 2, "the others sleep on");
    let claimed = workers[which].claim().await.expect("the task");
    assert_eq!(claimed.lease.epoch.0, 1);
    // And the other way: it is no longer offered where it was made.
    until(|| a.owner.site().bell.queued() == 0).await;
    drop(left);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_each_task_is_claimed_once_whichever_site_is_asked() {
    let Some(pair) = Pair::new().await else { return };
    let project = pair.a.link("shop").await;
    for n in 0..30 {
        [&pair.a, &pair.b][n % 2].add(&project, "claude").await;
    }
    let mut claims = Vec::new();
    for n in 0..6 {
        let worker = [&pair.a, &pair.b][n % 2].worker(&format!("w{n}")).await;
        claims.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            while let Some(claim) = worker.claim().await {
                assert_eq!(claim.lease.epoch.0, 1);
                mine.push(claim.task.id);
            }
            mine
        }));
    }
    let taken: Vec<_> =
        join_all(claims).await.into_iter().flat_map(|c| c.expect("an end")).collect();
    assert_eq!(taken.len(), 30);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 30, "{taken:?}");
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_cancel_at_one_site_reaches_the_run_at_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let worker = b.worker("w").await;
    let task = a.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    worker.start(&lease).await;
    let held = busy(b, &worker).await;
    a.client.cancel(&task.id, "ann").await.expect("it is called off");
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    assert_eq!(
        answer(&worker, &lease.reference()).await,
        LeaseAnswer::Lost { reason: StopReason::Cancelled }
    );
    // Nothing is taken for it any more, though this site gave the lease.
    let late = b.client.log(&lease.task, &worker.chunk(&lease, 0, "late\n")).await;
    assert_eq!(code(late), Code::LeaseLost);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_what_a_worker_leaves_out_is_the_reason_at_each_site() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let worker = b.worker("w").await;
    let task = a.add(&project, "claude").await;
    let why = async || a.owner.site().queue.waiting(&task.id).await.expect("reasons").remove(0);
    assert_eq!(why().await, WaitReason::Busy);
    let query = DoorbellQuery { refused: Some("claude".to_owned()), ..worker.query(0, 0, 0) };
    worker.client.doorbell(&query).await.expect("an answer");
    Pair::heard(b, a).await;
    let (lane, workers) = (task.lane.clone(), vec![worker.worker.name.clone()]);
    assert_eq!(why().await, WaitReason::LoginRefused { lane, workers });
    worker.ring(0, 0, 0).await;
    Pair::heard(b, a).await;
    assert_eq!(why().await, WaitReason::Busy);
    // What its last start said is over, as everywhere, with the next one's first word.
    let query = DoorbellQuery { ending: true, ..worker.query(0, 0, 0) };
    worker.client.doorbell(&query).await.expect("an answer");
    Pair::heard(b, a).await;
    let workers = vec![worker.worker.name.clone()];
    assert_eq!(why().await, WaitReason::Ending { workers });
    let again = b.worker("w").await;
    again.ring(0, 0, 0).await;
    Pair::heard(b, a).await;
    assert_eq!(why().await, WaitReason::Busy);
    // And with its last one.
    let query = DoorbellQuery { ending: true, ..again.query(0, 0, 0) };
    again.client.doorbell(&query).await.expect("an answer");
    Pair::heard(b, a).await;
    assert_eq!((ends(a).await, ends(b).await), (true, true));
    let leaves = HeartbeatRequest { offline: true, ..beat(&again, &[]) };
    again.client.heartbeat(&again.worker.id, &leaves).await.expect("an answer");
    Pair::heard(b, a).await;
    assert_eq!((ends(a).await, ends(b).await), (false, false));
    pair.close().await;
}

/// Whether this site says of the only worker that it ends.
async fn ends(site: &Home) -> bool {
    site.client.workers().await.expect("workers")[0].ending
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_lease_that_one_site_ends_is_told_by_the_other_and_once() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let (worker, other) = (b.worker("w").await, b.worker("v").await);
    a.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let held = busy(b, &worker).await;
    let free = other.hold(1, 0);
    b.held(2).await;
    run(&pair.database.url, "update tasks set expires_at = 1").await;
    // Both would end it: the timers of each look.
    let (ended, too) = (a.owner.site().timers.settle(), b.owner.site().timers.settle());
    let (ended, too) = tokio::join!(ended, too);
    ended.expect("a look");
    too.expect("a look");
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    assert_eq!(free.await.expect("an answer").queued, 1, "the task is there for another");
    let events = "select count(*) from events where kind = 'lease.expired'";
    assert_eq!(number(&pair.database.url, events).await, 1);
    // Where only the other site looks, it is told as well.
    let lease = other.claim().await.expect("the task again").lease;
    let held = busy(b, &other).await;
    run(&pair.database.url, "update tasks set expires_at = 1").await;
    a.owner.site().timers.settle().await.expect("a look");
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_retry_at_one_site_rings_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let worker = b.worker("w").await;
    let task = a.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let end = worker.end(&lease, StopReason::MaxTurns);
    let ended = b.client.release(&lease.reference(), &end).await.expect("it is ended").task;
    assert_eq!(ended.state, TaskState::Failed);
    let held = worker.hold(1, b.owner.site().bell.version());
    b.held(1).await;
    a.client.retry(&task.id, "ann").await.expect("it is queued again");
    assert_eq!(held.await.expect("an answer").queued, 1);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_pause_at_one_site_is_heard_at_the_other_also_where_nobody_told() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let worker = b.worker("w").await;
    let hold = |told: &str| {
        let told = Some(told.to_owned());
        let query = relay::api::DoorbellQuery { told, ..worker.query(1, 0, 300) };
        let client = worker.client.clone();
        tokio::spawn(async move { client.doorbell(&query).await.expect("an answer").orders })
    };
    Pair::heard(a, b).await;
    let held = hold("");
    b.held(1).await;
    let pause = relay::api::OrderRequest {
        worker: "w".parse().expect("a name"),
        order: relay::model::Order::Pause,
        lanes: Vec::new(),
        by: "ann".to_owned(),
    };
    let orders = a.client.order(&pause).await.expect("it is told").orders;
    assert_eq!(held.await.expect("an answer"), Some(orders));

    let held = hold("*");
    b.held(1).await;
    let silent = pair.silent().await;
    let (by, resume) = (relay::model::Actor::user("ann"), relay::model::Order::Resume);
    silent.order(&pause.worker, resume, &[], &by).await.expect("it is told");
    assert_eq!(b.owner.site().bell.present().len(), 1, "nobody told");
    b.clock.advance(BEAT);
    assert_eq!(held.await.expect("an answer"), Some(relay::model::Orders::default()));
    silent.close().await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_worker_that_starts_anew_at_one_site_ends_its_old_self_at_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let old = b.worker("w").await;
    a.add(&project, "claude").await;
    let lease = old.claim().await.expect("the task").lease;
    let held = busy(b, &old).await;
    let new = TestWorker::register(a.client.clone(), "w", instance("w", 2)).await;
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    assert_eq!(code(old.client.doorbell(&old.query(0, 0, 0)).await), Code::WorkerUnknown);
    // The new one is welcome at both.
    let here = moved(&new, &b.client);
    assert_eq!(here.ring(1, 0, 300).await.queued, 1);
    assert_eq!(here.claim().await.expect("the task").lease.epoch.0, 2);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_new_start_that_a_site_was_not_told_of_is_not_sent_away() {
    let Some(pair) = Pair::new().await else { return };
    let b = &pair.b;
    let old = b.worker("w").await;
    old.ring(1, 0, 0).await;
    let silent = pair.silent().await;
    let again = relay::queue::NewWorker {
        name: old.request.name.clone(),
        instance: instance("w", 2).parse().expect("an instance"),
        host: old.request.host.clone(),
        lanes: old.request.lanes.clone(),
        labels: Vec::new(),
        forges: old.request.forges.clone(),
        version: old.request.version.clone(),
    };
    silent.register(again).await.expect("it is registered");
    let mut new = old.clone();
    new.request.instance_id = instance("w", 2).parse().expect("an instance");
    assert!(new.client.doorbell(&new.query(1, 0, 0)).await.is_ok());
    assert_eq!(code(old.client.doorbell(&old.query(1, 0, 0)).await), Code::WorkerUnknown);
    silent.close().await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_worker_that_moves_keeps_its_lease() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let (_, secret, worker) = with_token(a, "w").await;
    a.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    // A proxy sends it to the other site, which has never seen it.
    let worker = moved(&worker, &stranger(b).with_token(secret));
    let renewed = answer(&worker, &lease.reference()).await;
    assert!(matches!(renewed, LeaseAnswer::Renewed { .. }), "{renewed:?}");
    let held = busy(b, &worker).await;
    worker.start(&lease).await;
    worker.client.log(&lease.task, &worker.chunk(&lease, 0, "line\n")).await.expect("it is taken");
    // A cancel where it was before reaches it where it is.
    a.client.cancel(&lease.task, "ann").await.expect("it is called off");
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_worker_that_waits_at_one_site_is_online_at_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let worker = b.worker("w").await;
    let held = worker.hold(1, 0);
    b.held(1).await;
    run(&pair.database.url, "update workers set last_seen = last_seen - 7200000").await;
    assert_eq!(a.client.workers().await.expect("workers")[0].state, WorkerState::Offline);
    b.clock.advance(3 * BEAT);
    eventually(async || a.client.workers().await.expect("workers")[0].state == WorkerState::Online)
        .await;
    held.abort();
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_what_nobody_told_is_found_by_the_next_look_round() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let worker = b.worker("w").await;
    Pair::heard(a, b).await;
    let held = worker.hold(1, 0);
    b.held(1).await;
    let silent = pair.silent().await;
    let task = relay::queue::NewTask {
        slug: project.slug,
        lane: "claude".parse().expect("a lane"),
        number: None,
        title: "Mend it".to_owned(),
        body: String::new(),
        asked_by: "ann".to_owned(),
        seen_at: a.owner.site().clock.now(),
    };
    silent.add(task).await.expect("a task");
    assert_eq!(b.owner.site().bell.present().len(), 1, "nobody told");
    b.clock.advance(BEAT);
    assert_eq!(held.await.expect("an answer").queued, 1);
    silent.close().await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_the_log_of_a_run_at_the_other_site_is_said_to_be_there() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let worker = b.worker("w").await;
    let task = a.add(&project, "claude").await;
    let waiting = a.client.task_log(&task.id, &LogQuery::default()).await.expect("no run yet");
    assert_eq!((waiting.run, waiting.end), (None, false));
    let lease = worker.claim().await.expect("the task").lease;
    worker.start(&lease).await;
    let fresh = b.client.task_log(&task.id, &LogQuery::default()).await.expect("its own run");
    assert_eq!((fresh.text.as_str(), fresh.end), ("", false));
    b.client.log(&task.id, &worker.chunk(&lease, 0, "line\n")).await.expect("it is taken");
    let there = b.client.task_log(&task.id, &LogQuery::default()).await.expect("the log");
    assert_eq!(there.text, "line\n");
    let here = a.client.task_log(&task.id, &LogQuery::default()).await.expect_err("it has none");
    assert_eq!(here.code(), Some(Code::NotFound));
    assert!(here.hint().expect("a hint").contains("RELAY_SITE=URL"), "{here:?}");
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_what_a_site_did_to_the_last_is_told_before_it_ends() {
    let Some(pair) = Pair::new().await else { return };
    let Pair { a, b, database } = pair;
    let project = a.link("shop").await;
    let worker = b.worker("w").await;
    let task = a.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let held = busy(&b, &worker).await;
    a.client.cancel(&task.id, "ann").await.expect("it is called off");
    a.owner.close().await;
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    b.owner.close().await;
    drop(database);
}
