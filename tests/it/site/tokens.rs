//! Tokens over TCP: what each may, whom it speaks for, and what ends with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use relay::api::{
    Code, CreateToken, EventsQuery, HeartbeatRequest, LogQuery, OpenLocalPull, PreferRequest,
    RecordRequest, StartRequest,
};
use relay::client::{Client, ClientError};
use relay::model::fault::{FaultPoint, Faults};
use relay::model::{
    Effect, LEASE, Passage, PreferenceKey, Scope, Secret, StopReason, TaskState, Token, TokenScope,
};
use relay::site::owner::{OwnerConfig, Role};

use super::fixture::{Home, TestWorker, config, instance};
use crate::support::PATIENCE;
use crate::support::clock::ManualClock;

/// A home that is served on an address of this machine as well.
pub async fn serving() -> Home {
    serving_in(tempfile::tempdir().expect("a folder"), |_| {}).await
}

pub async fn serving_in(folder: tempfile::TempDir, change: impl FnOnce(&mut OwnerConfig)) -> Home {
    let clock = ManualClock::default();
    let mut config = config(folder.path(), Role::Serve, Arc::new(clock.clone()));
    config.listen = Some(relay::site::serve::Listen::on(([127, 0, 0, 1], 0).into()));
    change(&mut config);
    Home::open_with(folder, clock, config).await
}

/// A client over TCP that shows no token.
pub fn stranger(home: &Home) -> Client {
    let addr = home.owner.addr().expect("an address");
    Client::new(format!("http://{addr}").parse().expect("a URL")).expect("a client")
}

async fn token(home: &Home, scopes: &[TokenScope], worker: Option<&str>) -> (Token, Client) {
    let made = home.client.create_token(&request(scopes, worker)).await.expect("a token");
    (made.token, stranger(home).with_token(made.secret.secret()))
}

pub fn request(scopes: &[TokenScope], worker: Option<&str>) -> CreateToken {
    CreateToken {
        name: "one".parse().expect("a name"),
        scopes: scopes.to_vec(),
        worker: worker.map(|name| name.parse().expect("a name")),
        by: "ann".to_owned(),
    }
}

/// A worker over TCP with a token of its own.
pub async fn worker(home: &Home, name: &str) -> (Token, TestWorker) {
    let scopes = [TokenScope::WorkClaim, TokenScope::MemoryRead, TokenScope::FeedRead];
    let (token, client) = token(home, &scopes, Some(name)).await;
    (token, TestWorker::register(client, name, instance(name, 1)).await)
}

pub fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Code {
    answer.expect_err("it was answered").code().expect("the site's own code")
}

#[tokio::test]
async fn over_tcp_nothing_is_answered_without_a_good_token() {
    let home = serving().await;
    let (made, client) = token(&home, &[TokenScope::Admin], None).await;
    assert!(client.tasks(None).await.is_ok());
    assert_eq!(code(stranger(&home).tasks(None).await), Code::Unauthorized);
    for other in ["relay_x", "", "relay_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        let client = stranger(&home).with_token(Secret::new(other));
        assert_eq!(code(client.tasks(None).await), Code::Unauthorized, "{other}");
    }
    // The id is shown in lists; it opens nothing.
    let by_id = stranger(&home).with_token(Secret::new(made.id.as_str()));
    assert_eq!(code(by_id.tasks(None).await), Code::Unauthorized);
    home.client.revoke_token(&made.id, "ann").await.expect("it is revoked");
    assert_eq!(code(client.tasks(None).await), Code::Unauthorized);
    home.owner.close().await;
}

#[tokio::test]
async fn a_token_may_what_its_scopes_say() {
    use TokenScope::{Admin, FeedRead, MemoryRead, TasksWrite, WorkClaim};
    let home = serving().await;
    let project = home.link("shop").await;
    let task = home.add(&project, "claude").await;
    let prefer = PreferRequest {
        key: PreferenceKey::LaneLabels,
        scope: Scope::Global,
        value: None,
        by: "ann".to_owned(),
    };
    for scope in TokenScope::ALL {
        let name = (scope == WorkClaim).then_some("w");
        let (_, client) = token(&home, &[scope], name).await;
        let may = |allowed: &[TokenScope], answer: Result<(), ClientError>| {
            let forbidden = matches!(&answer, Err(e) if e.code() == Some(Code::Forbidden));
            let allowed = allowed.contains(&scope) || scope == Admin;
            assert_eq!(forbidden, !allowed, "{scope}: {answer:?}");
        };
        may(&[FeedRead], client.tasks(None).await.map(drop));
        may(&[FeedRead], client.workers().await.map(drop));
        may(&[FeedRead], client.events(&EventsQuery::default()).await.map(drop));
        may(&[FeedRead], client.task_log(&task.id, &LogQuery::default()).await.map(drop));
        may(&[TasksWrite], client.retry(&task.id, "ann").await.map(drop));
        may(&[], client.prefer(&prefer).await.map(drop));
        may(&[], client.tokens().await.map(drop));
        may(&[], client.create_token(&request(&[Admin], None)).await.map(drop));
        let mine = client.who_am_i().await.expect("each may ask that");
        assert_eq!(mine.scopes, [scope]);
        may(&[WorkClaim, FeedRead, MemoryRead, TasksWrite], client.who_am_i().await.map(drop));
    }
    home.owner.close().await;
}

#[tokio::test]
async fn a_token_that_would_mean_nothing_is_not_made() {
    use TokenScope::{Admin, FeedRead, WorkClaim};
    let home = serving().await;
    for (scopes, worker) in [
        (&[][..], None),
        (&[WorkClaim], None),
        (&[FeedRead], Some("w")),
        (&[Admin, WorkClaim], Some("w")),
    ] {
        let answer = home.client.create_token(&request(scopes, worker)).await;
        assert_eq!(code(answer), Code::BadRequest, "{scopes:?} {worker:?}");
    }
    assert_eq!(home.client.tokens().await, Ok(Vec::new()));
    home.owner.close().await;
}

#[tokio::test]
async fn a_workers_token_registers_its_own_name_alone() {
    let home = serving().await;
    let (_, other) = worker(&home, "other").await;
    let (_, own) = worker(&home, "own").await;
    let mut request = other.request.clone();
    request.instance_id = instance("other", 2).parse().expect("an instance");
    let refused = own.client.register(&request).await.expect_err("it took another's name");
    assert_eq!(refused.code(), Some(Code::Forbidden));
    assert!(refused.hint().expect("a hint").contains("--name own"), "{refused:?}");
    request.name = "fresh".parse().expect("a name");
    assert_eq!(code(own.client.register(&request).await), Code::Forbidden);
    let (_, reader) = token(&home, &[TokenScope::FeedRead], None).await;
    assert_eq!(code(reader.register(&request).await), Code::Forbidden);
    assert_eq!(home.client.workers().await.expect("workers").len(), 2);
    let (_, admin) = token(&home, &[TokenScope::Admin], None).await;
    assert!(admin.register(&request).await.is_ok());
    home.owner.close().await;
}

#[tokio::test]
async fn a_token_of_another_worker_touches_nothing() {
    let home = serving().await;
    let project = home.link("shop").await;
    home.add(&project, "claude").await;
    let (_, own) = worker(&home, "own").await;
    let lease = own.claim().await.expect("the task").lease;
    own.start(&lease).await;
    let (_, thief) = worker(&home, "thief").await;
    let before = (
        home.client.events(&EventsQuery::default()).await.expect("events"),
        home.client.task(&lease.task).await.expect("the task").task,
        home.client.workers().await.expect("workers"),
    );
    home.clock.advance(std::time::Duration::from_secs(60));

    // As `own` would say it, with the other's token.
    let as_own = TestWorker { client: thief.client.clone(), ..own.clone() };
    let client = &as_own.client;
    let worker_id = own.worker.id.clone();
    let beat = |offline| HeartbeatRequest {
        instance_id: own.request.instance_id.clone(),
        offline,
        interval_ms: None,
        leases: vec![lease.reference()],
    };
    assert_eq!(code(client.heartbeat(&worker_id, &beat(false)).await), Code::Forbidden);
    assert_eq!(code(client.heartbeat(&worker_id, &beat(true)).await), Code::Forbidden);
    assert_eq!(code(client.doorbell(&as_own.query(1, 0, 0)).await), Code::Forbidden);
    let start =
        StartRequest { worker_id: worker_id.clone(), epoch: lease.epoch, branch: "x".to_owned() };
    assert_eq!(code(client.start(&lease.task, &start).await), Code::Forbidden);
    let record = RecordRequest {
        worker_id: worker_id.clone(),
        epoch: lease.epoch,
        effect: Effect::Commented { id: "9".to_owned() },
    };
    assert_eq!(code(client.record(&lease.task, &record).await), Code::Forbidden);
    let chunk = own.chunk(&lease, 0, "stolen\n");
    assert_eq!(code(client.log(&lease.task, &chunk).await), Code::Forbidden);
    let end = own.end(&lease, StopReason::Finished);
    assert_eq!(code(client.release(&lease.reference(), &end).await), Code::Forbidden);
    let pull = OpenLocalPull {
        lease: lease.reference(),
        worker_id: worker_id.clone(),
        title: "t".to_owned(),
        body: "b".to_owned(),
        branch: "x".to_owned(),
        base: "main".to_owned(),
        head: "c0ffee".to_owned(),
        diff: "+".to_owned(),
        comment: None,
    };
    assert_eq!(code(client.open_local_pull(&project.slug, &pull).await), Code::Forbidden);
    home.add(&project, "claude").await;
    let claim = relay::api::ClaimRequest {
        worker_id,
        instance_id: own.request.instance_id.clone(),
        claim_id: instance("claim", 1).parse().expect("a claim id"),
        lanes: None,
        labels: None,
        except: Vec::new(),
    };
    assert_eq!(code(client.claim(&claim).await), Code::Forbidden);
    // Its own name and another's lease go together no better.
    let own_name = thief.chunk(&lease, 0, "stolen\n");
    assert_eq!(code(client.log(&lease.task, &own_name).await), Code::LeaseLost);

    let detail = home.client.task(&lease.task).await.expect("the task");
    assert_eq!(detail.task, before.1);
    assert_eq!(detail.effects, []);
    let log = home.client.task_log(&lease.task, &LogQuery::default()).await.expect("a log");
    assert_eq!(log.text, "");
    let workers = home.client.workers().await.expect("workers");
    let seen = |workers: &[relay::model::Worker]| {
        workers.iter().find(|w| w.name == own.worker.name).map(|w| w.last_seen)
    };
    assert_eq!(seen(&workers), seen(&before.2), "it was not heard of");
    let events = home.client.events(&EventsQuery::default()).await.expect("events");
    assert_eq!(events.len(), before.0.len() + 1, "the second task's own event");
    home.owner.close().await;
}

#[tokio::test]
async fn a_reader_at_the_bell_takes_no_workers_place() {
    let home = serving().await;
    let (_, own) = worker(&home, "own").await;
    let (_, reader) = token(&home, &[TokenScope::FeedRead], None).await;
    let mut query = own.query(1, 0, 0);
    assert_eq!(code(reader.doorbell(&query).await), Code::Forbidden);
    (query.worker_id, query.instance_id) = (None, None);
    assert!(reader.doorbell(&query).await.is_ok());
    home.owner.close().await;
}

#[tokio::test]
async fn revoking_a_token_ends_its_held_doorbell_and_its_leases() {
    let home = serving().await;
    let project = home.link("shop").await;
    home.add(&project, "claude").await;
    let (made, lost) = worker(&home, "lost").await;
    let lease = lost.claim().await.expect("the task").lease;
    lost.start(&lease).await;
    let (client, query) = (lost.client.clone(), lost.query(0, i64::MAX, 300));
    let held = tokio::spawn(async move { client.doorbell(&query).await });
    home.held(1).await;

    let revoked = home.client.revoke_token(&made.id, "ann").await.expect("it is revoked");
    assert_eq!(revoked.released, [lease.reference()]);
    assert!(revoked.token.revoked_at.is_some());
    let answer = tokio::time::timeout(PATIENCE, held).await;
    assert_eq!(code(answer.expect("it was held on").expect("no panic")), Code::Unauthorized);

    let task = home.client.task(&lease.task).await.expect("the task").task;
    assert_eq!(task.state, TaskState::Queued);
    assert_eq!(task.message.as_deref(), Some("the token of its worker was revoked"));
    let events = home.client.events(&EventsQuery::default()).await.expect("events");
    let told = events.iter().find(|event| event.kind.as_str() == "lease.expired").expect("told");
    assert_eq!((told.actor.0.as_str(), &told.data["why"]), ("user:ann", &"token_revoked".into()));

    // Not even one who knows every id brings the lease back.
    let beat = HeartbeatRequest {
        instance_id: lost.request.instance_id.clone(),
        offline: false,
        interval_ms: None,
        leases: vec![lease.reference()],
    };
    let answer = home.client.heartbeat(&lost.worker.id, &beat).await.expect("an answer");
    assert!(matches!(answer.leases[..], [relay::api::LeaseAnswer::Lost { .. }]), "{answer:?}");
    let (_, next) = worker(&home, "next").await;
    let again = next.claim().await.expect("another worker takes it");
    assert_eq!(again.lease.task, lease.task);
    assert!(again.lease.expires_at >= task.updated_at + LEASE);
    home.owner.close().await;
}

/// A token's leases are those of the worker that registered with it, not of all that have its name.
#[tokio::test]
async fn revoking_the_token_before_leaves_the_worker_that_has_a_new_one() {
    let home = serving().await;
    let project = home.link("shop").await;
    home.add(&project, "claude").await;
    let (old, _) = worker(&home, "w").await;
    let (new, client) = token(&home, &[TokenScope::WorkClaim], Some("w")).await;
    let again = TestWorker::register(client, "w", instance("w", 2)).await;
    let lease = again.claim().await.expect("the task").lease;
    let revoked = home.client.revoke_token(&old.id, "ann").await.expect("it is revoked");
    assert_eq!(revoked.released, []);
    assert_eq!(again.start(&lease).await.state, TaskState::Running);
    let revoked = home.client.revoke_token(&new.id, "ann").await.expect("it is revoked");
    assert_eq!(revoked.released, [lease.reference()]);
    home.owner.close().await;
}

/// Holds the first claim before its write until the test lets it go.
#[derive(Debug)]
struct HeldClaim {
    met: AtomicBool,
    reached: mpsc::SyncSender<()>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Faults for HeldClaim {
    fn at(&self, point: FaultPoint) {
        let claim = point.passage == Passage::QueueClaim && !point.after;
        if claim && !self.met.swap(true, Ordering::SeqCst) {
            self.reached.send(()).expect("the test waits");
            self.go.lock().expect("one claim").recv().expect("the test lets it go");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_that_a_revoke_overtakes_holds_nothing() {
    let (reached, at_claim) = mpsc::sync_channel(1);
    let (let_go, go) = mpsc::sync_channel(1);
    let faults = HeldClaim { met: AtomicBool::new(false), reached, go: Mutex::new(go) };
    let folder = tempfile::tempdir().expect("a folder");
    let home = serving_in(folder, |config| config.faults = Arc::new(faults)).await;
    let project = home.link("shop").await;
    let task = home.add(&project, "claude").await;
    let (made, slow) = worker(&home, "slow").await;
    let claiming = tokio::spawn(async move { slow.claim().await });
    tokio::task::spawn_blocking(move || at_claim.recv()).await.expect("no panic").expect("held");
    home.client.revoke_token(&made.id, "ann").await.expect("it is revoked");
    let_go.send(()).expect("it is held");
    assert_eq!(claiming.await.expect("no panic"), None);
    let state = home.client.task(&task.id).await.expect("the task").task.state;
    assert_eq!(state, TaskState::Queued);
    home.owner.close().await;
}

#[tokio::test]
async fn showing_a_token_costs_no_statement() {
    let home = serving().await;
    let (_, own) = worker(&home, "own").await;
    own.ring(1, 0, 0).await;
    home.rest().await;
    let before = home.owner.site().queue.statements();
    for _ in 0..50 {
        own.client.who_am_i().await.expect("an answer");
        own.ring(1, 0, 0).await;
    }
    assert_eq!(home.owner.site().queue.statements(), before);
    home.owner.close().await;
}

#[tokio::test]
async fn a_token_outlives_a_restart_and_only_its_hash_is_kept() {
    let home = serving().await;
    let made = home.client.create_token(&request(&[TokenScope::Admin], None)).await.expect("one");
    let first = home.owner.site().first_token().await.expect("a look");
    assert_eq!(first, None, "the site has a token already");
    stranger(&home).with_token(made.secret.secret()).who_am_i().await.expect("it is good");
    let Home { folder, owner, .. } = home;
    owner.close().await;
    for entry in std::fs::read_dir(folder.path().join("home")).expect("the home").flatten() {
        let Ok(bytes) = std::fs::read(entry.path()) else { continue };
        let secret = made.secret.secret();
        let found = bytes.windows(secret.expose().len()).any(|at| at == secret.expose().as_bytes());
        assert!(!found, "it stands in {}", entry.path().display());
    }
    let home = serving_in(folder, |_| {}).await;
    let client = stranger(&home).with_token(made.secret.secret());
    let listed = client.tokens().await.expect("it is good still");
    assert_eq!(listed.len(), 1);
    assert!(listed[0].last_used.is_some());
    home.owner.close().await;
}

/// What one site revokes, another on the same database hears of when it reads its tokens anew.
#[tokio::test]
async fn what_was_revoked_elsewhere_is_none_after_a_reading() {
    let home = serving().await;
    let project = home.link("shop").await;
    let task = home.add(&project, "claude").await;
    let (made, own) = worker(&home, "own").await;
    let site = home.owner.site();
    let by = relay::model::Actor::user("ann");
    site.queue.revoke_token(&made.id, &by).await.expect("as another site does it");
    assert!(own.client.who_am_i().await.is_ok(), "not heard of yet");
    assert_eq!(own.claim().await, None, "nothing is given to it all the same");
    site.reread().await.expect("a reading");
    assert_eq!(code(own.client.who_am_i().await), Code::Unauthorized);
    let state = home.client.task(&task.id).await.expect("the task").task.state;
    assert_eq!(state, TaskState::Queued);
    home.owner.close().await;
}
