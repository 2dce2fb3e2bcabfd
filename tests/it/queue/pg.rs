//! What only a server does: several at once, away and back, a clock of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use relay::model::{Clock, TaskState, Timestamp};
use relay::queue::{NewTask, Queue, QueueError, Store, StoreError};
use relay::system::{SystemClock, SystemIds};
use sqlx::{AnyConnection, Connection};

use super::bench::{Bench, github, lane, new_worker};
use crate::support::clock::{CountingIds, ManualClock};
use crate::support::postgres::{Cluster, Database, number, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_sixty_four_claims_at_once_take_each_task_once() {
    let Some(b) = Bench::postgres().await else { return };
    let hand = b.worker("desk", &["claude", "codex"]).await;
    for number in 1..=40 {
        let lane = lane(if number % 2 == 0 { "claude" } else { "codex" });
        b.queue.add(NewTask { lane, ..b.wish(number) }).await.expect("a task");
    }
    let claims = (0..64).map(|_| {
        let (queue, claimant) = (b.queue.clone(), b.claimant(&hand));
        tokio::spawn(async move { queue.claim(&claimant).await.expect("a claim") })
    });
    let mut taken = BTreeSet::new();
    for claim in claims.collect::<Vec<_>>() {
        if let Some(claimed) = claim.await.expect("an end") {
            assert_eq!(claimed.task.epoch.0, 1);
            assert!(taken.insert(claimed.task.id), "taken twice");
        }
    }
    // None was passed by for good because another claim had its row for a moment.
    assert_eq!(taken.len(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_one_claim_asked_at_once_many_times_is_one_lease() {
    let Some(b) = Bench::postgres().await else { return };
    let hand = b.worker("desk", &["claude"]).await;
    for number in 1..=8 {
        b.task(number).await;
    }
    let claimant = b.claimant(&hand);
    let claims = (0..16).map(|_| {
        let (queue, claimant) = (b.queue.clone(), claimant.clone());
        tokio::spawn(async move { queue.claim(&claimant).await.expect("a claim") })
    });
    let mut leases = BTreeSet::new();
    for claim in claims.collect::<Vec<_>>() {
        let claimed = claim.await.expect("an end").expect("work");
        leases.insert((claimed.task.id, claimed.run));
    }
    assert_eq!(leases.len(), 1, "{leases:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_wishes_at_once_get_numbers_of_their_own() {
    let Some(b) = Bench::postgres().await else { return };
    let wishes = (0..24).map(|_| {
        let (queue, wish) = (b.queue.clone(), NewTask { number: None, ..b.wish(1) });
        tokio::spawn(async move { queue.add(wish).await.expect("a task").task().id.clone() })
    });
    let mut ids = BTreeSet::new();
    for wish in wishes.collect::<Vec<_>>() {
        ids.insert(wish.await.expect("an end"));
    }
    assert_eq!(ids.len(), 24, "{ids:?}");
    // Two lanes for one issue at once: the second has its lane in its id.
    let lanes = ["claude", "codex"].map(|name| {
        let (queue, wish) = (b.queue.clone(), NewTask { lane: lane(name), ..b.wish(99) });
        tokio::spawn(async move { queue.add(wish).await.expect("a task").task().id.clone() })
    });
    let mut both = BTreeSet::new();
    for wish in lanes {
        both.insert(wish.await.expect("an end"));
    }
    assert_eq!(both.len(), 2, "{both:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_sites_that_start_at_once_bring_the_schema_up_to_date_once() {
    let Some(database) = Database::new().await else { return };
    let opens = (0..4).map(|_| {
        let url = database.url.clone();
        tokio::spawn(async move { Store::open(&url).await.expect("a store").close().await })
    });
    for open in opens.collect::<Vec<_>>() {
        open.await.expect("an end");
    }
}

#[tokio::test]
async fn pg_a_database_of_a_newer_relay_is_left_alone() {
    let Some(database) = Database::new().await else { return };
    Store::open(&database.url).await.expect("a store").close().await;
    let later = "insert into _sqlx_migrations
            (version, description, success, checksum, execution_time)
        values (9999, 'later', true, '', 0)";
    run(&database.url, later).await;
    let error = Store::open(&database.url).await.expect_err("it was opened");
    assert!(matches!(error, StoreError::Newer { found: 9999, .. }), "{error:?}");
}

#[tokio::test]
async fn pg_a_login_that_is_refused_is_said_without_its_password() {
    let Some(database) = Database::new().await else { return };
    let (before, _) = database.url.rsplit_once('/').expect("a database");
    let url = format!("{}/no_such_database", before.replace("://relay@", "://relay:hunter2@"));
    let error = Store::open(&url).await.expect_err("it was opened");
    assert!(matches!(error, StoreError::Login { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    let error = Store::open("postgres://relay@127.0.0.1:1/relay").await.expect_err("it was opened");
    assert!(matches!(error, StoreError::Away { .. }), "{error:?}");
}

#[tokio::test]
async fn pg_nothing_is_asked_while_nothing_happens() {
    let Some(b) = Bench::postgres().await else { return };
    let hand = b.worker("desk", &["claude"]).await;
    b.running(1, &hand).await;
    // When any of the queue's sessions last did anything, by the server's own book, in microseconds.
    const LAST: &str = "select max(extract(epoch from state_change) * 1000000)::bigint
        from pg_stat_activity where application_name = 'relay' and datname = current_database()";
    let (asked, before) = (b.queue.statements(), number(&b.url, LAST).await);
    for _ in 0..50 {
        // An idle worker's heartbeat and the questions of a held doorbell are answered from memory.
        b.queue.heartbeat(&hand.worker.id, &hand.instance, false, None, &[]).await.expect("a beat");
    }
    assert_eq!(b.queue.statements(), asked);
    assert_eq!(number(&b.url, LAST).await, before);
    b.queue.tasks(None).await.expect("tasks");
    assert!(number(&b.url, LAST).await > before, "the server's book shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_an_event_that_is_told_late_is_not_passed_over() {
    let Some(b) = Bench::postgres().await else { return };
    let task = b.task(1).await;
    // Another site's write: its event has its number and cannot be seen yet.
    let mut slow = AnyConnection::connect(&b.url).await.expect("the server");
    let told = "begin; insert into events (at, kind, actor, data)
        values (1, 'worker.online', 'runner:slow', '{}')";
    sqlx::raw_sql(told).execute(&mut slow).await.expect("an event");
    b.task(2).await;
    let asked = b.queue.statements();
    let queue = b.queue.clone();
    let reading = tokio::spawn(async move { queue.events(0, None, 100).await.expect("events") });
    // It has read, seen the gap and asked who is about to tell something.
    while b.queue.statements() < asked + 3 && !reading.is_finished() {
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("commit").execute(&mut slow).await.expect("the event is told");
    let actors: Vec<String> =
        reading.await.expect("an end").iter().map(|event| event.actor.0.clone()).collect();
    assert_eq!(actors, ["user:ann", "runner:slow", "user:ann"]);
    // A number that was given and not used keeps nobody waiting.
    let undone = told.to_owned() + "; rollback";
    run(&b.url, &undone).await;
    b.task(3).await;
    assert_eq!(b.queue.events(0, None, 100).await.expect("events").len(), 4);
    assert_eq!(b.told(&task).await, ["task.queued"]);
}

#[tokio::test]
async fn pg_a_server_that_was_away_is_used_again_by_itself() {
    let Some(cluster) = Cluster::start() else { return };
    let database = Database::on(&cluster.url).await;
    let store = Store::open(&database.url).await.expect("a store");
    let clock = store.clock(Arc::new(SystemClock)).await.expect("the server's clock");
    let queue = Queue::new(store, clock, Arc::new(SystemIds));
    queue.link(github("acme/shop")).await.expect("a project");
    let worker = queue.register(new_worker("desk", &["claude"])).await.expect("a worker").worker;
    let wish = NewTask {
        slug: "acme/shop".parse().expect("a slug"),
        lane: lane("claude"),
        number: Some(1),
        title: "Issue 1".to_owned(),
        body: "text".to_owned(),
        asked_by: "ann".to_owned(),
        seen_at: Timestamp(1),
    };
    queue.add(wish.clone()).await.expect("a task");

    for round in 1..=2 {
        cluster.down();
        for _ in 0..3 {
            let error = queue.add(wish.clone()).await.expect_err("it was written");
            assert!(matches!(error, QueueError::Store(StoreError::Away { .. })), "{error:?}");
            let error = queue.tasks(None).await.expect_err("it was read");
            assert!(matches!(error, QueueError::Store(StoreError::Away { .. })), "{error:?}");
        }
        cluster.up();
        assert_eq!(queue.tasks(None).await.expect("tasks").len(), round);
        // The write that failed is made again by whoever asked.
        let next = NewTask { number: Some(1 + round as u64), ..wish.clone() };
        queue.add(next).await.expect("a task");
    }

    // A restart that nobody meets: the read that finds the connections dead is made anew.
    cluster.down();
    cluster.up();
    assert_eq!(queue.tasks(None).await.expect("tasks").len(), 3);
    let workers = queue.workers().await.expect("workers");
    assert_eq!(workers[0].id, worker.id);
    queue.close().await;
}

#[tokio::test]
async fn pg_leases_are_counted_by_the_servers_clock() {
    let Some(database) = Database::new().await else { return };
    let real = SystemClock.now();
    let mut queues = Vec::new();
    for days in [-2_i64, 2] {
        let machine = ManualClock::new(Timestamp(real.0 + days * 86_400_000));
        let store = Store::open(&database.url).await.expect("a store");
        let clock = store.clock(Arc::new(machine.clone())).await.expect("the server's clock");
        let apart = (clock.now().0 - SystemClock.now().0).abs();
        assert!(apart < 5_000, "{apart} ms from the server's clock");
        // It goes on by the time that passes, not by what the machine's clock is set to.
        let before = clock.now();
        machine.step(86_400);
        assert_eq!(clock.now(), before);
        machine.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), before + Duration::from_secs(1));
        let ids = Arc::new(CountingIds::new(u16::try_from(days + 5).expect("small")));
        queues.push((Queue::new(store, clock, ids), machine));
    }
    let [(slow, _), (fast, passing)] = &queues[..] else { panic!("two") };
    slow.link(github("acme/shop")).await.expect("a project");
    let new = new_worker("desk", &["claude"]);
    let instance = new.instance.clone();
    let worker = slow.register(new).await.expect("a worker").worker.id;
    let wish = NewTask {
        slug: "acme/shop".parse().expect("a slug"),
        lane: lane("claude"),
        number: Some(1),
        title: "Issue 1".to_owned(),
        body: "text".to_owned(),
        asked_by: "ann".to_owned(),
        seen_at: real,
    };
    slow.add(wish).await.expect("a task");
    let claimant = relay::queue::Claimant {
        worker: worker.clone(),
        instance,
        claim_id: "00000000-0000-7000-8000-00000000c1a1".parse().expect("an id"),
        lanes: None,
        labels: None,
        except: Vec::new(),
    };
    let lease = slow.claim(&claimant).await.expect("a claim").expect("work").lease.reference();
    // Four days ahead of the other by its own clock, this one neither ends the lease early …
    assert_eq!(fast.sweep().await.expect("a sweep").expired, []);
    // … nor late.
    passing.advance(relay::model::LEASE + Duration::from_secs(10));
    assert_eq!(fast.sweep().await.expect("a sweep").expired.len(), 1);
    assert_eq!(fast.task(&lease.task).await.expect("a task").state, TaskState::Queued);
    for (queue, _) in &queues {
        queue.close().await;
    }
}
