//! Who gets which task.

use relay::model::{Actor, Epoch, Preference, PreferenceKey, Scope, TaskState, WaitReason};
use relay::queue::{NewTask, NewToken, QueueError};

use super::bench::{Bench, ann, github, label, lane, local, new_worker};

super::on_each_database!(
    the_oldest_matching_lane_is_claimed,
    a_claim_asked_again_gives_the_same_lease,
    a_spent_claim_id_gets_nothing,
    two_claims_at_once_take_two_tasks,
    labels_are_those_of_the_narrowest_preference_at_the_time_of_the_claim,
    a_worker_without_the_forges_login_is_not_given_its_tasks,
    a_local_project_is_worked_on_by_its_own_machine,
    lanes_and_labels_of_the_claim_replace_the_registered_ones,
    an_old_instance_cannot_claim,
    a_worker_whose_token_was_revoked_elsewhere_is_given_nothing,
    a_claim_gives_what_a_job_needs,
    a_claim_unparks_and_sweeps_first,
    a_claim_of_another_process_finds_what_this_one_left,
    a_long_queue_of_another_lane_is_not_in_the_way,
);

async fn the_oldest_matching_lane_is_claimed(b: Bench) {
    let hand = b.worker("desk", &["claude", "codex"]).await;
    b.queue.add(NewTask { lane: lane("grok"), ..b.wish(1) }).await.expect("a task");
    b.advance(1);
    b.queue.add(NewTask { lane: lane("codex"), ..b.wish(2) }).await.expect("a task");
    b.advance(1);
    b.task(3).await;
    let mut order = Vec::new();
    while let Some(claimed) = b.claim(&hand).await {
        order.push(claimed.task.id.to_string());
    }
    assert_eq!(order, ["acme/shop#2", "acme/shop#3"]);
}

async fn a_claim_asked_again_gives_the_same_lease(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    b.task(2).await;
    let claimant = b.claimant(&hand);
    let first = b.queue.claim(&claimant).await.expect("a claim").expect("work");
    b.advance(60);
    let again = b.queue.claim(&claimant).await.expect("a claim").expect("work");
    assert_eq!(again, first);
    assert_eq!(b.told(&first.task.id).await, ["task.queued", "run.claimed"]);
    assert_eq!(b.queue.runs(&first.task.id).await.expect("runs").len(), 1);
}

async fn a_spent_claim_id_gets_nothing(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    b.task(1).await;
    b.task(2).await;
    let claimant = b.claimant(&hand);
    let lease = b.queue.claim(&claimant).await.expect("a claim").expect("work").lease.reference();
    b.finish(&lease, &hand, relay::model::StopReason::NoChanges).await.expect("an end");
    assert_eq!(b.queue.claim(&claimant).await.expect("a claim"), None);
    assert!(b.claim(&hand).await.is_some());
}

async fn two_claims_at_once_take_two_tasks(b: Bench) {
    let mut hands = Vec::new();
    for name in ["a", "b", "c", "d"] {
        hands.push(b.worker(name, &["claude"]).await);
    }
    for number in 1..=3 {
        b.task(number).await;
    }
    let claimed = futures_util::future::join_all(hands.iter().map(|hand| b.claim(hand))).await;
    let mut ids: Vec<_> = claimed.into_iter().flatten().map(|c| c.task.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

async fn labels_are_those_of_the_narrowest_preference_at_the_time_of_the_claim(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let id = b.task(1).await;
    let set = |scope: Scope, value: &str| Preference {
        key: PreferenceKey::LaneLabels,
        scope,
        value: value.to_owned(),
    };
    let slug: relay::model::RepoName = "acme/shop".parse().expect("a slug");
    let prefer = async |scope: Scope, value: &str| {
        b.queue.prefer(&set(scope, value), ann()).await.expect("a preference");
    };
    prefer(Scope::Global, "xcode").await;
    assert_eq!(b.claim(&hand).await, None);
    let missing = vec![label("xcode")];
    assert_eq!(b.queue.waiting(&id).await.expect("reasons"), [WaitReason::NoLabel { missing }]);
    // Narrower, and met: the wider one no longer counts.
    prefer(Scope::Project { slug: slug.clone() }, " gpu ,").await;
    assert_eq!(b.queue.task(&id).await.expect("a task").required_labels, [label("gpu")]);
    // Narrower still, and not met: both of its labels are asked for.
    let both = Scope::ProjectLane { slug: slug.clone(), lane: lane("claude") };
    prefer(both.clone(), "gpu,xcode").await;
    assert_eq!(b.claim(&hand).await, None);
    // Another lane's preference is not this task's.
    prefer(Scope::Lane { lane: lane("codex") }, "nowhere").await;
    b.queue.unprefer(PreferenceKey::LaneLabels, &both, ann()).await.expect("it is gone");
    assert_eq!(b.claim(&hand).await.expect("work").task.required_labels, [label("gpu")]);
    // An empty value asks for nothing where a wider scope asks for something.
    prefer(Scope::Project { slug }, "").await;
    b.task(2).await;
    let claimed = b.claim(&hand).await.expect("work");
    assert_eq!(claimed.task.required_labels, []);
    let bad = b.queue.prefer(&set(Scope::Global, "a b"), ann()).await;
    assert!(matches!(bad, Err(QueueError::Invalid(_))), "{bad:?}");
    let widest = b.queue.preferences().await.expect("preferences");
    assert_eq!(widest.first().map(|p| &p.scope), Some(&Scope::Global));
    let again = b.queue.unprefer(PreferenceKey::LaneLabels, &both, Actor::site()).await;
    assert!(matches!(again, Err(QueueError::NotFound { .. })), "{again:?}");
}

async fn a_worker_without_the_forges_login_is_not_given_its_tasks(b: Bench) {
    let enterprise =
        relay::model::Project { host: "git.acme.example".to_owned(), ..github("acme/inner") };
    b.queue.link(enterprise).await.expect("a project");
    let hand = b.worker("desk", &["claude"]).await;
    let wish = NewTask { slug: "acme/inner".parse().expect("a slug"), ..b.wish(1) };
    let id = b.queue.add(wish).await.expect("a task").task().id.clone();
    assert_eq!(b.claim(&hand).await, None);
    assert_eq!(
        b.queue.waiting(&id).await.expect("reasons"),
        [WaitReason::NoForgeLogin { forge: "git.acme.example".to_owned() }]
    );
    let mut new = new_worker("other", &["claude"]);
    new.forges.push("git.acme.example".to_owned());
    let instance = new.instance.clone();
    let worker = b.queue.register(new).await.expect("a worker").worker;
    let other = super::bench::Hand { worker, instance };
    assert_eq!(b.queue.waiting(&id).await.expect("reasons"), [WaitReason::Busy]);
    assert_eq!(b.claim(&other).await.expect("work").task.id, id);
}

async fn a_local_project_is_worked_on_by_its_own_machine(b: Bench) {
    b.queue.link(local("local/far", "attic")).await.expect("a project");
    let mut new = new_worker("desk", &["claude"]);
    // A local repository needs no login.
    new.forges.clear();
    let instance = new.instance.clone();
    let worker = b.queue.register(new).await.expect("a worker").worker;
    let hand = super::bench::Hand { worker, instance };
    for slug in ["local/far", "local/scratch"] {
        let wish = NewTask { slug: slug.parse().expect("a slug"), number: None, ..b.wish(1) };
        b.queue.add(wish).await.expect("a task");
        b.advance(1);
    }
    let far = "local/far#1".parse().expect("an id");
    assert_eq!(b.claim(&hand).await.expect("work").task.id.to_string(), "local/scratch#1");
    assert_eq!(b.claim(&hand).await, None);
    assert_eq!(
        b.queue.waiting(&far).await.expect("reasons"),
        [WaitReason::OtherHost { host: "attic".to_owned() }]
    );
}

async fn lanes_and_labels_of_the_claim_replace_the_registered_ones(b: Bench) {
    let hand = b.worker("desk", &["claude", "codex"]).await;
    b.task(1).await;
    let busy = relay::queue::Claimant { lanes: Some(vec![lane("codex")]), ..b.claimant(&hand) };
    assert_eq!(b.queue.claim(&busy).await.expect("a claim"), None);
    let none = relay::queue::Claimant { lanes: Some(Vec::new()), ..b.claimant(&hand) };
    assert_eq!(b.queue.claim(&none).await.expect("a claim"), None);
    let preference = Preference {
        key: PreferenceKey::LaneLabels,
        scope: Scope::Global,
        value: "gpu".to_owned(),
    };
    b.queue.prefer(&preference, ann()).await.expect("a preference");
    let bare = relay::queue::Claimant { labels: Some(Vec::new()), ..b.claimant(&hand) };
    assert_eq!(b.queue.claim(&bare).await.expect("a claim"), None);
    assert!(b.claim(&hand).await.is_some());
}

async fn an_old_instance_cannot_claim(b: Bench) {
    let old = b.worker("desk", &["claude"]).await;
    let new = b.worker("desk", &["claude"]).await;
    assert_eq!(old.worker.id, new.worker.id);
    b.task(1).await;
    for lanes in [None, Some(Vec::new())] {
        let claimant = relay::queue::Claimant { lanes, ..b.claimant(&old) };
        let answer = b.queue.claim(&claimant).await;
        assert!(matches!(answer, Err(QueueError::WorkerUnknown(_))), "{answer:?}");
    }
    assert!(b.claim(&new).await.is_some());
}

/// The site that took the claim may not have heard of it yet.
async fn a_worker_whose_token_was_revoked_elsewhere_is_given_nothing(b: Bench) {
    let (hand, other) = (b.worker("desk", &["claude"]).await, b.worker("lap", &["claude"]).await);
    let new = NewToken::of_worker(&hand.worker.name).expect("a token");
    let (known, _) = b.queue.create_token(new, Actor::site()).await.expect("a token");
    let id = known.token.id;
    b.queue.bind_worker(&hand.worker.id, Some(&id)).await.expect("it is bound");
    b.task(1).await;
    b.task(2).await;
    assert!(b.claim(&hand).await.is_some(), "while it is good");
    b.queue.revoke_token(&id, &Actor::site()).await.expect("it is revoked");
    let given = b.queue.claim(&b.claimant(&hand)).await;
    assert!(matches!(given, Ok(None) | Err(QueueError::WorkerUnknown(_))), "{given:?}");
    assert!(b.claim(&other).await.is_some());
}

async fn a_claim_gives_what_a_job_needs(b: Bench) {
    let hand = b.worker("desk", &["process:edit"]).await;
    let wish = NewTask { lane: lane("process:edit"), ..b.wish(12) };
    b.queue.add(wish).await.expect("a task");
    let claimed = b.claim(&hand).await.expect("work");
    assert_eq!(claimed.branch, "relay/process-edit-12");
    assert_eq!(claimed.project, github("acme/shop"));
    assert_eq!(claimed.lease.epoch, Epoch(1));
    assert_eq!(claimed.lease.expires_at, b.now() + relay::model::LEASE);
    assert_eq!(claimed.task.state, TaskState::Claimed);
    assert_eq!(claimed.task.worker, Some(hand.worker.id.clone()));
    assert_eq!(claimed.effects, []);
    let run = b.queue.runs(&claimed.task.id).await.expect("runs").remove(0);
    assert_eq!((run.id, run.epoch), (claimed.run, Epoch(1)));
    let worker = b.queue.workers().await.expect("workers").remove(0);
    assert_eq!(worker.leases, [claimed.lease.reference()]);
}

async fn a_claim_unparks_and_sweeps_first(b: Bench) {
    let (one, two) = (b.worker("one", &["claude"]).await, b.worker("two", &["claude"]).await);
    let parked = b.running(1, &one).await;
    b.finish(&parked, &one, relay::model::StopReason::Crashed).await.expect("an end");
    let expiring = b.running(2, &one).await;
    assert_eq!(b.claim(&two).await, None);
    b.advance(10);
    assert_eq!(b.claim(&two).await.expect("unparked").task.id, parked.task);
    b.advance(30 * 60 - 10);
    assert_eq!(b.claim(&two).await.expect("swept").task.id, expiring.task);
}

async fn a_claim_of_another_process_finds_what_this_one_left(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    let other = b.another_process().await;
    assert_eq!(other.claim(&b.claimant(&hand)).await.expect("a claim"), None);
    let lease = b.running(1, &hand).await;
    b.advance(30 * 60);
    let claimed = other.claim(&b.claimant(&hand)).await.expect("a claim").expect("work");
    assert_eq!(claimed.lease.epoch.0, lease.epoch.0 + 1);
    other.close().await;
}

async fn a_long_queue_of_another_lane_is_not_in_the_way(b: Bench) {
    let hand = b.worker("desk", &["claude"]).await;
    for number in 1..=20 {
        let wish = NewTask { lane: lane("codex"), ..b.wish(number) };
        b.queue.add(wish).await.expect("a task");
    }
    let id = b.task(21).await;
    let needs = b.queue.needs().await.expect("needs");
    assert_eq!(needs.len(), 21);
    assert_eq!(needs[0].lane, lane("codex"));
    assert_eq!(b.claim(&hand).await.expect("work").task.id, id);
}
