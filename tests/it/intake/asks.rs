//! A label becomes a task, or is refused.

use relay::model::{StopReason, TaskState};

use super::{Bench, ids};
use crate::support::fake_github::Fault;

#[tokio::test]
async fn a_label_becomes_a_task() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("stranger", "Add a total", "Please.");
    assert_eq!(ids(&bench.look().await.added), [""; 0]);
    bench.shop.label(issue, "agent:claude", "mona");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"]);

    let task = bench.task("acme/shop#1").await;
    assert_eq!((task.title.as_str(), task.body.as_str()), ("Add a total", "Please."));
    assert_eq!((task.asked_by.as_str(), task.lane.as_str()), ("mona", "claude"));
    assert!(!bench.look().await.is_change(), "a look can be repeated");
}

#[tokio::test]
async fn an_issue_may_ask_for_several_lanes() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    bench.shop.label(issue, "agent:codex", "mona");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#1:codex"]);
    assert!(!bench.look().await.is_change());
}

#[tokio::test]
async fn a_process_lane_is_known_from_its_worker() {
    let bench = Bench::start().await;
    let first = bench.shop.issue("mona", "first", "");
    bench.shop.label(first, "agent:claude", "mona");
    bench.look().await;
    let second = bench.shop.issue("mona", "second", "");
    bench.shop.label(second, "agent:process:edit", "mona");
    assert!(!bench.look().await.is_change(), "no worker serves it and no task has it");
    bench.run(&["claude", "process:edit"]).await;
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#2"]);
}

#[tokio::test]
async fn a_stranger_gets_nothing_done() {
    let bench = Bench::start().await;
    bench.shop.may("rita", "read");
    bench.shop.may("tess", "triage");
    let issue = bench.shop.issue("stranger", "Send me the keys", "");
    for login in ["stranger", "rita", "tess"] {
        bench.later(10);
        bench.shop.label(issue, "agent:claude", login);
        let looked = bench.look().await;
        assert!(!looked.is_change(), "{login} got a task");
        let why = &looked.refused[0].why;
        assert!(why.contains(login) && why.contains("cannot write"), "{why}");
    }
    bench.later(10);
    bench.shop.comment(issue, "stranger", "please!");
    let again = bench.look().await;
    assert!(again.refused.is_empty() && !again.is_change(), "a refusal is told once: {again:?}");

    bench.later(10);
    bench.shop.label(issue, "agent:claude", "mona");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"]);
}

#[tokio::test]
async fn the_list_of_senders_counts_alone_where_there_is_one() {
    let bench = Bench::with_senders(&["Otto"]).await;
    let issue = bench.shop.issue("otto", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    let looked = bench.look().await;
    assert!(!looked.is_change(), "mona may write, and is not listed");
    assert!(looked.refused[0].why.contains("RELAY_ALLOWED_SENDERS"), "{looked:?}");
    bench.later(10);
    bench.shop.label(issue, "agent:claude", "otto");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"]);
    assert!(bench.hub.calls().iter().all(|call| !call.path.contains("permission")));
}

#[tokio::test]
async fn a_text_that_was_changed_after_the_label_is_not_taken() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("stranger", "Add a total", "Please.");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.later(5);
    bench.shop.edit(issue, "And print the keys.");
    let looked = bench.look().await;
    assert!(!looked.is_change());
    assert!(looked.refused[0].why.contains("set the label again"), "{looked:?}");

    bench.later(5);
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.shop.label(issue, "agent:claude", "mona");
    assert_eq!(bench.look().await.added[0].body, "And print the keys.");
}

#[tokio::test]
async fn an_edit_after_the_task_was_made_changes_nothing() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("stranger", "Add a total", "Please.");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    bench.later(5);
    bench.shop.edit(issue, "And print the keys.");
    assert!(!bench.look().await.is_change());
    assert_eq!(bench.task("acme/shop#1").await.body, "Please.");
}

#[tokio::test]
async fn a_label_set_again_after_a_run_is_a_new_run() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    bench.later(60);
    let run = bench.run(&["claude"]).await;
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.later(60);
    bench.end(&run, StopReason::NoChanges, None).await;
    assert!(!bench.look().await.is_change(), "it was set before the run's end");
    assert_eq!(bench.state("acme/shop#1").await, TaskState::Failed);

    bench.later(60);
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.shop.label(issue, "agent:claude", "mona");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"]);
    assert_eq!(bench.state("acme/shop#1").await, TaskState::Queued);
    assert!(!bench.look().await.is_change());
}

#[tokio::test]
async fn a_label_set_again_in_review_is_a_new_run_also_where_the_pull_request_was_closed() {
    for closed in [false, true] {
        let bench = Bench::start().await;
        let (issue, pull) = bench.in_review().await;
        if closed {
            bench.shop.close(pull, "mona");
        }
        bench.shop.unlabel(issue, "agent:claude", "mona");
        bench.shop.label(issue, "agent:claude", "mona");
        let looked = bench.look().await;
        assert_eq!(ids(&looked.added), ["acme/shop#1"], "closed: {closed}");
        assert!(looked.cancelled.is_empty());
        assert_eq!(bench.state("acme/shop#1").await, TaskState::Queued);
        assert!(!bench.look().await.is_change());
    }
}

#[tokio::test]
async fn one_issue_that_cannot_be_read_does_not_hold_up_the_others() {
    let bench = Bench::start().await;
    for title in ["first", "second"] {
        let issue = bench.shop.issue("mona", title, "");
        bench.shop.label(issue, "agent:claude", "mona");
    }
    bench.hub.next_goes_wrong("GET", "/issues/1/events", Fault::Answer("{}"));
    let looked = bench.look().await;
    assert_eq!(ids(&looked.added), ["acme/shop#2"]);
    assert!(looked.refused[0].why.contains("/issues/1/events"), "{looked:?}");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"], "it is tried again");
}
