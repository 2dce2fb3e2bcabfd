//! The real program: a worker that is paused, resumed and drained by command, and jobs at once of one
//! lane and of one repository.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::house::{House, Working};

const EDIT: &str = "echo more >> README.md";
const DONE: &str = "{\"reply\":\"Edited.\"}";

/// A machine with the lanes `process:edit`, and `process:wait` which ends when [`Waits::go`] is there.
struct Waits {
    house: House,
    go: PathBuf,
    begun: PathBuf,
}

impl Waits {
    fn new() -> Self {
        let house = House::new();
        let (go, begun) = house.lane_that_waits("wait", EDIT, DONE);
        house.process_lane("edit", EDIT, DONE);
        Self { house, go, begun }
    }

    fn go(&self) {
        std::fs::write(&self.go, "").unwrap();
    }

    /// A task of the waiting lane runs at a worker that has both lanes and so many jobs.
    fn runs(&self, jobs: &str) -> (String, String, Working) {
        let slug = self.house.link();
        let running = self.house.task(&slug, "process:wait", "runs");
        let worker = self.house.work(&[&BOTH[..], &["--jobs", jobs]].concat());
        worker.until("the lane", || self.started() == 1);
        (slug, running, worker)
    }

    /// How often the waiting lane was started.
    fn started(&self) -> usize {
        std::fs::read_to_string(&self.begun).unwrap_or_default().lines().count()
    }
}

const BOTH: [&str; 4] = ["--name", "w", "--lanes", "process:wait,process:edit"];

fn waits(house: &House, task: &str) -> Value {
    house.json(&["task", "get", task, "--json"])["waiting"][0].clone()
}

#[test]
fn a_paused_worker_stays_paused_over_a_restart_and_goes_on_when_it_is_resumed() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let args = ["--name", "w", "--lanes", "process:edit"];
    let mut worker = house.work(&args);
    worker.until("it waits", || worker.said().contains("waiting for work"));
    // The only worker of this machine is meant.
    let said = house.relay(&["work", "pause"]).ok();
    assert_eq!(said, "w takes nothing until `relay work resume w`");
    worker.until("it knows", || worker.said().contains("everything paused by"));
    let task = house.task(&slug, "process:edit", "later");
    let why = waits(&house, &task);
    assert_eq!((&why["why"], &why["workers"][0]), (&"workers_paused".into(), &"w".into()), "{why}");
    let person = house.relay(&["task", "get", &task]).ok();
    assert!(person.contains("every worker that could take it is paused"), "{person}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());

    let worker = house.work(&args);
    worker.until("it knows", || worker.said().contains("everything paused by"));
    let status = house.relay(&["work", "status"]).ok();
    assert!(status.contains("w: paused by ") && status.contains("relay work resume w"), "{status}");
    let status = house.json(&["work", "status", "--json"]);
    assert!(status["workers"][0]["orders"]["paused"][0]["by"].is_string(), "{status}");
    assert_eq!(house.state(&task), "queued");
    // Of a lane alone: the whole worker stays paused.
    let said = house.relay(&["work", "resume", "w", "--lane", "process:edit"]).ok();
    assert_eq!(said, "w is still paused as a whole: `relay work resume w`");
    assert_eq!(house.relay(&["work", "resume", "w"]).ok(), "w goes on");
    // Long before the bell's own end, which is 5 minutes.
    worker.until("its end", || house.state(&task) == "review");
    assert!(worker.said().contains("resumed"), "{}", worker.said());
}

#[test]
fn a_lane_is_paused_while_what_runs_and_the_others_go_on() {
    let waits = Waits::new();
    let house = &waits.house;
    let (slug, running, worker) = waits.runs("3");
    let paused = house.json(&["work", "pause", "--lane", "process:wait", "--json"]);
    assert_eq!(paused["orders"]["paused"][0]["lane"], "process:wait", "{paused}");
    assert_eq!(paused["leases"][0]["task"], running.as_str());
    let held = house.task(&slug, "process:wait", "waits");
    let other = house.task(&slug, "process:edit", "goes on");
    worker.until("the other lane", || house.state(&other) == "review");
    assert_eq!(house.state(&held), "queued", "it is older, and of the paused lane");
    waits.go();
    worker.until("the running one", || house.state(&running) == "review");
    assert_eq!(house.state(&held), "queued");
    house.relay(&["work", "resume"]).ok();
    worker.until("the held one", || house.state(&held) == "review");
}

#[test]
fn a_worker_that_is_drained_by_command_lets_what_runs_finish_and_ends_with_zero() {
    let waits = Waits::new();
    let house = &waits.house;
    let (slug, running, mut worker) = waits.runs("2");
    let said = house.relay(&["work", "drain"]).ok();
    assert_eq!(said, format!("w takes nothing more, and ends after {running}"));
    worker.until("the drain", || {
        worker.said().contains(&format!("nothing new is taken; waits for {running}"))
    });
    let status = house.relay(&["work", "status"]).ok();
    assert!(status.contains("w: told to end by ") && status.contains(&running), "{status}");
    let later = house.task(&slug, "process:edit", "later");
    let again = house.relay(&["work", "drain", "w"]).ok();
    assert_eq!(again, said, "said twice it is the same");
    let shown =
        |status: &str| status.lines().any(|l| l.starts_with("w ") && l.contains("draining"));
    assert!(shown(&status), "{status}");
    house.relay(&["work", "pause", "w"]).ok();
    let refused = house.relay(&["work", "resume", "w"]);
    assert_eq!((refused.code, refused.out.as_str()), (4, ""), "{refused:?}");
    assert!(
        refused.err.contains("not taken back") && refused.err.contains(&running),
        "{refused:?}"
    );
    let status = house.relay(&["work", "status"]).ok();
    assert!(status.contains("w: paused by "), "what is refused changes nothing: {status}");
    waits.go();
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    assert_eq!((house.state(&running), house.state(&later)), ("review".into(), "queued".into()));
    assert_eq!(house.relay(&["work", "drain"]).ok(), "w is not there: nothing is to end");
    // The next start is another, and works once it is resumed.
    house.relay(&["work", "resume", "w"]).ok();
    house.relay(&[&["work", "--once"], &BOTH[..]].concat()).ok();
    assert_eq!(house.state(&later), "review");
}

#[test]
fn a_worker_that_ends_by_a_signal_is_shown_as_one_that_was_drained_by_command() {
    let waits = Waits::new();
    let house = &waits.house;
    let (slug, running, mut worker) = waits.runs("2");
    worker.signal(Signal::TERM);
    worker.until("the site knows", || {
        house.json(&["work", "status", "--json"])["workers"][0]["ending"] == true
    });
    let status = house.relay(&["work", "status"]).ok();
    let shown = |line: &str| line.starts_with("w ") && line.contains("draining");
    assert!(status.lines().any(shown), "{status}");
    let waits_for = format!("w: told to end by a signal; waits for {running}");
    assert!(status.contains(&waits_for), "{status}");
    let later = house.task(&slug, "process:edit", "later");
    let why = self::waits(house, &later);
    assert_eq!((&why["why"], &why["workers"][0]), (&"ending".into(), &"w".into()), "{why}");
    assert_eq!(house.relay(&["work", "resume", "w"]).code, 4, "it is not taken back");
    waits.go();
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    // The next start is another, and works.
    house.relay(&[&["work", "--once"], &BOTH[..]].concat()).ok();
    assert_eq!(house.state(&later), "review");
}

#[test]
fn an_idle_worker_that_is_drained_ends_at_once() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let mut worker = house.work(&["--name", "w", "--lanes", "process:edit"]);
    worker.until("it waits", || worker.said().contains("waiting for work"));
    assert_eq!(house.relay(&["work", "drain"]).ok(), "w ends: nothing runs");
    assert_eq!(worker.ended(), 0, "{}", worker.said());
}

#[test]
fn a_lane_at_its_limit_keeps_no_younger_task_of_another_waiting() {
    let waits = Waits::new();
    let house = &waits.house;
    let slug = house.link();
    let first = house.task(&slug, "process:wait", "first");
    let second = house.task(&slug, "process:wait", "second");
    let other = house.task(&slug, "process:edit", "other");
    let args = [&BOTH[..], &["--jobs", "3", "--limit", "process:wait=1"]].concat();
    let worker = house.work(&args);
    worker.until("the other lane", || house.state(&other) == "review");
    assert_eq!(house.state(&second), "queued", "without the limit it goes first");
    worker.until("the reason", || self::waits(house, &second)["why"] == "lane_full");
    let person = house.relay(&["task", "get", &second]).ok();
    assert!(person.contains("as many runs of process:wait as it may have at once"), "{person}");
    assert_eq!(waits.started(), 1);
    waits.go();
    for task in [first, second] {
        worker.until("its end", || house.state(&task) == "review");
    }
}

#[test]
fn a_repository_at_its_limit_keeps_no_younger_task_of_another_waiting() {
    let waits = Waits::new();
    let house = &waits.house;
    let attic = house.dir.path().join("attic");
    house.git(&["clone", "-q", path(&house.repo), path(&attic)]);
    let (slug, other) = (house.link(), "local/attic");
    house.relay(&["link", path(&attic)]).ok();
    let first = house.task(&slug, "process:wait", "first");
    let second = house.task(&slug, "process:edit", "second");
    let third = house.task(other, "process:edit", "third");
    let worker = house.work(&[&BOTH[..], &["--jobs", "3", "--per-repo", "1"]].concat());
    worker.until("the other repository", || house.state(&third) == "review");
    assert_eq!(house.state(&second), "queued", "without the limit it goes before the third");
    worker.until("the reason", || self::waits(house, &second)["why"] == "repo_full");
    assert_eq!(self::waits(house, &second)["runs"], serde_json::json!([first]));
    let person = house.relay(&["task", "get", &second]).ok();
    let says = format!("1 of 1 runs in this repository are on: {first}");
    assert!(person.contains(&says), "{person}");
    waits.go();
    for task in [first, second] {
        worker.until("its end", || house.state(&task) == "review");
    }
}

#[test]
fn what_is_no_limit_and_who_is_no_worker_is_named() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    for (limit, says) in [("codex", "codex=1"), ("codex=0", "1 to 64"), ("No=1", "No")] {
        let ran = house.relay(&["work", "--limit", limit]);
        assert!(ran.code == 2 && ran.err.contains(says), "{ran:?}");
    }
    assert_eq!(house.relay(&["work", "--per-repo", "0"]).code, 2);
    // A limit of a lane that is not there would hold nothing back.
    let unknown = house.relay(&["work", "--once", "--limit", "process:edti=1"]);
    assert_eq!(unknown.code, 6, "{unknown:?}");
    let lanes = "hint: its lanes are claude, codex, grok, process:edit";
    assert!(unknown.err.contains("no lane `process:edti`"), "{unknown:?}");
    assert!(unknown.err.contains(lanes), "{unknown:?}");
    assert_eq!(house.json(&["work", "status", "--json"])["workers"], serde_json::json!([]));
    let nobody = house.relay(&["work", "pause"]);
    assert!(nobody.code == 3 && nobody.err.contains("hint: "), "{nobody:?}");
    house.relay(&["work", "--once", "--name", "w", "--lanes", "process:edit"]).ok();
    let unknown = house.relay(&["work", "pause", "attic"]);
    assert!(unknown.code == 3 && unknown.err.contains("no worker `attic`"), "{unknown:?}");
    let lane = house.relay(&["work", "pause", "--lane", "codex"]);
    assert!(lane.code == 3 && lane.err.contains("w serves process:edit"), "{lane:?}");
    let help = house.relay(&["work", "drain", "--lane", "process:edit"]);
    assert_eq!(help.code, 2, "a drain is of the whole worker");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
