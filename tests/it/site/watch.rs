//! The site with a GitHub behind it: what is linked, asked for, and seen by the watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use relay::api::{Code, CreateTask, LinkProject};
use relay::forge::github::{Accounts, PersonsLogin, host_of};
use relay::model::{ForgeKind, Secret, StopReason, TaskState};
use relay::site::forges::KnownForges;
use relay::site::owner::{OwnerConfig, Role};
use relay::site::watch::Watch;

use super::fixture::{Home, TestWorker, config, until};
use crate::support::clock::ManualClock;
use crate::support::fake_github::FakeGitHub;

/// A home whose GitHub is `hub`, with `ann` logged in.
async fn home_of(hub: &FakeGitHub) -> Home {
    hub.person("ann");
    let folder = tempfile::tempdir().expect("a folder");
    let login = PersonsLogin {
        given: Some((host_of(&hub.base), Secret::new("token-of-ann"))),
        gh: None,
        env: BTreeMap::new(),
    };
    let clock = Arc::new(hub.clock.clone());
    let accounts = Arc::new(Accounts::new(Arc::new(login), clock.clone()));
    let config = OwnerConfig {
        forges: Arc::new(KnownForges::new(Arc::clone(&accounts), &hub.base)),
        watch: Some(Watch { accounts, host: "machine".to_owned(), allowed_senders: Vec::new() }),
        ..config(folder.path(), Role::Work, clock)
    };
    Home::open_with(folder, hub.clock.clone(), config).await
}

fn github(slug: &str) -> LinkProject {
    LinkProject {
        forge: ForgeKind::Github,
        slug: slug.parse().expect("a slug"),
        path: None,
        host: "machine".to_owned(),
    }
}

#[tokio::test]
async fn a_label_rings_the_bell_and_a_closed_issue_calls_its_run_off() {
    let hub = FakeGitHub::start(&ManualClock::default()).await;
    let home = home_of(&hub).await;
    let shop = hub.repo("ann/shop");
    let issue = shop.issue("ann", "Mend it", "It is broken.");
    shop.label(issue, "agent:claude", "ann");
    let mut worker = home.worker("w").await;
    worker.request.forges = vec![host_of(&hub.base)];
    let worker =
        TestWorker { worker: home.client.register(&worker.request).await.expect("it"), ..worker };
    let held = worker.hold(1, 0);
    home.held(1).await;

    // Linking brings the first look forward.
    home.client.link(&github("ann/shop")).await.expect("a project");
    assert_eq!(held.await.expect("an answer").queued, 1);
    let claim = worker.claim().await.expect("the task");
    assert_eq!((claim.task.title.as_str(), claim.task.asked_by.as_str()), ("Mend it", "ann"));
    until(|| !home.owner.site().standing.all().is_empty()).await;

    let busy = worker.hold(0, home.owner.site().bell.version());
    home.held(1).await;
    shop.close(issue, "ann");
    home.clock.advance(Duration::from_secs(60));
    assert_eq!(busy.await.expect("an answer").revoked, [claim.lease.reference()]);
    let task = home.client.task(&claim.task.id).await.expect("the task").task;
    assert_eq!(task.state, TaskState::Cancelled);
    let status = home.client.status().await.expect("the status");
    assert_eq!(status.forges.len(), 1);
    assert_eq!((status.forges[0].slug.as_str(), &status.forges[0].error), ("ann/shop", &None));
    home.owner.close().await;
}

#[tokio::test]
async fn an_idle_site_with_linked_repositories_asks_its_database_nothing() {
    let hub = FakeGitHub::start(&ManualClock::default()).await;
    let home = home_of(&hub).await;
    let shop = hub.repo("ann/shop");
    // One task nobody takes, one whose run is over, and a label that is refused.
    for by in ["ann", "ann", "mallory"] {
        let issue = shop.issue("ann", "Mend it", "It is broken.");
        shop.label(issue, "agent:claude", by);
    }
    let mut worker = home.worker("w").await;
    worker.request.forges = vec![host_of(&hub.base)];
    let worker =
        TestWorker { worker: home.client.register(&worker.request).await.expect("it"), ..worker };
    home.client.link(&github("ann/shop")).await.expect("a project");
    assert_eq!(worker.ring(1, 0, 300).await.queued, 2);
    let lease = worker.claim().await.expect("a task").lease;
    let end = worker.end(&lease, StopReason::NoChanges);
    home.client.release(&lease.reference(), &end).await.expect("it is ended");

    let polled = || home.owner.site().standing.all().iter().filter_map(|s| s.polled_at).max();
    let minute = async || {
        let before = polled();
        home.pass(Duration::from_secs(60)).await;
        until(|| polled() > before).await;
    };
    home.rest().await;
    // What was written is looked at once more.
    for _ in 0..3 {
        minute().await;
    }
    let (statements, calls) = (home.owner.site().queue.statements(), hub.calls().len());
    for _ in 0..60 {
        minute().await;
    }
    assert_eq!(home.owner.site().queue.statements() - statements, 0);
    assert!(hub.calls().len() >= calls + 60, "it did look");

    // And what is written then is seen.
    shop.close(1, "ann");
    shop.close(2, "ann");
    shop.close(3, "ann");
    minute().await;
    minute().await;
    let tasks = home.client.tasks(None).await.expect("tasks");
    assert!(tasks.iter().any(|task| task.state == TaskState::Cancelled), "{tasks:?}");
    home.owner.close().await;
}

#[tokio::test]
async fn repositories_and_issues_are_read_from_the_forge_and_refusals_have_a_hint() {
    let hub = FakeGitHub::start(&ManualClock::default()).await;
    let home = home_of(&hub).await;
    let shop = hub.repo("ann/shop");
    let issue = shop.issue("bob", "Mend it", "It is broken.");
    let project = home.client.link(&github("ann/shop")).await.expect("a project");
    assert_eq!(project.remote, format!("{}/ann/shop.git", hub.base));
    assert_eq!((project.host, project.default_branch), (host_of(&hub.base), "main".to_owned()));

    let mut ask = CreateTask {
        slug: project.slug,
        lane: "claude".parse().expect("a lane"),
        issue: Some(issue),
        title: None,
        body: None,
        asked_by: "ann".to_owned(),
    };
    let task = home.client.create_task(&ask).await.expect("a task");
    assert_eq!((task.title.as_str(), task.body.as_str()), ("Mend it", "It is broken."));
    ask.issue = Some(999);
    let refused = home.client.create_task(&ask).await.expect_err("there is none");
    assert_eq!((refused.code(), refused.hint().is_some()), (Some(Code::NotFound), true));
    (ask.issue, ask.title) = (None, Some("Paint it".to_owned()));
    let opened = home.client.create_task(&ask).await.expect("an issue and a task");
    assert_eq!((opened.id.number, opened.title.as_str()), (issue + 1, "Paint it"));

    let refused = home.client.link(&github("ann/none")).await.expect_err("there is none");
    assert_eq!((refused.code(), refused.hint().is_some()), (Some(Code::NotFound), true));
    shop.archive();
    let refused = home.client.link(&github("ann/shop")).await.expect_err("it is archived");
    assert_eq!(refused.code(), Some(Code::Conflict));
    hub.revoke("ann");
    let refused = home.client.link(&github("ann/shop")).await.expect_err("no login");
    assert_eq!(refused.code(), Some(Code::Forge));
    assert!(refused.hint().is_some_and(|hint| hint.contains("gh auth login")));
    home.owner.close().await;
}
