//! How a machine gets a token over TCP: invites, the device flow, and the page a person answers on.

use std::net::SocketAddr;
use std::time::Duration;

use relay::api::{
    AskDevice, Code, CreateInvite, CreateSignIn, DeviceCode, Invite, PollDevice, RedeemInvite,
};
use relay::client::{Client, ClientError};
use relay::model::{LeaseRef, Secret, TaskState, TokenScope, WorkerName};

use super::fixture::{Home, TestWorker, instance};
use super::tokens::{code, request, serving, stranger, worker};

fn name(text: &str) -> WorkerName {
    text.parse().expect("a name")
}

async fn invite(home: &Home, worker: Option<&str>, seconds: u64) -> Invite {
    let request =
        CreateInvite { worker: worker.map(name), expires_in: seconds, by: "ann".to_owned() };
    home.client.invite(&request).await.expect("an invite")
}

fn redeem(invite: &Invite, named: Option<&str>, host: &str) -> RedeemInvite {
    RedeemInvite { code: invite.code.clone(), name: named.map(name), host: name(host) }
}

async fn ask(home: &Home, worker: &str) -> DeviceCode {
    let request = AskDevice { worker: name(worker), host: "desk".to_owned() };
    stranger(home).ask_device(&request).await.expect("a code")
}

#[tokio::test]
async fn an_invite_is_good_for_one_workers_token() {
    let home = serving().await;
    let made = invite(&home, None, 3600).await;
    let (one, two) = (stranger(&home), stranger(&home));
    let (a, b) = (redeem(&made, None, "desk"), redeem(&made, None, "lap"));
    let both = tokio::join!(one.redeem(&a), two.redeem(&b));
    let (good, bad): (Vec<_>, Vec<_>) = [both.0, both.1].into_iter().partition(Result::is_ok);
    let created = good.into_iter().flatten().next().expect("one is good");
    assert_eq!(bad.len(), 1, "it was used twice");
    assert_eq!(bad[0].as_ref().expect_err("refused").code(), Some(Code::Forbidden));
    use TokenScope::{FeedRead, MemoryRead, WorkClaim};
    assert_eq!(created.token.scopes, [WorkClaim, MemoryRead, FeedRead]);
    assert_eq!(created.token.created_by.0, "user:ann");
    let client = stranger(&home).with_token(created.secret.secret());
    let mine = client.who_am_i().await.expect("it is good at once");
    assert_eq!(mine.worker, created.token.worker);
    assert_eq!(home.client.tokens().await.expect("tokens").len(), 1);
    home.owner.close().await;
}

#[tokio::test]
async fn an_invite_ends_by_the_sites_clock() {
    let home = serving().await;
    let made = invite(&home, None, 3600).await;
    home.clock.advance(Duration::from_secs(3600));
    let late = stranger(&home).redeem(&redeem(&made, None, "desk")).await;
    assert_eq!(code(late), Code::Forbidden);
    let request = CreateInvite { worker: None, expires_in: 59, by: "ann".to_owned() };
    assert_eq!(code(home.client.invite(&request).await), Code::BadRequest);
    let request = CreateInvite { expires_in: 604_801, ..request };
    assert_eq!(code(home.client.invite(&request).await), Code::BadRequest);
    home.owner.close().await;
}

#[tokio::test]
async fn an_invite_without_a_name_takes_nobodys_name() {
    let home = serving().await;
    let (old, _) = worker(&home, "desk").await;
    let open = invite(&home, None, 3600).await;
    let client = stranger(&home);
    let refused = client.redeem(&redeem(&open, None, "desk")).await.expect_err("it is taken");
    assert_eq!(refused.code(), Some(Code::Conflict));
    assert!(refused.hint().expect("a hint").contains("--worker desk"), "{refused:?}");
    // Its token is gone, and the worker's tasks are still known by its name.
    home.client.revoke_token(&old.id, "ann").await.expect("revoked");
    assert_eq!(code(client.redeem(&redeem(&open, None, "desk")).await), Code::Conflict);
    let free = client.redeem(&redeem(&open, Some("lap"), "desk")).await.expect("a free name");
    assert_eq!(free.token.worker, Some(name("lap")));
    let named = invite(&home, Some("desk"), 3600).await;
    let other = client.redeem(&redeem(&named, Some("lap"), "x")).await.expect_err("not its name");
    assert_eq!(other.code(), Some(Code::Conflict));
    assert!(other.to_string().contains("`desk`"), "{other}");
    let given = client.redeem(&redeem(&named, None, "x")).await.expect("the name it is for");
    assert_eq!((given.token.worker, given.token.name.as_str()), (Some(name("desk")), "desk"));
    home.owner.close().await;
}

#[tokio::test]
async fn invites_that_are_none_are_not_tried_for_ever() {
    let home = serving().await;
    let good = invite(&home, None, 3600).await;
    let none = Invite { code: relay::api::Plaintext::of(&Secret::new("x")), ..good.clone() };
    let client = stranger(&home);
    for _ in 0..60 {
        assert_eq!(code(client.redeem(&redeem(&none, None, "w")).await), Code::Forbidden);
    }
    home.rest().await;
    let before = home.owner.site().queue.statements();
    assert_eq!(code(client.redeem(&redeem(&none, None, "w")).await), Code::TooMany);
    assert_eq!(home.owner.site().queue.statements(), before);
    home.clock.advance(Duration::from_secs(60));
    assert!(client.redeem(&redeem(&good, None, "w")).await.is_ok());
    home.owner.close().await;
}

#[tokio::test]
async fn whoever_asks_without_end_keeps_nobody_else_out() {
    let home = serving().await;
    let good = invite(&home, None, 3600).await;
    let none = Invite { code: relay::api::Plaintext::of(&Secret::new("x")), ..good.clone() };
    let (client, request) =
        (stranger(&home), AskDevice { worker: name("w"), host: "h".to_owned() });
    for _ in 0..60 {
        assert_eq!(code(client.redeem(&redeem(&none, None, "w")).await), Code::Forbidden);
    }
    for _ in 0..8 {
        client.ask_device(&request).await.expect("a code");
    }
    assert_eq!(code(client.ask_device(&request).await), Code::TooMany);
    assert_eq!(code(client.redeem(&redeem(&good, None, "w")).await), Code::TooMany);
    // Somebody at another address.
    let body = serde_json::to_string(&redeem(&good, None, "w")).expect("JSON");
    let redeemed = other_address(&home, "/api/v1/invites/redeem", body).await;
    assert_eq!(redeemed, 200);
    let body = serde_json::to_string(&request).expect("JSON");
    assert_eq!(other_address(&home, "/api/v1/device/code", body).await, 200);
    home.owner.close().await;
}

/// What is answered to somebody whose connection comes from 127.0.0.2.
async fn other_address(home: &Home, path: &str, body: String) -> u16 {
    let (addr, _) = url(home, path);
    let from: std::net::IpAddr = [127, 0, 0, 2].into();
    let client = reqwest::Client::builder().no_proxy().local_address(from);
    let client = client.build().expect("a client");
    let request = client.post(format!("http://{addr}{path}")).body(body);
    let sent = request.header("content-type", "application/json").send().await;
    sent.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn a_machine_that_asks_is_told_in_the_words_of_the_rfc() {
    let home = serving().await;
    let asked = ask(&home, "desk").await;
    assert!(asked.verification_uri.ends_with("/device"), "{asked:?}");
    let poll = PollDevice { device_code: asked.device_code };
    let client = stranger(&home);
    assert_eq!(code(client.poll_device(&poll).await), Code::AuthorizationPending);
    assert_eq!(code(client.poll_device(&poll).await), Code::SlowDown);
    let body = serde_json::to_string(&poll).expect("JSON");
    let answer = http(&home).post(url(&home, "/api/v1/device/token"), None, &body).await;
    assert_eq!(answer.status, 400);
    let answer: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(answer["error"], "slow_down");

    let session = sign_in(&home).await;
    let page = http(&home).get(url(&home, "/device"), Some(&session)).await;
    let (csrf, user_code) = (field(&page.body, "csrf"), asked.user_code.as_str());
    let form = format!("csrf={csrf}&user_code={user_code}&decision=deny");
    let answer = http(&home).post(url(&home, "/device"), Some(&session), &form).await;
    assert!(answer.body.contains("desk is denied"), "{}", answer.body);
    home.clock.advance(Duration::from_secs(60));
    assert_eq!(code(client.poll_device(&poll).await), Code::AccessDenied);
    home.clock.advance(Duration::from_secs(600));
    assert_eq!(code(client.poll_device(&poll).await), Code::ExpiredToken);
    assert_eq!(home.client.tokens().await, Ok(Vec::new()));
    home.owner.close().await;
}

#[tokio::test]
async fn a_person_approves_a_machine_on_the_page() {
    let home = serving().await;
    let (_, _) = worker(&home, "desk").await;
    let asked = ask(&home, "desk").await;
    let nobody = http(&home).get(url(&home, "/device"), None).await;
    assert_eq!(nobody.status, 401);
    assert!(!nobody.body.contains(&asked.user_code), "shown to nobody who is not signed in");

    let session = sign_in(&home).await;
    let page = http(&home).get(url(&home, "/device"), Some(&session)).await;
    for shown in [&asked.user_code[..], "desk", "127.0.0.1", "work:claim", "take its place"] {
        assert!(page.body.contains(shown), "no {shown} in {}", page.body);
    }
    assert!(!page.body.contains(asked.device_code.secret().expose()));
    let csrf = field(&page.body, "csrf");
    let form = |csrf: &str| format!("csrf={csrf}&user_code={}&decision=approve", asked.user_code);
    let post = |session: Option<&str>, form: String| {
        let (session, home) = (session.map(str::to_owned), &home);
        async move { http(home).post(url(home, "/device"), session.as_deref(), &form).await.status }
    };
    assert_eq!(post(None, form(&csrf)).await, 401);
    assert_eq!(post(Some("relay_session=x"), form(&csrf)).await, 401);
    assert_eq!(post(Some(&session), form("x")).await, 403);
    let other = sign_in(&home).await;
    assert_eq!(post(Some(&other), form(&csrf)).await, 403, "of another session");
    assert_eq!(post(Some(&session), "decision=approve".to_owned()).await, 400);
    let poll = PollDevice { device_code: asked.device_code.clone() };
    assert_eq!(code(stranger(&home).poll_device(&poll).await), Code::AuthorizationPending);
    assert_eq!(post(Some(&session), form(&csrf)).await, 200);
    home.clock.advance(Duration::from_secs(5));
    let created = stranger(&home).poll_device(&poll).await.expect("a token");
    assert_eq!(created.token.worker, Some(name("desk")));
    assert_eq!(created.token.created_by.0, "user:ann", "who approved it");
    home.clock.advance(Duration::from_secs(5));
    assert_eq!(code(stranger(&home).poll_device(&poll).await), Code::ExpiredToken);
    home.owner.close().await;
}

#[tokio::test]
async fn a_link_signs_in_once_and_its_cookie_is_kept_from_others() {
    let home = serving().await;
    let link = link(&home).await;
    // Looked at by what looks at links, which presses no button.
    let seen = http(&home).get(url(&home, &link), None).await;
    assert_eq!((seen.status, seen.cookie), (200, None));
    assert!(seen.body.contains(&format!("method=\"post\" action=\"{link}\"")), "{}", seen.body);
    let entered = http(&home).post(url(&home, &link), None, "").await;
    assert_eq!(entered.status, 200);
    let cookie = entered.cookie.expect("a cookie");
    for word in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let again = http(&home).post(url(&home, &link), None, "").await;
    assert_eq!((again.status, again.cookie), (401, None));
    let session = cookie.split(';').next().expect("a pair").to_owned();
    assert_eq!(http(&home).get(url(&home, "/device"), Some(&session)).await.status, 200);
    let after_another = format!("relay_session=planted; {session}");
    assert_eq!(http(&home).get(url(&home, "/device"), Some(&after_another)).await.status, 200);
    // It opens the pages and nothing of the API.
    assert_eq!(http(&home).get(url(&home, "/api/v1/tasks"), Some(&session)).await.status, 401);
    home.clock.advance(Duration::from_secs(3600));
    assert_eq!(http(&home).get(url(&home, "/device"), Some(&session)).await.status, 401);
    let late = self::link(&home).await;
    home.clock.advance(Duration::from_secs(300));
    assert_eq!(http(&home).post(url(&home, &late), None, "").await.status, 401);
    home.owner.close().await;
}

#[tokio::test]
async fn only_an_admin_makes_links_and_invites() {
    let home = serving().await;
    let (_, own) = worker(&home, "own").await;
    let refused: [Result<(), ClientError>; 2] = [
        own.client.sign_in(&CreateSignIn { by: "x".to_owned() }).await.map(drop),
        own.client
            .invite(&CreateInvite { worker: None, expires_in: 3600, by: "x".to_owned() })
            .await
            .map(drop),
    ];
    for answer in refused {
        assert_eq!(code(answer), Code::Forbidden);
    }
    home.owner.close().await;
}

async fn link(home: &Home) -> String {
    let request = CreateSignIn { by: "ann".to_owned() };
    home.client.sign_in(&request).await.expect("a link").path.secret().expose().to_owned()
}

/// A session's `name=value`.
async fn sign_in(home: &Home) -> String {
    let link = link(home).await;
    let cookie = http(home).post(url(home, &link), None, "").await.cookie.expect("a cookie");
    cookie.split(';').next().expect("a pair").to_owned()
}

/// The value of a form's field.
fn field(page: &str, name: &str) -> String {
    let at = format!("name=\"{name}\" value=\"");
    let rest = page.split_once(&at).expect("the field").1;
    rest.split('"').next().expect("its end").to_owned()
}

fn url(home: &Home, path: &str) -> (SocketAddr, String) {
    (home.owner.addr().expect("an address"), path.to_owned())
}

/// A browser of few words.
pub struct Http(reqwest::Client);

#[derive(Debug)]
pub struct Said {
    pub status: u16,
    pub cookie: Option<String>,
    pub body: String,
}

fn http(_: &Home) -> Http {
    Http::new()
}

impl Http {
    pub fn new() -> Self {
        let _there_already = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).no_proxy();
        Self(client.build().expect("a client"))
    }

    async fn get(&self, (addr, path): (SocketAddr, String), cookie: Option<&str>) -> Said {
        self.send(self.0.get(format!("http://{addr}{path}")), cookie).await
    }

    async fn post(
        &self,
        (addr, path): (SocketAddr, String),
        cookie: Option<&str>,
        body: &str,
    ) -> Said {
        let kind = if body.starts_with('{') {
            "application/json"
        } else {
            "application/x-www-form-urlencoded"
        };
        let request = self.0.post(format!("http://{addr}{path}")).header("content-type", kind);
        self.send(request.body(body.to_owned()), cookie).await
    }

    async fn send(&self, mut request: reqwest::RequestBuilder, cookie: Option<&str>) -> Said {
        if let Some(cookie) = cookie {
            request = request.header("cookie", cookie);
        }
        let answer = request.send().await.expect("an answer");
        let cookie = answer.headers().get("set-cookie").and_then(|v| v.to_str().ok());
        Said {
            status: answer.status().as_u16(),
            cookie: cookie.map(str::to_owned),
            body: answer.text().await.expect("text"),
        }
    }
}

#[tokio::test]
async fn a_machine_that_is_set_up_again_takes_the_place_of_the_one_before() {
    let home = serving().await;
    let project = home.link("shop").await;
    let client = stranger(&home);
    let mut before: Option<(Client, LeaseRef)> = None;
    for round in 1..=3 {
        let made = invite(&home, Some("mach"), 3600).await;
        let given = client.redeem(&redeem(&made, None, "x")).await.expect("a token");
        let new = stranger(&home).with_token(given.secret.secret());
        if let Some((old, lease)) = before {
            assert_eq!(code(old.who_am_i().await), Code::Unauthorized);
            let task = home.client.task(&lease.task).await.expect("the task").task;
            assert_eq!(task.state, TaskState::Queued, "its lease ended with its token");
            let ended = task.message.unwrap_or_default();
            assert!(ended.contains("the token of its worker was revoked"), "{ended}");
            home.client.cancel(&lease.task, "ann").await.expect("an end");
        }
        home.add(&project, "claude").await;
        let worker = TestWorker::register(new.clone(), "mach", instance("mach", round)).await;
        let lease = worker.claim().await.expect("a task").lease.reference();
        before = Some((new, lease));
    }
    // A person's approval does the same; what another worker has stays.
    let (_, lap) = worker(&home, "lap").await;
    let by_hand = request(&[TokenScope::WorkClaim], Some("mach"));
    home.client.create_token(&by_hand).await.expect("a second one");
    let asked = ask(&home, "mach").await;
    let session = sign_in(&home).await;
    let page = http(&home).get(url(&home, "/device"), Some(&session)).await;
    let (csrf, user_code) = (field(&page.body, "csrf"), asked.user_code.as_str());
    let form = format!("csrf={csrf}&user_code={user_code}&decision=approve");
    http(&home).post(url(&home, "/device"), Some(&session), &form).await;
    let poll = PollDevice { device_code: asked.device_code.clone() };
    let given = client.poll_device(&poll).await.expect("a token");
    assert!(stranger(&home).with_token(given.secret.secret()).who_am_i().await.is_ok());
    let (old, lease) = before.expect("the last one");
    assert_eq!(code(old.who_am_i().await), Code::Unauthorized);
    let task = home.client.task(&lease.task).await.expect("the task").task;
    assert_eq!(task.state, TaskState::Queued);
    assert!(lap.client.who_am_i().await.is_ok());
    let good = home.client.tokens().await.expect("tokens").into_iter();
    let good: Vec<_> = good
        .filter(|token| token.revoked_at.is_none() && token.worker == Some(name("mach")))
        .map(|token| token.id)
        .collect();
    assert_eq!(good, [given.token.id]);
    home.owner.close().await;
}
