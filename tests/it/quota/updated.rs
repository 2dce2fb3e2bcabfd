//! A vendor's program that is replaced: before its run, while it runs, and gone for a moment.

use std::fs;

use serde_json::{Value, json};

use super::person::Person;

#[test]
fn a_run_that_breaks_while_its_program_is_updated_is_tried_again() {
    let person = Person::new();
    // The same end without an update is the task's own.
    for (says, state, reason) in [
        ("break", "failed", "protocol_violation"),
        ("update and break", "parked", "crashed"),
        ("update", "review", ""),
    ] {
        person.vendor_says(says);
        let task = person.task("claude");
        person.drain();
        let detail = person.house.json(&["task", "get", &task, "--json"]);
        assert_eq!(detail["task"]["state"], state, "{says}: {detail:#}");
        if reason.is_empty() {
            continue;
        }
        assert_eq!(detail["task"]["stop_reason"]["reason"], reason, "{says}");
        let message = detail["task"]["message"].as_str().unwrap();
        let updated = message.contains("claude was updated while it ran: ");
        assert_eq!(updated, says != "break", "{message}");
    }
}

#[test]
fn a_probe_tells_the_version_that_ran_and_the_one_before() {
    let person = Person::new();
    person.vendor_says("update");
    let told = person.probe("claude", &["--json"]);
    let probed: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(probed["answered"], true, "{probed:#}");
    assert_eq!(
        (&probed["version"], &probed["updated_from"]),
        (&json!("2.1.333"), &json!("2.1.332"))
    );
    // It is a worker that tries again, and not this command.
    person.vendor_says("update and break");
    person.stand_in(person.dir());
    let told = person.probe("claude", &["--json"]);
    let probed: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(probed["stop_reason"]["reason"], "crashed", "{probed:#}");
    assert_eq!(probed["hint"], Value::Null, "{probed:#}");
}

#[test]
fn a_program_that_is_gone_for_a_moment_fails_no_task() {
    let person = Person::new();
    let program = person.dir().join("bin/claude");
    let worker = person.work("1");
    let aside = program.with_extension("aside");
    fs::rename(&program, &aside).unwrap();
    let task = person.task("claude");
    worker.until("the word", || worker.said().contains("claude: its program is not at "));
    assert!(person.is(&task, "queued"));
    fs::rename(&aside, &program).unwrap();
    worker.until("the task", || person.is(&task, "review"));
}
