//! The real program: a worker that runs serves what its machine has now.

use serde_json::Value;

use crate::support::house::{House, Working};

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

/// No look-out is kept where the lanes were named: what they are was said.
#[test]
fn a_lane_is_served_that_was_configured_since_the_worker_started() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let worker = house.work(&["--name", "w"]);
    worker.until("it serves", || lanes(&house) == ["process:edit"]);
    let before = worker.said();

    house.process_lane("other", EDIT, DONE);
    let task = house.task(&slug, "process:other", "One");
    ends_in_review(&house, &worker, &task);
    assert_eq!(lanes(&house), ["process:edit", "process:other"]);
    let said = worker.said();
    let since = said.strip_prefix(&before).unwrap();
    assert!(since.contains("the lanes of this machine changed"), "{since}");
    assert!(since.contains("serving process:edit, process:other"), "{since}");

    // One that was taken away is left to other machines; one that is only out of order is the same.
    std::fs::remove_file(house.home.join("lanes/edit.json")).unwrap();
    worker.until("it serves the other alone", || lanes(&house) == ["process:other"]);
    let again = house.task(&slug, "process:other", "Two");
    ends_in_review(&house, &worker, &again);
}
