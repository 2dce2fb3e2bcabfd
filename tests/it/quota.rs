//! A vendor's login as the worker treats it: one run at a time, and none while it is out of quota or
//! was refused. The vendor's program is a shell script that does as it is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use relay::work::linked::Linked;
use rustix::process::Signal;
use serde_json::{Value, json};

use person::{EDIT, Person, now};

use crate::support::proxy::{Fate, Proxy};

mod person;
mod probe;
mod tokens;
#[cfg(target_os = "linux")]
mod updated;

#[test]
fn a_limit_parks_its_task_and_a_worker_that_starts_again_leaves_the_login_alone() {
    let person = Person::new();
    let until = now() / 1000 + 3 * 3600;
    person.vendor_limits_until(until);
    let (first, second) = (person.task("claude"), person.task("claude"));
    person.drain();
    assert_eq!(person.stop(&first), json!({ "reason": "quota", "until": until * 1000 }));
    assert!(person.is(&first, "parked") && person.is(&second, "queued"));
    assert_eq!(person.calls(), 1, "the second was tried as well");

    // A new process, and the vendor would answer now: nobody asks.
    person.vendor_says("");
    person.drain();
    assert_eq!(person.calls(), 1, "a restarted worker forgot");
    assert!(person.is(&second, "queued"));
    assert_eq!(person.lane()["out_of_quota_until"], until * 1000);
    let status = person.house.json(&["work", "status", "--json"]);
    let expected = json!([{ "lane": "claude", "out_of_quota_until": until * 1000 }]);
    assert_eq!(status["logins"], expected, "{status:#}");
    let minutes = (until + 59) / 60;
    let clock = format!("{:02}:{:02} UTC", minutes / 60 % 24, minutes % 60);
    for said in [["work", "status"], ["lane", "ls"]] {
        let said = person.house.relay(&said).ok();
        assert!(said.contains(&format!("out of quota until {clock}")), "{clock} in {said}");
    }

    // The same login with new tokens has the same quota; another account has its own.
    person.logs_in("ada", 2);
    person.drain();
    assert_eq!(person.calls(), 1, "a refresh opened the lane");
    person.logs_in("bob", 1);
    person.drain();
    assert_eq!(person.calls(), 2);
    assert!(person.is(&second, "review"));
    assert_eq!(person.marks().len(), 1, "the mark of the first login stays");
}

#[test]
fn an_account_without_credit_fails_no_task_and_rests_until_it_is_paid() {
    let person = Person::new();
    person.vendor_refuses(400, "Credit balance is too low");
    let (first, second) = (person.task("claude"), person.task("claude"));
    person.drain();
    assert_eq!(person.stop(&first)["reason"], "quota");
    assert!(person.is(&first, "parked") && person.is(&second, "queued"));
    assert_eq!(person.calls(), 1, "the second was tried as well");
    let told = person.house.relay(&["task", "get", &first]).ok();
    assert!(told.contains("Credit balance is too low"), "{told}");
    assert!(told.contains("billing page of Anthropic's Console"), "{told}");
    person.vendor_says("quiet");
    person.probe("claude", &[]).ok();
    person.vendor_says("");
    person.drain();
    assert!(person.is(&second, "review"));
}

#[test]
fn a_vendor_that_is_away_fails_no_task_and_is_not_asked_for_each_of_them() {
    let person = Person::new();
    person.vendor_refuses(503, "API Error: 503 Service Unavailable");
    let (first, second) = (person.task("claude"), person.task("claude"));
    person.drain();
    assert_eq!(person.calls(), 1, "the second was tried as well");
    assert_eq!(person.stop(&first)["reason"], "vendor_unreachable");
    assert!(person.is(&first, "parked") && person.is(&second, "queued"));
    // A login is not to blame for it.
    assert_eq!(person.marks(), Vec::<String>::new());
    // The longest there is, for a machine that is slow today.
    let until = now() + 299_000;
    let rest = person.house.home.join("rests/claude.json");
    assert!(rest.exists());
    fs::write(&rest, json!({ "until": until, "next": 300 }).to_string()).unwrap();
    assert_eq!(person.lane()["resting_until"], until);
    let status = person.house.json(&["work", "status", "--json"]);
    assert_eq!(status["logins"], json!([{ "lane": "claude", "resting_until": until }]));
    for said in [["work", "status"], ["lane", "ls"]] {
        let said = person.house.relay(&said).ok();
        assert!(
            said.contains("its vendor did not answer: nothing of it is taken until "),
            "{said}"
        );
    }

    // A new process, which leaves it alone as well.
    let open = person.task(EDIT);
    let worker = person.work("1");
    worker.until("its word", || {
        worker.said().contains("claude: its vendor did not answer: nothing of it is taken until ")
    });
    worker.until("the task of the other lane", || person.is(&open, "review"));
    assert_eq!(person.calls(), 1, "a restarted worker forgot");

    person.vendor_says("");
    person.probe("claude", &[]).ok();
    assert!(!rest.exists(), "it answered");
    worker.until("the task", || person.is(&second, "review"));
}

#[test]
fn a_lane_is_claimed_for_again_when_its_time_has_come_without_a_restart() {
    let person = Person::new();
    person.vendor_limits_until(now() / 1000 + 3 * 3600);
    person.task("claude");
    person.drain();
    person.vendor_says("");
    let (shut, open) = (person.task("claude"), person.task(EDIT));
    let worker = person.work("1");
    worker.until("the task of the other lane", || person.is(&open, "review"));
    assert!(worker.said().contains("claude: out of quota until "), "{}", worker.said());
    assert!(person.is(&shut, "queued"));
    // Hours have passed, but for a moment.
    let mut mark: Value = serde_json::from_slice(&fs::read(person.mark()).unwrap()).unwrap();
    mark["until"] = json!(now() + 500);
    fs::write(person.mark(), mark.to_string()).unwrap();
    worker.until("the task of the lane", || person.is(&shut, "review"));
    assert_eq!(person.marks(), Vec::<String>::new(), "a mark that ran out is forgotten");
}

#[test]
fn a_second_task_of_a_login_waits_unclaimed_while_other_lanes_go_on() {
    let person = Person::new();
    person.vendor_says("hold");
    let (first, second) = (person.task("claude"), person.task("claude"));
    let worker = person.work("3");
    worker.until("the first run", || person.calls() == 1);
    let other = person.task(EDIT);
    worker.until("another lane", || person.is(&other, "review"));
    assert!(person.is(&first, "running") && person.is(&second, "queued"));
    let used = person.lane()["in_use_by"].clone();
    assert_eq!(used["doing"], format!("relay work, {first}"), "{used:#}");
    assert_eq!(used["pid"], worker.child.id());
    person.go();
    worker.until("both", || person.is(&first, "review") && person.is(&second, "review"));
    assert_eq!(person.calls(), 2);
    // Its own runs are nothing to tell.
    assert!(!worker.said().contains("in use"), "{}", worker.said());
    worker.until("the lock's end", || !person.is_locked());
}

#[test]
fn a_login_is_free_once_the_lane_has_run_however_long_its_delivery_takes() {
    let person = Person::new();
    let hook = person.house.repo.join(".git/hooks/update");
    let waits = format!(
        "#!/bin/sh\nwhile [ ! -e '{}' ]; do sleep 0.02; done\n",
        person.dir().join("go").display()
    );
    fs::write(&hook, waits).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let tasks = [person.task("claude"), person.task("claude")];
    let worker = person.work("2");
    // The second waits for the mirror, which the push of the first holds.
    worker.until("both claims", || tasks.iter().all(|task| !person.is(task, "queued")));
    assert!(person.is(&tasks[0], "running") && person.calls() == 1);
    person.go();
    worker.until("both", || tasks.iter().all(|task| person.is(task, "review")));
}

#[test]
fn two_homes_of_a_person_share_a_login_and_a_worker_that_is_killed_lets_go_of_it() {
    let person = Person::new();
    let other = person.other_home();
    person.vendor_says("hold");
    let (held, waits) = (person.task("claude"), other.task("claude"));
    let mut worker = person.work("1");
    worker.until("the run", || person.calls() == 1);
    let second = other.work("1");
    second.until("that it waits", || second.said().contains("its login is in use by relay work"));
    let (pid, home) = (worker.child.id(), person.house.home.display());
    let by = format!("relay work, {held}, process {pid} of {home}");
    assert!(second.said().contains(&by), "{by}\n{}", second.said());
    assert!(other.is(&waits, "queued"));

    worker.signal(Signal::KILL);
    worker.ended();
    assert!(person.is_locked(), "it could not tidy up");
    second.until("the other's run", || person.calls() == 2);
    person.go();
    second.until("its end", || other.is(&waits, "review"));
    second.until("the lock's end", || !person.is_locked());
}

/// A site elsewhere can be slow, or mean it: the person's own runs do not wait for it.
#[test]
fn a_site_that_does_not_answer_a_claim_keeps_nobody_from_the_login() {
    let person = Person::new();
    let site = person.house.work(&["--name", "site", "--lanes", EDIT]);
    let proxy = Proxy::of_socket(&person.house.home.join("relay.sock"));
    let mut other = person.other_home();
    Linked::of(&other.house.home).add(person.house.repo.to_str().unwrap()).unwrap();
    other.house.set("RELAY_SITE", &proxy.url());
    let task = person.task("claude");
    proxy.only("/work/claim", Fate::Silent);
    let worker = other.work("1");
    worker.until("its claim", || proxy.count("/work/claim") == 1);

    person.vendor_says("hold");
    let mut probe = person.house.command(&["probe", "claude", "--no-sandbox", "--wait"]);
    let mut probe = probe.stdout(std::process::Stdio::null()).spawn().unwrap();
    worker.until("the person's own run", || person.calls() == 1);

    // What is claimed after all is not kept waiting for the login.
    proxy.all(Fate::Pass);
    proxy.cut();
    let by = format!("its login is in use by relay probe claude, process {}", probe.id());
    worker.until("its word", || worker.said().contains(&by));
    worker.until("the task", || person.is(&task, "queued"));
    assert_eq!(person.calls(), 1);
    person.go();
    assert!(probe.wait().unwrap().success());
    worker.until("the task's end", || person.is(&task, "review"));
    drop((worker, site));
}

#[test]
fn keys_that_are_never_refreshed_run_side_by_side() {
    let mut person = Person::new();
    fs::remove_file(person.dir().join(".claude/.credentials.json")).unwrap();
    person.house.set("ANTHROPIC_API_KEY", "key-1").set("RELAY_LANE_ENV", "ANTHROPIC_API_KEY");
    person.vendor_says("hold");
    let tasks = [person.task("claude"), person.task("claude")];
    let worker = person.work("2");
    worker.until("both runs", || person.calls() == 2);
    person.go();
    worker.until("both", || tasks.iter().all(|task| person.is(task, "review")));
    drop(worker);

    // One key's quota is not another's.
    person.vendor_limits_until(now() / 1000 + 3 * 3600);
    person.task("claude");
    person.drain();
    person.vendor_says("");
    let task = person.task("claude");
    person.drain();
    assert!(person.is(&task, "queued"));
    person.house.set("ANTHROPIC_API_KEY", "key-2");
    person.drain();
    assert!(person.is(&task, "review"));
}

#[test]
fn a_login_that_ends_in_the_middle_fails_one_task_and_keeps_the_others_for_the_next() {
    let person = Person::new();
    person.vendor_refuses(401, "Failed to authenticate. API Error: 401 token revoked");
    let (first, second) = (person.task("claude"), person.task("claude"));
    let worker = person.work("1");
    worker.until("the first's end", || person.is(&first, "failed"));
    assert_eq!(person.stop(&first)["reason"], "not_logged_in");
    worker.until("the word", || {
        worker.said().contains("claude: not logged in, or its login was refused")
    });
    assert!(worker.said().contains("(hint: `claude auth login`"), "{}", worker.said());
    assert_eq!((person.calls(), person.is(&second, "queued")), (1, true));
    assert!(person.lane()["refused_until"].as_i64().unwrap() > now());
    let waits = || person.house.json(&["task", "get", &second, "--json"])["waiting"][0].clone();
    worker.until("the reason", || waits()["why"] == "login_refused");
    assert_eq!(waits()["lane"], "claude");
    let told = person.house.relay(&["task", "get", &second]).ok();
    assert!(told.contains("the login of claude on ") && told.contains("was refused: "), "{told}");
    let log = person.house.relay(&["task", "log", &first]).ok();
    assert!(log.contains("I begin."), "work had begun: {log}");

    // A person logs in, and nothing has to be started again.
    person.vendor_says("");
    person.logs_in("ada", 2);
    worker.until("the second", || person.is(&second, "review"));
    assert_eq!(person.marks(), Vec::<String>::new());
    assert_eq!(person.lane()["refused_until"], Value::Null);
}
