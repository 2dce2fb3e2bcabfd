//! Who a request comes from, and what it may. Put into each request where it enters the site: the
//! socket is this user's own, over TCP a bearer token says it.

use std::io;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};

use super::bearers::Bearer;
use super::problem::{Answer, Refusal};
use super::state::Site;
use crate::api::{
    ClaimRequest, Code, LogChunk, OpenLocalPull, Problem, RecordRequest, ReleaseRequest,
    StartRequest,
};
use crate::model::{TokenId, TokenScope, WorkerId, WorkerName};

/// What is said of a token that is none here.
const REVOKED: &str = "the token is not known here, or was revoked";

/// The way a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The home's socket, for this user's processes alone.
    Socket,
    /// TCP: whoever can reach the address.
    Network,
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A process of the user whose site this is.
    Owner,
    /// Whoever bears this token.
    Bearer(Arc<Bearer>),
    /// Nobody: the request said no token.
    Stranger,
}

impl Caller {
    /// Whether this caller may do what needs `scope`.
    #[must_use]
    pub fn may(&self, scope: TokenScope) -> bool {
        match self {
            Self::Owner => true,
            Self::Bearer(bearer) => {
                bearer.scopes.contains(&scope) || bearer.scopes.contains(&TokenScope::Admin)
            }
            Self::Stranger => false,
        }
    }

    /// Whether this caller may register as `name`.
    ///
    /// # Errors
    /// The refusal, where its token is another worker's.
    pub(super) fn register_as(&self, name: &WorkerName) -> Answer<()> {
        match self {
            Self::Bearer(bearer) if !self.may(TokenScope::Admin) => match &bearer.worker {
                Some(own) if own == name => Ok(()),
                Some(own) => {
                    Err(forbidden(format!("the token is worker `{own}`'s, not `{name}`'s"))
                        .hint(format!("start it as `relay work --name {own}`"))
                        .into())
                }
                None => Err(forbidden("the token speaks for no worker").into()),
            },
            _ => Ok(()),
        }
    }

    /// Whether this caller may tell the worker of this name to pause, to go on or to end: its own
    /// machine may, and an admin.
    ///
    /// # Errors
    /// The refusal, where its token is another worker's.
    pub(super) fn order(&self, name: &WorkerName) -> Answer<()> {
        match self {
            Self::Bearer(bearer) if !self.may(TokenScope::Admin) => match &bearer.worker {
                Some(own) if own == name => Ok(()),
                Some(own) => {
                    let text = format!("the token is worker `{own}`'s, and tells `{name}` nothing");
                    Err(forbidden(text)
                        .hint(format!(
                            "run it on the machine of `{name}`, or with an admin's token"
                        ))
                        .into())
                }
                None => Err(forbidden("the token speaks for no worker").into()),
            },
            _ => Ok(()),
        }
    }

    /// Whether this caller may speak for the worker: its heartbeat, its leases, its place at the
    /// bell. The one place where a token meets the worker that a request names.
    ///
    /// # Errors
    /// The refusal, where its token is another worker's.
    pub(super) async fn speak_for(&self, site: &Site, worker: &WorkerId) -> Answer<()> {
        let Self::Bearer(bearer) = self else { return Ok(()) };
        if self.may(TokenScope::Admin) {
            return Ok(());
        }
        let Some(own) = &bearer.worker else {
            return Err(forbidden("the token speaks for no worker").into());
        };
        let known = match site.bearers.worker(own) {
            Some(known) => Some(known),
            // It may have registered at another site. On the heap, as whatever is rare: else every
            // request would carry room for it.
            None => Box::pin(site.find_worker(own)).await?,
        };
        if known.as_ref() == Some(worker) {
            return Ok(());
        }
        Err(forbidden(format!("the token is worker `{own}`'s, and speaks for no other")).into())
    }

    /// The token it showed, where there was one.
    pub(super) fn token(&self) -> Option<&TokenId> {
        match self {
            Self::Bearer(bearer) => Some(&bearer.id),
            Self::Owner | Self::Stranger => None,
        }
    }

    /// Whether its token was revoked since the request came in.
    pub(super) fn is_revoked(&self) -> bool {
        matches!(self, Self::Bearer(bearer) if bearer.is_revoked())
    }
}

/// A request that speaks for a worker.
pub trait SpeaksFor {
    /// The worker it names.
    fn worker(&self) -> &WorkerId;
}

/// The routes' bodies that name a worker, all by the same word.
macro_rules! speaks_for {
    ($($body:ty),+) => {
        $(impl SpeaksFor for $body {
            fn worker(&self) -> &WorkerId {
                &self.worker_id
            }
        })+
    };
}
speaks_for!(ClaimRequest, StartRequest, RecordRequest, LogChunk, ReleaseRequest, OpenLocalPull);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or(Self::Stranger))
    }
}

/// Finds out who asks.
///
/// # Errors
/// The refusal of a token that is none, whatever the route.
pub(super) async fn identify(site: &Site, door: Door, headers: &HeaderMap) -> Answer<Caller> {
    let shown = match door {
        Door::Socket => return Ok(Caller::Owner),
        Door::Network => headers.get(AUTHORIZATION),
    };
    let Some(shown) = shown else { return Ok(Caller::Stranger) };
    let Some(token) = shown.to_str().ok().and_then(bearer_in) else {
        return Err(unauthorised(REVOKED));
    };
    // A worker that was told that its token is none would give up: an error is told as one.
    match site.bearer(token.trim()).await? {
        Some(bearer) => Ok(Caller::Bearer(bearer)),
        None => Err(unauthorised(REVOKED)),
    }
}

/// The token of `Bearer TOKEN`; the scheme's name may be written in any case (RFC 9110 §11.1).
fn bearer_in(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Lets a caller on who bears one of these scopes; with none of them, everybody.
///
/// # Errors
/// The refusal, which says what it would take.
pub(super) fn admit(caller: &Caller, scopes: &[TokenScope]) -> Answer<()> {
    if scopes.is_empty() || scopes.iter().any(|scope| caller.may(*scope)) {
        return Ok(());
    }
    if matches!(caller, Caller::Stranger) {
        return Err(unauthorised("this route needs a token"));
    }
    let words: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    let detail = format!("the token lacks the scope {}", words.join(" or "));
    let hint = format!(
        "run it on the site's machine as its user, or set RELAY_TOKEN to a token with {}",
        if words.len() == 1 { "that scope" } else { "one of these scopes" }
    );
    Err(Refusal(forbidden(detail).hint(hint)))
}

/// An answer that ends with the token it was asked with: 401 where nothing was said yet, else the
/// line breaks, and who asks again is told.
pub(super) async fn held_by(
    bearer: Arc<Bearer>,
    answer: impl Future<Output = Response>,
) -> Response {
    // The answer first: most are there at once, and waiting for the other is a turn at a lock that
    // all who show this token share.
    let response = tokio::select! {
        biased;
        response = answer => response,
        () = bearer.until_revoked() => return unauthorised(REVOKED).into_response(),
    };
    if bearer.is_revoked() {
        return unauthorised(REVOKED).into_response();
    }
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let (head, body) = response.into_parts();
    let pieces = stream::unfold(Some(body.into_data_stream()), move |pieces| {
        let bearer = Arc::clone(&bearer);
        async move {
            let mut pieces = pieces?;
            tokio::select! {
                biased;
                () = bearer.until_revoked() => Some((Err(io::Error::other(REVOKED)), None)),
                piece = pieces.next() => {
                    piece.map(|piece| (piece.map_err(io::Error::other), Some(pieces)))
                }
            }
        }
    });
    Response::from_parts(head, Body::from_stream(pieces))
}

fn forbidden(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Forbidden, detail)
}

fn unauthorised(detail: &str) -> Refusal {
    let problem = Problem::new(Code::Unauthorized, detail)
        .hint("`relay setup --site URL` gets this machine a token");
    Refusal(problem)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use bytes::Bytes;

    use super::*;
    use crate::model::{Actor, Timestamp, Token, TokenHash};
    use crate::queue::KnownToken;
    use crate::site::bearers::Bearers;

    fn known(text: &str) -> KnownToken {
        let token = Token {
            id: "00000000-0000-7000-8000-000000000001".parse().expect("an id"),
            name: "one".parse().expect("a name"),
            scopes: vec![TokenScope::FeedRead],
            worker: None,
            created_by: Actor::site(),
            created_at: Timestamp(1),
            last_used: None,
            revoked_at: None,
            revoked_by: None,
        };
        KnownToken { hash: TokenHash::of(text), token }
    }

    #[tokio::test]
    async fn an_answer_that_began_breaks_off_with_its_token() {
        let bearers = Bearers::default();
        bearers.add(known("relay_x"));
        let bearer = bearers.find("relay_x", Timestamp(1)).expect("it is good");
        let begun = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b" "))]);
        let body = Body::from_stream(begun.chain(stream::pending()));
        let answer = held_by(Arc::clone(&bearer), async { Response::new(body) }).await;
        let mut pieces = answer.into_body().into_data_stream();
        assert_eq!(pieces.next().await.expect("it began").expect("a blank"), " ");
        bearers.remove(&bearer.id);
        assert!(pieces.next().await.expect("an end").is_err(), "the line breaks");
        assert!(pieces.next().await.is_none());

        let never = std::future::pending::<Response>();
        let answer = held_by(Arc::clone(&bearer), never).await;
        assert_eq!(answer.status(), 401);
        let short = async { Response::new(Body::from("x")) };
        bearers.add(known("relay_y"));
        let bearer = bearers.find("relay_y", Timestamp(1)).expect("it is good");
        let whole = held_by(bearer, short).await;
        assert_eq!(to_bytes(whole.into_body(), 10).await.expect("a body"), "x");
    }
}
