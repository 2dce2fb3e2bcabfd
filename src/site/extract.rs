//! What a handler takes from a request, checked, with a [`Refusal`] where it is not that.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::caller::{Caller, SpeaksFor};
use super::limits::{home_of, peer};
use super::problem::Refusal;
use super::state::Site;
use super::versions::Dialect;
use crate::api::{Code, Problem, lenient};
use crate::model::{RepoName, TaskId, TokenId, WorkerId};

/// How a request is to be read, as the gate found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub dialect: Dialect,
    /// How long its body may take to arrive.
    pub body_time: Duration,
}

impl Reading {
    /// For a request that came by no gate.
    const PLAIN: Self = Self { dialect: Dialect::Ours, body_time: Duration::from_secs(40) };

    fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::PLAIN)
    }
}

/// A JSON body. Unknown fields are refused by the types.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        is_json(request.headers())?;
        let Reading { dialect, body_time } = Reading::of(request.extensions());
        let reading = tokio::time::timeout(body_time, Bytes::from_request(request, state));
        let read = reading.await.map_err(|_| {
            let detail = format!("the body did not arrive within {} s", body_time.as_secs());
            Refusal(Problem::new(Code::Timeout, detail))
        })?;
        let bytes = read.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Refusal(Problem::new(Code::TooLarge, "the body is longer than this route takes"))
            } else {
                Refusal::bad("the body cannot be read to its end")
            }
        })?;
        if holds_nul(&bytes) {
            return Err(Refusal::bad("a text of the body holds a NUL character"));
        }
        let read = match dialect {
            Dialect::Ours => serde_json::from_slice(&bytes),
            Dialect::Newer => serde_json::from_slice(&bytes).and_then(lenient::body),
        };
        read.map(Self)
            .map_err(|e| Refusal::bad(format!("the body is not what this route takes: {e}")))
    }
}

/// A request that says of its body that it is something else. One that says nothing may be JSON.
fn is_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(said) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let kind = said.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" {
        return Ok(());
    }
    Err(Refusal(Problem::new(Code::UnsupportedType, "the body's type is not application/json")))
}

/// Whether JSON text holds the escape of a NUL, which is the only way to say one: no text relay
/// keeps holds it, and Postgres takes none.
fn holds_nul(json: &[u8]) -> bool {
    const NUL: &[u8] = b"\\u0000";
    let mut from = 0;
    while let Some(found) =
        json.get(from..).and_then(|rest| rest.windows(NUL.len()).position(|w| w == NUL))
    {
        let at = from + found;
        let before = json.get(..at).unwrap_or_default();
        let slashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        if slashes % 2 == 0 {
            return true;
        }
        from = at + 1;
    }
    false
}

/// A JSON body that speaks for a worker, from whoever may speak for that worker.
pub struct Own<T>(pub T);

impl<T: DeserializeOwned + SpeaksFor + Send + Sync> FromRequest<Arc<Site>> for Own<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, site: &Arc<Site>) -> Result<Self, Refusal> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or(Caller::Stranger);
        let Body(body) = Body::<T>::from_request(request, site).await?;
        caller.speak_for(site, body.worker()).await?;
        Ok(Self(body))
    }
}

/// Where a request came from; `None` where it is this user's own socket.
pub struct From(Option<IpAddr>);

impl From {
    /// For a person to read.
    pub fn shown(&self) -> String {
        self.0.map_or_else(|| "this machine".to_owned(), |address| address.to_string())
    }

    /// Whom it is counted as.
    pub fn household(&self) -> Option<IpAddr> {
        self.0.map(home_of)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(peer(&parts.extensions, &parts.headers)))
    }
}

/// A query string. Unknown names are refused by the types.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = parts.uri.query().unwrap_or_default();
        let known = match Reading::of(&parts.extensions).dialect {
            Dialect::Ours => None,
            Dialect::Newer => format!("/?{}", lenient::query::<T>(query)).parse().ok(),
        };
        Query::try_from_uri(known.as_ref().unwrap_or(&parts.uri))
            .map(|Query(query)| Self(query))
            .map_err(|e| Refusal::bad(format!("the query is not what this route takes: {e}")))
    }
}

/// `{owner}/{task}` of a path, where `{task}` is `repo%23issue` or `repo%23issue:lane`.
pub struct OfTask(pub TaskId);

impl<S: Send + Sync> FromRequestParts<S> for OfTask {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let (owner, task) = path::<(String, String), S>(parts, state).await?;
        Ok(Self(format!("{owner}/{task}").parse()?))
    }
}

/// `{owner}/{repo}` of a path.
pub struct OfProject(pub RepoName);

impl<S: Send + Sync> FromRequestParts<S> for OfProject {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let (owner, name) = path::<(String, String), S>(parts, state).await?;
        Ok(Self(format!("{owner}/{name}").parse()?))
    }
}

/// `{id}` of a worker's path, for whoever may speak for that worker.
pub struct OfWorker(pub WorkerId);

impl FromRequestParts<Arc<Site>> for OfWorker {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refusal> {
        let caller = Caller::from_request_parts(parts, site).await?;
        let worker = path::<String, _>(parts, site).await?.parse()?;
        caller.speak_for(site, &worker).await?;
        Ok(Self(worker))
    }
}

/// `{id}` of a token's path.
pub struct OfToken(pub TokenId);

impl<S: Send + Sync> FromRequestParts<S> for OfToken {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Ok(Self(path::<String, S>(parts, state).await?.parse()?))
    }
}

/// The path's parts, percent-decoded.
async fn path<T, S>(parts: &mut Parts, state: &S) -> Result<T, Refusal>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    let read = Path::<T>::from_request_parts(parts, state).await;
    read.map(|Path(read)| read).map_err(|e| Refusal::bad(format!("the path cannot be read: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_found_however_it_is_written_and_its_name_is_not_one() {
        for (json, holds) in [
            (r#"{"a":"\u0000"}"#, true),
            (r#"{"a":"x\\\u0000"}"#, true),
            (r#"{"\u0000":1}"#, true),
            (r#"{"a":"\\u0000","b":"\u0000"}"#, true),
            (r#"{"a":"\\u0000"}"#, false),
            (r#"{"a":"\\\\u0000"}"#, false),
            (r#"{"a":"\u0001\u00001"}"#, true),
            (r#"{"a":"\u0010"}"#, false),
        ] {
            assert_eq!(holds_nul(json.as_bytes()), holds, "{json}");
            let read: serde_json::Value = serde_json::from_str(json).expect("JSON");
            let text: String = read
                .as_object()
                .expect("an object")
                .iter()
                .fold(String::new(), |text, (name, value)| {
                    text + name + value.as_str().unwrap_or_default()
                });
            assert_eq!(text.contains('\0'), holds, "{json}");
        }
    }

    #[test]
    fn a_body_that_says_it_is_json_or_nothing_is_read() {
        let said = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().expect("a value"));
            is_json(&headers).is_ok()
        };
        assert!(is_json(&HeaderMap::new()).is_ok());
        assert!(said("application/json") && said("Application/JSON; charset=utf-8"));
        for other in
            ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json"]
        {
            assert!(!said(other), "{other}");
        }
    }
}
