//! What would grow without end is cut back, and nothing that is still needed.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use relay::api::{EventsQuery, LogQuery};
use relay::model::{Clock, StopReason, Timestamp};
use relay::queue::{EVENTS_KEPT, LOGS_KEPT};
use relay::system::SystemClock;
use relay::work::prune::{BUNDLES_KEPT, MIRRORS_KEPT};

use crate::site::fixture::{Home, until};
use crate::support::clock::START;
use crate::support::house::House;
use crate::support::repo::git;

const DAY: Duration = Duration::from_secs(86_400);

/// Makes a file or folder look as if it was last written then.
fn written(path: &Path, at: SystemTime) {
    File::open(path).unwrap().set_modified(at).unwrap();
}

fn at(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(time.0.unsigned_abs())
}

#[tokio::test]
async fn a_log_goes_when_nobody_needs_it_and_not_a_day_before() {
    let home = Home::open().await;
    let logs = home.folder.path().join("home/logs");
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let mut runs = Vec::new();
    for _ in ["done", "failed", "failed before"] {
        let task = home.add(&project, "claude").await;
        let claim = worker.claim().await.expect("the task");
        home.client.log(&task.id, &worker.chunk(&claim.lease, 0, "words\n")).await.unwrap();
        let end = worker.end(&claim.lease, StopReason::NoChanges);
        home.client.release(&claim.lease.reference(), &end).await.unwrap();
        runs.push((task.id, logs.join(claim.run.as_str())));
    }
    home.client.done(&runs[0].0, "ann").await.unwrap();
    // The third runs once more: its older log is nobody's business any more, its newest is.
    home.client.retry(&runs[2].0, "ann").await.unwrap();
    let again = worker.claim().await.expect("the task again");
    home.client.log(&runs[2].0, &worker.chunk(&again.lease, 0, "words\n")).await.unwrap();
    let end = worker.end(&again.lease, StopReason::NoChanges);
    home.client.release(&again.lease.reference(), &end).await.unwrap();
    let newest = logs.join(again.run.as_str());
    // Of a database that was put aside.
    let (old, fresh) =
        ("00000000-0000-7000-8000-00000000000a", "00000000-0000-7000-8000-00000000000b");
    for (name, since) in [(old, Duration::ZERO), (fresh, LOGS_KEPT)] {
        fs::create_dir(logs.join(name)).unwrap();
        written(&logs.join(name), at(START + since));
    }
    fs::write(logs.join("a person's note"), "").unwrap();

    home.clock.advance(LOGS_KEPT - DAY);
    let home = home.restart().await;
    assert!(runs.iter().all(|(_, log)| log.exists()), "a log went too early");
    home.clock.advance(DAY + DAY);
    until(|| !logs.join(old).exists()).await;
    assert!(!runs[0].1.exists() && !runs[2].1.exists());
    assert!(runs[1].1.exists() && newest.exists() && logs.join(fresh).exists());
    assert!(logs.join("a person's note").exists());
    let gone = home.client.task_log(&runs[0].0, &LogQuery::default()).await.unwrap();
    assert_eq!((gone.text.as_str(), gone.end), ("", true));
    home.owner.close().await;
}

#[tokio::test]
async fn events_of_what_is_over_go_and_numbers_are_not_used_twice() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (over, waits) = (home.add(&project, "claude").await, home.add(&project, "claude").await);
    home.client.done(&over.id, "ann").await.unwrap();
    let told = |task: Option<&relay::model::TaskId>| EventsQuery {
        task: task.map(ToString::to_string),
        limit: Some(1000),
        ..EventsQuery::default()
    };
    let newest = home.client.events(&told(None)).await.unwrap().last().unwrap().seq;

    home.clock.advance(EVENTS_KEPT - DAY);
    let home = home.restart().await;
    assert_eq!(home.client.events(&told(Some(&over.id))).await.unwrap().len(), 2);
    home.clock.advance(DAY + DAY);
    let home = home.restart().await;
    // The very newest stays, so that the next has a greater number.
    assert!(home.client.events(&told(Some(&over.id))).await.unwrap().len() <= 1);
    assert_eq!(home.client.events(&told(Some(&waits.id))).await.unwrap().len(), 1);
    home.client.cancel(&waits.id, "ann").await.unwrap();
    assert!(home.client.events(&told(None)).await.unwrap().last().unwrap().seq > newest);
    home.owner.close().await;
}

#[test]
fn the_worker_lets_go_of_bundles_mirrors_and_commits_that_no_open_task_needs() {
    let house = House::new();
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    let slug = house.link();
    let (over, waits) =
        (house.task(&slug, "process:edit", "one"), house.task(&slug, "process:edit", "two"));
    house.relay(&["work", "--once", "--lanes", "process:edit"]).ok();
    house.relay(&["task", "done", &over]).ok();
    assert_eq!(house.state(&waits), "review");

    let old = at(Clock::now(&SystemClock)) - BUNDLES_KEPT - DAY;
    let kept = house.home.join("kept/local_shop");
    fs::create_dir_all(&kept).unwrap();
    let bundle = |name: &str, at: SystemTime| {
        let path = kept.join(name);
        fs::write(&path, "a bundle").unwrap();
        written(&path, at);
        path
    };
    let of_over = bundle("relay-process-edit-1-1.bundle", old);
    let of_waits = bundle("relay-process-edit-2-1.bundle", old);
    let of_nobody = bundle("relay-process-edit-9-4.bundle", old);
    let of_today = bundle("relay-process-edit-9-5.bundle", at(Clock::now(&SystemClock)));
    let of_a_person = bundle("notes.txt", old);

    let cache = house.home.join("cache");
    let mirror = cache.join("local/shop.git");
    let commit = |date: &str| {
        let run = |args: &[&str]| git(&mirror, args);
        let tree = run(&["rev-parse", "main^{tree}"]);
        // The helper's dates are of 2023; a commit of now needs its own.
        let id = match date {
            "old" => run(&["commit-tree", &tree, "-m", "old"]),
            _ => run(&["rev-parse", "main"]),
        };
        run(&["update-ref", &format!("refs/relay/kept/{id}"), &id]);
        format!("refs/relay/kept/{id}")
    };
    let (old_commit, new_commit) = (commit("old"), commit("new"));
    let there = |name: &str| {
        crate::support::repo::git_succeeds(&mirror, &["rev-parse", "-q", "--verify", name])
    };
    assert!(there(&old_commit) && there(&new_commit));
    // Two mirrors that were not used for long; nothing of `local/gone` is open.
    for folder in ["gone.git", "gone.git.runs", "gone.git.home"] {
        fs::create_dir_all(cache.join("local").join(folder)).unwrap();
    }
    fs::write(cache.join("local/gone.lock"), "").unwrap();
    let long_ago = at(Clock::now(&SystemClock)) - MIRRORS_KEPT - DAY;
    written(&cache.join("local/gone.lock"), long_ago);

    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("the pruning", || {
        !cache.join("local/gone.git").exists() && !of_over.exists() && !there(&old_commit)
    });
    assert!(!of_nobody.exists());
    assert!(of_waits.exists() && of_today.exists() && of_a_person.exists());
    assert!(there(&new_commit));
    drop(worker);

    // A mirror that an open task needs stays, however long it was not used; then it goes.
    written(&cache.join("local/shop.lock"), long_ago);
    let sign = bundle("relay-process-edit-9-6.bundle", old);
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("a round", || !sign.exists());
    house.relay(&["task", "done", &waits]).ok();
    assert!(mirror.exists());
    drop(worker);
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("the pruning", || !mirror.exists() && !of_waits.exists());
    drop(worker);
    // And is made again when it is needed.
    let third = house.task(&slug, "process:edit", "three");
    house.relay(&["work", "--once", "--lanes", "process:edit"]).ok();
    assert_eq!(house.state(&third), "review");
}

#[tokio::test]
async fn the_write_ahead_log_does_not_stay_at_its_highest() {
    use relay::queue::bounds::BODY_MOST;
    use sqlx::{ConnectOptions, Connection, raw_sql};
    let home = Home::open().await;
    let project = home.link("shop").await;
    let folder = home.folder.path().join("home");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.join("relay.db"));
    let mut reader = options.connect().await.unwrap();
    // A long look at the past keeps the log from starting over.
    raw_sql("begin; select count(*) from tasks").execute(&mut reader).await.unwrap();
    let add = async |n: u32| {
        let request = relay::api::CreateTask {
            slug: project.slug.clone(),
            lane: "claude".parse().unwrap(),
            issue: None,
            title: Some(format!("wish {n}")),
            // The longest that a task takes, in bytes.
            body: Some("\u{1d54f}".repeat(BODY_MOST)),
            asked_by: "ann".to_owned(),
        };
        home.client.create_task(&request).await.unwrap();
    };
    for n in 0..80 {
        add(n).await;
    }
    let bytes = || fs::metadata(folder.join("relay.db-wal")).unwrap().len();
    assert!(bytes() > 18 << 20, "{}", bytes());
    raw_sql("commit").execute(&mut reader).await.unwrap();
    reader.close().await.unwrap();
    // It starts over with a write that no reader is beside.
    for n in 80..160 {
        if bytes() > 16 << 20 {
            add(n).await;
            home.client.status().await.unwrap();
        }
    }
    assert!(bytes() <= 16 << 20, "{}", bytes());
    home.owner.close().await;
}
