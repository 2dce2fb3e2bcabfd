//! Words about an owner that is gone or says nothing, and about names that are taken.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::house::House;

#[test]
fn an_owner_that_is_stopped_is_named_while_a_command_waits_for_it() {
    let house = House::new();
    house.link();
    house.process_lane("edit", "true", "{}");
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("its word", || worker.said().contains("waiting for work"));
    worker.signal(Signal::STOP);
    let said = house.dir.path().join("said");
    let mut command = house.command(&["task", "ls"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap()).spawn().unwrap();
    let told = || fs::read_to_string(&said).unwrap();
    worker.until("the word", || told().contains("does not answer; waiting"));
    let mend = format!("kill -CONT {}", worker.child.id());
    assert!(told().contains(&mend), "{}", told());
    worker.signal(Signal::CONT);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_follower_whose_owner_is_killed_says_that_it_waits_and_sees_the_end() {
    let house = House::new();
    let go = house.dir.path().join("go");
    house.process_lane(
        "edit",
        &format!("echo more >> README.md; while [ ! -e {} ]; do sleep 0.05; done", go.display()),
        "{\"reply\":\"done\"}",
    );
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "t");
    let first = house.work(&["--lanes", "process:edit", "--name", "w"]);
    first.until("the run", || house.state(&task) == "running");
    let said = house.dir.path().join("said");
    let mut follow = house.command(&["task", "log", "--follow", &task]);
    let file = fs::File::create(&said).unwrap();
    let mut follow = follow.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let told = || fs::read_to_string(&said).unwrap();
    first.until("its first words", || told().contains("== run"));
    drop(first);
    fs::write(&go, "").unwrap();
    let wait = crate::support::house::Working {
        child: house.command(&["--version"]).spawn().unwrap(),
        log: said.clone(),
    };
    wait.until("the word", || told().contains("no `relay work` runs on this home"));
    // A new instance of the name takes the task up; the follower sees the run's end.
    let second = house.work(&["--lanes", "process:edit", "--name", "w"]);
    second.until("the end", || house.state(&task) == "review");
    assert!(follow.wait().unwrap().success(), "{}", told());
}

#[test]
fn a_name_that_is_taken_or_not_linked_is_said() {
    let mut house = House::new();
    house.link();
    let moved = house.dir.path().join("elsewhere/shop");
    fs::create_dir_all(moved.parent().unwrap()).unwrap();
    fs::rename(&house.repo, &moved).unwrap();
    let old = std::mem::replace(&mut house.repo, moved);
    let ran = house.relay(&["link", house.repo.to_str().unwrap()]);
    assert_eq!(ran.out, "local/shop-2\n");
    let mend = format!("`ln -s {} {}`", house.repo.display(), old.display());
    assert!(ran.err.contains(&mend), "{}", ran.err);

    let prefer = ["prefer", "lane.labels", "gpu", "--scope", "project", "--scope-id", "local/shpo"];
    let ran = house.relay(&prefer);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.err.contains("no project `local/shpo`") && ran.err.contains("hint: "),
        "{}",
        ran.err
    );
}
