//! A repository on this disk refuses a push: by its hook, for a branch that is checked out, by its
//! permissions.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::shop::{DONE, assert_refused};
use crate::support::house::House;

struct Desk {
    house: House,
    task: String,
}

impl Desk {
    fn new() -> Self {
        let house = House::new();
        let runs = house.dir.path().join("runs");
        let body = format!("echo run >> {}; echo more >> README.md", runs.display());
        house.process_lane("edit", &body, DONE);
        let slug = house.link();
        let task = house.task(&slug, "process:edit", "x");
        Self { house, task }
    }

    fn work(&self) {
        let args = ["work", "--once", "--name", "w", "--lanes", "process:edit"];
        self.house.relay(&args).ok();
    }

    #[track_caller]
    fn refused(&self, reason: &str) {
        self.work();
        let detail = self.house.json(&["task", "get", &self.task, "--json"]);
        let kept = assert_refused(&self.house, &detail, reason).expect("a bundle");
        self.house.in_repo(&["fetch", "-q", &kept, "relay/process-edit-1"]);
        let changed = self.house.in_repo(&["diff", "--name-only", "main", "FETCH_HEAD"]);
        assert_eq!(changed, "README.md");
        self.house.relay(&["task", "retry", &self.task]).ok();
    }

    /// The work lands, and the lane ran once.
    #[track_caller]
    fn lands(&self) {
        self.work();
        assert_eq!(self.house.state(&self.task), "review");
        let runs = fs::read_to_string(self.house.dir.path().join("runs")).unwrap();
        assert_eq!(runs, "run\n");
        let changed = self.house.in_repo(&["diff", "--name-only", "main", "relay/process-edit-1"]);
        assert_eq!(changed, "README.md");
    }
}

#[test]
fn a_checked_out_branch_a_hook_and_a_lost_base_are_told_apart() {
    let desk = Desk::new();
    let hook = desk.house.repo.join(".git/hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\necho 'not on a Friday' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    desk.refused("push_refused (declined)");
    fs::remove_file(&hook).unwrap();

    desk.house.in_repo(&["checkout", "-q", "-b", "relay/process-edit-1"]);
    desk.refused("push_refused (checked_out)");
    desk.house.in_repo(&["checkout", "-q", "main"]);

    // The linked branch is called otherwise now.
    desk.house.in_repo(&["branch", "-m", "main", "trunk"]);
    desk.work();
    let detail = desk.house.json(&["task", "get", &desk.task, "--json"]);
    assert!(assert_refused(&desk.house, &detail, "repo_unusable (no_branch)").is_some());
    desk.house.in_repo(&["branch", "-m", "trunk", "main"]);

    let elsewhere = desk.house.dir.path().join("elsewhere");
    fs::rename(&desk.house.repo, &elsewhere).unwrap();
    desk.house.relay(&["task", "retry", &desk.task]).ok();
    desk.work();
    let detail = desk.house.json(&["task", "get", &desk.task, "--json"]);
    assert!(assert_refused(&desk.house, &detail, "repo_unusable (not_found)").is_some());
    fs::rename(&elsewhere, &desk.house.repo).unwrap();
    desk.house.relay(&["task", "retry", &desk.task]).ok();
    desk.lands();
}

/// The repository outlives the home that worked on it, and knows of later claims than a new one.
#[test]
fn a_claim_of_a_home_that_is_gone_is_named_and_the_work_lands_when_it_is_forgotten() {
    let desk = Desk::new();
    desk.work();
    desk.house.relay(&["task", "retry", &desk.task]).ok();
    desk.work();
    for file in ["relay.db", "relay.db-wal", "relay.db-shm"] {
        let _not_there = fs::remove_file(desk.house.home.join(file));
    }
    fs::remove_file(desk.house.dir.path().join("runs")).unwrap();
    let slug = desk.house.link();
    let task = desk.house.task(&slug, "process:edit", "y");
    assert_eq!(task, desk.task);
    desk.work();
    let detail = desk.house.json(&["task", "get", &task, "--json"]);
    assert!(assert_refused(&desk.house, &detail, "push_refused (other_home)").is_some());
    let error = detail["runs"][0]["error"].as_str().unwrap();
    let command = error.split('`').find(|part| part.starts_with("git push ")).expect("a command");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    desk.house.git(&words);
    desk.house.in_repo(&["branch", "-q", "-D", "relay/process-edit-1"]);
    desk.house.relay(&["task", "retry", &task]).ok();
    desk.lands();
}

/// A shallow clone has commits, though git tells of none of them unless it is asked to.
#[test]
fn a_shallow_clone_on_this_disk_is_worked_on() {
    let mut desk = Desk::new();
    desk.house.in_repo(&["checkout", "-q", "main"]);
    let commit = ["-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-q"];
    desk.house.in_repo(&[&commit[..], &["--allow-empty", "-m", "second"]].concat());
    let shallow = desk.house.dir.path().join("shallow");
    let whole = format!("file://{}", desk.house.repo.display());
    desk.house.git(&["clone", "-q", "--depth", "1", &whole, shallow.to_str().unwrap()]);
    desk.house.repo = shallow;
    let slug = desk.house.link();
    desk.house.relay(&["task", "cancel", &desk.task]).ok();
    desk.task = desk.house.task(&slug, "process:edit", "x");
    desk.lands();
}

/// Nothing is closed to root, so this says something only of an ordinary user.
#[test]
fn full_a_repository_that_cannot_be_written_is_named() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: nothing is closed to root");
        return;
    }
    let desk = Desk::new();
    let objects = desk.house.repo.join(".git/objects");
    let mode = |mode| fs::set_permissions(&objects, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    desk.work();
    let detail = desk.house.json(&["task", "get", &desk.task, "--json"]);
    mode(0o755);
    assert!(assert_refused(&desk.house, &detail, "push_refused (read_only)").is_some());
    desk.house.relay(&["task", "retry", &desk.task]).ok();
    desk.lands();
}
