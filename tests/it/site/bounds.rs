//! How much one worker may say of itself.

use relay::api::{ClaimRequest, Code, HeartbeatRequest, RegisterRequest};
use relay::model::{Epoch, Label, LeaseRef};
use relay::queue::bounds::{LEASES_MOST, LISTED_MOST};

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
