//! Two users of one machine, each with a worker. Only root can be two users.

#![expect(clippy::disallowed_methods, reason = "a test starts programs as other users")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::full::{full, skip};
use crate::support::house::House;

const DONE: &str = "{\"reply\":\"done\"}";

/// A machine of the user `uid`.
fn house_of(uid: u32) -> House {
    let mut house = House::new();
    house.process_lane("edit", "echo more >> README.md", DONE);
    let root = house.dir.path().to_owned();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    let own = Command::new("chown").arg("-R").arg(format!("{uid}:{uid}")).arg(&root).status();
    assert!(own.unwrap().success());
    let (reuid, regid) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    let through = ["setpriv", &reuid, &regid, "--clear-groups", "--inh-caps=-all"];
    house.through = through.iter().map(ToString::to_string).collect();
    house
}

/// Whether a shell line succeeds for the user of `house`.
fn may(house: &House, line: &str) -> bool {
    let through = &house.through;
    let mut command = Command::new(&through[0]);
    command.args(&through[1..]).args(["sh", "-c", line]).stderr(std::process::Stdio::null());
    command.stdout(std::process::Stdio::null()).status().unwrap().success()
}

#[test]
fn full_two_users_workers_share_nothing_and_see_nothing_of_each_other() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be two users");
        return;
    }
    if !full() {
        return skip("two users need RELAY_TEST_FULL=1");
    }
    let (ann, bob) = (house_of(23_461), house_of(23_462));
    let mut tasks = Vec::new();
    for house in [&ann, &bob] {
        let slug = house.link();
        tasks.push(house.task(&slug, "process:edit", "t"));
    }
    let workers = [ann.work(&["--lanes", "process:edit"]), bob.work(&["--lanes", "process:edit"])];
    for (house, (worker, task)) in [&ann, &bob].into_iter().zip(workers.iter().zip(&tasks)) {
        worker.until("the pull request", || house.state(task) == "review");
    }
    // Nothing of one's home is open to the other, by any way.
    let home = ann.home.display();
    for name in ["", "/relay.db", "/relay.lock", "/logs", "/cache", "/work", "/lanes/edit.json"] {
        assert!(may(&ann, &format!("test -r '{home}{name}'")), "{name}");
        assert!(!may(&bob, &format!("test -r '{home}{name}' || ls '{home}{name}'")), "{name}");
    }
    let socket = format!("unix:{home}/relay.sock");
    let out = bob.command(&["task", "ls"]).env("RELAY_SITE", &socket).output().unwrap();
    assert_eq!(out.status.code(), Some(5), "{out:?}");
    let out = bob.command(&["task", "ls"]).env("RELAY_HOME", &ann.home).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("error: ") && said.contains("hint: ") && said.contains("relay"),
        "{said}"
    );
    // Neither left anything at a place that both would use.
    for entry in fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        use std::os::unix::fs::MetadataExt;
        let Ok(meta) = entry.metadata() else { continue };
        let ours = [ann.dir.path(), bob.dir.path()].contains(&entry.path().as_path());
        assert!(ours || ![23_461, 23_462].contains(&meta.uid()), "{}", entry.path().display());
    }

    // A repository of the other's is linked only by one who says so, and never written.
    let repo = ann.repo.to_str().unwrap();
    let refused = bob.relay(&["link", repo, "--name", "hers"]);
    assert!(refused.code != 0 && refused.err.contains("safe.directory"), "{}", refused.err);
    fs::write(bob.dir.path().join(".gitconfig"), format!("[safe]\n\tdirectory = {repo}\n"))
        .unwrap();
    let slug = bob.relay(&["link", repo, "--name", "hers"]).ok();
    let task = bob.task(&slug, "process:edit", "u");
    workers[1].until("the end", || ["failed", "parked"].contains(&bob.state(&task).as_str()));
    let detail = bob.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["runs"][0]["stop_reason"]["reason"], "push_refused", "{detail:#}");
    assert!(bob.home.join("kept/local_hers").is_dir(), "the work is not kept");
}
