//! Who a request comes from, and what it may. Put into each request where it enters the site: the
//! socket is this user's own, over TCP a bearer token says it.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Refusal;
use super::state::Site;
use crate::api::{Code, Problem};
use crate::model::{TokenScope, WorkerName};

/// The way a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The home's socket, for this user's processes alone.
    Socket,
    /// TCP: whoever can reach the address.
    Network,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process of the user whose site this is.
    Owner,
    /// Whoever bears this token.
    Bearer(Arc<Bearer>),
    /// Nobody: the request said no token.
    Stranger,
}

/// What is known of a token that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The token's id, which is no secret.
    pub id: String,
    /// What it may.
    pub scopes: Vec<TokenScope>,
    /// The worker it speaks for, where it is bound to one.
    pub worker: Option<WorkerName>,
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
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or(Self::Stranger))
    }
}

/// Finds out who asks. A token that is none is refused here, whatever the route.
pub(super) async fn identify(
    State((site, door)): State<(Arc<Site>, Door)>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match door {
        Door::Socket => Caller::Owner,
        Door::Network => match request.headers().get(AUTHORIZATION) {
            None => Caller::Stranger,
            Some(shown) => {
                let token = shown.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
                match token.and_then(|token| site.bearer(token.trim())) {
                    Some(bearer) => Caller::Bearer(bearer),
                    None => return unauthorised("the token is not known here, or was revoked"),
                }
            }
        },
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Lets a request on where its caller may.
pub(super) async fn admit(
    State(scopes): State<&'static [TokenScope]>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    if scopes.iter().any(|scope| caller.may(*scope)) {
        return next.run(request).await;
    }
    if caller == Caller::Stranger {
        return unauthorised("this route needs a token");
    }
    let words: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    let detail = format!("the token lacks the scope {}", words.join(" or "));
    Refusal(Problem::new(Code::Forbidden, detail)).into_response()
}

fn unauthorised(detail: &str) -> Response {
    let problem = Problem::new(Code::Unauthorized, detail)
        .hint("`relay setup --site URL` gets this machine a token");
    Refusal(problem).into_response()
}
