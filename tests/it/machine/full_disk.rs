//! A disk that is full, or read-only, at each write of a home.

use std::fs;
use std::process::Command;

use crate::support::house::{House, Ran};
use crate::support::small_disk::SmallDisk;

const DONE: &str = "{\"reply\":\"done\"}";

/// A house with a process lane that does `body`, and `megabytes` that no packer makes smaller in
/// its repository.
#[expect(clippy::disallowed_methods, reason = "a test makes a large repository")]
fn house(body: &str, megabytes: usize) -> House {
    let house = House::new();
    house.process_lane("edit", body, DONE);
    for n in 0..megabytes.div_ceil(30) {
        let file = house.repo.join(format!("large-{n}"));
        let made = Command::new("sh")
            .args(["-c", "head -c \"$1\" /dev/urandom > \"$2\"", "sh"])
            .arg((megabytes.min(30) << 20).to_string())
            .arg(&file)
            .status();
        assert!(made.unwrap().success());
    }
    if megabytes > 0 {
        house.in_repo(&["-c", "core.compression=0", "add", "-A"]);
        let who = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
        house.in_repo(&[&who[..], &["commit", "-qm", "large"]].concat());
    }
    house
}

/// One `error:` that names the database or a file of the home, one `hint:` with a command.
#[track_caller]
fn calm(ran: &Ran, house: &House, hint: &str) {
    assert_eq!(ran.code, 1, "{ran:?}");
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.err);
    let home = house.home.to_str().unwrap();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(home), "{}", ran.err);
    assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{}", ran.err);
}

fn check(house: &House, name: &str) -> (String, String) {
    let ran = house.relay(&["doctor", "--json", "--patience", "60"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{report}"));
    (check["state"].as_str().unwrap().to_owned(), check["seen"].as_str().unwrap().to_owned())
}

#[test]
fn full_a_command_on_a_full_disk_is_refused_calmly_wherever_it_fills_up() {
    // Each size fills up at another write: lock, database, migration, link, task.
    let mut refused = 0;
    for size in ["8k", "16k", "32k", "64k", "100k", "150k", "200k", "240k", "260k", "280k", "300k"]
    {
        let Some(disk) = SmallDisk::under(house("true", 0), size) else { return };
        let house = &disk.house;
        let repo = house.repo.to_str().unwrap();
        let create =
            ["task", "create", "--repo", "local/shop", "--lane", "process:edit", "--title", "t"];
        for args in [&["link", repo][..], &create[..]] {
            let ran = house.relay(args);
            if ran.code != 0 && ran.code != 3 {
                calm(&ran, house, "df -h");
                refused += 1;
            }
        }
        assert_eq!(check(house, "disk").0, "fail");
        // With room again nothing is lost and nothing is broken.
        disk.resize("300m");
        house.relay(&["link", repo]).ok();
        let task = house.relay(&create).ok();
        assert_eq!(house.state(&task), "queued");
        assert_eq!(check(house, "database").0, "ok");
    }
    assert!(refused >= 8, "{refused}");
}

#[test]
fn full_a_worker_without_room_claims_nothing_and_goes_on_when_there_is_some() {
    let Some(disk) = SmallDisk::under(house("echo more >> README.md", 0), "90m") else { return };
    let house = &disk.house;
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "t");
    let once = house.relay(&["work", "--once", "--lanes", "process:edit"]);
    assert_eq!(once.code, 1, "{once:?}");
    assert!(once.err.contains("error: nothing was claimed: the disk under "), "{}", once.err);
    assert!(once.err.contains("hint: make room on that disk (`df -h "), "{}", once.err);
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("the word", || worker.said().contains("has no room for a run"));
    assert_eq!(house.state(&task), "queued");
    let (state, seen) = check(house, "disk");
    assert!(state == "fail" && seen.contains("no run is claimed"), "{seen}");
    disk.resize("300m");
    worker.until("the pull request", || house.state(&task) == "review");
    assert_eq!(worker.said().matches("has no room for a run").count(), 1, "{}", worker.said());
    // Full once more, to the last byte: the living owner says so, and lives on.
    disk.shell("head -c 400m /dev/zero > \"$H/ballast\" 2>/dev/null || true");
    let second =
        ["task", "create", "--repo", "local/shop", "--lane", "process:edit", "--title", "u"];
    let ran = house.relay(&second);
    calm(&ran, house, "df -h");
    disk.shell("rm \"$H/ballast\"");
    let second = house.relay(&second).ok();
    worker.until("the second", || house.state(&second) == "review");
    assert!(!worker.said().contains("ERROR"), "{}", worker.said());
}

/// The task is parked for the disk in its first run, and in review once there is room.
fn fills_up_at(step: &str, disk: &SmallDisk) {
    let house = &disk.house;
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "t");
    let worker = house.work(&["--lanes", "process:edit"]);
    let parked = || worker.said().contains("repo_unusable (disk): the task is parked");
    worker.until("the end of the first run", parked);
    let said = worker.said();
    let steps: Vec<&str> = said.lines().filter(|line| line.starts_with(&task)).collect();
    let last = steps.iter().position(|line| line.contains("  release ")).unwrap() - 1;
    assert!(steps[last].contains(&format!("  {step} ")), "{step}: {said}");
    let detail = house.json(&["task", "get", &task, "--json"]);
    let first = detail["runs"].as_array().unwrap().last().unwrap();
    assert_eq!(first["stop_reason"]["why"], "disk", "{detail:#}");
    assert!(first["error"].as_str().unwrap().contains("hint: "), "{first}");
    let inside = house.seen_home.clone().unwrap();
    assert_eq!(fs::read_dir(inside.join("work")).unwrap().count(), 0, "a copy was left");
    disk.resize("800m");
    worker.until("the pull request", || house.state(&task) == "review");
    assert_eq!(check(house, "database").0, "ok");
    assert!(!worker.said().contains("ERROR"), "{}", worker.said());
}

#[test]
fn full_a_disk_that_fills_up_under_the_fetch_parks_the_task() {
    let Some(disk) = SmallDisk::under(house("echo more >> README.md", 120), "112m") else { return };
    fills_up_at("fetch", &disk);
}

#[test]
fn full_a_disk_that_fills_up_under_the_checkout_parks_the_task() {
    let Some(disk) = SmallDisk::under(house("echo more >> README.md", 60), "112m") else { return };
    fills_up_at("checkout", &disk);
}

#[test]
fn full_a_lane_that_fills_the_disk_and_fails_parks_the_task() {
    // The first time only: the mark stands on another disk.
    let house = house("true", 0);
    let mark = house.dir.path().join("mark");
    house.process_lane(
        "edit",
        &format!(
            "echo more >> README.md\nif [ ! -e {0} ]; then touch {0}; cat /dev/zero > fill; exit 1; fi",
            mark.display()
        ),
        DONE,
    );
    let Some(disk) = SmallDisk::under(house, "112m") else { return };
    fills_up_at("run", &disk);
}

#[test]
fn full_a_finished_run_waits_for_room_to_commit_its_work_and_is_not_run_again() {
    let body =
        "echo more >> README.md\necho x >> ../../runs\ncat /dev/zero > .git/fill 2>/dev/null";
    let house = house("true", 0);
    let runs = house.dir.path().join("runs");
    let body = body.replace("../../runs", runs.to_str().unwrap());
    house.process_lane("edit", &format!("{body}\ntrue"), DONE);
    let Some(disk) = SmallDisk::under(house, "112m") else { return };
    let house = &disk.house;
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "t");
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("the word", || worker.said().contains("the commit waits for the disk"));
    disk.resize("400m");
    worker.until("the pull request", || house.state(&task) == "review");
    assert_eq!(fs::read_to_string(runs).unwrap(), "x\n");
    assert_eq!(house.in_repo(&["show", "relay/process-edit-1:README.md"]), "# shop\nmore");
}

#[test]
fn full_a_read_only_home_is_named_by_every_command() {
    let Some(disk) = SmallDisk::under(house("true", 0), "200m") else { return };
    let house = &disk.house;
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "t");
    disk.shell("mount -o remount,ro none \"$H\"");
    for args in
        [&["task", "ls"][..], &["work", "--once", "--lanes", "process:edit"], &["work", "status"]]
    {
        let ran = house.relay(args);
        calm(&ran, house, "findmnt -T");
    }
    assert_eq!(check(house, "home").0, "fail");
    assert!(check(house, "disk").1.contains("read-only"));
    disk.shell("mount -o remount,rw none \"$H\"");
    assert_eq!(house.state(&task), "queued");
}
