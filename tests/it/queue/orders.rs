//! People tell a worker to pause, to go on and to end, and what it leaves out by itself: a claim
//! keeps to it, whatever the worker does.

use std::sync::{Arc, Mutex, mpsc};

use futures_util::future::join_all;
use relay::model::{FaultPoint, Faults, LaneName, Order, Orders, Passage, StopReason, WaitReason};
use relay::queue::{Claimant, LeftOut, NewTask, Queue, QueueError, Store};
use sqlx::{AnyConnection, Connection};

use super::bench::{Bench, Hand, ann, lane, new_worker};
use super::on_each_database;

on_each_database!(
    a_paused_worker_gets_nothing_until_it_is_resumed_also_after_a_restart,
    a_paused_lane_is_left_to_others_and_the_workers_other_lanes_go_on,
    what_was_claimed_before_a_pause_is_given_again_and_worked_on,
    a_worker_that_drains_gets_nothing_and_a_new_start_of_it_does,
    what_a_worker_cannot_be_told_is_refused_by_name,
    a_worker_that_ends_is_not_resumed_and_stays_paused,
    what_was_said_twice_is_told_once,
    a_repository_that_is_left_out_keeps_no_other_from_being_claimed,
    a_pause_before_the_claim_is_written_wins_and_one_after_it_leaves_what_was_claimed,
    paused_claims_beside_others_are_answered_as_each_would_be_alone,
    a_task_says_that_all_who_could_take_it_are_paused,
    the_table_comes_to_a_database_where_work_is_under_way,
);

async fn tell(b: &Bench, worker: &str, order: Order, lanes: &[&str]) -> Orders {
    let lanes: Vec<LaneName> = lanes.iter().map(|name| lane(name)).collect();
    let worker = worker.parse().expect("a name");
    b.queue.order(&worker, order, &lanes, &ann()).await.expect("it is told").orders
}

/// A task of another lane or project.
async fn other(b: &Bench, slug: &str, of: &str, number: u64) {
    let slug = slug.parse().expect("a slug");
    b.queue.add(NewTask { slug, lane: lane(of), ..b.wish(number) }).await.expect("a task");
}

async fn got(b: &Bench, hand: &Hand) -> Option<u64> {
    b.claim(hand).await.map(|claimed| claimed.task.id.number)
}

async fn a_paused_worker_gets_nothing_until_it_is_resumed_also_after_a_restart(b: Bench) {
    let hand = b.worker("desk", &["claude", "codex"]).await;
    b.task(1).await;
    other(&b, "acme/shop", "codex", 2).await;
    let orders = tell(&b, "desk", Order::Pause, &[]).await;
    let pause = orders.pause().expect("a pause");
    assert_eq!((&pause.by, pause.at, orders.digest().as_str()), (&ann(), b.now(), "*"));
    assert_eq!(got(&b, &hand).await, None);
    // Another process on the same database, and another start of the worker.
    let queue = b.another_process().await;
    assert_eq!(queue.claim(&b.claimant(&hand)).await.expect("a claim"), None);
    let hand = b.worker("desk", &["claude", "codex"]).await;
    assert_eq!(hand.worker.orders, orders, "it is told when it registers");
    assert_eq!(got(&b, &hand).await, None);

    assert_eq!(tell(&b, "desk", Order::Resume, &[]).await, Orders::default());
    assert_eq!(got(&b, &hand).await, Some(1));
    assert_eq!(got(&b, &hand).await, Some(2));
}

async fn a_paused_lane_is_left_to_others_and_the_workers_other_lanes_go_on(b: Bench) {
    let desk = b.worker("desk", &["claude", "codex"]).await;
    let shed = b.worker("shed", &["codex"]).await;
    other(&b, "acme/shop", "codex", 1).await;
    b.advance(1);
    b.task(2).await;
    tell(&b, "desk", Order::Pause, &["codex"]).await;
    assert_eq!(got(&b, &desk).await, Some(2), "the older task is of the paused lane");
    assert_eq!(got(&b, &desk).await, None);
    assert_eq!(got(&b, &shed).await, Some(1));
    // To resume the whole worker resumes its lanes; to resume a lane not the whole worker.
    tell(&b, "desk", Order::Pause, &[]).await;
    assert_eq!(tell(&b, "desk", Order::Resume, &["codex"]).await.digest(), "*");
    tell(&b, "desk", Order::Pause, &["claude", "codex"]).await;
    assert_eq!(tell(&b, "desk", Order::Resume, &[]).await, Orders::default());
}

async fn what_was_claimed_before_a_pause_is_given_again_and_worked_on(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    let claimant = b.claimant(&hand);
    let claimed = b.queue.claim(&claimant).await.expect("a claim").expect("work");
    tell(&b, "desk", Order::Pause, &[]).await;
    // The answer was lost on its way.
    let again = b.queue.claim(&claimant).await.expect("a claim").expect("the same");
    assert_eq!(again.lease, claimed.lease);
    let lease = claimed.lease.reference();
    b.queue.start(&lease, &hand.worker.id, "relay/claude-1").await.expect("a start");
    let leases = [lease.clone()];
    let beat = b.queue.heartbeat(&hand.worker.id, &hand.instance, false, None, &leases);
    assert!(!beat.await.expect("a beat")[0].is_cancelled());
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
}

async fn a_worker_that_drains_gets_nothing_and_a_new_start_of_it_does(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    b.task(2).await;
    let orders = tell(&b, "desk", Order::Drain, &[]).await;
    assert_eq!(orders.drain.as_ref().map(|drain| &drain.by), Some(&ann()));
    assert_eq!(got(&b, &hand).await, None);
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    // A drain is not taken back, and registering again is no new start.
    let refused = b.queue.order(&hand.worker.name, Order::Resume, &[], &ann()).await;
    assert!(matches!(refused, Err(QueueError::Ends { .. })), "{refused:?}");
    let same = relay::queue::NewWorker {
        instance: hand.instance.clone(),
        ..new_worker("desk", &["claude"])
    };
    let worker = b.queue.register(same).await.expect("the same").worker;
    assert_eq!(worker.orders, orders);
    assert_eq!(got(&b, &hand).await, None);

    let next = b.worker("desk", &["claude"]).await;
    assert_eq!(next.worker.orders, Orders::default());
    assert_eq!(got(&b, &next).await, Some(2));
}

async fn what_a_worker_cannot_be_told_is_refused_by_name(b: Bench) {
    b.worker("desk", &["claude"]).await;
    let order = async |worker: &str, order, lanes: &[&str]| {
        let lanes: Vec<LaneName> = lanes.iter().map(|name| lane(name)).collect();
        let told = b.queue.order(&worker.parse().expect("a name"), order, &lanes, &ann()).await;
        told.expect_err("it was taken").to_string()
    };
    assert_eq!(order("attic", Order::Pause, &[]).await, "no worker `attic`");
    let text = "worker `desk` does not serve the lane `codex`";
    assert_eq!(order("desk", Order::Pause, &["claude", "codex"]).await, text);
    assert_eq!(order("desk", Order::Resume, &["codex"]).await, text);
    let drain = order("desk", Order::Drain, &["claude"]).await;
    assert!(drain.contains("as a whole"), "{drain}");
    let many: Vec<String> = (0..101).map(|n| format!("l{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(order("desk", Order::Pause, &many).await.contains("at most 100"));
    assert!(b.queue.orders().await.expect("orders").is_empty(), "nothing was changed");
    // A lane that it served once and has paused can be resumed.
    tell(&b, "desk", Order::Pause, &["claude"]).await;
    b.worker("desk", &["codex"]).await;
    assert_eq!(tell(&b, "desk", Order::Resume, &["claude"]).await, Orders::default());
}

async fn a_worker_that_ends_is_not_resumed_and_stays_paused(b: Bench) {
    let desk = b.worker("desk", &["claude"]).await;
    let name = desk.worker.name.clone();
    let lease = b.running(1, &desk).await;
    tell(&b, "desk", Order::Pause, &[]).await;
    let told = tell(&b, "desk", Order::Drain, &[]).await;
    let events = b.queue.events(0, None, 100).await.expect("events").len();
    for lanes in [Vec::new(), vec![lane("claude")]] {
        let refused = b.queue.order(&name, Order::Resume, &lanes, &ann()).await;
        let refused = refused.expect_err("it was taken");
        assert!(matches!(refused, QueueError::Ends { .. }), "{refused:?}");
        let has = format!("it takes nothing more, and has {} to end", lease.task);
        assert!(refused.to_string().ends_with(&has), "{refused}");
    }
    let worker = b.queue.workers().await.expect("workers").remove(0);
    assert_eq!(worker.orders, told, "nothing was changed");
    assert_eq!(b.queue.events(0, None, 100).await.expect("events").len(), events);
    // Once it has ended, its next start is resumed.
    let gone = b.queue.heartbeat(&desk.worker.id, &desk.instance, true, None, &[]);
    gone.await.expect("an answer");
    assert_eq!(tell(&b, "desk", Order::Resume, &[]).await.paused, []);
    // A signal ends it as well.
    let desk = b.worker("desk", &["claude"]).await;
    tell(&b, "desk", Order::Pause, &[]).await;
    let ends = LeftOut { ending: true, ..LeftOut::default() };
    b.queue.leaves_out(&desk.worker.id, ends);
    let refused = b.queue.order(&name, Order::Resume, &[], &ann()).await;
    assert!(matches!(refused, Err(QueueError::Ends { .. })), "{refused:?}");
}

async fn what_was_said_twice_is_told_once(b: Bench) {
    b.worker("desk", &["claude"]).await;
    let mut first = None;
    for order in [Order::Pause, Order::Resume, Order::Drain] {
        for _ in 0..2 {
            b.advance(1);
            let orders = tell(&b, "desk", order, &[]).await;
            first.get_or_insert(orders);
        }
    }
    tell(&b, "desk", Order::Pause, &["claude"]).await;
    let first = first.expect("orders");
    assert_eq!(first.pause().map(|pause| pause.at.0 + 5000), Some(b.now().0), "the first time");
    let events = b.queue.events(0, None, 100).await.expect("events");
    let told: Vec<(String, String)> = events
        .iter()
        .filter(|event| event.kind.as_str().starts_with("worker."))
        .skip(1)
        .map(|event| (event.kind.to_string(), event.data.to_string()))
        .collect();
    let desk = r#"{"worker":"desk"}"#;
    let lane = r#"{"lane":"claude","worker":"desk"}"#;
    let expected = [
        ("worker.paused", desk),
        ("worker.resumed", desk),
        ("worker.draining", desk),
        ("worker.paused", lane),
    ];
    assert_eq!(told, expected.map(|(kind, data)| (kind.to_owned(), data.to_owned())));
}

async fn a_repository_that_is_left_out_keeps_no_other_from_being_claimed(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    // A name that only looks like the one that is left out, were `_` any character.
    for slug in ["acme/s_op", "acme/s", "acme/shop-2"] {
        b.queue.link(super::bench::github(slug)).await.expect("a project");
    }
    for number in 1..=2 {
        b.task(number).await;
        b.advance(1);
    }
    for (number, slug) in [(3, "acme/s_op"), (4, "acme/s"), (5, "acme/shop-2")] {
        other(&b, slug, "claude", number).await;
        b.advance(1);
    }
    let except = |slugs: &[&str]| Claimant {
        except: slugs.iter().map(|slug| slug.parse().expect("a slug")).collect(),
        ..b.claimant(&hand)
    };
    let claim = async |claimant: Claimant| {
        let claimed = b.queue.claim(&claimant).await.expect("a claim");
        claimed.map(|claimed| claimed.task.id.to_string())
    };
    assert_eq!(claim(except(&["acme/shop"])).await.as_deref(), Some("acme/s_op#3"));
    assert_eq!(claim(except(&["acme/s_op", "acme/shop"])).await.as_deref(), Some("acme/s#4"));
    let all = ["acme/shop", "acme/shop-2", "local/scratch"];
    assert_eq!(claim(except(&all)).await, None);
    assert_eq!(claim(except(&["acme/s_op"])).await.as_deref(), Some("acme/shop#1"));
}

/// Holds whoever claims back at one side of the write.
#[derive(Debug)]
struct Held {
    after: bool,
    there: mpsc::Sender<()>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Faults for Held {
    fn at(&self, point: FaultPoint) {
        if point == (FaultPoint { passage: Passage::QueueClaim, after: self.after }) {
            self.there.send(()).expect("it is waited for");
            self.go.lock().expect("no panic").recv().expect("it is let go");
        }
    }
}

async fn a_pause_before_the_claim_is_written_wins_and_one_after_it_leaves_what_was_claimed(
    b: Bench,
) {
    let hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    b.task(2).await;
    for (after, got) in [(false, None), (true, Some(1)), (false, None)] {
        let (there, claiming) = (mpsc::channel(), mpsc::channel());
        let held = Held { after, there: there.0, go: Mutex::new(claiming.1) };
        let (url, clock, ids) = (b.url.clone(), Arc::new(b.clock.clone()), b.ids.clone());
        let claimant = b.claimant(&hand);
        let claim = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let store = Store::open(&url).await.expect("a store");
                let queue = Queue::with_faults(store, clock, ids, Arc::new(held));
                let claimed = queue.claim(&claimant).await.expect("a claim");
                queue.close().await;
                claimed.map(|claimed| claimed.task.id.number)
            })
        });
        let arrived = tokio::task::spawn_blocking(move || there.1.recv());
        arrived.await.expect("an end").expect("it arrives");
        tell(&b, "desk", Order::Pause, &[]).await;
        claiming.0.send(()).expect("it waits");
        let claimed = tokio::task::spawn_blocking(move || claim.join());
        assert_eq!(claimed.await.expect("an end").expect("no panic"), got);
        tell(&b, "desk", Order::Resume, &[]).await;
    }
}

/// On Postgres: a claim whose statement waits for a row when the pause is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_claim_that_had_begun_when_the_pause_was_written_is_kept_and_is_the_last() {
    let Some(b) = Bench::postgres().await else { return };
    let hand = b.worker("desk", &["claude"]).await;
    assert_eq!(got(&b, &hand).await, None);
    b.task(1).await;
    b.task(2).await;
    let mut other = AnyConnection::connect(&b.url).await.expect("the server");
    let lock = "begin; select 1 from tasks for update";
    sqlx::raw_sql(lock).execute(&mut other).await.expect("its rows");
    let (queue, claimant) = (b.queue.clone(), b.claimant(&hand));
    let claim = tokio::spawn(async move { queue.claim(&claimant).await });
    // It passes by what is held, then asks again and waits for it.
    let mut watch = AnyConnection::connect(&b.url).await.expect("the server");
    let waits = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    loop {
        let row = sqlx::query(waits).fetch_one(&mut watch).await.expect("a row");
        if sqlx::Row::get::<i64, _>(&row, 0) > 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    tell(&b, "desk", Order::Pause, &[]).await;
    sqlx::raw_sql("rollback").execute(&mut other).await.expect("an end");
    let claimed = claim.await.expect("an end").expect("a claim").expect("it had begun");
    assert_eq!(claimed.task.id.number, 1);
    assert_eq!(got(&b, &hand).await, None);
}

async fn paused_claims_beside_others_are_answered_as_each_would_be_alone(b: Bench) {
    let mut hands = Vec::new();
    for n in 0..6 {
        hands.push(b.worker(&format!("w{n}"), &["claude", "codex"]).await);
    }
    assert_eq!(got(&b, &hands[0]).await, None);
    for number in 1..=4 {
        b.advance(1);
        b.task(number).await;
    }
    for number in 5..=8 {
        b.advance(1);
        other(&b, "acme/shop", "codex", number).await;
    }
    // As a whole, one lane each, to end, and two of which nobody said anything.
    tell(&b, "w0", Order::Pause, &[]).await;
    tell(&b, "w1", Order::Pause, &["claude"]).await;
    tell(&b, "w2", Order::Drain, &[]).await;
    tell(&b, "w3", Order::Pause, &["codex"]).await;
    let mut order: Vec<usize> = (0..6).collect();
    for first in 0..6 {
        order.rotate_left(first);
        let claims = join_all(order.iter().map(|at| b.claim(&hands[*at]))).await;
        for (at, claimed) in order.iter().zip(claims) {
            let of = claimed.as_ref().map(|claimed| claimed.task.lane.as_str().to_owned());
            match at {
                0 | 2 => assert_eq!(of, None, "w{at}"),
                1 => assert!(of.as_deref().is_none_or(|lane| lane == "codex"), "w1: {of:?}"),
                3 => assert!(of.as_deref().is_none_or(|lane| lane == "claude"), "w3: {of:?}"),
                _ => {}
            }
            if let Some(claimed) = claimed {
                let (lease, hand) = (claimed.lease.reference(), &hands[*at]);
                b.finish(&lease, hand, StopReason::NoChanges).await.expect("an end");
                b.queue.retry(&lease.task, ann()).await.expect("it is queued again");
            }
        }
    }
    for at in [1, 3, 4, 5] {
        assert_ne!(got(&b, &hands[at]).await, None, "w{at} has work");
    }
}

async fn a_task_says_that_all_who_could_take_it_are_paused(b: Bench) {
    let id = b.task(1).await;
    b.worker("desk", &["claude", "codex"]).await;
    b.worker("shed", &["claude"]).await;
    b.worker("attic", &["codex"]).await;
    let waits = async || b.queue.waiting(&id).await.expect("a reason");
    tell(&b, "desk", Order::Pause, &["claude"]).await;
    b.advance(5);
    assert_eq!(waits().await, [WaitReason::Busy], "the other could");
    tell(&b, "shed", Order::Pause, &[]).await;
    let by_people = |workers: &[&str]| WaitReason::WorkersPaused {
        workers: workers.iter().map(|name| name.parse().expect("a name")).collect(),
        by: ann(),
        since: b.now(),
    };
    assert_eq!(waits().await, [by_people(&["desk", "shed"])], "since the last of them was");
    tell(&b, "desk", Order::Resume, &[]).await;
    assert_eq!(waits().await, [WaitReason::Busy]);
    tell(&b, "desk", Order::Drain, &[]).await;
    assert_eq!(waits().await, [by_people(&["desk", "shed"])]);
}

async fn the_table_comes_to_a_database_where_work_is_under_way(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    b.task(2).await;
    // As it was before this step.
    let mut plain = AnyConnection::connect(&b.url).await.expect("the database");
    for text in ["drop table orders", "delete from _sqlx_migrations where version >= 8"] {
        sqlx::query(text).execute(&mut plain).await.expect("a step back");
    }
    plain.close().await.expect("an end");
    let queue = b.another_process().await;
    assert!(queue.orders().await.expect("orders").is_empty());
    let desk = "desk".parse().expect("a name");
    queue.order(&desk, Order::Pause, &[], &ann()).await.expect("it is told");
    assert_eq!(queue.claim(&b.claimant(&hand)).await.expect("a claim"), None);
    queue.order(&desk, Order::Resume, &[], &ann()).await.expect("it is told");
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    assert_eq!(got(&b, &hand).await, Some(2));
    queue.close().await;
}

#[test]
fn a_worker_that_is_not_there_is_no_lane_that_is_not_served() {
    let error = QueueError::NotServed {
        worker: "desk".parse().expect("a name"),
        lane: lane("codex"),
        serves: vec![lane("claude")],
    };
    assert_eq!(error.to_string(), "worker `desk` does not serve the lane `codex`");
}
