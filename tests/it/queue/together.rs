//! Several at once are one statement on Postgres: each of them is answered as it would be alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use relay::model::{
    Epoch, Ids, LeaseRef, Preference, PreferenceKey, Scope, StopReason, TaskId, TaskState, Usage,
};
use relay::queue::{Claimant, Claimed, NewTask, Queue, QueueError, RunEnd, Store};
use sqlx::{AnyConnection, Connection, Row};

use super::bench::{Bench, Hand, ann, assert_lost, github, label, lane, local, new_worker};
use crate::support::clock::CountingIds;
use crate::support::postgres::run;

/// What is tried; each case makes a database.
const CASES: u32 = 8;

/// A worker of the random mix.
#[derive(Clone, Debug)]
struct Who {
    host: usize,
    github: bool,
    gpu: bool,
    both_lanes: bool,
}

/// A question of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// With a claim id of its own.
    New,
    /// By a start of it that was replaced.
    Zombie,
    /// With the claim id of a lease that it holds.
    Again,
    /// With the claim id of a run that it has ended.
    Spent,
    /// Twice at once with one claim id.
    Twice,
}

#[derive(Clone, Debug)]
struct Mix {
    workers: Vec<Who>,
    /// Lane, project, in the order in which they were asked for.
    tasks: Vec<(bool, usize)>,
    asks: Vec<(usize, Ask)>,
    labelled: bool,
}

const HOSTS: [&str; 2] = ["desk", "shed"];
/// The first is of a forge, the others are on a disk each.
const PROJECTS: [&str; 3] = ["acme/shop", "local/desk", "local/shed"];

fn mix() -> impl Strategy<Value = Mix> {
    let who = (0..2_usize, prop::bool::weighted(0.8), any::<bool>(), any::<bool>())
        .prop_map(|(host, github, gpu, both_lanes)| Who { host, github, gpu, both_lanes });
    let ask = prop_oneof![
        6 => Just(Ask::New),
        1 => Just(Ask::Zombie),
        1 => Just(Ask::Again),
        1 => Just(Ask::Spent),
        1 => Just(Ask::Twice),
    ];
    let project = prop_oneof![3 => Just(0_usize), 1 => Just(1), 1 => Just(2)];
    (
        prop::collection::vec(who, 1..5),
        prop::collection::vec((any::<bool>(), project), 0..14),
        prop::collection::vec((0..5_usize, ask), 1..16),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(workers, tasks, asks, labelled)| {
            let asks = asks.into_iter().map(|(who, ask)| (who % workers.len(), ask)).collect();
            Mix { workers, tasks, asks, labelled }
        })
}

/// A mix set up on a bench.
struct Scene {
    hands: Vec<Hand>,
    zombies: Vec<Hand>,
    held: Vec<Claimed>,
    held_by: Vec<Claimant>,
    spent_by: Vec<Claimant>,
    /// The queued tasks, the oldest first.
    tasks: Vec<TaskId>,
}

async fn set_up(b: &Bench, mix: &Mix) -> Scene {
    b.queue.link(local("local/desk", "desk")).await.expect("a project");
    b.queue.link(local("local/shed", "shed")).await.expect("a project");
    let mut scene = Scene {
        hands: Vec::new(),
        zombies: Vec::new(),
        held: Vec::new(),
        held_by: Vec::new(),
        spent_by: Vec::new(),
        tasks: Vec::new(),
    };
    for (at, who) in mix.workers.iter().enumerate() {
        let lanes: &[&str] = if who.both_lanes { &["claude", "codex"] } else { &["claude"] };
        let mut new = new_worker(&format!("w{at}"), lanes);
        new.host = HOSTS[who.host].to_owned();
        new.labels = if who.gpu { vec![label("gpu")] } else { Vec::new() };
        new.forges = if who.github { vec!["github.com".to_owned()] } else { Vec::new() };
        for hands in [&mut scene.zombies, &mut scene.hands] {
            new.instance = new_worker("x", lanes).instance;
            let worker = b.queue.register(new.clone()).await.expect("a worker").worker;
            hands.push(Hand { worker, instance: new.instance.clone() });
        }
        // One run that it has ended, and one that it holds, of lanes that nobody else takes.
        let own = lane(&format!("own{at}"));
        for number in [100, 101] {
            let slug = if who.github { PROJECTS[0] } else { PROJECTS[1 + who.host] };
            let number = number + 10 * u64::try_from(at).expect("few");
            let wish = NewTask {
                slug: slug.parse().expect("a slug"),
                lane: own.clone(),
                ..b.wish(number)
            };
            b.queue.add(wish).await.expect("a task");
            let claimant =
                Claimant { lanes: Some(vec![own.clone()]), ..b.claimant(&scene.hands[at]) };
            let claimed = b.queue.claim(&claimant).await.expect("a claim").expect("work");
            let as_registered = Claimant { lanes: None, ..claimant };
            if number % 10 == 0 {
                let lease = claimed.lease.reference();
                let end = StopReason::NoChanges;
                b.finish(&lease, &scene.hands[at], end).await.expect("an end");
                scene.spent_by.push(as_registered);
            } else {
                scene.held.push(claimed);
                scene.held_by.push(as_registered);
            }
        }
    }
    if mix.labelled {
        let preference = Preference {
            key: PreferenceKey::LaneLabels,
            scope: Scope::Lane { lane: lane("codex") },
            value: "gpu".to_owned(),
        };
        b.queue.prefer(&preference, ann()).await.expect("a preference");
    }
    for (number, (codex, project)) in (1..).zip(&mix.tasks) {
        b.advance(1);
        let wish = NewTask {
            slug: PROJECTS[*project].parse().expect("a slug"),
            lane: lane(if *codex { "codex" } else { "claude" }),
            ..b.wish(number)
        };
        let added = b.queue.add(wish).await.expect("a task");
        scene.tasks.push(added.task().id.clone());
    }
    scene
}

/// Whether the worker may take the task, by the rules as a person would say them.
fn fits(mix: &Mix, who: &Who, task: usize) -> bool {
    let (codex, project) = mix.tasks[task];
    let lane = who.both_lanes || !codex;
    let place = if project == 0 { who.github } else { project == 1 + who.host };
    lane && place && (!codex || !mix.labelled || who.gpu)
}

#[test]
fn pg_claims_at_once_are_answered_as_each_would_be_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&mix(), |mix| {
            runtime.block_on(async {
                let Some(b) = Bench::postgres().await else { return };
                let scene = set_up(&b, &mix).await;
                claim_at_once(&b, &mix, &scene).await;
                b.queue.close().await;
            });
            Ok(())
        })
        .expect("a counterexample");
}

async fn claim_at_once(b: &Bench, mix: &Mix, scene: &Scene) {
    let mut asked = Vec::new();
    for (who, ask) in &mix.asks {
        let new = b.claimant(&scene.hands[*who]);
        let claimant = match ask {
            Ask::New | Ask::Twice => new,
            Ask::Zombie => b.claimant(&scene.zombies[*who]),
            Ask::Again => scene.held_by[*who].clone(),
            Ask::Spent => scene.spent_by[*who].clone(),
        };
        let times = if *ask == Ask::Twice { 2 } else { 1 };
        asked.extend(std::iter::repeat_n((*who, *ask, claimant), times));
    }
    let claims = asked.iter().map(|(_, _, claimant)| b.queue.claim(claimant));
    let answers = join_all(claims).await;

    let mut taken: BTreeMap<TaskId, (usize, LeaseRef)> = BTreeMap::new();
    let mut by_claim = BTreeMap::new();
    let mut empty_handed = BTreeSet::new();
    for ((who, ask, claimant), answer) in asked.iter().zip(answers) {
        match (ask, answer) {
            (Ask::Zombie, answer) => {
                assert!(matches!(answer, Err(QueueError::WorkerUnknown(_))), "{answer:?}");
            }
            (Ask::Spent, answer) => assert_eq!(answer.expect("an answer"), None),
            (Ask::Again, answer) => {
                assert_eq!(answer.expect("an answer").as_ref(), Some(&scene.held[*who]));
            }
            (Ask::New | Ask::Twice, answer) => match answer.expect("an answer") {
                None => drop(empty_handed.insert(*who)),
                Some(claimed) => {
                    let lease = claimed.lease.reference();
                    let before = by_claim.insert(claimant.claim_id.clone(), claimed);
                    match before {
                        Some(before) => assert_eq!(before.lease.reference(), lease, "two leases"),
                        None => {
                            let before = taken.insert(lease.task.clone(), (*who, lease));
                            assert_eq!(before, None, "taken twice");
                        }
                    }
                }
            },
        }
    }
    for (task, id) in scene.tasks.iter().enumerate() {
        let stored = b.queue.task(id).await.expect("a task");
        let told = b.told(id).await;
        let Some((who, lease)) = taken.get(id) else {
            assert_eq!((stored.state, stored.epoch), (TaskState::Queued, Epoch(0)));
            assert_eq!(told, ["task.queued"]);
            for who in &empty_handed {
                assert!(!fits(mix, &mix.workers[*who], task), "{id} was left for nobody");
            }
            for (younger, (who, _)) in &taken {
                let place = scene.tasks.iter().position(|id| id == younger).expect("one of them");
                let passed = place > task && fits(mix, &mix.workers[*who], task);
                assert!(!passed, "{younger} was given and {id} is older");
            }
            continue;
        };
        assert!(fits(mix, &mix.workers[*who], task), "{id} does not fit its worker");
        assert_eq!((stored.state, stored.epoch), (TaskState::Claimed, Epoch(1)));
        assert_eq!(stored.worker.as_ref(), Some(&scene.hands[*who].worker.id));
        assert_eq!(told, ["task.queued", "run.claimed"]);
        let runs = b.queue.runs(id).await.expect("runs");
        let claimed = by_claim.values().find(|claimed| claimed.task.id == *id).expect("it is one");
        assert_eq!(claimed.task, stored);
        assert_eq!((runs.len(), &runs[0].id, runs[0].epoch), (1, &claimed.run, lease.epoch));
        assert_eq!(claimed.project.slug, id.repo);
        let events = b.queue.events(0, Some(id), 10).await.expect("events");
        assert_eq!(
            events[1].data,
            serde_json::json!({ "epoch": 1, "run": claimed.run, "model": null })
        );
        let name = &scene.hands[*who].worker.name;
        assert_eq!(events[1].actor.0, format!("runner:{name}"));
    }
}

/// What a text counts: mostly, how many transactions wrote some rows.
async fn counted(b: &Bench, from: &'static str) -> i64 {
    let mut connection = AnyConnection::connect(&b.url).await.expect("the server");
    let row = sqlx::query(from).fetch_one(&mut connection).await.expect("a row");
    connection.close().await.expect("an end");
    row.get(0)
}

/// Workers of one kind, each with a task of its own claimed at the same time.
async fn crew(b: &Bench, count: u64) -> Vec<(Hand, Claimed)> {
    let mut hands = Vec::new();
    for n in 0..count {
        hands.push(b.worker(&format!("w{n}"), &["claude"]).await);
    }
    // So that no claim has to sweep.
    assert_eq!(b.claim(&hands[0]).await, None);
    for number in 1..=count {
        b.advance(1);
        b.task(number).await;
    }
    let claimed = join_all(hands.iter().map(|hand| b.claim(hand))).await;
    hands.into_iter().zip(claimed.into_iter().map(|claimed| claimed.expect("work"))).collect()
}

#[tokio::test]
async fn pg_workers_that_ask_at_once_are_served_in_their_order_by_one_statement() {
    let Some(b) = Bench::postgres().await else { return };
    let b = &b;
    let crew = crew(b, 20).await;
    let numbers: Vec<u64> = crew.iter().map(|(_, claimed)| claimed.task.id.number).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "the first who asked has the oldest");
    let count = "select count(distinct xmin::text) from runs";
    assert_eq!(counted(b, count).await, 1);

    let ends = crew.iter().map(|(hand, claimed)| {
        let lease = claimed.lease.reference();
        async move { b.finish(&lease, hand, StopReason::NoChanges).await.expect("an end") }
    });
    for task in join_all(ends.collect::<Vec<_>>()).await {
        assert_eq!(task.state, TaskState::Failed);
    }
    let count = "select count(distinct xmin::text) from runs where finished_at is not null";
    assert_eq!(counted(b, count).await, 1);
}

#[tokio::test]
async fn pg_one_instance_that_was_replaced_spoils_no_claim_beside_it() {
    let Some(b) = Bench::postgres().await else { return };
    let old = b.worker("w0", &["claude"]).await;
    let new = b.worker("w0", &["claude"]).await;
    let other = b.worker("w1", &["claude"]).await;
    assert_eq!(b.claim(&new).await, None);
    for number in 1..=3 {
        b.task(number).await;
    }
    let asks = [b.claimant(&old), b.claimant(&new), b.claimant(&other)];
    let answers = join_all(asks.iter().map(|claimant| b.queue.claim(claimant))).await;
    assert!(matches!(answers[0], Err(QueueError::WorkerUnknown(_))), "{:?}", answers[0]);
    for answer in &answers[1..] {
        assert!(matches!(answer, Ok(Some(_))), "{answer:?}");
    }
    assert_eq!(
        b.queue
            .tasks(None)
            .await
            .expect("tasks")
            .iter()
            .filter(|t| t.state == TaskState::Queued)
            .count(),
        1
    );
}

#[tokio::test]
async fn pg_a_task_that_another_claim_is_about_to_take_is_passed_by_at_once() {
    let Some(b) = Bench::postgres().await else { return };
    let mut hands = Vec::new();
    for n in 0..3 {
        hands.push(b.worker(&format!("w{n}"), &["claude"]).await);
    }
    assert_eq!(b.claim(&hands[0]).await, None);
    for number in 1..=4 {
        b.advance(1);
        b.task(number).await;
    }
    let mut other = AnyConnection::connect(&b.url).await.expect("the server");
    let held = "begin; select 1 from tasks where number = 1 for update";
    sqlx::raw_sql(held).execute(&mut other).await.expect("its row");
    // Until the other ends it would wait in vain.
    let claimed = join_all(hands.iter().map(|hand| b.claim(hand))).await;
    let numbers: Vec<u64> =
        claimed.iter().map(|claimed| claimed.as_ref().expect("work").task.id.number).collect();
    assert_eq!(numbers, [2, 3, 4]);
    assert_eq!(counted(&b, "select count(distinct xmin::text) from runs").await, 1);
    other.close().await.expect("an end");
}

#[tokio::test]
async fn pg_ends_at_once_are_each_under_their_own_lease() {
    let Some(b) = Bench::postgres().await else { return };
    let mut crew = crew(&b, 8).await;
    // The third's lease ran out and it has its task anew; the fourth and the fifth speak for each
    // other; the sixth's lease runs out, and no sweep has seen it.
    for (minutes, silent) in [(20, vec![2]), (11, vec![2, 5]), (20, (0..8).collect())] {
        b.advance(minutes * 60);
        for (at, (hand, claimed)) in crew.iter().enumerate() {
            if !silent.contains(&at) {
                let lease = claimed.lease.reference();
                let (worker, instance) = (&hand.worker.id, &hand.instance);
                b.queue.heartbeat(worker, instance, false, None, &[lease]).await.expect("a beat");
            }
        }
        if minutes == 11 {
            let again = b.claim(&crew[2].0).await.expect("its task").lease.reference();
            assert_eq!((again.task.number, again.epoch), (3, Epoch(2)));
        }
    }
    let leases: Vec<LeaseRef> = crew.iter().map(|(_, c)| c.lease.reference()).collect();
    crew.swap(3, 4);
    let ends: Vec<(&Hand, LeaseRef)> =
        crew.iter().zip(&leases).map(|((hand, _), lease)| (hand, lease.clone())).collect();
    let usage =
        Usage { model: Some("m\0n".to_owned()), output_tokens: Some(7), ..Usage::default() };
    let finish = |at: usize| {
        let (hand, lease): &(&Hand, LeaseRef) = &ends[at];
        let end = RunEnd {
            summary: Some(format!("said \0 by \"{}\"\n", hand.worker.name)),
            usage: Some(Usage { cost_usd: (at < 2).then_some(0.1), ..usage.clone() }),
            pr: Some(7),
            ..RunEnd::bare(StopReason::Finished)
        };
        let (queue, lease, worker) = (b.queue.clone(), lease.clone(), hand.worker.id.clone());
        tokio::spawn(async move { queue.finish(&lease, &worker, end).await })
    };
    // Two that wait for somebody else, one after the other, so that the six gather behind them.
    let mut other = AnyConnection::connect(&b.url).await.expect("the server");
    let held = "begin; lock table tasks in exclusive mode";
    sqlx::raw_sql(held).execute(&mut other).await.expect("the table");
    let mut ending = Vec::new();
    for (many, at) in [(1, 6), (2, 7)] {
        ending.push((at, finish(at)));
        let blocked = "select count(*) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        while counted(&b, blocked).await < many {
            tokio::task::yield_now().await;
        }
    }
    let asked = b.queue.statements();
    ending.extend((0..6).map(|at| (at, finish(at))));
    // Six writes, and three questions: of the two that report a cost, and of the third, whose old run
    // is no longer known by heart.
    while b.queue.statements() < asked + 9 {
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("rollback").execute(&mut other).await.expect("an end");
    other.close().await.expect("an end");
    ending.sort_by_key(|(at, _)| *at);
    let mut answers = Vec::new();
    for (_, end) in ending {
        answers.push(end.await.expect("an end"));
    }
    for (at, ((hand, lease), answer)) in ends.iter().zip(answers).enumerate() {
        let task = b.queue.task(&lease.task).await.expect("a task");
        if [2, 3, 4, 5].contains(&at) {
            assert_lost(answer);
            assert_eq!(task.state, TaskState::Claimed, "{lease:?}");
            continue;
        }
        assert_eq!(answer.expect("an end"), task);
        assert_eq!((task.state, task.pr, task.epoch), (TaskState::Review, Some(7), lease.epoch));
        let told = ["task.queued", "run.claimed", "run.finished", "step.usage"];
        assert_eq!(b.told(&lease.task).await, told);
        let events = b.queue.events(0, Some(&lease.task), 10).await.expect("events");
        assert_eq!(events[3].actor.0, "agent:claude");
        assert_eq!(events[2].actor.0, format!("runner:{}", hand.worker.name));
        let run = &b.queue.runs(&lease.task).await.expect("runs")[0];
        let said = format!("said \u{fffd} by \"{}\"\n", hand.worker.name);
        assert_eq!(run.summary.as_deref(), Some(&*said));
        let kept = run.usage.as_ref().expect("it was reported");
        assert_eq!((kept.output_tokens, kept.model.as_deref()), (Some(7), Some("m\u{fffd}n")));
        assert_eq!(kept.cost_usd, (at < 2).then_some(0.1));
    }
    let retaken = LeaseRef { epoch: Epoch(2), ..leases[2].clone() };
    b.finish(&retaken, &crew[2].0, StopReason::NoChanges).await.expect("it is the live one");
}

#[tokio::test]
async fn pg_an_end_that_cannot_be_written_spoils_no_end_beside_it() {
    let Some(b) = Bench::postgres().await else { return };
    let b = &b;
    let crew = crew(b, 4).await;
    // A run that has its usage already cannot have another.
    let (_, spoilt) = &crew[1];
    let text = format!(
        "insert into usage (run_id, task_id, lane, worker_id, at) values ('{}', '{}', 'l', 'w', 1)",
        spoilt.run, spoilt.task.id
    );
    run(&b.url, &text).await;
    let usage = Some(Usage { turns: Some(3), ..Usage::default() });
    let answers = join_all(crew.iter().map(|(hand, claimed)| {
        let end = RunEnd { usage: usage.clone(), ..RunEnd::bare(StopReason::NoChanges) };
        let lease = claimed.lease.reference();
        async move { b.queue.finish(&lease, &hand.worker.id, end).await }
    }))
    .await;
    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.is_err(), at == 1, "{at}: {answer:?}");
    }
    let state = b.queue.task(&spoilt.task.id).await.expect("a task").state;
    assert_eq!(state, TaskState::Claimed, "nothing of it stands");
}

/// Gives one id twice, the second time where it must not be.
#[derive(Debug)]
struct Stuttering(CountingIds, AtomicU64);

impl Ids for Stuttering {
    fn uuid(&self) -> String {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            1 | 2 => "00000000-0000-7000-8000-00000000abcd".to_owned(),
            _ => self.0.uuid(),
        }
    }

    fn random(&self) -> Option<[u8; 32]> {
        self.0.random()
    }
}

#[tokio::test]
async fn pg_a_claim_that_cannot_be_written_spoils_no_claim_beside_it() {
    let Some(b) = Bench::postgres().await else { return };
    let mut hands = Vec::new();
    for n in 0..4 {
        hands.push(b.worker(&format!("w{n}"), &["claude"]).await);
    }
    for number in 1..=4 {
        b.task(number).await;
    }
    let store = Store::open(&b.url).await.expect("a store");
    let ids = Arc::new(Stuttering(CountingIds::new(5), AtomicU64::new(0)));
    let queue = Queue::new(store, Arc::new(b.clock.clone()), ids);
    queue.sweep().await.expect("a sweep");
    let asks: Vec<Claimant> = hands
        .iter()
        .map(|hand| Claimant {
            lanes: Some(vec![lane("claude")]),
            labels: Some(Vec::new()),
            ..b.claimant(hand)
        })
        .collect();
    let answers = join_all(asks.iter().map(|claimant| queue.claim(claimant))).await;
    let failed: Vec<usize> = answers
        .iter()
        .enumerate()
        .filter(|(_, answer)| answer.is_err())
        .map(|(at, _)| at)
        .collect();
    assert_eq!(failed.len(), 1, "one of two runs of one id: {answers:?}");
    assert!([1, 2].contains(&failed[0]), "{answers:?}");
    let taken: BTreeSet<TaskId> =
        answers.into_iter().flatten().flatten().map(|claimed| claimed.task.id).collect();
    assert_eq!(taken.len(), 3);
    queue.close().await;
}

#[tokio::test]
async fn pg_machines_with_a_local_project_are_told_apart_and_others_are_not() {
    let Some(b) = Bench::postgres().await else { return };
    let mut hands = Vec::new();
    for (n, host) in ["a", "b", "desk", "c", "desk"].into_iter().enumerate() {
        let mut new = new_worker(&format!("w{n}"), &["claude"]);
        new.host = host.to_owned();
        let instance = new.instance.clone();
        let worker = b.queue.register(new).await.expect("a worker").worker;
        hands.push(Hand { worker, instance });
    }
    let b = &b;
    assert_eq!(b.claim(&hands[0]).await, None);
    // The oldest is `desk`'s alone.
    let slug = "local/scratch".parse().expect("a slug");
    b.queue.add(NewTask { slug, ..b.wish(1) }).await.expect("a task");
    b.advance(1);
    b.queue.link(github("acme/tool")).await.expect("a project");
    for number in 2..=5 {
        b.task(number).await;
    }
    let claimed = join_all(hands.iter().map(|hand| b.claim(hand))).await;
    let hosts: Vec<String> =
        claimed.iter().map(|c| c.as_ref().expect("work").project.slug.to_string()).collect();
    assert_eq!(hosts.iter().filter(|slug| *slug == "local/scratch").count(), 1, "{hosts:?}");
    assert!(hosts[2] == "local/scratch" || hosts[4] == "local/scratch", "{hosts:?}");
    // Those without a local project on their machine were one statement, the two others asked by
    // themselves.
    let count = "select count(distinct xmin::text) from runs";
    assert_eq!(counted(b, count).await, 3);
}
