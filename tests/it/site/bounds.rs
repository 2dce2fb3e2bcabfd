//! How much one worker may say of itself.

use relay::api::{
    ClaimRequest, Code, CreateTask, HeartbeatRequest, RegisterRequest, ReleaseRequest, StartRequest,
};
use relay::model::{Clock as _, Epoch, Label, LeaseRef, StopReason, Timestamp, Usage};
use relay::queue::bounds::{
    BODY_MOST, INTERVAL_MOST, LEASES_MOST, LISTED_MOST, PARKED_MOST, TITLE_MOST,
};

use super::fixture::{Home, instance};

fn labels(count: usize) -> Vec<Label> {
    (0..count).map(|n| format!("l{n}").parse().expect("a label")).collect()
}

#[tokio::test]
async fn a_worker_that_says_too_much_of_itself_is_refused_and_stores_nothing() {
    let home = Home::open().await;
    let worker = home.worker("w").await;
    let good = worker.request.clone();
    let many = RegisterRequest { labels: labels(LISTED_MOST), ..good.clone() };
    home.client.register(&many).await.expect("as many as it may");
    let before = home.client.workers().await.expect("workers");
    let forges = |forge: &str, n| vec![forge.to_owned(); n];
    for bad in [
        RegisterRequest { labels: labels(LISTED_MOST + 1), ..good.clone() },
        RegisterRequest { labels: labels(40_000), ..good.clone() },
        RegisterRequest { lanes: vec![good.lanes[0].clone(); LISTED_MOST + 1], ..good.clone() },
        RegisterRequest { forges: forges("github.com", LISTED_MOST + 1), ..good.clone() },
        RegisterRequest { forges: forges(&"x".repeat(256), 1), ..good.clone() },
        RegisterRequest { host: "x".repeat(256), ..good.clone() },
        RegisterRequest { host: "a\u{1b}[2Jb".to_owned(), ..good.clone() },
        RegisterRequest { version: "x".repeat(256), ..good.clone() },
    ] {
        let bad = RegisterRequest { instance_id: instance("w", 9).parse().expect("an id"), ..bad };
        let refused = home.client.register(&bad).await.expect_err("too much");
        assert_eq!(refused.code(), Some(Code::BadRequest), "{refused}");
    }
    assert_eq!(home.client.workers().await.expect("workers"), before);

    let claim = ClaimRequest {
        worker_id: worker.worker.id.clone(),
        instance_id: good.instance_id.clone(),
        claim_id: instance("c", 1).parse().expect("an id"),
        lanes: None,
        labels: Some(labels(LISTED_MOST + 1)),
        except: Vec::new(),
    };
    let refused = home.client.claim(&claim).await.expect_err("too many labels");
    assert_eq!(refused.code(), Some(Code::BadRequest));

    let lease = LeaseRef { task: "acme/shop#1".parse().expect("an id"), epoch: Epoch(1) };
    let beat = |count| HeartbeatRequest {
        instance_id: good.instance_id.clone(),
        offline: false,
        interval_ms: None,
        leases: vec![lease.clone(); count],
    };
    let refused = home.client.heartbeat(&worker.worker.id, &beat(LEASES_MOST + 1)).await;
    assert_eq!(refused.expect_err("too many leases").code(), Some(Code::BadRequest));
    home.client.heartbeat(&worker.worker.id, &beat(3)).await.expect("an answer");
    home.owner.close().await;
}

#[tokio::test]
async fn a_title_or_a_text_without_end_is_refused_and_a_list_has_no_texts() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let wish = |title: usize, body: usize| CreateTask {
        slug: project.slug.clone(),
        lane: "claude".parse().expect("a lane"),
        issue: None,
        title: Some("é".repeat(title)),
        body: Some("ü".repeat(body)),
        asked_by: "ann".to_owned(),
    };
    for (title, body) in [(TITLE_MOST + 1, 1), (1, BODY_MOST + 1)] {
        let refused = home.client.create_task(&wish(title, body)).await.expect_err("too long");
        assert_eq!(refused.code(), Some(Code::BadRequest), "{refused}");
    }
    assert_eq!(home.client.tasks(None).await.expect("tasks"), []);
    let made = home.client.create_task(&wish(TITLE_MOST, BODY_MOST)).await.expect("a task");
    let listed = home.client.tasks(None).await.expect("tasks").remove(0);
    assert_eq!((listed.body.as_str(), &listed.title), ("", &made.title));
    let detail = home.client.task(&made.id).await.expect("the task").task;
    assert_eq!(detail.body.chars().count(), BODY_MOST);
    home.owner.close().await;
}

#[tokio::test]
async fn a_worker_makes_no_line_of_a_list_long_and_puts_no_task_away_for_good() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    home.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let start = StartRequest {
        worker_id: worker.worker.id.clone(),
        epoch: lease.epoch,
        branch: "x".repeat(256),
    };
    let refused = home.client.start(&lease.task, &start).await.expect_err("no branch");
    assert_eq!(refused.code(), Some(Code::BadRequest));
    let beat = HeartbeatRequest {
        instance_id: worker.request.instance_id.clone(),
        offline: false,
        interval_ms: Some(u64::MAX),
        leases: vec![lease.reference()],
    };
    home.client.heartbeat(&worker.worker.id, &beat).await.expect("an answer");
    let day = u64::try_from(INTERVAL_MOST.as_millis()).expect("a number");
    let workers = home.client.workers().await.expect("workers");
    assert_eq!(workers[0].interval_ms, Some(day));
    let end = |usd, url: &str| ReleaseRequest {
        usage: Some(Usage { cost_usd: Some(usd), ..Usage::default() }),
        pr_url: Some(url.to_owned()),
        error: Some("x".repeat(100_000)),
        ..worker.end(&lease, StopReason::Quota { until: Timestamp(i64::MAX) })
    };
    for bad in [end(-1.0, "u"), end(1e308, "u"), end(0.5, &"u".repeat(2_001))] {
        let refused = home.client.release(&lease.reference(), &bad).await.expect_err("nonsense");
        assert_eq!(refused.code(), Some(Code::BadRequest), "{refused}");
    }
    let now = home.clock.now();
    let task = home.client.release(&lease.reference(), &end(0.5, "u")).await.expect("an end").task;
    assert_eq!(task.parked_until, Some(now + PARKED_MOST));
    assert_eq!(task.message.map(|line| line.chars().count()), Some(1_000));
    home.owner.close().await;
}
