//! The worker is held while its lane runs.

use rustix::process::Signal;

use super::stage::{LANE, Stage, assert_second_finished, detail, held, wake, work};
use crate::support::house::{House, only_has, processes_with};

/// The lane waits for ever where it is for the first time, and then does as the others do.
fn waits_once(house: &House, mark: &str) -> std::path::PathBuf {
    let begun = house.dir.path().join("begun");
    let waits =
        format!("if [ ! -e {0} ]; then touch {0}; MARK={mark} sleep 3000; fi", begun.display());
    house.process_lane("edit", &format!("{waits}; echo one >> README.md"), super::stage::DONE);
    begun
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_past_its_lease_lands_nothing_and_goes_on_with_later_tasks() {
    let stage = Stage::open("").await;
    let (one, two) = (stage.machine(":"), stage.machine("echo two >> README.md"));
    let mark = format!("relay-it-zombie-{}", std::process::id());
    let begun = waits_once(&one, &mark);
    let slug = one.link();
    let task = one.task(&slug, LANE, "Say more");
    let zombie = work(&one, "one", "");
    zombie.until("the lane", || begun.exists());
    let mut second = work(&two, "two", "");
    zombie.signal(Signal::STOP);
    held(&zombie);

    stage.past_the_lease().await;
    second.until("the second worker's result", || one.state(&task) == "review");
    assert_ne!(processes_with(&mark), Vec::<String>::new(), "the first lane still runs");
    let before = detail(&one, &task);

    wake(&zombie);
    zombie.until("the end of the first lane", || processes_with(&mark).is_empty());
    zombie.until("the end of its job", || zombie.said().contains("lease_lost"));
    zombie.until("its copy's end", || only_has(&one.home.join("work"), &[]).is_empty());
    assert_eq!(detail(&one, &task), before, "the first worker changed something");
    assert_second_finished(&one, &task);
    assert_eq!(one.in_repo(&["show", "relay/process-edit-1:README.md"]), "# shop\ntwo");
    assert_eq!(one.in_repo(&["rev-list", "--count", "main..relay/process-edit-1"]), "1");

    second.signal(Signal::TERM);
    assert_eq!(second.ended(), 0, "{}", second.said());
    let later = one.task(&slug, LANE, "Say still more");
    zombie.until("its next result", || one.state(&later) == "review");
    assert_eq!(one.in_repo(&["show", "relay/process-edit-2:README.md"]), "# shop\none");
    drop(zombie);
    stage.close().await;
}
