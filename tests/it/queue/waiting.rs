//! Why a task waits, as far as only the queue knows.

use std::time::Duration;

use relay::model::{Actor, StopReason, TaskId, WaitReason, WorkerState};
use relay::queue::NewToken;

use super::bench::Bench;

super::on_each_database!(
    a_task_waits_for_the_first_worker_whose_quota_comes_back,
    a_task_waits_for_the_worker_that_went,
    a_worker_whose_token_was_revoked_is_offline_at_once_at_each_site,
);

async fn waits(b: &Bench, id: &TaskId) -> Vec<WaitReason> {
    b.queue.waiting(id).await.expect("reasons")
}

async fn a_task_waits_for_the_first_worker_whose_quota_comes_back(b: Bench) {
    let desk = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &desk).await;
    let until = b.now() + Duration::from_secs(7200);
    b.finish(&lease, &desk, StopReason::Quota { until }).await.expect("an end");
    let id = b.task(2).await;
    assert_eq!(waits(&b, &id).await, [WaitReason::Paused { until }]);
    // One that has a quota left, and then none for a shorter time.
    let attic = b.worker("attic", &["claude"]).await;
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
    let lease = b.running(3, &attic).await;
    let sooner = b.now() + Duration::from_secs(3600);
    b.finish(&lease, &attic, StopReason::ForgeLimited { until: sooner }).await.expect("an end");
    let id = b.task(4).await;
    assert_eq!(waits(&b, &id).await, [WaitReason::Paused { until: sooner }]);
    // A crash parks the task, not the worker.
    let other = b.worker("cellar", &["claude"]).await;
    let lease = b.claim(&other).await.expect("work").lease.reference();
    b.finish(&lease, &other, StopReason::VendorUnreachable).await.expect("an end");
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
}

async fn a_task_waits_for_the_worker_that_went(b: Bench) {
    let desk = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    let attic = b.worker("attic", &["codex"]).await;
    let gone = b.queue.heartbeat(&desk.worker.id, &desk.instance, true, None, &[]);
    gone.await.expect("an answer");
    let (worker, last_seen) = (desk.worker.name.clone(), b.now());
    b.advance(60);
    assert_eq!(
        waits(&b, &id).await,
        [WaitReason::Offline { worker, last_seen, revoked: false, paused: false }]
    );
    let gone = b.queue.heartbeat(&attic.worker.id, &attic.instance, true, None, &[]);
    gone.await.expect("an answer");
    let lost = b.queue.cancel(&id, super::bench::ann()).await.expect("a cancel");
    assert_eq!(waits(&b, &lost.task.id).await, []);
}

async fn a_worker_whose_token_was_revoked_is_offline_at_once_at_each_site(b: Bench) {
    let desk = b.worker("desk", &["claude"]).await;
    let other = b.another_process().await;
    let new = async || {
        let new = NewToken::of_worker(&desk.worker.name).expect("a token");
        let (known, _) = b.queue.create_token(new, Actor::site()).await.expect("a token");
        let id = known.token.id;
        b.queue.bind_worker(&desk.worker.id, Some(&id)).await.expect("it is bound");
        id
    };
    let token = new().await;
    let task = b.task(1).await;
    assert_eq!(waits(&b, &task).await, [WaitReason::Busy]);
    let last_seen = b.now();
    b.advance(1);
    b.queue.revoke_token(&token, &Actor::site()).await.expect("it is revoked");
    let worker = desk.worker.name.clone();
    let gone = WaitReason::Offline { worker, last_seen, revoked: true, paused: false };
    for queue in [&b.queue, &other] {
        let seen = queue.workers().await.expect("workers").remove(0);
        assert_eq!((seen.state, seen.revoked), (WorkerState::Offline, true));
        assert_eq!(queue.waiting(&task).await.expect("reasons"), std::slice::from_ref(&gone));
    }
    b.queue.heard(&desk.worker.id);
    let seen = b.queue.workers().await.expect("workers").remove(0);
    assert_eq!(seen.state, WorkerState::Offline, "what is heard of it late");
    // With another token it is back.
    let again = b.worker("desk", &["claude"]).await.worker;
    assert_eq!((again.state, again.revoked), (WorkerState::Online, false));
    new().await;
    assert_eq!(waits(&b, &task).await, [WaitReason::Busy]);
}
