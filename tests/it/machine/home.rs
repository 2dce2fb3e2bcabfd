//! Where a home may stand, and what a worker needs of its machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::house::House;

/// A house whose home and repository stand at odd places.
fn at(home: &str, repo: &str) -> House {
    let mut house = House::new();
    let root = house.dir.path().to_owned();
    let (old_home, old_repo) = (house.home.clone(), house.repo.clone());
    house.home = root.join(home);
    house.repo = root.join(repo);
    fs::create_dir_all(house.home.parent().unwrap()).unwrap();
    fs::create_dir_all(house.repo.parent().unwrap()).unwrap();
    fs::rename(old_home, &house.home).unwrap();
    fs::rename(old_repo, &house.repo).unwrap();
    house
}

/// From a link to a pull request, a living worker and a look at the log.
fn whole_way(house: &House) {
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    let repo = house.repo.to_str().unwrap().to_owned();
    let slug = house.relay(&["link", &repo, "--name", "shop"]).ok();
    let task = house.task(&slug, "process:edit", "a wish");
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("the pull request", || house.state(&task) == "review");
    assert_eq!(house.in_repo(&["show", "relay/process-edit-1:README.md"]), "# shop\nmore");
    assert!(house.relay(&["task", "log", &task]).ok().contains("== push"));
    let left = house.home.join("work");
    let copies = crate::support::house::only_has(&left, &[".claim"]);
    assert!(copies.is_empty(), "{copies:?}");
}

#[test]
fn a_home_and_a_repository_may_stand_at_any_path() {
    for (home, repo) in [
        ("my disk/ein Größenwahn/雪", "a repo/mit Leerzeichen"),
        ("it's \"quoted\" $HOME `x`", "it's a \"repo\" \\ of 100% #1?"),
        ("-rf:x", "--upload-pack=x"),
    ] {
        whole_way(&at(home, repo));
    }
}

#[test]
fn a_path_that_git_cannot_be_told_is_refused_by_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let house = at("line\nbreak", "shop");
    let ran = house.relay(&["task", "ls"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("error: RELAY_HOME: ") && ran.err.contains("hint: "), "{}", ran.err);
    assert!(!house.home.join("relay.lock").exists());
    let odd = std::ffi::OsStr::from_bytes(b"/tmp/not-\xff-utf8");
    let out = house.command(&["task", "ls"]).env("RELAY_HOME", odd).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    let house = at("relay", "line\nbreak");
    let ran = house.relay(&["link", house.repo.to_str().unwrap(), "--name", "shop"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("control character"), "{}", ran.err);
}

#[test]
fn a_home_deeper_than_a_socket_s_path_works() {
    let deep = format!("{}/{}", "d".repeat(120), "e".repeat(120));
    whole_way(&at(&deep, "shop"));
}

#[test]
fn a_git_that_is_too_old_is_refused_at_the_start() {
    let house = House::new();
    house.process_lane("edit", "true", "{}");
    house.program("git", "#!/bin/sh\necho 'git version 2.20.1'\n");
    let ran = house.relay(&["work", "--once", "--lanes", "process:edit"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    let error = "error: git 2.20.1 is too old: relay needs 2.31 or newer\nhint: relay doctor\n";
    assert!(ran.err.ends_with(error), "{}", ran.err);
}

#[test]
fn a_claim_that_cannot_be_kept_on_disk_is_not_made_and_the_worker_goes_on() {
    let house = House::new();
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "a wish");
    let blocked = house.home.join("work/here.claim");
    fs::create_dir_all(&blocked).unwrap();
    let worker = house.work(&["--lanes", "process:edit", "--name", "here"]);
    worker.until("the word", || worker.said().contains("nothing is claimed"));
    assert_eq!(house.state(&task), "queued");
    fs::remove_dir(&blocked).unwrap();
    worker.until("the pull request", || house.state(&task) == "review");
    assert_eq!(worker.said().matches("nothing is claimed").count(), 1, "{}", worker.said());
}

#[test]
fn full_a_home_that_is_closed_inside_is_named_with_the_real_cause() {
    // Nothing is closed to root.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let house = House::new();
    house.link();
    let lock = house.home.join("relay.lock");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o400)).unwrap();
    let ran = house.relay(&["task", "ls"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("hint: this user may not write it: ls -ld "), "{}", ran.err);
}
