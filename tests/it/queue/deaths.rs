//! A task that takes its worker down is set aside, however slowly it does.

use std::time::Duration;

use relay::model::{LEASE, LeaseRef, StopReason, Task, TaskState};
use relay::queue::{DEATHS, LeaseRenewal, QUICK, QUICK_DEATHS};

use super::bench::{Bench, Hand, ann, assert_lost, committed, new_worker};

super::on_each_database!(
    three_runs_that_kill_their_worker_at_once_are_the_last,
    three_crashes_at_once_are_the_last,
    a_worker_that_is_never_heard_of_again_counts_by_its_last_word,
    a_worker_that_dies_late_is_given_as_many_tries_as_infrastructure,
    what_a_person_or_the_worker_stopped_is_no_death,
    an_end_of_another_kind_ends_the_row,
    a_retry_or_a_newer_wish_starts_the_count_anew_and_keeps_what_a_retry_keeps,
    a_sleeper_that_wakes_takes_its_death_back,
    power_cuts_under_four_jobs_set_none_of_them_aside,
    a_worker_that_falls_silent_with_four_jobs_blames_none_of_them_at_once,
    a_task_that_runs_alone_again_is_blamed_for_what_it_does_alone,
);

/// The worker's process is killed and started again.
async fn reborn(b: &Bench) -> Hand {
    let new = new_worker("desk", &["claude"]);
    let instance = new.instance.clone();
    let worker = b.queue.register(new).await.expect("a worker").worker;
    Hand { worker, instance }
}

async fn claimed(b: &Bench, hand: &Hand) -> LeaseRef {
    let lease = b.claim(hand).await.expect("work").lease.reference();
    b.queue.start(&lease, &hand.worker.id, "relay/claude-1").await.expect("a start");
    lease
}

/// A run that takes the worker down `after` its start.
async fn killed(b: &Bench, hand: &mut Hand, after: Duration) -> Task {
    let lease = claimed(b, hand).await;
    let mut left = after;
    while left >= QUICK {
        b.advance(60);
        left -= QUICK;
        beat(b, hand, &lease).await;
    }
    b.advance(left.as_secs());
    *hand = reborn(b).await;
    b.queue.task(&lease.task).await.expect("a task")
}

async fn beat(b: &Bench, hand: &Hand, lease: &LeaseRef) -> LeaseRenewal {
    let named = [lease.clone()];
    let beat = b.queue.heartbeat(&hand.worker.id, &hand.instance, false, None, &named);
    beat.await.expect("an answer").remove(0)
}

fn assert_set_aside(task: &Task) {
    assert_eq!(task.state, TaskState::Failed);
    assert_eq!(task.stop_reason, Some(StopReason::Quarantined));
}

async fn three_runs_that_kill_their_worker_at_once_are_the_last(b: Bench) {
    let mut hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    for _ in 1..QUICK_DEATHS {
        let task = killed(&b, &mut hand, Duration::from_secs(5)).await;
        assert_eq!(task.state, TaskState::Queued);
    }
    let task = killed(&b, &mut hand, Duration::from_secs(5)).await;
    assert_set_aside(&task);
    assert_eq!(b.claim(&hand).await, None);
    let events = b.queue.events(0, Some(&id), 100).await.expect("events");
    let kinds: Vec<&str> = events.iter().map(|e| e.kind.as_str()).collect();
    let run = ["run.claimed", "run.started", "lease.expired"];
    let all = [&["task.queued"][..], &run, &run, &run, &["task.quarantined"]].concat();
    assert_eq!(kinds, all);
    let hint = &events.last().expect("an event").data["hint"];
    assert_eq!(hint, "relay task retry 'acme/shop#1'");
}

async fn three_crashes_at_once_are_the_last(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    let mut states = Vec::new();
    for _ in 0..QUICK_DEATHS {
        let lease = claimed(&b, &hand).await;
        b.advance(59);
        let task = b.finish(&lease, &hand, StopReason::Crashed).await.expect("an end");
        states.push(task.state);
        b.advance(300);
    }
    assert_eq!(states, [TaskState::Parked, TaskState::Parked, TaskState::Failed]);
    assert_set_aside(&b.queue.task(&id).await.expect("a task"));
    let told = b.told(&id).await;
    assert_eq!(told[told.len() - 2..], ["run.failed", "task.quarantined"]);
    let runs = b.queue.runs(&id).await.expect("runs");
    assert!(runs.iter().all(|run| run.stop_reason == Some(StopReason::Crashed)));
}

async fn a_worker_that_is_never_heard_of_again_counts_by_its_last_word(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    for _ in 0..QUICK_DEATHS {
        claimed(&b, &hand).await;
        b.advance(LEASE.as_secs());
        b.queue.sweep().await.expect("a sweep");
    }
    assert_set_aside(&b.queue.task(&id).await.expect("a task"));
    let told = b.told(&id).await;
    assert_eq!(told[told.len() - 2..], ["lease.expired", "task.quarantined"]);
}

async fn a_worker_that_dies_late_is_given_as_many_tries_as_infrastructure(b: Bench) {
    let mut hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    for _ in 1..DEATHS {
        // Late, and now and then at once: the three quick ones do not come in a row.
        killed(&b, &mut hand, Duration::from_secs(5)).await;
        let task = b.queue.tasks(None).await.expect("tasks").remove(0);
        if task.state != TaskState::Queued {
            assert_set_aside(&task);
            break;
        }
        let task = killed(&b, &mut hand, Duration::from_secs(300)).await;
        if task.state != TaskState::Queued {
            assert_set_aside(&task);
            break;
        }
    }
    let task = b.queue.tasks(None).await.expect("tasks").remove(0);
    assert_set_aside(&task);
    assert_eq!(task.epoch.0, i64::from(DEATHS));
}

async fn what_a_person_or_the_worker_stopped_is_no_death(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    for _ in 0..2 * DEATHS {
        let lease = claimed(&b, &hand).await;
        let task = b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
        assert_eq!(task.state, TaskState::Queued);
    }
    for _ in 0..2 * DEATHS {
        claimed(&b, &hand).await;
        b.queue.cancel(&id, ann()).await.expect("a cancel");
        b.queue.retry(&id, ann()).await.expect("a retry");
    }
    assert_eq!(b.queue.task(&id).await.expect("a task").state, TaskState::Queued);
}

async fn an_end_of_another_kind_ends_the_row(b: Bench) {
    let mut hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    for _ in 0..2 {
        for _ in 1..QUICK_DEATHS {
            killed(&b, &mut hand, Duration::from_secs(5)).await;
        }
        let lease = claimed(&b, &hand).await;
        let task = b.finish(&lease, &hand, StopReason::VendorUnreachable).await.expect("an end");
        assert_eq!(task.state, TaskState::Parked);
        b.advance(300);
    }
    // A worker that gives up in between says nothing of the kind.
    for _ in 1..QUICK_DEATHS {
        killed(&b, &mut hand, Duration::from_secs(5)).await;
    }
    let lease = claimed(&b, &hand).await;
    b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
    assert_set_aside(&killed(&b, &mut hand, Duration::from_secs(5)).await);
}

async fn a_retry_or_a_newer_wish_starts_the_count_anew_and_keeps_what_a_retry_keeps(b: Bench) {
    let mut hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    let lease = claimed(&b, &hand).await;
    b.queue.record(&lease, &hand.worker.id, &committed("work")).await.expect("a record");
    hand = reborn(&b).await;
    for _ in 1..QUICK_DEATHS {
        killed(&b, &mut hand, Duration::from_secs(5)).await;
    }
    assert_set_aside(&b.queue.task(&id).await.expect("a task"));
    b.queue.retry(&id, ann()).await.expect("a retry");
    assert_eq!(b.queue.effects(&id).await.expect("effects"), [committed("work")]);
    for _ in 1..QUICK_DEATHS {
        let task = killed(&b, &mut hand, Duration::from_secs(5)).await;
        assert_eq!(task.state, TaskState::Queued);
    }
    assert_set_aside(&killed(&b, &mut hand, Duration::from_secs(5)).await);
    b.advance(1);
    b.task(1).await;
    assert_eq!(b.queue.effects(&id).await.expect("effects"), []);
    let task = killed(&b, &mut hand, Duration::from_secs(5)).await;
    assert_eq!(task.state, TaskState::Queued);
}

async fn a_sleeper_that_wakes_takes_its_death_back(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    let lease = claimed(&b, &hand).await;
    for _ in 0..2 * DEATHS {
        b.advance(LEASE.as_secs() + 1);
        b.queue.sweep().await.expect("a sweep");
        assert!(matches!(beat(&b, &hand, &lease).await, LeaseRenewal::Renewed { .. }));
        assert_eq!(b.queue.task(&id).await.expect("a task").state, TaskState::Running);
    }
    // Each of these would be a quick one of its own, if it were one.
    b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
    for _ in 0..QUICK_DEATHS {
        let lease = claimed(&b, &hand).await;
        b.advance(LEASE.as_secs());
        b.queue.sweep().await.expect("a sweep");
        assert!(matches!(beat(&b, &hand, &lease).await, LeaseRenewal::Renewed { .. }));
        b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
    }
    let lease = claimed(&b, &hand).await;
    beat(&b, &hand, &lease).await;
    b.advance(60);
    beat(&b, &hand, &lease).await;
    // Also the one that seemed to be the last; the first of these is a slow one.
    for _ in 0..QUICK_DEATHS {
        b.advance(LEASE.as_secs());
        b.queue.sweep().await.expect("a sweep");
        let next = claimed(&b, &hand).await;
        assert_lost(b.queue.check_lease(&lease, &hand.worker.id).await);
        assert_ne!(next, lease);
    }
    let last = b.queue.workers().await.expect("workers").remove(0).leases.remove(0);
    b.advance(LEASE.as_secs());
    b.queue.sweep().await.expect("a sweep");
    assert_set_aside(&b.queue.task(&id).await.expect("a task"));
    beat(&b, &hand, &last).await;
    let task = b.finish(&last, &hand, StopReason::Finished).await.expect("an end");
    assert_eq!(task.state, TaskState::Review);
}

/// Four tasks of one worker, started one after another.
async fn four(b: &Bench, hand: &Hand) -> Vec<LeaseRef> {
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(claimed(b, hand).await);
        b.advance(5);
    }
    leases
}

async fn states(b: &Bench) -> Vec<TaskState> {
    b.queue.tasks(None).await.expect("tasks").iter().map(|task| task.state).collect()
}

async fn power_cuts_under_four_jobs_set_none_of_them_aside(b: Bench) {
    let mut hand = b.worker("desk", &["claude"]).await;
    for number in 1..=4 {
        b.task(number).await;
    }
    for _ in 0..QUICK_DEATHS {
        four(&b, &hand).await;
        hand = reborn(&b).await;
    }
    assert_eq!(states(&b).await, [TaskState::Queued; 4]);
    // A machine that is cut off again and again is given up as any other infrastructure.
    for _ in QUICK_DEATHS..DEATHS {
        four(&b, &hand).await;
        hand = reborn(&b).await;
    }
    assert_eq!(states(&b).await, [TaskState::Failed; 4]);
}

async fn a_worker_that_falls_silent_with_four_jobs_blames_none_of_them_at_once(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    for number in 1..=4 {
        b.task(number).await;
    }
    for _ in 0..QUICK_DEATHS {
        four(&b, &hand).await;
        // Each runs out by itself, five seconds after the one before.
        b.advance(LEASE.as_secs() - 20);
        for left in (0..4).rev() {
            b.queue.sweep().await.expect("a sweep");
            let held = b.queue.workers().await.expect("workers").remove(0).leases.len();
            assert_eq!(held, left);
            b.advance(5);
        }
    }
    assert_eq!(states(&b).await, [TaskState::Queued; 4]);
}

async fn a_task_that_runs_alone_again_is_blamed_for_what_it_does_alone(b: Bench) {
    let mut hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    b.task(2).await;
    // Lost together with another one, which then ends well.
    let first = claimed(&b, &hand).await;
    let second = claimed(&b, &hand).await;
    hand = reborn(&b).await;
    let again = claimed(&b, &hand).await;
    assert_eq!(again.task, first.task);
    let other = claimed(&b, &hand).await;
    assert_eq!(other.task, second.task);
    b.finish(&other, &hand, StopReason::Finished).await.expect("an end");
    b.advance(1);
    hand = reborn(&b).await;
    for _ in 2..QUICK_DEATHS {
        assert_eq!(killed(&b, &mut hand, Duration::from_secs(5)).await.state, TaskState::Queued);
    }
    assert_set_aside(&killed(&b, &mut hand, Duration::from_secs(5)).await);
}
