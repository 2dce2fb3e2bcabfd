//! Tokens over the API: made and revoked by an admin, and what the one that asks may.

use std::sync::Arc;

use axum::extract::State;

use super::answer::Json;
use super::caller::Caller;
use super::extract::{Body, OfToken};
use super::problem::{Answer, Refusal};
use super::state::{Site, person};
use crate::api::{
    Code, CreateToken, CreatedToken, Plaintext, RevokeToken, RevokedToken, Tokens, WhoAmI,
};
use crate::model::TokenScope;
use crate::queue::NewToken;

pub(super) async fn create(
    State(site): State<Arc<Site>>,
    Body(request): Body<CreateToken>,
) -> Answer<Json<CreatedToken>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let CreateToken { name, scopes, worker, by } = request;
        let new = NewToken { name, scopes, worker };
        let (token, secret) = inner.mint(new, person(&by)?).await?;
        Ok(Json(CreatedToken { token, secret: Plaintext::of(&secret), replaced: Vec::new() }))
    })
    .await
}

pub(super) async fn list(State(site): State<Arc<Site>>) -> Answer<Json<Tokens>> {
    let used = site.bearers.used();
    let known = site.queue.tokens().await?;
    let tokens = known.into_iter().map(|known| {
        let mut token = known.token;
        token.last_used = token.last_used.max(used.get(&token.id).copied());
        token
    });
    Ok(Json(Tokens { tokens: tokens.collect() }))
}

pub(super) async fn revoke(
    State(site): State<Arc<Site>>,
    OfToken(id): OfToken,
    Body(request): Body<RevokeToken>,
) -> Answer<Json<RevokedToken>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let by = person(&request.by)?;
        let revoked = inner.revoke(&id, &by).await;
        let (token, released) = revoked.map_err(|error| match Refusal::from(error) {
            Refusal(problem)
                if problem.code == Code::Disk || problem.code == Code::DatabaseAway =>
            {
                let hint = "nothing is answered with it from now on, until this site is started \
                            again; revoke it once more when the database can be written";
                Refusal(problem.hint(hint))
            }
            refusal => refusal,
        })?;
        Ok(Json(RevokedToken { token, released }))
    })
    .await
}

pub(super) async fn who_am_i(caller: Caller) -> Json<WhoAmI> {
    Json(match caller {
        Caller::Bearer(bearer) => WhoAmI {
            token: Some(bearer.id.clone()),
            scopes: bearer.scopes.clone(),
            worker: bearer.worker.clone(),
        },
        Caller::Owner => WhoAmI { token: None, scopes: TokenScope::ALL.to_vec(), worker: None },
        Caller::Stranger => WhoAmI { token: None, scopes: Vec::new(), worker: None },
    })
}
