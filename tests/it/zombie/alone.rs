//! A worker sleeps past its lease and nobody takes the task meanwhile: it has the lease back before
//! its next word, and nothing is done twice.

use super::stage::{DONE, LANE, Stage, detail, events, held, wake, work};

async fn sleeps_at(point: &str) {
    let stage = Stage::open("").await;
    let house = stage.machine(":");
    let runs = house.dir.path().join("runs");
    let body = format!("echo run >> {}; echo x >> README.md", runs.display());
    house.process_lane("edit", &body, DONE);
    let slug = house.link();
    let task = house.task(&slug, LANE, "Say more");
    let worker = work(&house, "one", &format!("{point}:stop"));
    held(&worker);
    stage.past_the_lease().await;
    worker.until("the end of the lease", || house.state(&task) == "queued");
    wake(&worker);
    worker.until("the result", || house.state(&task) == "review");
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n", "{point}: {}", worker.said());
    assert_eq!(detail(&house, &task)["task"]["epoch"], 1, "{:?}", events(&house, &task));
    drop(worker);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_before_it_records_goes_on_with_its_lease() {
    sleeps_at("job.record_committed.before").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_before_it_writes_a_local_pull_request_goes_on_with_its_lease() {
    sleeps_at("job.open_pull.before").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_before_its_release_goes_on_with_its_lease() {
    sleeps_at("job.release.before").await;
}
