//! What a handler takes from a request, checked, with a [`Refusal`] where it is not that.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::caller::{Caller, SpeaksFor};
use super::problem::Refusal;
use super::state::Site;
use crate::api::{Code, Problem};
use crate::model::{RepoName, TaskId, TokenId, WorkerId};

/// A JSON body. Unknown fields are refused by the types.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Refusal(Problem::new(Code::TooLarge, "the body is longer than this route takes"))
            } else {
                Refusal::bad(format!("the body cannot be read: {}", rejection.body_text()))
            }
        })?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|e| Refusal::bad(format!("the body is not what this route takes: {e}")))
    }
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

/// A query string. Unknown names are refused by the types.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Query::try_from_uri(&parts.uri)
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
