//! `relay probe`: what it tells, what it leaves, and that it keeps to the login's lock and mark.

use std::fs;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::person::{Person, now};
use crate::support::house::{Ran, Working, only_has};

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn an_answer_is_told_with_what_it_cost_and_leaves_nothing() {
    let person = Person::new();
    let told = person.probe("claude:sonnet", &["--json"]);
    assert_eq!(told.code, 0, "{told:?}");
    let mut probed = json_of(&told);
    assert!(probed["took_ms"].as_u64().unwrap() > 0 && probed["usage"]["duration_ms"].is_u64());
    let program = probed["program"].take();
    assert!(program.as_str().unwrap().ends_with("/bin/claude"), "{program}");
    for (field, value) in [
        ("lane", json!("claude")),
        ("answered", json!(true)),
        ("version", json!("2.1.332")),
        ("updated_from", Value::Null),
        ("login", json!("a claude.ai login")),
        ("model", json!("sonnet")),
        ("stop_reason", Value::Null),
        ("said", json!("ready")),
        ("out_of_quota_until", Value::Null),
    ] {
        assert_eq!(probed[field], value, "{field}: {probed:#}");
    }
    assert_eq!(probed["usage"]["input_tokens"], 12);
    assert_eq!(probed["usage"]["cost_usd"], 0.01);

    // "Not reported" is not nothing.
    person.vendor_says("quiet");
    let told = person.probe("claude", &[]).ok();
    for line in ["  tokens   not reported", "  cost     not reported", "  model    opus"] {
        assert!(told.contains(line), "{line} in\n{told}");
    }
    assert!(told.starts_with("claude 2.1.332 answered, "), "{told}");
    for folder in ["work", "vendor"] {
        assert_eq!(only_has(&person.house.home.join(folder), &[]), Vec::<String>::new());
    }
    assert!(!person.is_locked());
}

#[test]
fn a_login_that_is_refreshed_in_it_is_the_persons() {
    let person = Person::new();
    person.vendor_says("refresh");
    person.probe("claude", &[]).ok();
    let login = person.login();
    assert_eq!(login["claudeAiOauth"]["refreshToken"], "refresh-ada-2", "{login:#}");
    assert_eq!(login["claudeAiOauth"]["expiresAt"], 4_000_000_000_002_u64);
}

#[test]
fn a_limit_marks_the_login_and_an_answer_frees_it() {
    let person = Person::new();
    let until = now() / 1000 + 3 * 3600;
    person.vendor_limits_until(until);
    let told = person.probe("claude", &["--json"]);
    assert_eq!(told.code, 8, "{told:?}");
    assert_eq!(json_of(&told)["out_of_quota_until"], until * 1000);
    assert_eq!(person.lane()["out_of_quota_until"], until * 1000);
    let told = person.probe("claude", &[]);
    assert!(told.out.starts_with("claude 2.1.332 is out of quota until "), "{told:?}");

    // A worker that waits for the quota hears of it without a restart.
    let task = person.task("claude");
    let worker = person.work("1");
    worker.until("that it waits", || worker.said().contains("claude: out of quota until "));
    person.vendor_says("");
    person.probe("claude", &[]).ok();
    assert_eq!(person.marks(), Vec::<String>::new());
    worker.until("the task", || person.is(&task, "review"));
}

#[test]
fn what_it_came_to_is_in_its_exit_code() {
    let person = Person::new();
    for (status, words, code, reason) in [
        (401, "Failed to authenticate", 6, "not_logged_in"),
        (529, "Overloaded", 5, "vendor_unreachable"),
        (400, "No", 8, "vendor_error"),
    ] {
        person.vendor_refuses(status, words);
        let told = person.probe("claude", &["--json"]);
        let probed = json_of(&told);
        assert_eq!((told.code, &probed["stop_reason"]["reason"]), (code, &json!(reason)));
        assert!(probed["error"].as_str().unwrap().contains(words), "{probed:#}");
        assert_eq!(probed["answered"], false);
    }
    for (what, code) in [("nobody", 3), ("process:edit", 2), ("claude:no model", 2), ("codex", 6)] {
        let mut command = person.house.command(&["probe", what]);
        // No other vendor's program of this machine.
        let path = format!("{}/bin:/usr/bin:/bin", person.dir().display());
        let out = command.env("PATH", path).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{what}: {said}");
    }
}

/// As `relay lane ls` has it, whatever a run would have come to.
#[test]
fn a_lane_that_is_not_logged_in_is_refused_before_anything_is_run() {
    let person = Person::new();
    let called = person.dir().join("called");
    let program = |lane: &str, version: &str, says: &str| {
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\n--version) echo '{version}'; exit 0;;\n\
             auth|login) {says}; exit 1;;\nesac\necho run >> '{}'\n",
            called.display()
        );
        person.house.program(lane, &script);
    };
    program("claude", "2.1.332 (Claude Code)", r#"echo '{"loggedIn":false}'"#);
    program("codex", "codex-cli 0.171.0", "echo 'Not logged in' >&2");
    let lanes = person.house.json(&["lane", "ls", "--json", "--patience", "60"]);
    for lane in ["claude", "codex"] {
        let listed = lanes["lanes"].as_array().unwrap().iter().find(|l| l["lane"] == lane).unwrap();
        assert_eq!(listed["state"], "not_logged_in", "{listed:#}");
        let told = person.probe(lane, &["--json"]);
        assert_eq!((told.code, person.calls()), (6, 0), "{told:?}");
        let probed = json_of(&told);
        assert_eq!(probed["stop_reason"]["reason"], "not_logged_in", "{probed:#}");
        assert_eq!((&probed["error"], &probed["hint"]), (&listed["detail"], &listed["hint"]));
    }
    assert!(!person.is_locked());
}

/// Also of its version and its login.
#[test]
fn a_program_that_hangs_is_called_off_at_once() {
    let person = Person::new();
    let asked = person.dir().join("asked");
    person.house.program(
        "claude",
        &format!("#!/bin/sh\necho \"$1\" >> '{}'\nexec sleep 600\n", asked.display()),
    );
    let mut probe = person.house.command(&["probe", "claude", "--no-sandbox", "--json"]);
    let child = probe.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let probe = Working { child, log: person.dir().join("none") };
    let was_asked = || fs::read_to_string(&asked).unwrap_or_default();
    probe.until("both questions", || was_asked().lines().count() >= 2);
    probe.signal(Signal::INT);
    let mut probe = probe;
    assert_eq!(probe.ended(), 8);
}

#[test]
fn a_login_in_use_is_refused_by_name_or_waited_for() {
    let person = Person::new();
    person.vendor_says("hold");
    let task = person.task("claude");
    let worker = person.work("1");
    worker.until("the run", || person.calls() == 1);
    let told = person.probe("claude", &[]);
    assert_eq!((told.code, person.calls()), (4, 1), "{told:?}");
    let by =
        format!("claude: its login is in use by relay work, {task}, process {}", worker.child.id());
    assert!(told.err.contains(&by) && told.err.contains("--wait"), "{by}\n{}", told.err);

    let mut waits = person.house.command(&["probe", "claude", "--no-sandbox", "--wait"]);
    let said = person.dir().join("waits");
    let file = fs::File::create(&said).unwrap();
    let mut waits = waits.stderr(file).stdout(std::process::Stdio::null()).spawn().unwrap();
    worker.until("its word", || fs::read_to_string(&said).unwrap().contains("; waiting"));
    assert_eq!(person.calls(), 1);
    person.go();
    assert!(waits.wait().unwrap().success(), "{}", fs::read_to_string(&said).unwrap());
    assert_eq!(person.calls(), 2);
    worker.until("the task", || person.is(&task, "review"));
}

/// Also a person's Ctrl-C in the middle.
#[test]
fn a_worker_waits_for_it_and_one_that_is_called_off_lets_go() {
    let person = Person::new();
    person.vendor_says("hold");
    let mut probe = person.house.command(&["probe", "claude", "--no-sandbox", "--json"]);
    let probe = probe.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let worker = person.work("1");
    worker.until("the run", || person.calls() == 1);
    let task = person.task("claude");
    let by = format!("its login is in use by relay probe claude, process {}", probe.id());
    worker.until("that it waits", || worker.said().contains(&by));
    assert!(person.is(&task, "queued"));
    kill_process(rustix::process::Pid::from_child(&probe), Signal::INT).unwrap();
    let out = probe.wait_with_output().unwrap();
    let probed: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(probed["stop_reason"]["reason"], "worker_stopped");
    assert_eq!(out.status.code(), Some(8));
    person.go();
    worker.until("the task", || person.is(&task, "review"));
    assert_eq!(only_has(&person.house.home.join("vendor"), &[]), Vec::<String>::new());
}
