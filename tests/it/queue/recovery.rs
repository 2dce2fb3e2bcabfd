//! What a new claim goes on from: the table of docs/lifecycle.md, row by row.

use relay::model::{Effect, ForgeProblem, LeaseRef, PushProblem, StopReason, TaskId};
use relay::queue::{Added, LocalPullRow};

use super::bench::{Bench, Hand, ann, committed, pull, pushed};

super::on_each_database!(
    effects_survive_what_is_not_the_requests_end,
    effects_survive_the_clock_and_a_new_instance,
    a_persons_retry_keeps_work_that_only_could_not_be_delivered,
    a_persons_retry_starts_over_after_the_lane_was_to_blame_or_the_end,
    a_newer_wish_starts_over,
    a_step_done_again_drops_the_later_ones,
    a_local_pull_is_kept_and_brought_up_to_date,
);

/// A run that has committed and pushed.
async fn half_done(b: &Bench, hand: &Hand) -> LeaseRef {
    let lease = b.running(1, hand).await;
    for effect in [committed("a"), pushed("a")] {
        b.queue.record(&lease, &hand.worker.id, &effect).await.expect("recorded");
    }
    lease
}

/// What the next claim is given.
async fn given(b: &Bench, hand: &Hand) -> Vec<Effect> {
    b.claim(hand).await.expect("work").effects
}

async fn queued_again(b: &Bench, id: &TaskId) {
    b.advance(600);
    b.queue.sweep().await.expect("a sweep");
    let state = b.queue.task(id).await.expect("a task").state;
    assert_eq!(state, relay::model::TaskState::Queued);
}

async fn effects_survive_what_is_not_the_requests_end(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let mut lease = half_done(&b, &hand).await;
    let quota = StopReason::Quota { until: b.now() };
    for reason in [
        StopReason::WorkerStopped,
        StopReason::VendorUnreachable,
        StopReason::PushRefused { why: PushProblem::Unreachable },
        StopReason::ForgeRefused { why: ForgeProblem::RateLimited },
        quota,
    ] {
        b.finish(&lease, &hand, reason.clone()).await.expect("an end");
        queued_again(&b, &lease.task).await;
        let claimed = b.claim(&hand).await.expect("work");
        assert_eq!(claimed.effects, [committed("a"), pushed("a")], "{reason}");
        lease = claimed.lease.reference();
    }
    assert_eq!(b.queue.effects(&lease.task).await.expect("effects"), [committed("a"), pushed("a")]);
}

async fn effects_survive_the_clock_and_a_new_instance(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    half_done(&b, &hand).await;
    b.advance(30 * 60);
    assert_eq!(given(&b, &hand).await.len(), 2);
    let started_anew = b.worker("desk", &["claude"]).await;
    assert_eq!(given(&b, &started_anew).await.len(), 2);
}

async fn a_persons_retry_keeps_work_that_only_could_not_be_delivered(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let mut lease = half_done(&b, &hand).await;
    for reason in [
        StopReason::PushRefused { why: PushProblem::Protected },
        StopReason::PushRefused { why: PushProblem::BranchMoved },
        StopReason::ForgeRefused { why: ForgeProblem::Forbidden },
    ] {
        b.finish(&lease, &hand, reason.clone()).await.expect("an end");
        b.queue.retry(&lease.task, ann()).await.expect("a retry");
        let claimed = b.claim(&hand).await.expect("work");
        assert_eq!(claimed.effects.len(), 2, "{reason}");
        lease = claimed.lease.reference();
    }
    // Parked and wanted now: the same request.
    b.finish(&lease, &hand, StopReason::Crashed).await.expect("an end");
    b.queue.retry(&lease.task, ann()).await.expect("a retry");
    assert_eq!(given(&b, &hand).await.len(), 2);
}

async fn a_persons_retry_starts_over_after_the_lane_was_to_blame_or_the_end(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let mut lease = half_done(&b, &hand).await;
    for reason in [StopReason::NoChanges, StopReason::Finished, StopReason::TimedOut] {
        b.finish(&lease, &hand, reason.clone()).await.expect("an end");
        b.queue.retry(&lease.task, ann()).await.expect("a retry");
        assert_eq!(b.queue.effects(&lease.task).await.expect("effects"), [], "{reason}");
        let claimed = b.claim(&hand).await.expect("work");
        assert_eq!(claimed.effects, [], "{reason}");
        lease = claimed.lease.reference();
        b.queue.record(&lease, &hand.worker.id, &committed("b")).await.expect("recorded");
    }
    b.queue.cancel(&lease.task, ann()).await.expect("a cancel");
    b.queue.retry(&lease.task, ann()).await.expect("a retry");
    assert_eq!(given(&b, &hand).await, []);
}

async fn a_newer_wish_starts_over(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = half_done(&b, &hand).await;
    let refused = StopReason::PushRefused { why: PushProblem::Protected };
    b.finish(&lease, &hand, refused).await.expect("an end");
    b.advance(1);
    assert!(matches!(b.queue.add(b.wish(1)).await, Ok(Added::Again(_))));
    assert_eq!(given(&b, &hand).await, []);
}

async fn a_step_done_again_drops_the_later_ones(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = half_done(&b, &hand).await;
    b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
    // Another machine, which has not the commit.
    let other = b.worker("other", &["claude"]).await;
    let lease = b.claim(&other).await.expect("work").lease.reference();
    b.queue.record(&lease, &other.worker.id, &committed("b")).await.expect("recorded");
    b.queue.record(&lease, &other.worker.id, &committed("c")).await.expect("over it");
    b.finish(&lease, &other, StopReason::WorkerStopped).await.expect("an end");
    assert_eq!(given(&b, &hand).await, [committed("c")]);
}

async fn a_local_pull_is_kept_and_brought_up_to_date(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    let mut pull = pull();
    b.queue.open_local_pull(&lease, &hand.worker.id, &pull).await.expect("opened");
    pull.head = "def".to_owned();
    let update = LocalPullRow { comment: None, ..pull.clone() };
    b.queue.open_local_pull(&lease, &hand.worker.id, &update).await.expect("updated");
    assert_eq!(b.queue.local_pull(&lease.task).await.expect("a pull"), Some(pull));
}
