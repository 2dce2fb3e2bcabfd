//! What lands under a lease, and what does not.

use relay::model::{
    Disposition, Effect, Epoch, LeaseRef, PushProblem, StopReason, TaskState, Timestamp, Usage,
};
use relay::queue::{LeaseRenewal, NewTask, QueueError, RunEnd};

use super::bench::{Bench, Hand, ann, assert_lost, committed, lane, pull, pushed};

super::on_each_database!(
    nothing_of_an_older_epoch_lands,
    nothing_of_an_older_epoch_lands_for_the_holder_of_the_newer,
    nothing_lands_for_another_worker,
    nothing_lands_after_the_lease_ran_out,
    nothing_lands_after_a_cancel,
    nothing_lands_after_a_new_instance,
    a_heartbeat_renews_a_lease_that_ran_out_and_was_not_taken,
    a_heartbeat_of_a_taken_lease_says_lost,
    a_revived_lease_is_not_for_another_request,
    an_old_instance_is_told_so,
    an_idle_heartbeat_is_kept_in_memory,
    finish_goes_where_the_reason_says,
    a_finish_may_be_repeated,
    infrastructure_is_tried_five_times_in_a_row,
    an_outage_is_waited_for_however_long_it_lasts,
    a_vendor_that_answered_in_each_run_is_not_waited_for_without_end,
    a_quota_parks_until_its_time,
    usage_that_was_not_reported_is_not_zero,
    a_start_is_told_once,
);

/// Every write of a worker, each refused.
async fn assert_nothing_lands(b: &Bench, lease: &LeaseRef, hand: &Hand) {
    let (queue, worker) = (&b.queue, &hand.worker.id);
    let before = queue.task(&lease.task).await.expect("a task");
    let events = queue.events(0, None, 1000).await.expect("events");
    assert_lost(queue.start(lease, worker, "relay/zombie").await);
    assert_lost(queue.record(lease, worker, &pushed("zombie")).await);
    assert_lost(queue.check_lease(lease, worker).await);
    assert_lost(queue.open_local_pull(lease, worker, &pull()).await);
    assert_lost(b.finish(lease, hand, StopReason::Finished).await);
    assert_eq!(queue.task(&lease.task).await.expect("a task"), before);
    assert_eq!(queue.local_pull(&lease.task).await.expect("a pull"), None);
    assert_eq!(queue.effects(&lease.task).await.expect("effects"), []);
    assert_eq!(queue.events(0, None, 1000).await.expect("events"), events);
}

async fn nothing_of_an_older_epoch_lands(b: Bench) {
    let (old, new) = (b.worker("old", &["claude"]).await, b.worker("new", &["claude"]).await);
    let lease = b.running(1, &old).await;
    b.advance(30 * 60);
    let taken = b.claim(&new).await.expect("work").lease.reference();
    assert_eq!(taken.epoch, Epoch(2));
    assert_nothing_lands(&b, &lease, &old).await;
    // Not even where the same worker holds the newer lease.
    let own_old = LeaseRef { epoch: Epoch(1), ..taken.clone() };
    assert_nothing_lands(&b, &own_old, &new).await;
    let future = LeaseRef { epoch: Epoch(3), ..taken.clone() };
    assert_nothing_lands(&b, &future, &new).await;
    b.queue.record(&taken, &new.worker.id, &pushed("new")).await.expect("the holder's");
}

async fn nothing_of_an_older_epoch_lands_for_the_holder_of_the_newer(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let old = b.running(1, &hand).await;
    b.advance(30 * 60);
    let new = b.claim(&hand).await.expect("work").lease.reference();
    assert_nothing_lands(&b, &old, &hand).await;
    // Nor does it keep the newer one alive.
    let expires_at = b.queue.task(&new.task).await.expect("a task").expires_at;
    b.advance(60);
    let answers = b
        .queue
        .heartbeat(&hand.worker.id, &hand.instance, false, None, std::slice::from_ref(&old))
        .await
        .expect("answers");
    assert_eq!(answers, [LeaseRenewal::Lost { reason: StopReason::LeaseLost }]);
    assert_eq!(b.queue.task(&new.task).await.expect("a task").expires_at, expires_at);
}

async fn nothing_lands_for_another_worker(b: Bench) {
    let (holder, other) = (b.worker("a", &["claude"]).await, b.worker("b", &["claude"]).await);
    let lease = b.running(1, &holder).await;
    assert_nothing_lands(&b, &lease, &other).await;
    let answers = b
        .queue
        .heartbeat(&other.worker.id, &other.instance, false, None, std::slice::from_ref(&lease))
        .await
        .expect("answers");
    assert_eq!(answers, [LeaseRenewal::Lost { reason: StopReason::LeaseLost }]);
    let expires_at = b.queue.task(&lease.task).await.expect("a task").expires_at;
    assert_eq!(expires_at, Some(b.now() + relay::model::LEASE));
}

async fn nothing_lands_after_the_lease_ran_out(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    b.advance(30 * 60 - 1);
    b.queue.check_lease(&lease, &hand.worker.id).await.expect("a second left");
    b.advance(1);
    assert_nothing_lands(&b, &lease, &hand).await;
    b.queue.sweep().await.expect("a sweep");
    assert_nothing_lands(&b, &lease, &hand).await;
}

async fn nothing_lands_after_a_cancel(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    let changed = b.queue.cancel(&lease.task, ann()).await.expect("a cancel");
    assert_eq!(changed.revoked, Some((hand.worker.id.clone(), lease.clone())));
    assert_nothing_lands(&b, &lease, &hand).await;
    let answers = b
        .queue
        .heartbeat(&hand.worker.id, &hand.instance, false, None, std::slice::from_ref(&lease))
        .await
        .expect("answers");
    assert_eq!(answers, [LeaseRenewal::Lost { reason: StopReason::Cancelled }]);
    b.queue.retry(&lease.task, ann()).await.expect("a retry");
    assert_nothing_lands(&b, &lease, &hand).await;
}

async fn nothing_lands_after_a_new_instance(b: Bench) {
    let old = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &old).await;
    let new = super::bench::new_worker("desk", &["claude"]);
    let again = new.clone();
    let registered = b.queue.register(new).await.expect("a worker");
    assert_eq!(registered.ended, vec![lease.clone()]);
    assert_eq!(registered.worker.leases, []);
    assert_nothing_lands(&b, &lease, &old).await;
    let run = b.queue.runs(&lease.task).await.expect("runs").remove(0);
    assert_eq!(run.stop_reason, Some(StopReason::LeaseLost));
    // The same start again ends nothing.
    let hand = Hand { worker: registered.worker, instance: again.instance.clone() };
    let taken = b.claim(&hand).await.expect("work").lease.reference();
    assert_eq!(b.queue.register(again).await.expect("a worker").ended, []);
    b.queue.check_lease(&taken, &hand.worker.id).await.expect("still held");
    let told = b.told(&lease.task).await;
    assert_eq!(told.iter().filter(|kind| *kind == "lease.expired").count(), 1);
}

async fn a_heartbeat_renews_a_lease_that_ran_out_and_was_not_taken(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    for swept in [false, true] {
        b.advance(2 * 60 * 60);
        if swept {
            let swept = b.queue.sweep().await.expect("a sweep");
            assert_eq!(swept.expired, [(hand.worker.id.clone(), lease.clone())]);
            let task = b.queue.task(&lease.task).await.expect("a task");
            assert_eq!(task.state, TaskState::Queued);
        }
        let answers = b
            .queue
            .heartbeat(&hand.worker.id, &hand.instance, false, None, std::slice::from_ref(&lease))
            .await
            .expect("answers");
        let expires_at = b.now() + relay::model::LEASE;
        assert_eq!(answers, [LeaseRenewal::Renewed { expires_at }], "swept: {swept}");
        assert_eq!(b.queue.next_timer().await.expect("a timer"), Some(expires_at));
        let task = b.queue.task(&lease.task).await.expect("a task");
        assert_eq!((task.state, task.epoch), (TaskState::Running, lease.epoch));
        assert_eq!(task.stop_reason, None);
    }
    let task = b.finish(&lease, &hand, StopReason::Finished).await.expect("an end");
    assert_eq!(task.state, TaskState::Review);
}

async fn a_heartbeat_of_a_taken_lease_says_lost(b: Bench) {
    let (old, new) = (b.worker("old", &["claude"]).await, b.worker("new", &["claude"]).await);
    let lease = b.running(1, &old).await;
    b.advance(30 * 60);
    let taken = b.claim(&new).await.expect("work");
    let unknown = LeaseRef { task: "acme/shop#99".parse().expect("an id"), epoch: Epoch(1) };
    let leases = [lease, unknown];
    let answers = b
        .queue
        .heartbeat(&old.worker.id, &old.instance, false, None, &leases)
        .await
        .expect("answers");
    let lost = LeaseRenewal::Lost { reason: StopReason::LeaseLost };
    assert_eq!(answers, [lost.clone(), lost]);
    let task = b.queue.task(&taken.task.id).await.expect("a task");
    assert_eq!(task.worker, Some(new.worker.id));
}

async fn a_revived_lease_is_not_for_another_request(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    b.advance(30 * 60);
    b.queue.sweep().await.expect("a sweep");
    b.queue.cancel(&lease.task, ann()).await.expect("a cancel");
    b.queue.retry(&lease.task, ann()).await.expect("a retry");
    let answers = b
        .queue
        .heartbeat(&hand.worker.id, &hand.instance, false, None, std::slice::from_ref(&lease))
        .await
        .expect("answers");
    assert_eq!(answers, [LeaseRenewal::Lost { reason: StopReason::LeaseLost }]);
}

async fn an_old_instance_is_told_so(b: Bench) {
    let old = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &old).await;
    let new = b.worker("desk", &["claude"]).await;
    for leases in [Vec::new(), vec![lease]] {
        let answer = b.queue.heartbeat(&old.worker.id, &old.instance, false, None, &leases).await;
        assert!(matches!(answer, Err(QueueError::WorkerUnknown(_))), "{answer:?}");
    }
    b.queue.heartbeat(&new.worker.id, &new.instance, false, None, &[]).await.expect("the new");
    // Nor does it keep a lease of the new one alive.
    let held = b.claim(&new).await.expect("work").lease;
    b.advance(60);
    let named = [held.reference()];
    let answer = b.queue.heartbeat(&old.worker.id, &old.instance, false, None, &named).await;
    assert!(matches!(answer, Err(QueueError::WorkerUnknown(_))), "{answer:?}");
    let task = b.queue.task(&held.task).await.expect("a task");
    assert_eq!(task.expires_at, Some(held.expires_at));
}

async fn an_idle_heartbeat_is_kept_in_memory(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let beat = async |offline, interval_ms| {
        b.queue
            .heartbeat(&hand.worker.id, &hand.instance, offline, interval_ms, &[])
            .await
            .expect("answers");
    };
    let kinds = async || -> Vec<String> {
        let events = b.queue.events(0, None, 1000).await.expect("events");
        events.iter().map(|e| e.kind.to_string()).collect()
    };
    beat(false, Some(300_000)).await;
    b.advance(3500);
    beat(false, Some(300_000)).await;
    b.advance(3500);
    b.queue.heard(&hand.worker.id);
    b.advance(200);
    let here = b.queue.workers().await.expect("workers").remove(0);
    assert_eq!(here.state, relay::model::WorkerState::Idle);
    assert_eq!(here.interval_ms, Some(300_000));
    // Another process reads what the database was told: only the first.
    let other = b.another_process().await;
    let there = other.workers().await.expect("workers").remove(0);
    assert_eq!(there.last_seen, crate::support::clock::START);
    other.close().await;

    beat(true, None).await;
    beat(true, None).await;
    let gone = b.queue.workers().await.expect("workers").remove(0);
    assert_eq!(gone.state, relay::model::WorkerState::Offline);
    beat(false, None).await;
    assert_eq!(kinds().await, ["worker.registered", "worker.offline", "worker.online"]);
}

async fn finish_goes_where_the_reason_says(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let until = b.now() + std::time::Duration::from_secs(3600);
    let cases = [
        (StopReason::Finished, TaskState::Review, vec!["run.finished"]),
        (StopReason::Skipped, TaskState::Done, vec!["run.finished", "task.done"]),
        (StopReason::NoChanges, TaskState::Failed, vec!["run.failed"]),
        (
            StopReason::PushRefused { why: PushProblem::Protected },
            TaskState::Failed,
            vec!["run.failed"],
        ),
        (StopReason::Crashed, TaskState::Parked, vec!["run.failed", "task.parked"]),
        (StopReason::Quota { until }, TaskState::Parked, vec!["task.parked"]),
        (StopReason::WorkerStopped, TaskState::Queued, vec!["task.queued"]),
        (StopReason::Cancelled, TaskState::Cancelled, vec!["task.cancelled"]),
    ];
    for (number, (reason, state, told)) in (1..).zip(cases) {
        let lease = b.running(number, &hand).await;
        let end = RunEnd {
            error: Some("\n what went wrong \nmore".to_owned()),
            summary: Some("what it said".to_owned()),
            pr: Some(7),
            pr_url: Some("https://github.com/acme/shop/pull/7".to_owned()),
            note: Some("by the way".to_owned()),
            ..RunEnd::bare(reason.clone())
        };
        let task = b.queue.finish(&lease, &hand.worker.id, end).await.expect("an end");
        assert_eq!(task.state, state, "{reason}");
        assert_eq!(task.stop_reason, Some(reason.clone()));
        assert_eq!(task.message.as_deref(), Some("what went wrong"));
        assert_eq!((task.worker, task.expires_at, task.pr), (None, None, Some(7)));
        let run = b.queue.runs(&lease.task).await.expect("runs").remove(0);
        assert_eq!(run.outcome, Some(reason.outcome()));
        assert_eq!(run.stop_reason, Some(reason.clone()));
        assert_eq!(run.summary.as_deref(), Some("what it said"));
        let mut expected = vec!["task.queued", "run.claimed", "run.started"];
        expected.extend(told);
        expected.push("plugin.mark");
        assert_eq!(b.told(&lease.task).await, expected, "{reason}");
        // Nothing of it is in the next one's way.
        if reason.disposition() == Disposition::Requeue {
            b.queue.cancel(&lease.task, ann()).await.expect("a cancel");
        }
    }
}

async fn a_finish_may_be_repeated(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    let first = b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
    let again = b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("the same");
    assert_eq!(again, first);
    assert_eq!(b.told(&lease.task).await.len(), 4);
    // Its effects are closed all the same.
    assert_lost(b.queue.record(&lease, &hand.worker.id, &pushed("late")).await);
    let next = b.claim(&hand).await.expect("work").lease.reference();
    assert_lost(b.finish(&lease, &hand, StopReason::WorkerStopped).await);
    b.queue.check_lease(&next, &hand.worker.id).await.expect("still held");
}

async fn infrastructure_is_tried_five_times_in_a_row(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    let crash = async || {
        let lease = b.claim(&hand).await.expect("work").lease.reference();
        b.finish(&lease, &hand, StopReason::Stalled).await.expect("an end")
    };
    for seconds in [10, 20, 40, 80, 160] {
        let task = crash().await;
        assert_eq!(task.state, TaskState::Parked);
        let until = b.now() + std::time::Duration::from_secs(seconds);
        assert_eq!(task.parked_until, Some(until));
        assert_eq!(b.queue.next_timer().await.expect("a timer"), Some(until));
        b.advance(seconds - 1);
        assert_eq!(b.queue.sweep().await.expect("a sweep").unparked, []);
        assert_eq!(b.claim(&hand).await, None);
        b.advance(1);
        assert_eq!(b.queue.sweep().await.expect("a sweep").unparked, vec![id.clone()]);
    }
    assert_eq!(crash().await.state, TaskState::Failed);
    // A person's retry starts the count anew; an end of another kind does too.
    b.queue.retry(&id, ann()).await.expect("a retry");
    assert_eq!(crash().await.state, TaskState::Parked);
    b.queue.retry(&id, ann()).await.expect("a retry");
    // Giving up by its worker is not a failure, and not the end of a row either.
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
    let task = crash().await;
    assert_eq!(task.parked_until, Some(b.now() + relay::queue::RETRY_FIRST));
}

async fn an_outage_is_waited_for_however_long_it_lasts(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    for seconds in [10, 20, 40, 80, 160, 160, 160, 160] {
        let lease = b.claim(&hand).await.expect("work").lease.reference();
        let task = b.finish(&lease, &hand, StopReason::VendorUnreachable).await.expect("an end");
        let until = b.now() + std::time::Duration::from_secs(seconds);
        assert_eq!((task.state, task.parked_until), (TaskState::Parked, Some(until)));
        b.advance(seconds);
    }
    // What the lane does itself after that is not its last.
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    let task = b.finish(&lease, &hand, StopReason::Stalled).await.expect("an end");
    assert_eq!(task.state, TaskState::Parked);
}

async fn a_vendor_that_answered_in_each_run_is_not_waited_for_without_end(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    let usage = Usage { output_tokens: Some(7), ..Usage::default() };
    for tries in 0..=relay::queue::RETRIES {
        let lease = b.claim(&hand).await.expect("work").lease.reference();
        let end =
            RunEnd { usage: Some(usage.clone()), ..RunEnd::bare(StopReason::VendorUnreachable) };
        let task = b.queue.finish(&lease, &hand.worker.id, end).await.expect("an end");
        let fails = tries == relay::queue::RETRIES;
        assert_eq!(task.state, if fails { TaskState::Failed } else { TaskState::Parked });
        b.advance(300);
    }
}

async fn a_quota_parks_until_its_time(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    let until = b.now() + std::time::Duration::from_secs(4 * 3600);
    let task = b.finish(&lease, &hand, StopReason::Quota { until }).await.expect("an end");
    assert_eq!((task.state, task.parked_until), (TaskState::Parked, Some(until)));
    assert_eq!(
        b.queue.waiting(&lease.task).await.expect("reasons"),
        [relay::model::WaitReason::Parked { until, stopped: Some(StopReason::Quota { until }) }]
    );
    // What is over already is waited for a little.
    b.queue.retry(&lease.task, ann()).await.expect("a retry");
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    let past = StopReason::Quota { until: Timestamp(1) };
    let task = b.finish(&lease, &hand, past).await.expect("an end");
    assert!(task.parked_until > Some(b.now()));
}

async fn usage_that_was_not_reported_is_not_zero(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    let usage = Usage {
        model: Some("opus".to_owned()),
        output_tokens: Some(0),
        cost_usd: Some(0.25),
        duration_ms: Some(1500),
        ..Usage::default()
    };
    let end = RunEnd { usage: Some(usage.clone()), ..RunEnd::bare(StopReason::Finished) };
    b.queue.finish(&lease, &hand.worker.id, end).await.expect("an end");
    let run = b.queue.runs(&lease.task).await.expect("runs").remove(0);
    assert_eq!(run.usage, Some(usage));
    let events = b.queue.events(0, Some(&lease.task), 1000).await.expect("events");
    let step = events.iter().find(|e| e.kind.as_str() == "step.usage").expect("told");
    assert_eq!(step.actor.0, "agent:claude");
    assert!(step.data["usage"]["input_tokens"].is_null());

    let lease = b.running(2, &hand).await;
    b.finish(&lease, &hand, StopReason::Finished).await.expect("an end");
    assert_eq!(b.queue.runs(&lease.task).await.expect("runs")[0].usage, None);
}

async fn a_start_is_told_once(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    b.advance(5);
    let again = b.queue.start(&lease, &hand.worker.id, "relay/claude-1").await.expect("again");
    assert_eq!(again.state, TaskState::Running);
    assert_eq!(again.branch.as_deref(), Some("relay/claude-1"));
    assert_eq!(b.told(&lease.task).await, ["task.queued", "run.claimed", "run.started"]);
    let started_at = b.queue.runs(&lease.task).await.expect("runs")[0].started_at;
    assert_eq!(started_at, Some(crate::support::clock::START));
    // The pull request is known to the task as soon as it is in the journal.
    let pull = Effect::PullRequest { number: 4, url: "u".to_owned() };
    b.queue.record(&lease, &hand.worker.id, &committed("a")).await.expect("recorded");
    b.queue.record(&lease, &hand.worker.id, &pull).await.expect("recorded");
    assert_eq!(b.queue.task(&lease.task).await.expect("a task").pr, Some(4));
    let other_lane = NewTask { lane: lane("codex"), ..b.wish(1) };
    let other = b.queue.add(other_lane).await.expect("a task");
    assert_eq!(other.task().id.to_string(), "acme/shop#1:codex");
}
