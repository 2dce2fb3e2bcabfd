//! What a worker tells a service manager: a socket of the test's stands in its place.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::PATIENCE;
use crate::support::house::House;

const EDIT: &str = "echo hello > hello.txt";

fn hear(manager: &UnixDatagram) -> Option<String> {
    let mut bytes = [0; 512];
    let n = manager.recv(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..n]).into_owned())
}

/// Reads until `word` came; what else came before it.
#[track_caller]
fn until(manager: &UnixDatagram, word: &str) -> Vec<String> {
    let mut before = Vec::new();
    loop {
        let Some(said) = hear(manager) else { panic!("`{word}` did not come after {before:?}") };
        if said.contains(word) {
            return before;
        }
        before.push(said);
    }
}

#[test]
fn a_worker_says_that_it_is_ready_alive_and_ends_once_its_jobs_have() {
    let name = format!("relay-it-notify-{}", std::process::id());
    let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut house = House::new();
    house.set("NOTIFY_SOCKET", &format!("@{name}")).set("WATCHDOG_USEC", "300000");
    let gate = house.dir.path().join("gate");
    let held = format!("{EDIT}\nwhile [ ! -e {} ]; do sleep 0.05; done", gate.display());
    house.process_lane("edit", &held, r#"{"reply":"Done."}"#);
    let slug = house.link();
    let mut worker = house.work(&["--name", "w", "--lanes", "process:edit", "--log"]);
    until(&manager, "READY=1\nSTATUS=serving process:edit");
    // While it waits for the bell, which is held for minutes.
    for _ in 0..5 {
        until(&manager, "WATCHDOG=1");
    }
    let task = house.task(&slug, "process:edit", "One");
    worker.until("the run", || house.state(&task) == "running");
    worker.signal(Signal::TERM);
    until(&manager, "draining");
    // The preferences may give the run a week; the unit's time-out for a stop knows nothing of it.
    let mut before = until(&manager, "EXTEND_TIMEOUT_USEC=300000");
    before.extend(until(&manager, "WATCHDOG=1"));
    before.extend(until(&manager, "EXTEND_TIMEOUT_USEC=300000"));
    assert!(!before.iter().any(|said| said.contains("STOPPING")), "a job runs: {before:?}");
    std::fs::write(&gate, "").unwrap();
    until(&manager, "STOPPING=1");
    assert_eq!(worker.ended(), 0);
    assert_eq!(worker.said(), "", "the log has taken the terminal's place");
    let log = std::fs::read_to_string(house.home.join("work.log")).unwrap();
    let first = log.lines().next().unwrap();
    assert!(first.ends_with("UTC  serving process:edit"), "{first}");
    assert!(log.contains("ending: nothing new is taken"), "{log}");
}

/// The whole process held still is a loop held still.
#[test]
fn a_worker_that_is_stuck_gives_no_sign_of_life() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut house = House::new();
    house.set("NOTIFY_SOCKET", socket.to_str().unwrap()).set("WATCHDOG_USEC", "300000");
    house.process_lane("edit", EDIT, r#"{"reply":"Done."}"#);
    house.link();
    let worker = house.work_with_fault("work.claim.before:stop", &["--lanes", "process:edit"]);
    worker.until("its stop", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.child.id())).unwrap();
        stat.contains(") T ")
    });
    manager.set_nonblocking(true).unwrap();
    while hear(&manager).is_some() {}
    manager.set_nonblocking(false).unwrap();
    manager.set_read_timeout(Some(Duration::from_millis(900))).unwrap();
    assert_eq!(hear(&manager), None);
}

/// A watchdog that was meant for another process is not fed.
#[test]
fn signs_of_life_are_given_to_whom_they_were_asked_of() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut house = House::new();
    house.set("NOTIFY_SOCKET", socket.to_str().unwrap()).set("WATCHDOG_USEC", "3000");
    house.set("WATCHDOG_PID", "1");
    house.process_lane("edit", EDIT, r#"{"reply":"Done."}"#);
    house.link();
    let mut worker = house.work(&["--lanes", "process:edit"]);
    until(&manager, "READY=1");
    worker.signal(Signal::TERM);
    let before = until(&manager, "STOPPING=1");
    assert!(before.iter().all(|said| !said.contains("WATCHDOG")), "{before:?}");
    assert_eq!(worker.ended(), 0);
}
