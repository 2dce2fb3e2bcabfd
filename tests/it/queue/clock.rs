//! The wall clock is set an hour forward or back.

use std::time::Duration;

use relay::model::{LEASE, StopReason, TaskState, WorkerState};
use relay::queue::{Added, LeaseRenewal, NewTask, RETRY_MOST};

use super::bench::{Bench, ann, assert_lost};

const HOUR: i64 = 3600;

super::on_each_database!(
    a_dead_workers_lease_is_not_held_for_longer_by_a_clock_that_went_back,
    a_pause_is_not_longer_by_a_clock_that_went_back_but_a_limits_time_stands,
    leases_are_spared_for_a_while_and_nothing_else_is,
    the_fence_holds_whatever_the_clock_says,
    a_label_set_again_counts_after_the_clock_was_put_right,
    a_wish_that_a_task_under_way_has_met_is_not_a_newer_one,
    a_silent_worker_is_not_online_by_a_clock_that_went_back,
);

async fn a_dead_workers_lease_is_not_held_for_longer_by_a_clock_that_went_back(b: Bench) {
    let (dead, other) = (b.worker("dead", &["claude"]).await, b.worker("other", &["claude"]).await);
    let lease = b.running(1, &dead).await;
    b.clock.step(-HOUR);
    b.queue.sweep().await.expect("a sweep");
    assert_eq!(b.queue.task(&lease.task).await.expect("it").expires_at, Some(b.now() + LEASE));
    assert_eq!(b.queue.next_timer().await.expect("a timer"), Some(b.now() + LEASE));
    b.advance(LEASE.as_secs());
    assert!(b.claim(&other).await.is_some());
    assert_lost(b.queue.check_lease(&lease, &dead.worker.id).await);
}

async fn a_pause_is_not_longer_by_a_clock_that_went_back_but_a_limits_time_stands(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let failed = b.running(1, &hand).await;
    b.finish(&failed, &hand, StopReason::VendorUnreachable).await.expect("an end");
    let quota = b.running(2, &hand).await;
    let until = b.now() + Duration::from_secs(7200);
    b.finish(&quota, &hand, StopReason::Quota { until }).await.expect("an end");
    let limit = b.running(3, &hand).await;
    b.finish(&limit, &hand, StopReason::ForgeLimited { until }).await.expect("an end");
    b.clock.step(-HOUR);
    b.queue.sweep().await.expect("a sweep");
    let parked = async |lease: &relay::model::LeaseRef| {
        b.queue.task(&lease.task).await.expect("a task").parked_until
    };
    assert_eq!(parked(&failed).await, Some(b.now() + RETRY_MOST));
    assert_eq!(parked(&quota).await, Some(until));
    assert_eq!(parked(&limit).await, Some(until));
}

async fn leases_are_spared_for_a_while_and_nothing_else_is(b: Bench) {
    let (hand, other) = (b.worker("desk", &["claude"]).await, b.worker("other", &["claude"]).await);
    let lease = b.running(1, &hand).await;
    let parked = b.running(2, &hand).await;
    b.finish(&parked, &hand, StopReason::VendorUnreachable).await.expect("an end");
    b.clock.step(HOUR);
    b.queue.spare_leases(Duration::from_secs(120));
    let swept = b.queue.sweep().await.expect("a sweep");
    assert_eq!((swept.expired, swept.unparked), (vec![], vec![parked.task.clone()]));
    // The next look is when the time is over, not at once and again and again.
    let over = b.now() + Duration::from_secs(120);
    assert_eq!(b.queue.next_timer().await.expect("a timer"), Some(over));
    let taken = b.claim(&other).await.expect("what was parked");
    assert_eq!(taken.task.id, parked.task);
    assert_eq!(b.claim(&other).await, None);
    let named = [lease.clone()];
    let beat = b.queue.heartbeat(&hand.worker.id, &hand.instance, false, None, &named);
    assert!(matches!(beat.await.expect("answers")[0], LeaseRenewal::Renewed { .. }));
    b.advance(120);
    assert_eq!(b.queue.sweep().await.expect("a sweep").expired, []);
    b.queue.check_lease(&lease, &hand.worker.id).await.expect("it lives");
    // Silence after that is silence.
    b.advance(LEASE.as_secs());
    assert_eq!(b.queue.sweep().await.expect("a sweep").expired.len(), 2);
}

async fn the_fence_holds_whatever_the_clock_says(b: Bench) {
    let (old, new) = (b.worker("old", &["claude"]).await, b.worker("new", &["claude"]).await);
    let lost = b.running(1, &old).await;
    b.clock.step(HOUR);
    b.queue.sweep().await.expect("a sweep");
    let held = b.claim(&new).await.expect("work").lease.reference();
    // Back at the time at which the old lease was good.
    b.clock.step(-HOUR);
    assert_lost(b.queue.start(&lost, &old.worker.id, "relay/claude-1").await);
    assert_lost(b.finish(&lost, &old, StopReason::Finished).await);
    let named = [lost.clone()];
    let beat = b.queue.heartbeat(&old.worker.id, &old.instance, false, None, &named);
    assert!(matches!(beat.await.expect("answers")[0], LeaseRenewal::Lost { .. }));
    b.queue.check_lease(&held, &new.worker.id).await.expect("it lives");
}

async fn a_label_set_again_counts_after_the_clock_was_put_right(b: Bench) {
    // Our clock is an hour ahead of the forge's while the task runs and ends.
    let forge = b.now();
    b.clock.step(HOUR);
    let wish = |seconds| NewTask { seen_at: forge + Duration::from_secs(seconds), ..b.wish(1) };
    b.queue.add(wish(0)).await.expect("a task");
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    b.clock.step(-HOUR);
    b.advance(600);
    assert!(matches!(b.queue.add(wish(0)).await.expect("it"), Added::Existing(_)));
    assert!(matches!(b.queue.add(wish(500)).await.expect("it"), Added::Again(_)));
}

async fn a_wish_that_a_task_under_way_has_met_is_not_a_newer_one(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    b.advance(10);
    let met = b.wish(1);
    assert!(matches!(b.queue.add(met.clone()).await.expect("it"), Added::Existing(_)));
    // The clock goes back before the end: by it, the wish is newer than the end.
    b.clock.step(-HOUR);
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    assert!(matches!(b.queue.add(met).await.expect("it"), Added::Existing(_)));
    b.queue.retry(&lease.task, ann()).await.expect("a retry");
    let task = b.queue.task(&lease.task).await.expect("a task");
    assert_eq!(task.state, TaskState::Queued);
}

async fn a_silent_worker_is_not_online_by_a_clock_that_went_back(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    b.clock.step(-HOUR);
    b.queue.heard(&hand.worker.id);
    b.queue.sweep().await.expect("a sweep");
    assert_eq!(b.queue.workers().await.expect("workers")[0].last_seen, b.now());
    b.advance(3600);
    assert_eq!(b.queue.workers().await.expect("workers")[0].state, WorkerState::Offline);
}
