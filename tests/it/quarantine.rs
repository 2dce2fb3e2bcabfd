//! A lane that takes the whole worker down: the real program, killed at each start of the lane.

use std::path::Path;

use rustix::process::Signal;

use crate::support::house::House;

const WORKER: [&str; 4] = ["--name", "w", "--lanes", "process:deadly,process:edit"];

fn starts(begun: &Path) -> usize {
    std::fs::read_to_string(begun).map_or(0, |text| text.lines().count())
}

#[test]
fn a_lane_that_kills_its_worker_three_times_is_set_aside_until_a_person_asks() {
    let house = House::new();
    let begun = house.dir.path().join("begun");
    let body = format!("echo x >> {}; sleep 3000", begun.display());
    house.process_lane("deadly", &body, "{}");
    house.process_lane("edit", "echo change >> README.md", r#"{"reply":"Done."}"#);
    let slug = house.link();
    let task = house.task(&slug, "process:deadly", "Kill it");
    for n in 1..=3 {
        let mut worker = house.work(&WORKER);
        worker.until("the lane's start", || starts(&begun) == n);
        worker.signal(Signal::KILL);
        assert_ne!(worker.ended(), 0);
    }

    let worker = house.work(&WORKER);
    worker.until("the quarantine", || house.state(&task) == "failed");
    let shown = house.relay(&["task", "get", &task]).ok();
    assert!(shown.contains("quarantined"), "{shown}");
    assert!(shown.contains(&format!("relay task retry '{task}'")), "{shown}");
    let list = house.relay(&["task", "ls"]).ok();
    assert!(list.contains("quarantined"), "{list}");
    let events = house.relay(&["events", "--task", &task]).ok();
    assert!(events.contains("task.quarantined"), "{events}");
    assert!(events.contains(&format!("hint relay task retry '{task}'")), "{events}");

    // The worker is well, and does not touch it.
    let other = house.task(&slug, "process:edit", "Mend it");
    worker.until("another task's end", || house.state(&other) == "review");
    assert_eq!(starts(&begun), 3);

    house.relay(&["task", "retry", &task]).ok();
    worker.until("the run a person asked for", || starts(&begun) == 4);
    house.relay(&["task", "cancel", &task]).ok();
}
