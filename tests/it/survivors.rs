//! Nothing survives a run of a whole worker, however it ends: the real program, a process lane
//! that starts every kind of process that likes to live on, and a look at the process table.

use std::path::PathBuf;
use std::time::Duration;

use relay::model::Clock as _;
use relay::system::SystemClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::house::{House, Working, only_has};
use crate::support::processes::{IN_OTHER_SESSIONS, KINDS, Marked, kinds};

/// Where the pid namespace comes from, and where there is none.
#[derive(Clone, Copy, PartialEq)]
enum Wall {
    Bare,
    Namespace,
}

/// A machine with one task, whose lane starts its processes and waits for a word.
struct Stand {
    house: House,
    marked: Marked,
    task: String,
    go: PathBuf,
}

impl Stand {
    fn new(wall: Wall) -> Self {
        let house = House::new();
        if wall == Wall::Bare {
            house.without_namespaces();
        }
        let marked = Marked::new();
        let go = house.dir.path().join("go");
        let body = format!(
            "export MARK={}\n{}\nwhile [ ! -s '{go}' ]; do sleep 0.02; done\n\
             case $(cat '{go}') in fail) exit 3;; much) exec yes;; esac\necho change >> README.md",
            marked.mark,
            kinds(house.dir.path()),
            go = go.display()
        );
        house.process_lane("stay", &body, r#"{"reply":"done"}"#);
        house.process_lane("other", "true", "{}");
        let slug = house.link();
        let task = house.task(&slug, "process:stay", "x");
        Self { house, marked, task, go }
    }

    /// A worker that runs the lane, once everything of it stands.
    fn worker(&self, more: &[&str]) -> Working {
        let worker = self.house.work(&[&["--name", "w", "--lanes", "process:stay"], more].concat());
        worker.until("the lane's processes", || self.marked.alive().len() == KINDS);
        worker
    }

    fn say(&self, word: &str) {
        std::fs::write(&self.go, word).unwrap();
    }

    fn detail(&self) -> Value {
        self.house.json(&["task", "get", &self.task, "--json"])
    }

    /// Waits for the run's end; at that moment nothing of it may be alive.
    fn ended(&self, worker: &Working, state: &str, reason: &str) {
        worker.until("the end of the run", || !self.detail()["runs"][0]["stop_reason"].is_null());
        assert_eq!(self.marked.names(), [""; 0], "alive after the run ended: {reason}");
        let detail = self.detail();
        assert_eq!(detail["task"]["state"], state, "{detail:#}");
        assert_eq!(detail["runs"][0]["stop_reason"]["reason"], reason, "{detail:#}");
        worker.until("the copy's end", || self.copies().is_empty());
    }

    fn gone(&self, worker: &Working) {
        worker.until("the end of what the lane started", || self.marked.alive().is_empty());
    }

    /// What is left of copies and their locks.
    fn copies(&self) -> Vec<String> {
        only_has(&self.house.home.join("work"), &["claim", "claims"])
    }
}

fn every_end(wall: Wall) {
    for (word, state, reason) in [
        ("well", "review", "finished"),
        ("fail", "failed", "protocol_violation"),
        ("much", "failed", "protocol_violation"),
    ] {
        let stand = Stand::new(wall);
        let worker = stand.worker(&[]);
        stand.say(word);
        stand.ended(&worker, state, reason);
    }

    let stand = Stand::new(wall);
    let worker =
        stand.house.work(&["--name", "w", "--lanes", "process:stay", "--max-minutes", "0.05"]);
    stand.ended(&worker, "failed", "timed_out");

    let stand = Stand::new(wall);
    let worker = stand.worker(&[]);
    stand.house.relay(&["task", "cancel", &stand.task]).ok();
    stand.gone(&worker);
    stand.ended(&worker, "cancelled", "cancelled");

    let stand = Stand::new(wall);
    let mut worker = stand.worker(&[]);
    worker.signal(Signal::TERM);
    worker.until("the drain", || worker.said().contains("running jobs finish"));
    worker.signal(Signal::TERM);
    worker.ended();
    stand.ended(&worker, "queued", "worker_stopped");
}

fn every_death(wall: Wall) {
    // The supervisor sees the end of its worker.
    let stand = Stand::new(wall);
    let worker = stand.worker(&[]);
    worker.signal(Signal::KILL);
    stand.gone(&worker);

    // The namespace dies with the supervisor, and else the worker adopts what that leaves.
    let stand = Stand::new(wall);
    let worker = stand.worker(&[]);
    kill_process(stand.marked.supervisor(), Signal::KILL).unwrap();
    stand.gone(&worker);
    stand.ended(&worker, "parked", "crashed");
}

/// The supervisor is stopped first, so that it cannot end what it sees.
fn both_die_at_once(stand: &Stand) {
    let mut worker = stand.worker(&[]);
    let supervisor = stand.marked.supervisor();
    kill_process(supervisor, Signal::STOP).unwrap();
    worker.signal(Signal::KILL);
    worker.ended();
    kill_process(supervisor, Signal::KILL).unwrap();
}

#[test]
fn nothing_survives_any_end_without_a_namespace() {
    every_end(Wall::Bare);
}

#[test]
fn nothing_survives_any_death_without_a_namespace() {
    every_death(Wall::Bare);
}

#[test]
fn full_box_nothing_survives_any_end_of_a_worker() {
    every_end(Wall::Namespace);
}

#[test]
fn full_box_nothing_survives_any_death() {
    every_death(Wall::Namespace);
    let stand = Stand::new(Wall::Namespace);
    both_die_at_once(&stand);
    let worker = stand.house.work(&["--name", "w", "--lanes", "process:other"]);
    stand.gone(&worker);
}

/// The next worker of the home ends what is left by the mark that each run carries. What took its
/// environment off as well lives on: docs/SECURITY.md says so.
#[test]
fn the_next_worker_ends_what_both_deaths_left() {
    let stand = Stand::new(Wall::Bare);
    both_die_at_once(&stand);
    assert!(stand.marked.alive().len() >= IN_OTHER_SESSIONS, "{:?}", stand.marked.names());
    let worker = stand.house.work(&["--name", "w", "--lanes", "process:other"]);
    let innocent = [stand.house.dir.path().join("innocent").display().to_string()];
    worker.until("the end of what carries the mark", || stand.marked.names() == innocent);
    worker.until("the copy's end", || stand.copies().is_empty());
}

/// A lane may stop its supervisor where there is no namespace, and kill the worker then.
#[test]
fn the_next_worker_wakes_a_supervisor_that_its_lane_stopped() {
    let stand = Stand::new(Wall::Bare);
    let mut worker = stand.worker(&[]);
    let supervisor = stand.marked.supervisor();
    kill_process(supervisor, Signal::STOP).unwrap();
    worker.signal(Signal::KILL);
    worker.ended();
    let worker = stand.house.work(&["--name", "w", "--lanes", "process:other"]);
    worker.until("its supervisor's end", || !stands(supervisor));
    stand.gone(&worker);
}

fn stands(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // A zombie of nobody's has ended.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// From the cancel's answer to the end of every process, five times. Who cancelled is kept. The
/// soonest counts: a machine may stand still in the middle of any of them.
#[test]
fn full_a_cancel_ends_everything_within_two_seconds() {
    let mut all = Vec::new();
    for wall in [Wall::Bare, Wall::Namespace, Wall::Bare, Wall::Namespace, Wall::Bare] {
        let stand = Stand::new(wall);
        let worker = stand.worker(&[]);
        stand.house.relay(&["task", "cancel", &stand.task]).ok();
        let asked = SystemClock.uptime();
        stand.gone(&worker);
        all.push(SystemClock.uptime() - asked);
        stand.ended(&worker, "cancelled", "cancelled");
    }
    println!("five cancels took {all:?}");
    assert!(*all.iter().min().unwrap() < Duration::from_secs(2), "{all:?}");
}
