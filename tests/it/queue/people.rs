//! What a person, or the forge, says about a task.

use relay::model::{StopReason, TaskState};
use relay::queue::{Added, NewTask, QueueError};

use super::bench::{Bench, ann, lane};

super::on_each_database!(
    a_task_is_made_once,
    an_ended_task_is_queued_anew_by_a_newer_wish_only,
    lanes_of_one_issue_have_names_of_their_own,
    a_local_project_counts_for_itself,
    what_is_not_there_is_named,
    a_cancel_may_be_repeated_and_done_stays_done,
    a_merge_ends_a_lease_too,
    a_retry_of_what_a_worker_holds_is_refused,
    open_tasks_are_those_the_forge_may_speak_of,
    a_project_is_linked_once,
    events_are_read_in_pieces,
);

async fn a_task_is_made_once(b: Bench) {
    let first = b.queue.add(b.wish(1)).await.expect("a task");
    assert!(matches!(first, Added::New(_)));
    assert_eq!(first.task().asked_by, "ann");
    b.advance(60);
    let again = b.queue.add(b.wish(1)).await.expect("a task");
    assert_eq!(again, Added::Existing(first.task().clone()));
    assert_eq!(b.told(&first.task().id).await, ["task.queued"]);
}

async fn an_ended_task_is_queued_anew_by_a_newer_wish_only(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let first_wish = b.wish(1);
    let lease = b.running(1, &hand).await;
    b.advance(60);
    let while_running = b.wish(1);
    b.advance(60);
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    for older in [first_wish, while_running] {
        let answer = b.queue.add(older).await.expect("a task");
        assert!(matches!(&answer, Added::Existing(t) if t.state == TaskState::Failed));
    }
    b.advance(60);
    let newer = NewTask { title: "Better said".to_owned(), ..b.wish(1) };
    let again = b.queue.add(newer.clone()).await.expect("a task");
    assert!(matches!(&again, Added::Again(_)), "{again:?}");
    let task = again.task();
    assert_eq!((task.state, task.title.as_str()), (TaskState::Queued, "Better said"));
    assert_eq!((task.stop_reason.clone(), task.message.clone()), (None, None));
    assert!(matches!(b.queue.add(newer.clone()).await, Ok(Added::Existing(_))));
    // The forge's clock may be ahead of ours: the same wish is still the same wish.
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    b.advance(60);
    let ahead =
        NewTask { seen_at: b.now() + std::time::Duration::from_secs(3600), ..newer.clone() };
    assert!(matches!(b.queue.add(ahead.clone()).await, Ok(Added::Again(_))));
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    assert!(matches!(b.queue.add(ahead).await, Ok(Added::Existing(_))));
}

async fn lanes_of_one_issue_have_names_of_their_own(b: Bench) {
    let mut ids = Vec::new();
    for name in ["claude", "codex", "process:edit", "claude"] {
        let wish = NewTask { lane: lane(name), ..b.wish(7) };
        ids.push(b.queue.add(wish).await.expect("a task").task().id.to_string());
    }
    assert_eq!(
        ids,
        ["acme/shop#7", "acme/shop#7:codex", "acme/shop#7:process:edit", "acme/shop#7"]
    );
    assert_eq!(b.queue.tasks(None).await.expect("tasks").len(), 3);
    assert_eq!(b.queue.tasks(Some(TaskState::Queued)).await.expect("tasks").len(), 3);
    assert_eq!(b.queue.tasks(Some(TaskState::Done)).await.expect("tasks"), []);
}

async fn a_local_project_counts_for_itself(b: Bench) {
    let slug: relay::model::RepoName = "local/scratch".parse().expect("a slug");
    let mut numbers = Vec::new();
    for number in [None, None, Some(9), Some(3), None] {
        let wish = NewTask { slug: slug.clone(), number, ..b.wish(1) };
        numbers.push(b.queue.add(wish).await.expect("a task").task().id.number);
    }
    assert_eq!(numbers, [1, 2, 9, 3, 10]);
}

async fn what_is_not_there_is_named(b: Bench) {
    let id = "acme/shop#404".parse().expect("an id");
    let slug: relay::model::RepoName = "acme/none".parse().expect("a slug");
    let project = b.queue.add(NewTask { slug: slug.clone(), ..b.wish(1) }).await;
    let words = |error: QueueError| error.to_string();
    assert_eq!(project.map_err(words), Err("no project `acme/none`".to_owned()));
    assert_eq!(b.queue.task(&id).await.map_err(words), Err("no task `acme/shop#404`".to_owned()));
    for missing in [
        b.queue.cancel(&id, ann()).await.err(),
        b.queue.done(&id, ann()).await.err(),
        b.queue.retry(&id, ann()).await.err(),
        b.queue.waiting(&id).await.err(),
        b.queue.project(&slug).await.err(),
    ] {
        assert!(matches!(missing, Some(QueueError::NotFound { .. })), "{missing:?}");
    }
    for number in [0, i64::MAX as u64, u64::MAX] {
        let answer = b.queue.add(NewTask { number: Some(number), ..b.wish(1) }).await;
        assert!(matches!(answer, Err(QueueError::Invalid(_))), "{answer:?}");
    }
    let last = NewTask { number: Some(i64::MAX as u64 - 1), ..b.wish(1) };
    b.queue.add(last).await.expect("the last number");
}

async fn a_cancel_may_be_repeated_and_done_stays_done(b: Bench) {
    let id = b.task(1).await;
    let first = b.queue.cancel(&id, ann()).await.expect("a cancel");
    assert_eq!((first.task.state, first.revoked), (TaskState::Cancelled, None));
    assert_eq!(first.task.stop_reason, Some(StopReason::Cancelled));
    b.advance(5);
    let again = b.queue.cancel(&id, ann()).await.expect("again");
    assert_eq!(again.task, first.task);
    assert_eq!(b.told(&id).await, ["task.queued", "task.cancelled"]);
    // A pull request of a cancelled task that is merged after all.
    assert_eq!(b.queue.done(&id, ann()).await.expect("done").task.state, TaskState::Done);
    let refused = b.queue.cancel(&id, ann()).await;
    assert!(matches!(refused, Err(QueueError::Conflict { .. })), "{refused:?}");
    assert_eq!(b.queue.task(&id).await.expect("a task").state, TaskState::Done);
    b.queue.done(&id, ann()).await.expect("again");
    assert_eq!(b.told(&id).await, ["task.queued", "task.cancelled", "task.done"]);
}

async fn a_merge_ends_a_lease_too(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    let changed = b.queue.done(&lease.task, relay::model::Actor::site()).await.expect("done");
    assert_eq!(changed.revoked, Some((hand.worker.id.clone(), lease.clone())));
    super::bench::assert_lost(b.finish(&lease, &hand, StopReason::NoChanges).await);
    assert_eq!(b.queue.task(&lease.task).await.expect("a task").state, TaskState::Done);
}

async fn a_retry_of_what_a_worker_holds_is_refused(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    assert_eq!(b.queue.retry(&id, ann()).await.expect("queued").state, TaskState::Queued);
    assert_eq!(b.told(&id).await, ["task.queued"]);
    b.claim(&hand).await.expect("work");
    let refused = b.queue.retry(&id, ann()).await.map_err(|e| e.to_string());
    assert_eq!(
        refused,
        Err("task `acme/shop#1` is claimed: a worker has it; cancel it first".to_owned())
    );
}

async fn open_tasks_are_those_the_forge_may_speak_of(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    for (number, reason) in [
        (1, StopReason::Finished),
        (2, StopReason::NoChanges),
        (3, StopReason::Skipped),
        (4, StopReason::Crashed),
    ] {
        let lease = b.running(number, &hand).await;
        b.finish(&lease, &hand, reason).await.expect("an end");
    }
    let cancelled = b.task(5).await;
    b.queue.cancel(&cancelled, ann()).await.expect("a cancel");
    b.task(6).await;
    let slug = "acme/shop".parse().expect("a slug");
    let open = b.queue.open_reviews(&slug).await.expect("tasks");
    let numbers: Vec<u64> = open.iter().map(|t| t.id.number).collect();
    assert_eq!(numbers, [1, 4, 6]);
}

async fn a_project_is_linked_once(b: Bench) {
    let mut again = super::bench::github("acme/shop");
    again.default_branch = "trunk".to_owned();
    again.linked_at = relay::model::Timestamp(99);
    let linked = b.queue.link(again).await.expect("a project");
    assert_eq!(linked.default_branch, "trunk");
    assert_eq!(linked.linked_at, relay::model::Timestamp(1));
    let slugs: Vec<String> =
        b.queue.projects().await.expect("projects").iter().map(|p| p.slug.to_string()).collect();
    assert_eq!(slugs, ["acme/shop", "local/scratch"]);
}

async fn events_are_read_in_pieces(b: Bench) {
    for number in 1..=5 {
        b.task(number).await;
    }
    let first = b.queue.events(0, None, 2).await.expect("events");
    assert_eq!(first.len(), 2);
    assert_eq!(first[0].actor, ann());
    let rest = b.queue.events(first[1].seq, None, 1000).await.expect("events");
    assert_eq!(rest.len(), 3);
    assert!(rest.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!(b.queue.events(0, None, 0).await.expect("events").len(), 1);
}
