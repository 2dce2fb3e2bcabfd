//! The publishing half on a GitHub with memory and a real git server: one branch, one pull
//! request, one comment, whatever died between them.

use relay::model::{FaultPoint, Passage};

use super::matrix::{Kill, go_through};
use super::scene::{LANE, Scene};
use crate::support::full::{full, skip};
use crate::support::house::processes_with;
use crate::support::shop::Shop;

/// A scene whose worker is logged in there, with the issue as its task.
fn scene_at(shop: &Shop) -> Scene {
    let mut scene = Scene::new();
    scene.house.set("RELAY_GITHUB_API", &shop.hub.base).set("RELAY_GITHUB_TOKEN", "token-of-bot");
    assert_eq!(scene.house.relay(&["link", "acme/shop"]).ok(), "acme/shop");
    let issue = shop.issue.to_string();
    let made = ["task", "create", "--repo", "acme/shop", "--lane", LANE, "--issue", &issue];
    assert_eq!(scene.house.relay(&made).ok(), shop.task().0);
    scene
}

fn survives(kill: Kill, shop: &Shop) -> bool {
    let fault = kill.to_string();
    let scene = scene_at(shop);
    let died = scene.worker_dies(&fault);
    scene.drain();
    let detail = scene.assert_history(&shop.task().0, &fault);
    assert_eq!(detail["task"]["state"], "review", "{fault}: {detail:#}");
    assert_eq!(detail["task"]["pr"], shop.repo.pulls()[0].0, "{fault}");
    shop.assert_one_of_each(&fault);
    assert_eq!(scene.runs(), [1], "{fault}");
    scene.assert_clean(&fault);
    died
}

/// In threads that may wait for their processes.
fn survive_all(points: Vec<FaultPoint>) {
    let runtime = tokio::runtime::Handle::current();
    let kills = points.into_iter().map(|point| Kill { point, nth: 1 }).collect();
    let open = || runtime.block_on(Shop::open());
    tokio::task::block_in_place(|| go_through(kills, |kill| survives(kill, &open())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_and_a_comment_whose_worker_died_before_it_told_are_found_again() {
    let after = |passage| FaultPoint { passage, after: true };
    survive_all(vec![after(Passage::OpenPull), after(Passage::Comment)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_a_worker_killed_while_it_publishes_makes_one_pull_request_and_one_comment() {
    if !full() {
        return skip("it kills sixteen workers");
    }
    let half = [
        Passage::RecordCommitted,
        Passage::Push,
        Passage::RecordPushed,
        Passage::FindPull,
        Passage::OpenPull,
        Passage::RecordPull,
        Passage::Comment,
        Passage::RecordCommented,
        Passage::Release,
    ];
    // Before its commit is recorded the lane's work is not kept.
    let kept = |point: &FaultPoint| point.passage != Passage::RecordCommitted || point.after;
    let points = FaultPoint::all().filter(|p| half.contains(&p.passage)).filter(kept).collect();
    survive_all(points);
}

/// Held at the git server, so that the worker dies in the middle of it.
async fn dies_while_git_talks(line: &str) {
    let shop = Shop::open().await;
    let scene = scene_at(&shop);
    let mut request = shop.host.hold("bot", line);
    let mut worker = scene.house.work(&["--name", "w", "--lanes", LANE]);
    request.arrived().await;
    worker.signal(rustix::process::Signal::KILL);
    assert_eq!(worker.ended(), 128 + 9);
    let git = |line: &String| line.contains("git");
    let root = scene.house.dir.path().to_str().unwrap();
    assert!(processes_with(root).iter().any(git), "git goes on by itself");
    scene.drain();
    let detail = scene.assert_history(&shop.task().0, line);
    assert_eq!(detail["task"]["state"], "review", "{line}: {detail:#}");
    shop.assert_one_of_each(line);
    assert_eq!(scene.runs().len(), 1, "{line}");
    scene.assert_clean(line);
    drop(request);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_fetch_whose_worker_was_killed_is_ended_by_the_next_one() {
    dies_while_git_talks("POST /acme/shop.git/git-upload-pack").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_push_whose_worker_was_killed_is_ended_by_the_next_one() {
    dies_while_git_talks("POST /acme/shop.git/git-receive-pack").await;
}
