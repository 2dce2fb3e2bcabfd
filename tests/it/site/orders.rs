//! Workers that are told to pause, to go on or to end: they hear of it at the bell at once, and no
//! bell rings for what they may not take.

use std::sync::Arc;

use relay::api::{Code, CreateToken, Doorbell, DoorbellQuery, HeartbeatRequest, OrderRequest};
use relay::client::{Client, ClientError};
use relay::model::{LaneName, Order, Orders, TokenScope, Worker};
use relay::system::SystemIds;
use relay::work::StopSignal;
use relay::work::heartbeat::{Heartbeat, Held};

use super::fixture::{Home, TestWorker, instance};
use super::tokens::{code, request, serving, stranger, worker};
use crate::support::PATIENCE;

fn order(worker: &str, order: Order, lanes: &[&str]) -> OrderRequest {
    OrderRequest {
        worker: worker.parse().expect("a name"),
        order,
        lanes: lanes.iter().map(|lane| lane.parse().expect("a lane")).collect(),
        by: "ann".to_owned(),
    }
}

async fn tell(home: &Home, worker: &str, what: Order, lanes: &[&str]) -> Worker {
    home.client.order(&order(worker, what, lanes)).await.expect("it is told")
}

/// Rings as a worker that listens to what it is told, and knows `told` of it.
fn listening(worker: &TestWorker, told: &str, since: i64, wait: u32) -> DoorbellQuery {
    DoorbellQuery { told: Some(told.to_owned()), ..worker.query(1, since, wait) }
}

fn hold(worker: &TestWorker, told: &str, since: i64) -> tokio::task::JoinHandle<Doorbell> {
    let (client, query) = (worker.client.clone(), listening(worker, told, since, 300));
    tokio::spawn(async move {
        let ring = client.doorbell(&query);
        let told = tokio::time::timeout(PATIENCE, ring).await.expect("it never rang");
        told.expect("an answer")
    })
}

#[tokio::test]
async fn a_held_bell_says_at_once_what_its_worker_was_told_and_no_more_than_once() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let held = hold(&worker, "", 0);
    home.held(1).await;
    tell(&home, "w", Order::Pause, &["claude"]).await;
    let told = held.await.expect("an answer");
    let orders = told.orders.expect("orders");
    assert_eq!(orders.digest(), "claude");
    // It knows now, and what is queued of that lane is nothing to it.
    home.add(&project, "claude").await;
    home.rest().await;
    let queued = worker.client.doorbell(&listening(&worker, "claude", told.version, 0)).await;
    assert_eq!(queued.expect("an answer").queued, 0);
    let held = hold(&worker, "claude", told.version);
    home.held(1).await;
    // Said twice it is no news.
    tell(&home, "w", Order::Pause, &["claude"]).await;
    assert_eq!(home.owner.site().bell.present().len(), 1, "it is held on");
    tell(&home, "w", Order::Resume, &[]).await;
    let told = held.await.expect("an answer");
    assert_eq!(told.orders, Some(Orders::default()));
    assert_eq!(worker.ring(1, told.version, 0).await.queued, 1);
    assert!(worker.claim().await.is_some());
    home.owner.close().await;
}

#[tokio::test]
async fn a_worker_that_knows_less_than_the_site_is_told_at_once_also_after_a_restart() {
    let home = Home::open().await;
    let worker = home.worker("w").await;
    tell(&home, "w", Order::Pause, &[]).await;
    tell(&home, "w", Order::Drain, &[]).await;
    let home = home.restart().await;
    let worker = TestWorker { client: home.client.clone(), ..worker };
    // Of all the time there is it takes none.
    let told = worker.client.doorbell(&listening(&worker, "", 0, 300)).await.expect("an answer");
    assert_eq!(told.orders.expect("orders").digest(), "!,*");
    // A worker of an earlier version does not listen, and is not rung at each question.
    let held = worker.hold(1, told.version);
    home.held(1).await;
    tell(&home, "w", Order::Pause, &["claude"]).await;
    held.await.expect("once, where something changes");
    home.owner.close().await;
}

#[tokio::test]
async fn a_heartbeat_says_it_to_a_worker_whose_bell_is_not_held() {
    let home = Home::open().await;
    let worker = home.worker("w").await;
    let beat = async || {
        let request = HeartbeatRequest {
            instance_id: worker.request.instance_id.clone(),
            offline: false,
            interval_ms: None,
            leases: Vec::new(),
        };
        home.client.heartbeat(&worker.worker.id, &request).await.expect("an answer").orders
    };
    assert_eq!(beat().await, Some(Orders::default()));
    let orders = tell(&home, "w", Order::Drain, &[]).await.orders;
    assert_eq!(beat().await, Some(orders));
    home.owner.close().await;
}

#[tokio::test]
async fn the_heartbeat_of_a_running_job_brings_it_to_the_workers_loop() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    home.add(&project, "claude").await;
    let worker = home.worker("w").await;
    let lease = worker.claim().await.expect("the task").lease;
    let orders = tell(&home, "w", Order::Pause, &[]).await.orders;
    let heartbeat = Heartbeat {
        client: home.client.clone(),
        worker: worker.worker.id.clone(),
        instance: worker.request.instance_id.clone(),
        interval: std::time::Duration::ZERO,
    };
    let (held, stop) = (Held::default(), StopSignal::default());
    let _job = held.hold(lease.reference(), stop.clone());
    let mut told = held.orders();
    let (clock, ids) = (Arc::new(home.clock.clone()), Arc::new(SystemIds));
    let beating = tokio::spawn(heartbeat.run(held.clone(), clock, ids));
    told.changed().await.expect("it is told");
    assert_eq!(*told.borrow(), orders);
    assert_eq!(stop.reason(), None, "what runs goes on");
    beating.abort();
    home.owner.close().await;
}

#[tokio::test]
async fn what_a_paused_worker_was_woken_for_goes_to_the_next_at_once() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let (first, second) = (home.worker("first").await, home.worker("second").await);
    let one = hold(&first, "", 0);
    home.held(1).await;
    let other = hold(&second, "", 0);
    home.held(2).await;
    home.add(&project, "claude").await;
    assert_eq!(one.await.expect("an answer").queued, 1, "it waits longest");
    // Within the second that it has to claim.
    tell(&home, "first", Order::Pause, &["claude"]).await;
    assert_eq!(other.await.expect("an answer").queued, 1);
    assert_eq!(first.claim().await, None, "however it asks");
    assert!(second.claim().await.is_some());
    home.owner.close().await;
}

#[tokio::test]
async fn the_bell_does_not_ring_for_a_repository_that_is_left_out() {
    let home = Home::open().await;
    let (shop, attic) = (home.link("shop").await, home.link("attic").await);
    let worker = home.worker("w").await;
    let leaving = |except: &str, since| DoorbellQuery {
        except: Some(except.to_owned()),
        ..worker.query(1, since, 0)
    };
    home.add(&shop, "claude").await;
    home.rest().await;
    let ring = async |except: &str| {
        home.client.doorbell(&leaving(except, 0)).await.expect("an answer").queued
    };
    assert_eq!(ring("local/shop").await, 0);
    assert_eq!(ring("local/attic,local/x").await, 1);
    // Its claim came back empty for that alone, and is no refusal of the task.
    let claim = relay::api::ClaimRequest {
        worker_id: worker.worker.id.clone(),
        instance_id: worker.request.instance_id.clone(),
        claim_id: relay::model::Ids::uuid(&relay::system::SystemIds).parse().expect("an id"),
        lanes: None,
        labels: None,
        except: vec!["local/shop".parse().expect("a slug")],
    };
    assert_eq!(home.client.claim(&claim).await.expect("an answer").claim, None);
    assert_eq!(ring("").await, 1);
    let held = {
        let (client, query) = (home.client.clone(), leaving("local/shop", 0));
        let query = DoorbellQuery { wait: 300, ..query };
        tokio::spawn(async move { client.doorbell(&query).await.expect("an answer") })
    };
    home.held(1).await;
    home.add(&attic, "claude").await;
    assert_eq!(held.await.expect("an answer").queued, 1);
    let bad = home.client.doorbell(&leaving("no slug", 0)).await;
    assert_eq!(code(bad), Code::BadRequest);
    home.owner.close().await;
}

#[tokio::test]
async fn a_worker_may_be_told_by_its_own_machine_and_by_an_admin_alone() {
    let home = serving().await;
    let (_, own) = worker(&home, "own").await;
    let (_, thief) = worker(&home, "thief").await;
    let bearing = async |scopes: &[TokenScope]| -> Client {
        let request = CreateToken { name: "x".parse().expect("a name"), ..request(scopes, None) };
        let made = home.client.create_token(&request).await.expect("a token");
        stranger(&home).with_token(made.secret.secret())
    };
    for what in [Order::Pause, Order::Resume, Order::Drain] {
        let refused = thief.client.order(&order("own", what, &[])).await;
        let Err(ClientError::Refused(problem)) = refused else { panic!("{refused:?}") };
        assert_eq!(problem.code, Code::Forbidden);
        assert!(problem.hint.is_some_and(|hint| hint.contains("own")));
        // Nor does it learn which names there are.
        assert_eq!(code(thief.client.order(&order("nobody", what, &[])).await), Code::Forbidden);
    }
    let tasks = bearing(&[TokenScope::FeedRead, TokenScope::TasksWrite]).await;
    assert_eq!(code(tasks.order(&order("own", Order::Pause, &[])).await), Code::Forbidden);
    let nobody = stranger(&home).order(&order("own", Order::Pause, &[])).await;
    assert_eq!(code(nobody), Code::Unauthorized);
    assert!(home.owner.site().queue.orders().await.expect("orders").is_empty());

    let told = own.client.order(&order("own", Order::Pause, &["claude"])).await.expect("its own");
    assert_eq!(told.orders.digest(), "claude");
    let admin = bearing(&[TokenScope::Admin]).await;
    let told = admin.order(&order("own", Order::Pause, &[])).await.expect("an admin");
    assert_eq!(told.orders.digest(), "*,claude");
    home.owner.close().await;
}

#[tokio::test]
async fn what_is_told_wrongly_is_refused_with_what_helps() {
    let home = Home::open().await;
    home.worker("w").await;
    let refused = async |request: OrderRequest| {
        let Err(ClientError::Refused(problem)) = home.client.order(&request).await else {
            panic!("it was taken: {request:?}")
        };
        (problem.code, problem.hint.unwrap_or_default())
    };
    let (unknown, hint) = refused(order("attic", Order::Pause, &[])).await;
    assert!(unknown == Code::NotFound && hint.contains("relay work status"), "{hint}");
    let (unserved, hint) = refused(order("w", Order::Pause, &["codex"])).await;
    assert!(unserved == Code::NotFound && hint == "w serves claude, process:edit", "{hint}");
    assert_eq!(refused(order("w", Order::Drain, &["claude"])).await.0, Code::BadRequest);
    let nobody = OrderRequest { by: String::new(), ..order("w", Order::Pause, &[]) };
    assert_eq!(refused(nobody).await.0, Code::BadRequest);
    let lane: LaneName = "claude".parse().expect("a lane");
    let many = OrderRequest { lanes: vec![lane; 101], ..order("w", Order::Pause, &[]) };
    assert_eq!(refused(many).await.0, Code::BadRequest);
    home.owner.close().await;
}

#[tokio::test]
async fn a_new_start_of_a_paused_worker_is_told_when_it_registers() {
    let home = Home::open().await;
    home.worker("w").await;
    tell(&home, "w", Order::Pause, &[]).await;
    let again = TestWorker::register(home.client.clone(), "w", instance("w", 2)).await;
    assert_eq!(again.worker.orders.digest(), "*");
    let listed = home.client.workers().await.expect("workers");
    assert_eq!(listed[0].orders, again.worker.orders);
    home.owner.close().await;
}
