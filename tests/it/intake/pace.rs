//! How often relay asks, and when it does not.

use std::sync::Arc;
use std::time::Duration;

use relay::intake::{INTERVAL, IntakeError, Reconciled};
use relay::model::{Clock, ForgeProblem, StopReason, TaskState};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::Bench;
use crate::support::fake_github::Fault;

#[tokio::test]
async fn an_idle_repository_costs_next_to_nothing() {
    let bench = Bench::start().await;
    // One of everything that can lie around: in review, failed, refused, made by hand, queued.
    for _ in 0..6 {
        bench.in_review().await;
    }
    let failed = bench.shop.issue("mona", "fails", "");
    bench.shop.label(failed, "agent:claude", "mona");
    bench.look().await;
    let run = bench.run(&["claude"]).await;
    bench.end(&run, StopReason::NoChanges, None).await;
    let refused = bench.shop.issue("stranger", "refused", "");
    bench.shop.label(refused, "agent:codex", "stranger");
    let by_hand = bench.shop.issue("mona", "by hand", "");
    bench.make_by_hand(by_hand).await;
    let queued = bench.shop.issue("mona", "waits", "");
    bench.shop.label(queued, "agent:grok", "mona");
    for _ in 0..2 {
        bench.later(30);
        bench.look().await;
    }
    bench.hub.calls();
    let hour = 3600 / INTERVAL.as_secs();
    for _ in 0..hour {
        bench.later(INTERVAL.as_secs());
        assert!(!bench.look().await.is_change());
    }
    let calls = bench.hub.calls();
    let counted: Vec<_> = calls.iter().filter(|call| call.status != 304).collect();
    assert!(counted.len() < 5, "{} counted calls an hour: {counted:?}", counted.len());
    // Three lanes' labels, six pull requests, the issue that was made a task by hand.
    assert!(calls.len() as u64 <= hour * 10, "{} calls an hour", calls.len());
}

#[tokio::test]
async fn a_rate_limit_is_waited_for() {
    let bench = Bench::start().await;
    let limit = Fault::Refuse(403, vec![("retry-after", "600".to_owned())], "slow down");
    bench.hub.next_goes_wrong("GET", "/issues", limit);
    let looked = bench.intake.reconcile(&bench.project).await;
    let until = bench.clock.now() + Duration::from_secs(600);
    assert!(looked.next >= until, "{looked:?}");
    bench.hub.calls();
    bench.later(599);
    assert!(bench.intake.reconcile(&bench.project).await.problem.is_some());
    assert_eq!(bench.hub.calls(), []);
    bench.later(1);
    bench.look().await;
}

#[tokio::test]
async fn trouble_makes_looks_rarer_up_to_five_minutes() {
    let bench = Bench::start().await;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        bench.hub.next_goes_wrong("GET", "/issues", Fault::Refuse(500, vec![], "oops"));
        let looked = bench.intake.reconcile(&bench.project).await;
        pauses.push(looked.next.since(bench.clock.now()).as_secs());
    }
    assert!(pauses[0] < 70 && pauses[2] > 200, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= 330), "{pauses:?}");
    let well = bench.look().await;
    assert!(well.next.since(bench.clock.now()).as_secs() <= 33);
}

#[tokio::test]
async fn a_login_that_was_renewed_is_found() {
    let bench = Bench::start().await;
    bench.look().await;
    bench.hub.revoke("relay-bot");
    let looked = bench.intake.reconcile(&bench.project).await;
    let Some(IntakeError::Forge(error)) = &looked.problem else { panic!("{looked:?}") };
    assert_eq!(error.problem(), ForgeProblem::Unauthorized);
    bench.hub.person("relay-bot");
    bench.look().await;
}

#[tokio::test]
async fn the_poll_looks_by_itself_and_stops_when_told() {
    let bench = Arc::new(Bench::start().await);
    let issue = bench.shop.issue("mona", "Add a total", "");
    let (stop, nudge) = (CancellationToken::new(), Arc::new(Notify::new()));
    let (tell, mut told) = mpsc::unbounded_channel();
    let poll = tokio::spawn({
        let (bench, stop, nudge) = (bench.clone(), stop.clone(), nudge.clone());
        async move {
            let on_look = move |looked: &Reconciled| {
                let _ = tell.send(looked.added.len());
            };
            bench.intake.poll(&stop, &nudge, &|_| true, &on_look).await;
        }
    });
    assert_eq!(told.recv().await, Some(0), "the first look is at once");
    bench.shop.label(issue, "agent:claude", "mona");
    // The clock moves when the poll sleeps, and only then.
    while bench.clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    bench.later(34);
    assert_eq!(told.recv().await, Some(1));
    assert_eq!(bench.state("acme/shop#1").await, TaskState::Queued);

    let other = bench.hub.repo("acme/other");
    other.may("relay-bot", "write");
    let mut project = bench.project.clone();
    project.slug = other.name();
    bench.queue.link(project).await.unwrap();
    nudge.notify_one();
    assert_eq!(told.recv().await, Some(0), "a repository that was just linked is looked at");
    stop.cancel();
    poll.await.unwrap();
}
