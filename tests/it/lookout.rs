//! The real program: a worker that runs serves what its machine has now, and what it does not serve
//! is said.

use serde_json::Value;

use crate::support::house::{House, Working};
use crate::support::proxy::Fate;
use crate::support::served::Served;

const EDIT: &str = "echo more >> README.md";
const DONE: &str = "{\"reply\":\"Edited.\"}";

fn lanes(house: &House) -> Vec<String> {
    let status = house.json(&["work", "status", "--json"]);
    let lanes = status["workers"][0]["lanes"].as_array().cloned().unwrap_or_default();
    lanes.iter().map(|lane| lane.as_str().unwrap().to_owned()).collect()
}

fn ends_in_review(house: &House, worker: &Working, task: &str) {
    worker.until("its task is done", || {
        let detail: Value = house.json(&["task", "get", task, "--json"]);
        detail["task"]["state"] == "review"
    });
}

/// A program that came, and whose login went.
#[test]
fn a_vendor_is_served_that_was_installed_since_and_not_once_it_is_logged_out() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let worker = house.work(&["--name", "w", "--no-sandbox"]);
    worker.until("it serves", || lanes(&house) == ["process:edit"]);
    let done =
        r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":1}"#;
    house.claude(&format!("{EDIT}\necho '{done}'"), 0);
    let task = house.task(&slug, "claude", "One");
    ends_in_review(&house, &worker, &task);
    assert_eq!(lanes(&house), ["claude", "process:edit"]);
    house.program("claude", "#!/bin/sh\necho '{\"loggedIn\":false}'\nexit 1\n");
    worker.until("it is left out", || lanes(&house) == ["process:edit"]);
}

#[test]
fn ctrl_c_ends_a_worker_whose_site_never_answered() {
    let mut house = House::new();
    house.process_lane("edit", EDIT, DONE);
    house.set("RELAY_SITE", "http://127.0.0.1:1");
    house.set("RELAY_TOKEN", "relay_none");
    let mut worker = house.work(&["--name", "w"]);
    worker.until("it misses its site", || worker.said().contains("127.0.0.1:1"));
    worker.signal(rustix::process::Signal::INT);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    let said = worker.said();
    assert!(said.contains("it is waited for (hint: check the network"), "{said}");
    assert!(!said.contains("away since") && !said.contains("jobs go on"), "{said}");
}

/// What it runs meanwhile goes on, and its instance is the same.
#[test]
fn a_lane_is_served_that_was_configured_since_the_worker_started() {
    let house = House::new();
    let (go, begun) = house.lane_that_waits("wait", EDIT, DONE);
    let slug = house.link();
    let worker = house.work(&["--name", "w", "--jobs", "2"]);
    worker.until("it serves", || lanes(&house) == ["process:wait"]);
    let held = house.task(&slug, "process:wait", "Wait");
    worker.until("it runs", || begun.exists());

    house.process_lane("other", EDIT, DONE);
    let task = house.task(&slug, "process:other", "One");
    ends_in_review(&house, &worker, &task);
    assert_eq!(lanes(&house), ["process:other", "process:wait"]);
    assert!(worker.said().contains("serving process:other, process:wait"), "{}", worker.said());

    // One that was taken away is left to other machines, and what runs of it is not.
    std::fs::remove_file(house.home.join("lanes/wait.json")).unwrap();
    worker.until("it serves the other alone", || lanes(&house) == ["process:other"]);
    assert_eq!(house.state(&held), "running");
    std::fs::write(&go, "").unwrap();
    ends_in_review(&house, &worker, &held);
    assert_eq!(std::fs::read_to_string(&begun).unwrap().lines().count(), 1, "it was run twice");

    let why = "process:wait is served no more: its configuration is gone";
    assert!(worker.said().contains(why), "{}", worker.said());

    // Nor is the last one kept, which nothing could run any more.
    std::fs::write(house.home.join("lanes/other.json"), "{").unwrap();
    worker.until("it serves none", || lanes(&house).is_empty());
    let gone = "the last lane of this machine is gone";
    worker.until("it says so", || worker.said().contains(gone));
    let said = worker.said();
    let why = said.lines().find(|line| line.contains("process:other is served no more: "));
    let why = why.unwrap_or_else(|| panic!("{said}"));
    assert!(why.contains("lanes/other.json: not a process lane's config"), "{why}");
    assert!(why.contains("(hint: mend "), "{why}");
    let create = ["task", "create", "--repo", &slug, "--lane", "process:wait", "--title", "x"];
    assert_eq!(house.relay(&create).code, 3, "there is no such lane");
    house.process_lane("other", EDIT, DONE);
    let task = house.task(&slug, "process:other", "Two");
    ends_in_review(&house, &worker, &task);
    let events = house.relay(&["events", "--json"]).ok();
    assert_eq!(events.matches("worker.registered").count(), 1, "{events}");
    assert_eq!(events.matches("worker.online").count(), 0, "{events}");
}

#[test]
fn a_site_that_does_not_take_other_lanes_leaves_its_worker_as_it_was() {
    let served = Served::new();
    let house = &served.house;
    let (go, begun) = house.lane_that_waits("wait", EDIT, DONE);
    let slug = house.link();
    let worker = served.work("a", &[]);
    worker.until("it serves", || lanes(house) == ["process:wait"]);
    let held = house.task(&slug, "process:wait", "Wait");
    worker.until("it runs", || begun.exists());

    served.proxy.by(|path| match path.ends_with("/workers") {
        true => Fate::Page(503, None),
        false => Fate::Pass,
    });
    house.process_lane("other", EDIT, DONE);
    worker.until("it says so", || worker.said().contains("it serves those it did"));
    assert_eq!(lanes(house), ["process:wait"]);
    let other = house.task(&slug, "process:other", "Other");
    std::fs::write(&go, "").unwrap();
    ends_in_review(house, &worker, &held);
    let next = house.task(&slug, "process:wait", "Next");
    ends_in_review(house, &worker, &next);
    assert_eq!(house.state(&other), "queued");
}

#[test]
fn a_worker_says_at_its_start_which_repositories_of_its_machine_it_was_not_linked() {
    let served = Served::new();
    served.house.process_lane("edit", EDIT, DONE);
    served.house.link();
    let linked = served.work("a", &[]);
    std::fs::remove_file(served.home_of("b").join("linked.json")).unwrap();
    let worker = served.work("b", &[]);
    let place = served.house.repo.canonicalize().unwrap();
    let hint = format!("its tasks fail here (hint: relay link {})", place.display());
    worker.until("it says so", || worker.said().contains(&hint));
    linked.until("it waits", || linked.said().contains("waiting for work"));
    assert!(!linked.said().contains("not linked"), "{}", linked.said());
}

#[test]
fn a_task_of_a_lane_that_no_worker_serves_is_made_with_a_warning() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let worker = house.work(&["--name", "w", "--lanes", "process:edit"]);
    worker.until("it waits", || worker.said().contains("waiting for work"));
    let made = |lane: &str| {
        house.relay(&["task", "create", "--repo", &slug, "--lane", lane, "--title", "x"])
    };
    let other = made("codex");
    assert_eq!((other.code, other.out.as_str()), (0, "local/shop#1\n"), "{other:?}");
    let warning = "warning: local/shop#1 waits: no worker serves the lane codex";
    assert!(other.err.contains(warning) && other.err.contains("relay lane ls"), "{other:?}");
    assert_eq!(house.state("local/shop#1"), "queued");
    assert!(!other.err.contains("on this machine: "), "{other:?}");
    let own = made("process:edit");
    assert_eq!((own.code, own.err.as_str()), (0, ""), "{own:?}");
    // Of this one each run would fail.
    std::fs::remove_file(house.bin.join("edit-lane")).unwrap();
    let broken = made("process:edit");
    assert_eq!((broken.code, broken.out.as_str()), (0, "local/shop#3\n"), "{broken:?}");
    let warning = "warning: process:edit cannot run on this machine: ";
    assert!(broken.err.contains(warning) && broken.err.contains("edit-lane"), "{broken:?}");
}

#[test]
fn a_lane_that_the_worker_was_not_told_of_is_said_to_be_served_by_nobody() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let worker = house.work(&["--name", "w", "--lanes", "process:edit"]);
    worker.until("it waits", || worker.said().contains("waiting for work"));
    let ls = || house.relay(&["lane", "ls", "--patience", "60"]).ok();
    assert!(!ls().contains("does not serve it"), "{}", ls());
    house.process_lane("late", EDIT, DONE);
    assert!(ls().contains("→ w runs and does not serve it: "), "{}", ls());
    let lanes = house.json(&["lane", "ls", "--json", "--patience", "60"]);
    let lane = lanes["lanes"].as_array().unwrap().iter().find(|l| l["lane"] == "process:late");
    assert_eq!(lane.unwrap()["not_served_by"][0], "w", "{lanes}");
    let create = ["task", "create", "--repo", &slug, "--lane", "process:late", "--title", "x"];
    let late = house.relay(&create);
    assert!(late.err.contains("one that was started with --lanes serves those alone"), "{late:?}");
    assert!(late.err.contains("process:late is configured on this machine: "), "{late:?}");
    drop(worker);
    assert!(!ls().contains("does not serve it"), "{}", ls());
}
