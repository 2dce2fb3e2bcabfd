//! What people do on the forge ends a task.

use std::path::Path;
use std::sync::Arc;

use relay::forge::github::Accounts;
use relay::intake::{Intake, IntakeConfig};
use relay::model::{Actor, ForgeKind, Project, StopReason, TaskState, Timestamp};
use relay::queue::{LocalPullRow, NewTask};

use super::{Bench, Bot};
use crate::support::fake_github::Fault;

#[tokio::test]
async fn a_merged_pull_request_ends_its_task_well() {
    let bench = Bench::start().await;
    let (issue, pull) = bench.in_review().await;
    assert!(!bench.look().await.is_change(), "nothing happened yet");
    bench.shop.merge(pull, "mona");
    bench.shop.close(issue, "mona");
    let looked = bench.look().await;
    assert_eq!(looked.done[0].task.id.to_string(), "acme/shop#1");
    assert!(looked.cancelled.is_empty(), "the merge closed the issue, nobody called it off");
    assert_eq!(bench.state("acme/shop#1").await, TaskState::Done);
    assert!(!bench.look().await.is_change());
}

#[tokio::test]
async fn a_pull_request_closed_without_a_merge_calls_its_task_off() {
    let bench = Bench::start().await;
    let (_, pull) = bench.in_review().await;
    bench.shop.close(pull, "mona");
    assert_eq!(bench.look().await.cancelled.len(), 1);
    assert_eq!(bench.state("acme/shop#1").await, TaskState::Cancelled);
    assert!(!bench.look().await.is_change(), "its label is older than that");
}

#[tokio::test]
async fn a_label_taken_off_stops_a_run() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    let run = bench.run(&["claude"]).await;
    bench.later(60);
    bench.shop.unlabel(issue, "agent:claude", "mona");
    let looked = bench.look().await;
    assert_eq!(looked.cancelled[0].revoked, Some((run.worker.clone(), run.lease.clone())));
    assert_eq!(bench.state("acme/shop#1").await, TaskState::Cancelled);

    bench.later(60);
    bench.shop.label(issue, "agent:claude", "mona");
    assert_eq!(bench.look().await.added.len(), 1, "set again it asks again");
}

#[tokio::test]
async fn a_closed_or_deleted_issue_calls_its_task_off() {
    for delete in [false, true] {
        let bench = Bench::start().await;
        let issue = bench.shop.issue("mona", "Add a total", "");
        bench.shop.label(issue, "agent:claude", "mona");
        bench.look().await;
        if delete {
            bench.shop.delete(issue)
        } else {
            bench.shop.close(issue, "mona")
        }
        assert_eq!(bench.look().await.cancelled.len(), 1, "deleted: {delete}");
    }
}

#[tokio::test]
async fn a_merge_that_nobody_reported_is_found_by_the_branch() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    let run = bench.run(&["claude"]).await;
    let pull = bench.shop.pull("relay-bot", "claude: Add a total", "relay/claude-1");
    bench.later(60);
    bench.shop.merge(pull, "mona");
    bench.shop.close(issue, "mona");
    let looked = bench.look().await;
    assert_eq!(looked.done[0].revoked, Some((run.worker, run.lease)));
}

#[tokio::test]
async fn a_hole_in_an_answer_calls_nothing_off() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    for part in ["labels=agent%3Aclaude", "labels=agent%3Agrok"] {
        bench.hub.next_goes_wrong("GET", part, Fault::Refuse(502, vec![], "Bad gateway"));
        let looked = bench.intake.reconcile(&bench.project).await;
        assert!(looked.problem.is_some() && !looked.is_change(), "{looked:?}");
    }
    // A list that lost the issue on its way is no reason either: the issue itself is read.
    bench.hub.next_goes_wrong("GET", "labels=agent%3Aclaude", Fault::Answer("[]"));
    assert!(!bench.look().await.is_change());
    assert_eq!(bench.state("acme/shop#1").await, TaskState::Queued);
}

#[tokio::test]
async fn a_task_made_by_hand_needs_no_label() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.later(10);
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.later(10);
    bench.make_by_hand(issue).await;
    assert!(!bench.look().await.is_change(), "the label was taken off before");
    bench.later(10);
    bench.shop.comment(issue, "mona", "go on");
    assert!(!bench.look().await.is_change());
    bench.shop.close(issue, "mona");
    assert_eq!(bench.look().await.cancelled.len(), 1);
}

#[tokio::test]
async fn a_retry_by_hand_outlives_a_label_taken_off_before() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    let run = bench.run(&["claude"]).await;
    bench.end(&run, StopReason::NoChanges, None).await;
    bench.later(10);
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.later(10);
    bench.queue.retry(&"acme/shop#1".parse().unwrap(), Actor::user("mona")).await.unwrap();
    assert!(!bench.look().await.is_change());
    bench.later(10);
    bench.shop.label(issue, "agent:claude", "mona");
    bench.shop.unlabel(issue, "agent:claude", "mona");
    assert_eq!(bench.look().await.cancelled.len(), 1);
}

#[tokio::test]
async fn a_local_task_is_done_once_its_branch_is_merged() {
    let bench = Bench::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (base, work) = repository(dir.path());
    let project = Project {
        slug: "local/scratch".parse().unwrap(),
        forge: ForgeKind::Local,
        host: "desk".to_owned(),
        remote: dir.path().display().to_string(),
        api_base: None,
        default_branch: "trunk".to_owned(),
        linked_at: Timestamp(1),
    };
    bench.queue.link(project.clone()).await.unwrap();
    let wish = NewTask {
        slug: project.slug.clone(),
        lane: "claude".parse().unwrap(),
        number: None,
        title: "Add a total".to_owned(),
        body: String::new(),
        asked_by: "local".to_owned(),
        seen_at: Timestamp(1),
    };
    bench.queue.add(wish).await.unwrap();
    let run = bench.run(&["claude"]).await;
    let pull = LocalPullRow {
        number: 1,
        title: "claude: Add a total".to_owned(),
        body: "Closes #1".to_owned(),
        branch: "relay/claude-1".to_owned(),
        base: "trunk".to_owned(),
        head: work.clone(),
        diff: String::new(),
        comment: None,
    };
    bench.queue.open_local_pull(&run.lease, &run.worker, &pull).await.unwrap();
    bench.end(&run, StopReason::Finished, Some(1)).await;

    assert!(!bench.intake.reconcile(&project).await.is_change(), "not merged yet");
    let repo = git2::Repository::open_bare(dir.path()).unwrap();
    assert_ne!(base, work);
    let work = git2::Oid::from_str(&work).unwrap();
    repo.reference("refs/heads/trunk", work, true, "merge").unwrap();

    let elsewhere = Intake::new(IntakeConfig {
        queue: bench.queue.clone(),
        accounts: Arc::new(Accounts::new(Arc::new(Bot), Arc::new(bench.clock.clone()))),
        clock: Arc::new(bench.clock.clone()),
        host: "lab".to_owned(),
        allowed_senders: Vec::new(),
    });
    assert!(!elsewhere.reconcile(&project).await.is_change(), "the disk of another machine");
    assert_eq!(bench.intake.reconcile(&project).await.done.len(), 1);
    assert_eq!(bench.state("local/scratch#1").await, TaskState::Done);
}

/// A bare repository with one commit on `trunk` and one more on the task's branch.
fn repository(path: &Path) -> (String, String) {
    let mut options = git2::RepositoryInitOptions::new();
    options.bare(true).initial_head("trunk").external_template(false);
    let repo = git2::Repository::init_opts(path, &options).unwrap();
    let tree = repo.find_tree(repo.treebuilder(None).unwrap().write().unwrap()).unwrap();
    let who = git2::Signature::new("a", "a@example.invalid", &git2::Time::new(1, 0)).unwrap();
    let base = repo.commit(Some("HEAD"), &who, &who, "one", &tree, &[]).unwrap();
    let parent = repo.find_commit(base).unwrap();
    let branch = Some("refs/heads/relay/claude-1");
    let work = repo.commit(branch, &who, &who, "two", &tree, &[&parent]).unwrap();
    (base.to_string(), work.to_string())
}
