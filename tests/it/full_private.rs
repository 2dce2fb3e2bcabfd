//! What the worker holds is its own, also where a lane has no process namespace.

use crate::support::house::House;

#[test]
fn full_the_workers_environment_cannot_be_read_by_its_user() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may read everything; scripts/test runs this as an ordinary user");
        return;
    }
    let mut house = House::new();
    house.set("RELAY_GITHUB_TOKEN", "ghp_canary_of_the_worker");
    house.process_lane("edit", "true", "{}");
    let worker = house.work(&["--name", "w", "--lanes", "process:edit"]);
    let environment = format!("/proc/{}/environ", worker.child.id());
    let refused = std::fs::read(&environment).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
}
