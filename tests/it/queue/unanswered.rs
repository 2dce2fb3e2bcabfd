//! A task that its vendor does not answer, while it answers the others of the lane.

use relay::model::{Preference, PreferenceKey, Scope, StopReason, Task, TaskId, TaskState};
use relay::queue::PASSED_OVER;

use super::bench::{Bench, Hand, ann};

super::on_each_database!(
    a_task_that_its_vendor_alone_does_not_answer_is_given_up,
    what_others_have_elsewhere_gives_up_no_task,
    an_outage_with_a_good_hour_in_it_gives_up_no_task,
    an_outage_of_one_model_gives_up_none_of_its_tasks,
);

const AWAY: StopReason = StopReason::VendorUnreachable;

/// The next run of `id` gets no answer.
async fn tries(b: &Bench, hand: &Hand, id: &TaskId) -> Task {
    b.queue.sweep().await.expect("a sweep");
    let lease = b.claim(hand).await.expect("work").lease.reference();
    assert_eq!(lease.task, *id);
    b.finish(&lease, hand, AWAY).await.expect("an end")
}

/// A run of another task of the lane comes to a good end.
async fn another_finishes(b: &Bench, hand: &Hand, number: u64) {
    b.advance(1);
    let lease = b.running(number, hand).await;
    assert_eq!(lease.task.number, number);
    b.finish(&lease, hand, StopReason::Finished).await.expect("an end");
    b.advance(300);
}

async fn a_task_that_its_vendor_alone_does_not_answer_is_given_up(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    for round in 0..PASSED_OVER {
        let task = tries(&b, &hand, &id).await;
        assert_eq!(task.state, TaskState::Parked, "{round}");
        another_finishes(&b, &hand, 100 + u64::from(round)).await;
        if round == 3 {
            // A worker that is told to end says nothing of it.
            b.queue.sweep().await.expect("a sweep");
            let lease = b.claim(&hand).await.expect("work").lease.reference();
            b.finish(&lease, &hand, StopReason::WorkerStopped).await.expect("an end");
        }
    }
    let task = tries(&b, &hand, &id).await;
    assert_eq!((task.state, task.stop_reason), (TaskState::Failed, Some(StopReason::VendorError)));
    let message = task.message.expect("a message");
    assert!(message.contains("answered other tasks") && message.contains("12 runs"), "{message}");
    assert!(message.contains("`relay task retry 'acme/shop#1'`"), "{message}");
    assert_eq!(b.told(&id).await.last().expect("an event"), "run.failed");
    let runs = b.queue.runs(&id).await.expect("runs");
    assert_eq!(runs[0].stop_reason, Some(AWAY), "what the run itself met");

    // A person's retry starts the count anew.
    b.queue.retry(&id, ann()).await.expect("a retry");
    assert_eq!(tries(&b, &hand, &id).await.state, TaskState::Parked);
}

async fn what_others_have_elsewhere_gives_up_no_task(b: Bench) {
    let (hand, mini) = (b.worker("desk", &["claude"]).await, b.worker("mini", &["claude"]).await);
    let id = b.task(1).await;
    for round in 0..PASSED_OVER * 3 {
        let task = tries(&b, &hand, &id).await;
        assert_eq!(task.state, TaskState::Parked, "{round}");
        another_finishes(&b, &mini, 100 + u64::from(round)).await;
    }
}

async fn an_outage_with_a_good_hour_in_it_gives_up_no_task(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    for round in 0..PASSED_OVER * 3 {
        let task = tries(&b, &hand, &id).await;
        assert_eq!(task.state, TaskState::Parked, "{round}");
        // All of them between two runs of the task.
        for number in (100..140).filter(|_| round == PASSED_OVER) {
            b.advance(1);
            let lease = b.running(number, &hand).await;
            assert_eq!(lease.task.number, number);
            b.finish(&lease, &hand, StopReason::Finished).await.expect("an end");
        }
        b.advance(300);
    }
}

async fn an_outage_of_one_model_gives_up_none_of_its_tasks(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let prefer = async |value: &str| {
        let (key, scope) = (PreferenceKey::LaneModel, Scope::Global);
        let preference = Preference { key, scope, value: value.to_owned() };
        b.queue.prefer(&preference, ann()).await.expect("a preference");
    };
    let id = b.task(1).await;
    // What counts is the model of each run, not the one that is preferred as the last of them ends.
    for round in 0..PASSED_OVER * 2 {
        prefer("m-away").await;
        let task = tries(&b, &hand, &id).await;
        assert_eq!(task.state, TaskState::Parked, "{round}");
        prefer("m-there").await;
        another_finishes(&b, &hand, 100 + u64::from(round)).await;
    }
    for round in 0..=PASSED_OVER {
        let task = tries(&b, &hand, &id).await;
        let given_up = round == PASSED_OVER;
        assert_eq!(task.state == TaskState::Failed, given_up, "{round}: {task:?}");
        if !given_up {
            another_finishes(&b, &hand, 200 + u64::from(round)).await;
        }
    }
}
