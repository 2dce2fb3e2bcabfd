//! The owner's clock is set an hour on or back while real workers work.

use super::stage::{LANE, Stage, detail, events, work};

async fn a_clock_that_is_set(set: impl FnOnce(&Stage)) {
    let stage = Stage::open("").await;
    let house = stage.machine(":");
    let (begun, go) = (house.dir.path().join("begun"), house.dir.path().join("go"));
    let waits = format!(
        "echo run >> {0}; while [ ! -e {1} ]; do sleep 0.05; done; echo x >> README.md",
        begun.display(),
        go.display()
    );
    house.process_lane("edit", &waits, super::stage::DONE);
    let slug = house.link();
    let task = house.task(&slug, LANE, "Say more");
    let worker = work(&house, "one", "");
    worker.until("the lane", || begun.exists());
    set(&stage);
    // Whatever the site told its workers about the leases is told by the time it has answered.
    worker.until("a live lease", || detail(&house, &task)["task"]["state"] == "running");
    std::fs::write(&go, "").unwrap();
    worker.until("the result", || house.state(&task) == "review");
    assert_eq!(std::fs::read_to_string(&begun).unwrap(), "run\n");
    let told = events(&house, &task);
    assert!(told.iter().all(|(_, epoch)| *epoch < 2), "{told:?}");
    drop(worker);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_set_an_hour_on_costs_a_living_worker_nothing() {
    a_clock_that_is_set(|stage| stage.clock.step(3600)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_set_an_hour_back_costs_a_living_worker_nothing() {
    a_clock_that_is_set(|stage| stage.clock.step(-3600)).await;
}
