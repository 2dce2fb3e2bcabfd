//! Tokens and invites of one site, shown to the other.

use relay::api::{Code, CreateInvite, RedeemInvite};
use relay::client::Client;
use relay::model::{Secret, TokenScope};

use super::pair::{Pair, moved, with_token};
use crate::site::fixture::{TestWorker, instance};
use crate::site::tokens::{code, request, stranger};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_token_made_at_one_site_is_good_at_the_other_at_once() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    // Three, one right after another: none is refused because another was just looked for.
    for _ in 0..3 {
        let made = a.client.create_token(&request(&[TokenScope::FeedRead], None)).await;
        let secret = made.expect("a token").secret.secret();
        assert!(stranger(b).with_token(secret).tasks(None).await.is_ok());
    }
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_token_that_nobody_told_of_is_looked_for_before_it_is_refused() {
    let Some(pair) = Pair::new().await else { return };
    let silent = pair.silent().await;
    let first = silent.first_token().await.expect("a look").expect("a token").1;
    let asked = |secret: Secret| {
        let client = stranger(&pair.b).with_token(secret);
        async move { client.tasks(None).await }
    };
    let before = pair.b.owner.site().queue.statements();
    let made_up = Secret::new(format!("{}x", &first.expose()[..first.expose().len() - 1]));
    assert_eq!(code(asked(made_up).await), Code::Unauthorized);
    assert!(pair.b.owner.site().queue.statements() > before, "it was looked for");
    assert!(asked(first).await.is_ok());
    // What is no token by its form costs nothing.
    let before = pair.b.owner.site().queue.statements();
    assert_eq!(code(asked(Secret::new("gho_x")).await), Code::Unauthorized);
    assert_eq!(pair.b.owner.site().queue.statements(), before);
    silent.close().await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_token_revoked_at_one_site_ends_what_is_held_at_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let (token, _, worker) = with_token(b, "w").await;
    a.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let since = b.owner.site().bell.version();
    let asker = worker.clone();
    let held =
        tokio::spawn(async move { asker.client.doorbell(&asker.query(1, since, 300)).await });
    b.held(1).await;
    a.client.revoke_token(&token.id, "ann").await.expect("it is revoked");
    let ended = held.await.expect("an end");
    assert_eq!(code(ended), Code::Unauthorized);
    assert_eq!(code(worker.client.tasks(None).await), Code::Unauthorized);
    let task = a.client.task(&lease.task).await.expect("the task").task;
    assert_eq!(task.state, relay::model::TaskState::Queued);
    // Nothing is taken for its lease here, though this site gave it.
    Pair::heard(a, b).await;
    let owner = moved(&worker, &b.client);
    let late = owner.client.log(&lease.task, &owner.chunk(&lease, 0, "late\n")).await;
    assert_eq!(code(late), Code::LeaseLost);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_an_invite_of_one_site_is_traded_in_at_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let invite = CreateInvite { worker: None, expires_in: 3600, by: "ann".to_owned() };
    let invite = a.client.invite(&invite).await.expect("an invite");
    let redeem = RedeemInvite {
        code: invite.code.clone(),
        name: None,
        host: "desk".parse().expect("a name"),
    };
    let made = stranger(b).redeem(&redeem).await.expect("a token");
    let as_desk = |client: Client| client.with_token(made.secret.secret());
    let worker = TestWorker::register(as_desk(stranger(b)), "desk", instance("desk", 1)).await;
    let there = moved(&worker, &as_desk(stranger(a)));
    there.ring(1, 0, 0).await;
    assert_eq!(code(stranger(a).redeem(&redeem).await), Code::Forbidden, "it is good once");
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_machine_that_is_set_up_again_at_one_site_is_replaced_at_the_other() {
    let Some(pair) = Pair::new().await else { return };
    let (a, b) = (&pair.a, &pair.b);
    let project = a.link("shop").await;
    let (_, _, worker) = with_token(b, "mach").await;
    a.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let name = worker.request.name.clone();
    let invite =
        CreateInvite { worker: Some(name.clone()), expires_in: 3600, by: "ann".to_owned() };
    let invite = a.client.invite(&invite).await.expect("an invite");
    let redeem = RedeemInvite { code: invite.code, name: None, host: name.clone() };
    let given = stranger(a).redeem(&redeem).await.expect("a token");
    let task = a.client.task(&lease.task).await.expect("the task").task;
    assert_eq!(task.state, relay::model::TaskState::Queued);
    Pair::heard(a, b).await;
    assert_eq!(code(worker.client.tasks(None).await), Code::Unauthorized);
    assert!(stranger(b).with_token(given.secret.secret()).tasks(None).await.is_ok());
    // A person's approval is the same write.
    let by = given.token.created_by.clone();
    let installed = a.owner.site().queue.install(&name, by).await.expect("a token");
    assert_eq!(installed.replaced, [given.token.id]);
    pair.close().await;
}
