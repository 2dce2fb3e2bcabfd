//! Every point of the enum, on a local repository.

use std::fmt;
use std::sync::Mutex;

use relay::model::{FaultPoint, Passage};

use super::scene::{LANE, Scene};
use super::tokens;
use crate::support::full::{full, skip};

/// How often a run comes by a passage that it comes by more than once.
const TIMES: [(Passage, u32); 2] = [(Passage::QueueRecord, 4), (Passage::QueueLocalPull, 2)];

/// The end of a process at a point, the n-th time it is there.
#[derive(Clone, Copy)]
pub struct Kill {
    pub point: FaultPoint,
    pub nth: u32,
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}:kill", self.point, self.nth)
    }
}

/// Kills at one point and sees what comes of it; false where no process came by.
fn survives(kill: Kill) -> bool {
    let fault = kill.to_string();
    let scene = Scene::new();
    match kill.point.passage {
        Passage::Fence => taken_up_twice(&scene, &fault),
        Passage::Keep => push_refused(&scene, &fault),
        Passage::QueueCancel | Passage::QueueRevive => called_off(&scene, &fault),
        Passage::QueueAdd => asked_for(&scene, &fault),
        Passage::QueueLink => linked(&scene, &fault),
        Passage::QueueDone => ended_by_hand(&scene, &fault),
        Passage::QueueRetry => tried_again(&scene, &fault),
        Passage::QueuePrefer | Passage::QueueUnprefer => preferred(&scene, &fault),
        Passage::QueueBudgets => used_up(&scene, &fault),
        Passage::QueueToken => tokens::made(&scene, &fault),
        Passage::QueueRevoke => tokens::revoked(&scene, &fault),
        Passage::QueueInvite => tokens::invited(&scene, &fault),
        Passage::QueueRedeem => tokens::redeemed(&scene, &fault),
        _ => plain(&scene, &fault),
    }
}

fn plain(scene: &Scene, fault: &str) -> bool {
    let task = scene.with_task();
    let died = scene.worker_dies(fault);
    finish(scene, &task, fault);
    died
}

fn finish(scene: &Scene, task: &str, fault: &str) {
    scene.drain();
    scene.assert_local_review(task, fault);
    scene.assert_clean(fault);
    assert!(scene.runs().len() <= 2, "{fault}: {:?}", scene.runs());
}

/// Only a later epoch comes by.
fn taken_up_twice(scene: &Scene, fault: &str) -> bool {
    let task = scene.with_task();
    assert!(scene.worker_dies("job.record_committed.after:kill"));
    let died = scene.worker_dies(fault);
    finish(scene, &task, fault);
    assert_eq!(scene.runs(), [1], "{fault}");
    died
}

fn push_refused(scene: &Scene, fault: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let hook = scene.house.repo.join(".git/hooks/update");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\necho 'error: GH006: Protected branch' >&2\nexit 1\n")
        .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let task = scene.with_task();
    let died = scene.worker_dies(fault);
    scene.drain();
    let detail = scene.assert_history(&task, fault);
    assert_eq!(detail["task"]["state"], "failed", "{fault}: {detail:#}");
    assert_eq!(detail["task"]["stop_reason"]["reason"], "push_refused", "{fault}");
    let kept = detail["runs"][0]["kept"].as_str().expect("the work is kept");
    assert!(std::path::Path::new(kept).exists(), "{fault}: {detail:#}");
    scene.assert_clean(fault);
    std::fs::remove_file(hook).unwrap();
    scene.house.relay(&["task", "retry", &task]).ok();
    finish(scene, &task, fault);
    assert_eq!(scene.runs(), [1], "{fault}");
    died
}

/// The owner dies while a person calls its running task off. The person hears that, and asks again.
fn called_off(scene: &Scene, fault: &str) -> bool {
    let begun = scene.house.dir.path().join("begun");
    scene.lane(&format!("touch {}; sleep 3000", begun.display()));
    let task = scene.with_task();
    let mut worker = scene.house.work_with_fault(fault, &["--name", "w", "--lanes", LANE]);
    worker.until("the lane", || begun.exists());
    let asked = scene.house.relay(&["task", "cancel", &task]);
    let died = worker.ended() == 128 + 9;
    if asked.code != 0 {
        assert!(asked.err.contains("error: "), "{}", asked.err);
        scene.house.relay(&["task", "cancel", &task]).ok();
    }
    scene.drain();
    let detail = scene.assert_history(&task, fault);
    assert_eq!(detail["task"]["state"], "cancelled", "{fault}: {detail:#}");
    assert_eq!(scene.house.in_repo(&["branch", "--list", "relay/*"]), "", "{fault}");
    scene.assert_clean(fault);
    died
}

fn asked_for(scene: &Scene, fault: &str) -> bool {
    let slug = scene.house.link();
    let made = ["task", "create", "--repo", &slug, "--lane", LANE, "--title", "Say more"];
    let died = scene.dies(fault, &made);
    let there = scene.house.json(&["task", "ls", "--json"])["tasks"].as_array().unwrap().len();
    assert_eq!(there, usize::from(fault.contains("after")), "{fault}");
    if there == 0 {
        scene.house.relay(&made).ok();
    }
    finish(scene, &format!("{slug}#1"), fault);
    died
}

fn linked(scene: &Scene, fault: &str) -> bool {
    let died = scene.dies(fault, &["link", scene.house.repo.to_str().unwrap()]);
    let task = scene.with_task();
    assert_eq!(task, "local/shop#1", "{fault}: linking again made a second project");
    finish(scene, &task, fault);
    died
}

fn ended_by_hand(scene: &Scene, fault: &str) -> bool {
    let task = scene.with_task();
    let died = scene.dies(fault, &["task", "done", &task]);
    scene.house.relay(&["task", "done", &task]).ok();
    scene.drain();
    assert_eq!(scene.assert_history(&task, fault)["task"]["state"], "done", "{fault}");
    assert_eq!(scene.runs(), [0_i64; 0], "{fault}");
    scene.assert_clean(fault);
    died
}

fn tried_again(scene: &Scene, fault: &str) -> bool {
    let ready = scene.house.dir.path().join("ready");
    scene.lane(&format!("test -e {} || exit 7", ready.display()));
    let task = scene.with_task();
    scene.drain();
    assert_eq!(scene.house.state(&task), "failed");
    std::fs::write(&ready, "").unwrap();
    let died = scene.dies(fault, &["task", "retry", &task]);
    scene.house.relay(&["task", "retry", &task]).ok();
    finish(scene, &task, fault);
    died
}

fn preferred(scene: &Scene, fault: &str) -> bool {
    let set = ["prefer", "lane.labels", "gpu"];
    let unset = ["prefer", "lane.labels", "--unset"];
    let said = |text: &str| scene.house.relay(&["prefer", "--json"]).ok().contains(text);
    let mut died = scene.dies(fault, &set);
    if died {
        assert_eq!(said("gpu"), fault.contains("after"), "{fault}");
        scene.house.relay(&set).ok();
    }
    assert!(said("gpu"), "{fault}");
    if !died {
        died = scene.dies(fault, &unset);
        assert_ne!(said("gpu"), fault.contains("after"), "{fault}");
    }
    if said("gpu") {
        scene.house.relay(&unset).ok();
    }
    let task = scene.with_task();
    finish(scene, &task, fault);
    died
}

/// A budget of nothing stops its task, whenever the process that was told of it died.
fn used_up(scene: &Scene, fault: &str) -> bool {
    let task = scene.with_task();
    let died = scene.dies(fault, &["prefer", "budget.usd_day", "0"]);
    scene.drain();
    assert_eq!(scene.house.state(&task), "queued", "{fault}");
    let told = scene.house.json(&["events", "--json"])["events"].to_string();
    assert_eq!(told.matches("\"why\":\"budget\"").count(), 1, "{fault}: {told}");
    scene.house.relay(&["prefer", "budget.usd_day", "--unset"]).ok();
    finish(scene, &task, fault);
    died
}

/// Goes through the kills in several threads and names those that no process came by.
pub fn go_through(kills: Vec<Kill>, survives: impl Fn(Kill) -> bool + Sync) {
    let (todo, missed) = (Mutex::new(kills), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(kill) = { todo.lock().unwrap().pop() } {
                    if !survives(kill) {
                        missed.lock().unwrap().push(kill.to_string());
                    }
                }
            });
        }
    });
    assert_eq!(missed.into_inner().unwrap(), Vec::<String>::new(), "no run passes these points");
}

/// The few without which the rest would be worth nothing.
#[test]
fn a_worker_killed_around_its_push_and_its_claim_goes_on_where_it_was() {
    let points = [
        (Passage::Claim, true),
        (Passage::RecordCommitted, true),
        (Passage::Push, true),
        (Passage::QueueFinish, false),
        (Passage::QueueFinish, true),
    ];
    let kill = |(passage, after)| Kill { point: FaultPoint { passage, after }, nth: 1 };
    go_through(points.map(kill).to_vec(), survives);
}

#[test]
fn full_a_worker_killed_at_any_point_leaves_a_right_end() {
    if !full() {
        return skip("it kills a hundred workers");
    }
    let times = |point: &FaultPoint| {
        TIMES.iter().find(|(passage, _)| *passage == point.passage).map_or(1, |(_, times)| *times)
    };
    let every = |point| (1..=times(&point)).map(move |nth| Kill { point, nth });
    go_through(FaultPoint::all().flat_map(every).collect(), survives);
}

#[test]
fn a_fault_that_is_none_is_told_with_the_points_there_are() {
    let mut house = crate::support::house::House::new();
    house.set("RELAY_FAULT", "job.dance.after:kill");
    let ran = house.relay(&["work", "--once"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("no point `job.dance.after`"), "{}", ran.err);
    assert!(ran.err.contains("job.push.before, job.push.after"), "{}", ran.err);
    house.set("RELAY_FAULT", "");
    assert!(!house.relay(&["work", "--help"]).out.contains("FAULT"));
}
