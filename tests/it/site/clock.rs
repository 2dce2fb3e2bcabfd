//! This machine sleeps, or its clock is set: workers that live keep their leases, the dead lose
//! them in time, and nothing waits for an hour that will not come.

use std::sync::Arc;
use std::time::Duration;

use relay::api::{Code, HeartbeatRequest, LeaseAnswer, RecordRequest};
use relay::model::{Clock, LEASE, Lease, StopReason, TaskState};
use relay::work::StopSignal;
use relay::work::heartbeat::Heartbeat;
use relay::work::renewal::Renewal;

use super::fixture::{Home, TestWorker, until};
use crate::support::PATIENCE;
use crate::support::clock::CountingIds;

const HOUR: i64 = 3600;
/// As in the site: two heartbeats.
const GRACE: Duration = Duration::from_secs(120);

async fn beat(worker: &TestWorker, lease: &Lease) -> LeaseAnswer {
    let beat = HeartbeatRequest {
        instance_id: worker.request.instance_id.clone(),
        offline: false,
        interval_ms: None,
        leases: vec![lease.reference()],
    };
    worker.client.heartbeat(&worker.worker.id, &beat).await.expect("an answer").leases.remove(0)
}

/// The clock jumps while one worker runs and another waits for work.
async fn a_jump(jump: impl FnOnce(&Home)) {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (alive, other) = (home.worker("alive").await, home.worker("other").await);
    let task = home.add(&project, "claude").await;
    let lease = alive.claim().await.expect("the task").lease;
    alive.start(&lease).await;
    jump(&home);
    // Somebody is faster than the next heartbeat.
    assert_eq!(other.claim().await.map(|c| c.task.id), None);
    assert!(matches!(beat(&alive, &lease).await, LeaseAnswer::Renewed { .. }));
    home.clock.advance(GRACE);
    assert_eq!(other.claim().await.map(|c| c.task.id), None);
    let end = alive.end(&lease, StopReason::Finished);
    home.client.release(&lease.reference(), &end).await.expect("it is taken");
    let told = home.client.task(&task.id).await.expect("the task");
    assert_eq!((told.task.state, told.task.epoch.0), (TaskState::Review, 1));
    home.owner.close().await;
}

#[tokio::test]
async fn a_living_workers_lease_is_not_handed_out_when_the_clock_goes_forward() {
    a_jump(|home| home.clock.step(HOUR)).await;
}

#[tokio::test]
async fn a_living_workers_lease_is_not_handed_out_when_the_machine_wakes() {
    a_jump(|home| home.clock.advance(Duration::from_secs(8 * 3600))).await;
}

#[tokio::test]
async fn a_worker_that_stays_silent_after_the_jump_loses_its_lease() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (dead, other) = (home.worker("dead").await, home.worker("other").await);
    home.add(&project, "claude").await;
    let lease = dead.claim().await.expect("the task").lease;
    home.clock.step(HOUR);
    assert_eq!(other.claim().await.map(|c| c.task.id), None);
    let version = home.owner.site().bell.version();
    let held = other.hold(1, version);
    home.held(1).await;
    home.clock.advance(GRACE);
    assert_eq!(held.await.expect("the timer finds it").queued, 1);
    assert_eq!(other.claim().await.map(|c| c.lease.epoch.0), Some(lease.epoch.0 + 1));
    home.owner.close().await;
}

#[tokio::test]
async fn a_dead_workers_lease_ends_in_time_when_the_clock_goes_back() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (dead, other) = (home.worker("dead").await, home.worker("other").await);
    let task = home.add(&project, "claude").await;
    dead.claim().await.expect("the task");
    home.clock.step(-HOUR);
    home.owner.site().timers.sweep_if_due().await.expect("a look");
    let at = home.client.task(&task.id).await.expect("it").task.expires_at.expect("an end");
    assert_eq!(at, home.clock.now() + LEASE);
    home.pass(LEASE).await;
    assert!(other.claim().await.is_some());
    home.owner.close().await;
}

#[tokio::test]
async fn a_bell_is_held_no_longer_when_the_clock_goes_back_and_no_version_repeats() {
    let home = Home::open().await;
    let worker = home.worker("w").await;
    let before = home.owner.site().bell.version();
    let asking = worker.clone();
    let held = tokio::spawn(async move { asking.ring(1, before, 100).await });
    home.held(1).await;
    home.clock.advance(Duration::from_secs(40));
    home.clock.step(-HOUR);
    home.owner.site().timers.sweep_if_due().await.expect("a look");
    home.clock.advance(Duration::from_secs(60));
    let answer = tokio::time::timeout(PATIENCE, held).await;
    assert!(answer.expect("it is held for no more than it asked").expect("an answer").queued == 0);

    // The next owner begins from a clock that is behind.
    let home = home.restart().await;
    let project = home.link("shop").await;
    let worker = TestWorker { client: home.client.clone(), ..worker };
    until(|| home.owner.site().bell.present().is_empty()).await;
    worker.ring(1, before, 0).await;
    home.add(&project, "claude").await;
    assert!(home.owner.site().bell.version() > before);
    home.owner.close().await;
}

#[tokio::test]
async fn a_job_renews_a_lease_that_ran_out_before_it_gives_up() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (sleeper, other) = (home.worker("sleeper").await, home.worker("other").await);
    home.add(&project, "claude").await;
    let lease = sleeper.claim().await.expect("the task").lease;
    let clock: Arc<dyn Clock> = Arc::new(home.clock.clone());
    let renewal = Renewal {
        heartbeat: Heartbeat {
            client: home.client.clone(),
            worker: sleeper.worker.id.clone(),
            instance: sleeper.request.instance_id.clone(),
            interval: Duration::from_secs(60),
        },
        lease: lease.reference(),
        signal: StopSignal::default(),
        clock,
        ids: Arc::new(CountingIds::new(77)),
    };
    let record = RecordRequest {
        worker_id: sleeper.worker.id.clone(),
        epoch: lease.epoch,
        effect: crate::queue::bench::committed("work"),
    };
    let say = || home.client.record(&lease.task, &record);
    let lost = Some(Code::LeaseLost);
    home.clock.advance(Duration::from_secs(8 * 3600));
    assert_eq!(say().await.expect_err("it ran out").code(), lost);
    renewal.saying(say).await.expect("it is renewed and said");
    // Not where somebody has the task.
    home.pass(LEASE).await;
    assert!(other.claim().await.is_some());
    assert_eq!(renewal.saying(say).await.expect_err("it was taken").code(), lost);
    assert_eq!(renewal.signal.reason(), Some(StopReason::LeaseLost));
    home.owner.close().await;
}
