//! What a day may cost, and what preferences say of a run.

use std::sync::Arc;

use relay::model::{
    FaultPoint, Faults, LaneName, LeaseRef, Passage, Preference, PreferenceKey, RepoName,
    RunPreferences, Scope, StopReason, TaskId, Timestamp, Usage, WaitReason,
};
use relay::queue::{NewTask, Queue, QueueError, RunEnd, Store};

use super::bench::{Bench, Hand, ann, github, lane};
use crate::support::clock::CountingIds;

super::on_each_database!(
    a_claim_says_what_the_narrowest_preferences_ask_of_the_run,
    a_budget_that_is_used_up_stops_its_scope_until_the_next_day,
    every_budget_that_covers_a_task_holds_for_it,
    a_cost_that_was_not_reported_is_not_nothing_and_adds_nothing,
    more_money_lets_the_scope_go_on_and_less_stops_it,
    a_budget_of_nothing_stops_its_scope_for_good,
    a_clock_that_was_set_does_not_leave_a_scope_stopped_or_free,
    another_process_holds_to_a_stop_it_did_not_make,
    what_was_spent_before_a_process_died_is_found_by_the_next_sweep,
    values_are_refused_by_name,
    a_cost_that_no_run_can_have_turns_no_budget_back,
);

/// The midnight after the bench's first moment.
const MIDNIGHT: Timestamp = Timestamp(1_700_006_400_000);

fn shop() -> RepoName {
    "acme/shop".parse().expect("a slug")
}

fn project() -> Scope {
    Scope::Project { slug: shop() }
}

async fn prefer(b: &Bench, key: PreferenceKey, scope: Scope, value: &str) {
    let preference = Preference { key, scope, value: value.to_owned() };
    b.queue.prefer(&preference, ann()).await.expect("a preference");
}

async fn budget(b: &Bench, scope: Scope, usd: &str) {
    prefer(b, PreferenceKey::BudgetUsdDay, scope, usd).await;
}

fn end(cost_usd: Option<f64>) -> RunEnd {
    let usage = Usage { cost_usd, output_tokens: Some(1), ..Usage::default() };
    RunEnd { usage: Some(usage), ..RunEnd::bare(StopReason::NoChanges) }
}

/// A task of acme/shop is run and costs so much.
async fn spend(b: &Bench, hand: &Hand, number: u64, cost_usd: Option<f64>) -> LeaseRef {
    let lease = b.running(number, hand).await;
    b.queue.finish(&lease, &hand.worker.id, end(cost_usd)).await.expect("an end");
    lease
}

async fn add(b: &Bench, slug: &str, name: LaneName, number: u64) -> TaskId {
    let wish = NewTask { slug: slug.parse().expect("a slug"), lane: name, ..b.wish(number) };
    b.queue.add(wish).await.expect("a task").task().id.clone()
}

async fn waits(b: &Bench, id: &TaskId) -> Vec<WaitReason> {
    b.queue.waiting(id).await.expect("reasons")
}

/// What was told of budgets.
async fn told(b: &Bench) -> Vec<serde_json::Value> {
    let events = b.queue.events(0, None, 1000).await.expect("events");
    let parked = events.iter().filter(|e| e.kind.as_str() == "task.parked" && e.task.is_none());
    parked.map(|e| e.data.clone()).collect()
}

async fn a_claim_says_what_the_narrowest_preferences_ask_of_the_run(b: Bench) {
    use PreferenceKey as Key;
    let hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    let claimed = b.claim(&hand).await.expect("work");
    assert_eq!(claimed.preferences, RunPreferences::default());
    let claude = Scope::Lane { lane: lane("claude") };
    prefer(&b, Key::LaneModel, Scope::Global, "haiku").await;
    prefer(&b, Key::LaneModel, claude, "sonnet").await;
    prefer(&b, Key::LaneModel, Scope::Lane { lane: lane("codex") }, "other").await;
    prefer(&b, Key::RunMaxMinutes, Scope::Global, "90").await;
    prefer(&b, Key::RunMaxMinutes, project(), "120").await;
    let both = Scope::ProjectLane { slug: shop(), lane: lane("claude") };
    prefer(&b, Key::RunMaxTurns, both.clone(), "7").await;
    prefer(&b, Key::RunMaxTurns, project(), "8").await;
    b.task(2).await;
    let claimant = b.claimant(&hand);
    let asked = RunPreferences {
        model: Some("sonnet".parse().expect("a model")),
        max_minutes: Some(120),
        max_turns: Some(7),
    };
    let claimed = b.queue.claim(&claimant).await.expect("a claim").expect("work");
    assert_eq!(claimed.preferences, asked);
    // Asked again, the same.
    let again = b.queue.claim(&claimant).await.expect("a claim").expect("work");
    assert_eq!(again, claimed);
    b.queue.unprefer(Key::RunMaxTurns, &both, ann()).await.expect("it is gone");
    b.task(3).await;
    assert_eq!(b.claim(&hand).await.expect("work").preferences.max_turns, Some(8));
}

async fn a_budget_that_is_used_up_stops_its_scope_until_the_next_day(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    b.queue.link(github("acme/other")).await.expect("a project");
    budget(&b, project(), "5").await;
    spend(&b, &hand, 1, Some(4.99)).await;
    let id = b.task(3).await;
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
    assert_eq!(told(&b).await, [] as [serde_json::Value; 0]);
    spend(&b, &hand, 3, Some(0.32)).await;
    let id = b.task(4).await;
    let other = add(&b, "acme/other", lane("claude"), 1).await;
    // The bell is told of nothing that the budget stops.
    let needs: Vec<TaskId> =
        b.queue.needs().await.expect("needs").into_iter().map(|need| need.task).collect();
    assert_eq!(needs, std::slice::from_ref(&other));
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    assert_eq!(lease.task, other);
    b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    assert_eq!(b.claim(&hand).await, None);
    let reason = WaitReason::Budget {
        scope: project(),
        usd_day: "5".parse().expect("an amount"),
        spent_usd: "5.31".parse().expect("an amount"),
        until: Some(MIDNIGHT),
    };
    assert_eq!(waits(&b, &id).await, [reason]);
    // Also where a person asks, and also asked a hundred times: it is told once.
    for _ in 0..3 {
        b.queue.sweep().await.expect("a sweep");
    }
    let [data] = &told(&b).await[..] else { panic!("told {:?}", told(&b).await) };
    assert_eq!(data["why"], "budget");
    assert_eq!((&data["usd_day"], &data["spent_usd"]), (&"5.00".into(), &"5.31".into()));
    assert_eq!(data["until"], MIDNIGHT.0);
    assert_eq!(b.queue.next_timer().await.expect("a timer"), Some(MIDNIGHT));
    // The last moment of the day, and the first of the next.
    b.clock.step((MIDNIGHT.0 - b.now().0) / 1000 - 1);
    assert_eq!(b.claim(&hand).await, None);
    b.advance(1);
    assert!(b.queue.sweep().await.expect("a sweep").budgets, "the bell is not told of the day");
    assert!(!b.queue.sweep().await.expect("a sweep").budgets);
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
    assert_eq!(b.queue.needs().await.expect("needs").len(), 1);
    assert_eq!(b.claim(&hand).await.expect("work").task.id, id);
    assert_eq!(told(&b).await.len(), 1);
}

async fn every_budget_that_covers_a_task_holds_for_it(b: Bench) {
    let hand = b.worker("desk", &["claude", "codex"]).await;
    b.queue.link(github("acme/other")).await.expect("a project");
    // A narrower budget does not set a wider one aside: each is a limit on all it covers.
    budget(&b, Scope::Global, "3").await;
    budget(&b, project(), "50").await;
    budget(&b, Scope::Lane { lane: lane("claude") }, "2").await;
    budget(&b, Scope::ProjectLane { slug: shop(), lane: lane("claude") }, "1").await;
    spend(&b, &hand, 1, Some(1.0)).await;
    let scopes = async |id: &TaskId| -> Vec<Scope> {
        let scope = |reason| match reason {
            WaitReason::Budget { scope, .. } => Some(scope),
            _ => None,
        };
        waits(&b, id).await.into_iter().filter_map(scope).collect()
    };
    let id = b.task(2).await;
    assert_eq!(
        scopes(&id).await,
        [Scope::ProjectLane { slug: shop(), lane: lane("claude") }],
        "only the narrowest is used up"
    );
    let other = add(&b, "acme/other", lane("claude"), 1).await;
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    assert_eq!(lease.task, other);
    b.queue.finish(&lease, &hand.worker.id, end(Some(1.5))).await.expect("an end");
    // The lane's is used up by both projects together; the other lane goes on.
    assert!(scopes(&id).await.contains(&Scope::Lane { lane: lane("claude") }));
    let codex = add(&b, "acme/shop", lane("codex"), 3).await;
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    assert_eq!(lease.task, codex);
    b.queue.finish(&lease, &hand.worker.id, end(Some(0.5))).await.expect("an end");
    let last = add(&b, "acme/other", lane("codex"), 4).await;
    assert_eq!(scopes(&last).await, [Scope::Global], "all of them spent three dollars");
    assert_eq!(b.claim(&hand).await, None);
    assert_eq!(told(&b).await.len(), 3);
}

async fn a_cost_that_was_not_reported_is_not_nothing_and_adds_nothing(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    budget(&b, Scope::Global, "0.01").await;
    let lease = spend(&b, &hand, 1, None).await;
    let runs = b.queue.runs(&lease.task).await.expect("runs");
    assert_eq!(runs[0].usage.as_ref().map(|usage| usage.cost_usd), Some(None));
    let id = b.task(2).await;
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
    spend(&b, &hand, 2, Some(0.0)).await;
    b.task(3).await;
    assert!(b.claim(&hand).await.is_some());
}

async fn more_money_lets_the_scope_go_on_and_less_stops_it(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    spend(&b, &hand, 1, Some(2.0)).await;
    let id = b.task(2).await;
    // What was spent before there was a budget counts as well.
    budget(&b, project(), "2").await;
    assert_eq!(b.claim(&hand).await, None);
    budget(&b, project(), "2.01").await;
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
    budget(&b, project(), "1.50").await;
    assert!(matches!(waits(&b, &id).await[..], [WaitReason::Budget { .. }]));
    b.queue.unprefer(PreferenceKey::BudgetUsdDay, &project(), ann()).await.expect("it is gone");
    assert_eq!(b.claim(&hand).await.expect("work").task.id, id);
    assert_eq!(b.queue.next_timer().await.expect("a timer"), Some(b.now() + relay::model::LEASE));
}

async fn a_budget_of_nothing_stops_its_scope_for_good(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    budget(&b, Scope::Lane { lane: lane("claude") }, "0").await;
    for _ in 0..3 {
        let why = waits(&b, &id).await;
        assert!(matches!(why[..], [WaitReason::Budget { until: None, .. }]), "{why:?}");
        assert_eq!(b.claim(&hand).await, None);
        assert_eq!(b.queue.next_timer().await.expect("a timer"), None);
        b.advance(24 * 3600);
        b.queue.sweep().await.expect("a sweep");
    }
    assert_eq!(told(&b).await.len(), 1, "once, not once a day");
}

async fn a_clock_that_was_set_does_not_leave_a_scope_stopped_or_free(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    budget(&b, project(), "1").await;
    spend(&b, &hand, 1, Some(1.0)).await;
    let id = b.task(2).await;
    assert_eq!(b.claim(&hand).await, None);
    // Three days back: nothing was spent on that day.
    b.clock.step(-3 * 24 * 3600);
    b.queue.sweep().await.expect("a sweep");
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
    // And forward again: what was spent on this one is known.
    b.clock.step(3 * 24 * 3600);
    b.queue.sweep().await.expect("a sweep");
    assert!(matches!(waits(&b, &id).await[..], [WaitReason::Budget { .. }]));
}

async fn another_process_holds_to_a_stop_it_did_not_make(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let other = b.another_process().await;
    b.task(9).await;
    budget(&b, project(), "1").await;
    let lease = b.claim(&hand).await.expect("work").lease.reference();
    other.finish(&lease, &hand.worker.id, end(Some(1.0))).await.expect("an end");
    b.task(2).await;
    assert_eq!(b.claim(&hand).await, None);
    assert_eq!(other.claim(&b.claimant(&hand)).await.expect("a claim"), None);
    b.clock.step((MIDNIGHT.0 - b.now().0) / 1000);
    assert!(b.claim(&hand).await.is_some(), "the day is over, whoever notes it");
}

async fn what_was_spent_before_a_process_died_is_found_by_the_next_sweep(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    // As after a death between the run's end and the look at the budgets: there is no stop, and
    // the day's costs are over the budget.
    budget(&b, project(), "1").await;
    let lease = b.running(1, &hand).await;
    let store = Store::open(&b.url).await.expect("a store");
    let (clock, ids) = (Arc::new(b.clock.clone()), Arc::new(CountingIds::new(8)));
    let dying = Queue::with_faults(store, clock, ids, Arc::new(Dies));
    let worker = hand.worker.id.clone();
    let ended = tokio::spawn(async move { dying.finish(&lease, &worker, end(Some(1.0))).await });
    assert!(ended.await.is_err_and(|error| error.is_panic()), "it lived");
    let id = b.task(2).await;
    assert_eq!(waits(&b, &id).await, [WaitReason::Busy]);
    assert!(b.queue.sweep().await.expect("a sweep").budgets);
    assert_eq!(b.claim(&hand).await, None);
    assert_eq!(told(&b).await.len(), 1);
}

/// A process that ends before it writes what a budget has come to.
#[derive(Debug)]
struct Dies;

impl Faults for Dies {
    fn at(&self, point: FaultPoint) {
        let fatal = FaultPoint { passage: Passage::QueueBudgets, after: false };
        assert_ne!(point, fatal, "the process ends here");
    }
}

async fn values_are_refused_by_name(b: Bench) {
    for (key, value, named) in [
        (PreferenceKey::BudgetUsdDay, "1e3", "budget.usd_day: `1e3` is not an amount"),
        (PreferenceKey::BudgetUsdDay, "-1", "budget.usd_day: `-1` is not"),
        (PreferenceKey::LaneModel, "--flag", "lane.model: `--flag` is not a model's name"),
        (PreferenceKey::RunMaxMinutes, "0", "run.max_minutes: `0` is not a number of minutes"),
        (PreferenceKey::RunMaxTurns, "many", "run.max_turns: `many` is not a number of turns"),
        (PreferenceKey::PushWorkflows, "yes", "push.workflows: `yes` is not one of"),
    ] {
        let preference = Preference { key, scope: Scope::Global, value: value.to_owned() };
        let refused = b.queue.prefer(&preference, ann()).await.expect_err("it was taken");
        assert!(matches!(refused, QueueError::Invalid(_)));
        assert!(refused.to_string().starts_with(named), "{refused}");
    }
    assert_eq!(b.queue.preferences().await.expect("preferences"), []);
}

async fn a_cost_that_no_run_can_have_turns_no_budget_back(b: Bench) {
    budget(&b, Scope::Global, "1").await;
    let hand = b.worker("desk", &["claude"]).await;
    let lease = b.running(1, &hand).await;
    for usd in [-1e6, -0.01, 10_000.01, 1e308, f64::INFINITY, f64::NAN] {
        let refused = b.queue.finish(&lease, &hand.worker.id, end(Some(usd))).await;
        assert!(matches!(refused, Err(QueueError::Invalid(_))), "{usd}: {refused:?}");
    }
    let many = Usage { output_tokens: Some(u64::MAX), ..Usage::default() };
    let many = RunEnd { usage: Some(many), ..RunEnd::bare(StopReason::NoChanges) };
    assert!(b.queue.finish(&lease, &hand.worker.id, many).await.is_err());
    // The lease lives, and the run can say what it did cost.
    b.queue.finish(&lease, &hand.worker.id, end(Some(0.6))).await.expect("an end");
    spend(&b, &hand, 2, Some(0.6)).await;
    add(&b, "acme/shop", lane("claude"), 3).await;
    assert!(b.claim(&hand).await.is_none(), "the budget is used up");
}
