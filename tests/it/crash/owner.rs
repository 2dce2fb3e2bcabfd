//! The owner of the home dies while a worker of another process lives: the worker carries on when
//! the owner is back, and nothing is done twice.

use std::fs::File;
use std::process::Child;

use relay::model::{FaultPoint, Passage};
use rustix::process::Signal;

use super::matrix::{Kill, go_through};
use super::scene::{LANE, Scene};
use crate::support::full::{full, skip};
use crate::support::house::Working;

/// What a worker's job writes, and how often. The owner's own worker has registered and claimed
/// once before.
const WRITES: [(Passage, std::ops::RangeInclusive<u32>); 6] = [
    (Passage::QueueRegister, 2..=2),
    (Passage::QueueClaim, 2..=2),
    (Passage::QueueStart, 1..=1),
    (Passage::QueueRecord, 1..=4),
    (Passage::QueueLocalPull, 1..=2),
    (Passage::QueueFinish, 1..=1),
];

impl Scene {
    /// An owner whose own worker has nothing to do.
    fn owner(&self, fault: &str) -> Working {
        self.house.process_lane("other", ":", r#"{}"#);
        let owner =
            self.house.work_with_fault(fault, &["--name", "owner", "--lanes", "process:other"]);
        owner.until("its readiness", || owner.said().contains("waiting for work"));
        owner
    }

    /// A worker at the owner's socket.
    fn guest(&self, args: &[&str]) -> Working {
        let log = self.house.dir.path().join("guest.log");
        let file = File::create(&log).unwrap();
        let all = [&["work", "--name", "guest", "--lanes", LANE], args].concat();
        let mut command = self.house.command(&all);
        let site = format!("unix:{}", self.house.home.join("relay.sock").display());
        command.env("RELAY_SITE", site).stdout(file.try_clone().unwrap()).stderr(file);
        let child: Child = command.spawn().unwrap();
        Working { child, log }
    }
}

fn survives(kill: Kill) -> bool {
    let fault = kill.to_string();
    let scene = Scene::new();
    let task = scene.with_task();
    let mut owner = scene.owner(&fault);
    let mut guest = scene.guest(&["--once"]);
    if owner.ended() != 128 + 9 {
        return false;
    }
    let mut owner = scene.owner("");
    assert_eq!(guest.ended(), 0, "{fault}: {}", guest.said());
    owner.signal(Signal::TERM);
    assert_eq!(owner.ended(), 0, "{fault}: {}", owner.said());
    scene.assert_local_review(&task, &fault);
    let detail = scene.assert_history(&task, &fault);
    assert_eq!(detail["task"]["epoch"], 1, "{fault}: the task was taken twice: {detail:#}");
    assert_eq!(scene.runs(), [1], "{fault}");
    scene.assert_clean(&fault);
    true
}

#[test]
fn a_release_whose_owner_dies_with_it_is_told_to_the_next_owner() {
    let finish =
        |after| Kill { point: FaultPoint { passage: Passage::QueueFinish, after }, nth: 1 };
    go_through(vec![finish(false), finish(true)], survives);
}

#[test]
fn full_a_worker_outlives_its_owner_at_every_write() {
    if !full() {
        return skip("it kills twenty owners");
    }
    let kills = WRITES.iter().flat_map(|(passage, times)| {
        let sides = |nth| {
            [false, true].map(|after| Kill { point: FaultPoint { passage: *passage, after }, nth })
        };
        times.clone().flat_map(sides)
    });
    go_through(kills.collect(), survives);
}

#[test]
fn a_worker_told_to_stop_says_so_and_another_takes_the_task_at_once() {
    let scene = Scene::new();
    let begun = scene.house.dir.path().join("begun");
    scene.lane(&format!("if [ ! -e {0} ]; then touch {0}; sleep 3000; fi", begun.display()));
    let task = scene.with_task();
    let mut owner = scene.owner("");
    let mut guest = scene.guest(&[]);
    guest.until("the lane", || begun.exists());
    guest.signal(Signal::TERM);
    guest.until("the drain", || guest.said().contains("running jobs finish"));
    guest.signal(Signal::TERM);
    assert_eq!(guest.ended(), 0, "{}", guest.said());
    let detail = scene.house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["task"]["state"], "queued", "{detail:#}");
    assert_eq!(detail["runs"][0]["stop_reason"]["reason"], "worker_stopped");
    assert_eq!(scene.guest(&["--once"]).ended(), 0);
    assert_eq!(scene.house.state(&task), "review");
    owner.signal(Signal::TERM);
    assert_eq!(owner.ended(), 0, "{}", owner.said());
    assert_eq!(scene.runs(), [2]);
    scene.assert_clean("a second worker");
}

#[test]
fn a_socket_that_somebody_removed_comes_back() {
    let scene = Scene::new();
    let task = scene.with_task();
    let mut owner = scene.owner("");
    std::fs::remove_file(scene.house.home.join("relay.sock")).unwrap();
    let waits = scene.house.relay(&["task", "get", &task]).ok();
    assert!(waits.contains("queued"), "{waits}");
    assert_eq!(scene.guest(&["--once"]).ended(), 0);
    assert_eq!(scene.house.state(&task), "review");
    owner.signal(Signal::TERM);
    assert_eq!(owner.ended(), 0, "{}", owner.said());
    assert!(owner.said().contains("it is back"), "{}", owner.said());
    scene.assert_clean("a new socket");
}
