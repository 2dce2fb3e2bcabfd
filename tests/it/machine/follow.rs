//! `relay task log --follow` from another machine: of a task that waits, and of one that just ended.

use std::fs::{self, File};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::house::Working;
use crate::support::served::Served;

const LANE: &str = "process:edit";

/// A site whose lane changes something once `go` is there, and fails before.
fn stand() -> (Served, String) {
    let served = Served::new();
    let house = &served.house;
    let body = format!(
        "if [ -e {} ]; then echo more >> README.md; fi",
        house.dir.path().join("go").display()
    );
    house.process_lane("edit", &body, r#"{"reply":"done"}"#);
    let task = house.task(&house.link(), LANE, "t");
    (served, task)
}

fn follow(served: &Served, name: &str, task: &str) -> Working {
    let log = served.house.dir.path().join(name);
    let file = File::create(&log).unwrap();
    let mut command = served.command("a", &["task", "log", "--follow", task]);
    let child: Child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    Working { child, log }
}

fn work(served: &Served) {
    served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]);
}

#[test]
fn a_follower_of_a_task_that_waits_says_why_and_sees_its_next_run() {
    let (served, task) = stand();
    let mut first = follow(&served, "first", &task);
    let waits = format!("{task} is queued (no worker is there: start one with `relay work`)");
    first.until("why it waits", || first.said().contains(&waits));
    assert!(first.said().contains("Ctrl-C ends this"), "{}", first.said());
    work(&served);
    assert_eq!(first.ended(), 8, "{}", first.said());
    assert!(first.said().contains("== run") && first.said().contains(" is failed"));
    assert_eq!(first.said().matches("Ctrl-C").count(), 1, "{}", first.said());

    served.house.relay(&["task", "retry", &task]).ok();
    let mut second = follow(&served, "second", &task);
    second.until("why it waits", || second.said().contains("is queued"));
    assert!(!second.said().contains("== run"), "the run before is over: {}", second.said());
    fs::write(served.house.dir.path().join("go"), "").unwrap();
    work(&served);
    assert_eq!(second.ended(), 0, "{}", second.said());
    assert!(second.said().contains("== push"), "{}", second.said());
    assert!(second.said().contains(" is review"), "{}", second.said());

    // One that is named is printed, whatever comes.
    let detail = served.house.json(&["task", "get", &task, "--json"]);
    let run = detail["runs"][1]["id"].as_str().unwrap();
    served.house.relay(&["task", "retry", &task]);
    let named = served.relay("a", &["task", "log", "--follow", &task, "--run", run]);
    assert!(named.out.contains("== run") && !named.out.contains("== push"), "{named:?}");
}

/// The log's end may be seen before the worker has given the task back.
#[test]
fn a_follower_waits_for_how_the_task_ends() {
    let (served, task) = stand();
    work(&served);
    let details = AtomicU32::new(0);
    served.proxy.edit("/tasks/", move |answer| {
        if answer["end"] == true {
            answer["state"] = "running".into();
        } else if answer["task"].is_object() && details.fetch_add(1, Ordering::SeqCst) < 2 {
            answer["task"]["state"] = "running".into();
        }
    });
    let followed = served.relay("a", &["task", "log", "--follow", &task]);
    assert_eq!(followed.code, 8, "{followed:?}");
    assert!(followed.err.contains(&format!("{task} is failed")), "{followed:?}");
}
