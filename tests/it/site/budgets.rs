//! A day's budget at the bell: nobody is woken while it is used up, and the new day rings.

use std::time::Duration;

use relay::api::PreferRequest;
use relay::model::{PreferenceKey, Scope, StopReason, Timestamp, Usage, WaitReason};

use super::fixture::Home;
use crate::support::clock::ManualClock;

/// A midnight.
const MIDNIGHT: Timestamp = Timestamp(1_700_006_400_000);

#[tokio::test]
async fn the_bell_is_silent_while_a_budget_is_used_up_and_rings_at_midnight() {
    let folder = tempfile::tempdir().expect("a folder");
    let evening = MIDNIGHT - Duration::from_secs(100);
    let home = Home::open_in(folder, ManualClock::new(evening)).await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let budget = PreferRequest {
        key: PreferenceKey::BudgetUsdDay,
        scope: Scope::Global,
        value: Some("1".to_owned()),
        by: "ann".to_owned(),
    };
    home.client.prefer(&budget).await.expect("a budget");
    home.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let usage = Some(Usage { cost_usd: Some(1.5), ..Usage::default() });
    let end = relay::api::ReleaseRequest { usage, ..worker.end(&lease, StopReason::NoChanges) };
    home.client.release(&lease.reference(), &end).await.expect("it ends");
    let task = home.add(&project, "claude").await;
    assert_eq!(worker.claim().await, None);
    let held = worker.hold(1, 0);
    home.held(1).await;
    home.clock.advance(Duration::from_secs(99));
    let waiting = home.client.task(&task.id).await.expect("the task").waiting;
    let until = Some(MIDNIGHT);
    assert!(matches!(&waiting[..], [WaitReason::Budget { until: u, .. }] if *u == until));
    assert_eq!(worker.claim().await, None);
    assert!(!held.is_finished(), "it was woken for nothing");
    home.clock.advance(Duration::from_secs(1));
    assert_eq!(held.await.expect("an answer").queued, 1);
    assert_eq!(worker.claim().await.expect("the task").task.id, task.id);
    home.owner.close().await;
}
