//! How a machine gets a worker's token: it trades an invite, or asks and is answered by a person.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::State;

use super::answer::Json;
use super::desk::{Asking, CODE_LIVES, INTERVAL, LINK_LIVES, Polled, long_code, short_code};
use super::extract::{Body, From};
use super::problem::{Answer, Refusal};
use super::state::{Site, person};
use crate::api::route::DEVICE_PAGE;
use crate::api::{
    AskDevice, Code, CreateInvite, CreateSignIn, CreatedToken, DeviceCode, Invite, Plaintext,
    PollDevice, Problem, RedeemInvite, SignIn,
};
use crate::model::Secret;
use crate::queue::{QueueError, Redeemed};

/// So many invites that are none may be tried in a minute from one address: an invite has 256
/// random bits, so this bounds what a guesser costs and not how far it gets.
const TRIES: u32 = 60;

/// Addresses that are counted within a minute; further ones are bounded by the rate of strangers
/// alone.
const COUNTED: usize = 10_000;

/// The longest name of a host that is shown to people.
const HOST_MAX: usize = 100;

/// Counts what was tried in vain within a minute, by address.
#[derive(Debug, Default)]
pub struct Tries(Mutex<(u64, HashMap<Option<IpAddr>, u32>)>);

impl Tries {
    /// Whether `from` has a try left.
    fn left(&self, from: &From, uptime: Duration) -> bool {
        let mut tries = self.lock();
        let minute = uptime.as_secs() / 60;
        if tries.0 != minute {
            *tries = (minute, HashMap::new());
        }
        tries.1.get(&from.household()).is_none_or(|tried| *tried < TRIES)
    }

    fn failed(&self, from: &From) {
        let (_, counts) = &mut *self.lock();
        if let Some(tried) = counts.get_mut(&from.household()) {
            *tried += 1;
        } else if counts.len() < COUNTED {
            counts.insert(from.household(), 1);
        }
    }

    /// Each change is one step, so a panic elsewhere leaves the counts whole.
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<Option<IpAddr>, u32>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn invite(
    State(site): State<Arc<Site>>,
    Body(request): Body<CreateInvite>,
) -> Answer<Json<Invite>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let CreateInvite { worker, expires_in, by } = request;
        let code = invite_code(&inner.queue.random()?);
        let lives = Duration::from_secs(expires_in);
        let by = person(&by)?;
        let expires_at = inner.queue.invite(&code, worker.as_ref(), lives, &by).await?;
        Ok(Json(Invite { code: Plaintext::of(&code), worker, expires_at }))
    })
    .await
}

/// What an invite's code begins with, so that it is known for one wherever it is found, and is never
/// taken for an option.
const INVITE: &str = "invite_";

fn invite_code(random: &[u8; 32]) -> Secret {
    Secret::new(format!("{INVITE}{}", long_code(random).expose()))
}

pub(super) async fn redeem(
    State(site): State<Arc<Site>>,
    from: From,
    Body(request): Body<RedeemInvite>,
) -> Answer<Json<CreatedToken>> {
    if !site.tries.left(&from, site.clock.uptime()) {
        let problem = Problem::new(Code::TooMany, "too many invites were tried that are none");
        return Err(Problem { retry_after: Some(60), ..problem }.into());
    }
    let inner = Arc::clone(&site);
    site.write(async move {
        let RedeemInvite { code, name, host } = request;
        let turn = inner.bearers.turn().await;
        let redeemed = inner.queue.redeem(&code.secret(), name.as_ref(), &host).await?;
        let installed = redeemed.map_err(|why| {
            inner.tries.failed(&from);
            not_redeemed(why, name.as_ref().unwrap_or(&host).as_str())
        })?;
        Ok(Json(inner.install(installed, turn).await))
    })
    .await
}

fn not_redeemed(why: Redeemed, name: &str) -> Refusal {
    let problem = match why {
        Redeemed::OtherName(worker) => {
            Problem::new(Code::Conflict, format!("the invite is worker `{worker}`'s"))
                .hint(format!("leave --name out, or say --name {worker}"))
        }
        Redeemed::NameTaken => {
            Problem::new(Code::Conflict, format!("there is a worker `{name}` already")).hint(
                format!(
                    "take another: --name NAME; or, where this machine is to take its place: \
                     `relay invite create --worker {name}`"
                ),
            )
        }
        Redeemed::Unknown | Redeemed::Token { .. } => {
            let detail =
                "this invite is not good: it was never made here, was used, or its time is over";
            Problem::new(Code::Forbidden, detail)
                .hint("`relay invite create` on the site makes another")
        }
    };
    problem.into()
}

pub(super) async fn ask(
    State(site): State<Arc<Site>>,
    from: From,
    Body(request): Body<AskDevice>,
) -> Answer<Json<DeviceCode>> {
    let AskDevice { worker, host } = request;
    if host.is_empty() || host.len() > HOST_MAX || host.chars().any(char::is_control) {
        return Err(Refusal::bad("`host` is not a machine's name"));
    }
    let device_code = long_code(&site.queue.random()?);
    let user_code = short_code(&site.queue.random()?)
        .ok_or_else(|| QueueError::Invalid("no code came of it; ask again".to_owned()))?;
    let at = site.clock.uptime();
    let asking = Asking {
        user_code: user_code.clone(),
        worker,
        host,
        from: from.shown(),
        household: from.household(),
        at,
        answer: None,
    };
    if !site.desk.ask(&device_code, asking) {
        let problem = Problem::new(Code::TooMany, "too many machines wait for an answer");
        let problem = problem.hint("answer those first: `relay open`");
        return Err(Problem { retry_after: Some(60), ..problem }.into());
    }
    let site = site.url.as_deref().unwrap_or_default();
    Ok(Json(DeviceCode {
        device_code: Plaintext::of(&device_code),
        user_code,
        verification_uri: format!("{site}{DEVICE_PAGE}"),
        expires_in: CODE_LIVES.as_secs(),
        interval: INTERVAL.as_secs(),
    }))
}

pub(super) async fn poll(
    State(site): State<Arc<Site>>,
    Body(request): Body<PollDevice>,
) -> Answer<Json<CreatedToken>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let code = request.device_code.secret();
        let problem = match inner.desk.poll(&code, inner.clock.uptime()) {
            Polled::Approved(asking) => return grant(&inner, &code, asking).await,
            Polled::Denied => Problem::new(Code::AccessDenied, "a person said no"),
            Polled::Pending => Problem::new(Code::AuthorizationPending, "nobody has answered yet"),
            Polled::SlowDown => Problem::new(Code::SlowDown, "ask less often"),
            Polled::Expired => Problem::new(Code::ExpiredToken, "the code is over, or was used")
                .hint("`relay setup` asks anew"),
        };
        Err(problem.into())
    })
    .await
}

async fn grant(site: &Site, code: &Secret, asking: Asking) -> Answer<Json<CreatedToken>> {
    let Some((true, by)) = asking.answer.clone() else {
        return Err(Refusal::bad("nobody answered"));
    };
    let turn = site.bearers.turn().await;
    match site.queue.install(&asking.worker, by).await {
        Ok(installed) => Ok(Json(site.install(installed, turn).await)),
        Err(error) => {
            site.desk.put_back(code, asking);
            Err(error.into())
        }
    }
}

pub(super) async fn sign_in(
    State(site): State<Arc<Site>>,
    Body(request): Body<CreateSignIn>,
) -> Answer<Json<SignIn>> {
    let code = long_code(&site.queue.random()?);
    site.desk.link(&code, person(&request.by)?, site.clock.uptime());
    let path = Secret::new(format!("/open/{}", code.expose()));
    Ok(Json(SignIn {
        path: Plaintext::of(&path),
        site: site.url.clone(),
        expires_in: LINK_LIVES.as_secs(),
    }))
}
