//! Every refusal as `application/problem+json`: a code for programs, words and a hint for people.

use std::path::Path;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::api::route::DOCS;
use crate::api::{Code, PREFIX, Problem};
use crate::model::{DiskProblem, IdError, LaneName};
use crate::queue::{QueueError, StoreError};

/// When to ask again that which the database could not do now, in seconds: a server that starts
/// anew is there in about so long.
const RETRY_AFTER: u32 = 2;

/// A refusal on its way out.
#[derive(Debug)]
pub struct Refusal(pub Problem);

/// What a handler gives.
pub type Answer<T> = Result<T, Refusal>;

/// The problem of an answer, for the gate in front of the routes.
#[derive(Clone, Debug)]
pub(super) struct Said(pub Problem);

impl Refusal {
    /// The request is not what the route takes.
    pub fn bad(detail: impl Into<String>) -> Self {
        Self(Problem::new(Code::BadRequest, detail))
    }

    /// The site failed at `what`; the gate writes the cause to the log.
    pub fn internal(what: &str, cause: &dyn std::fmt::Display) -> Self {
        Self(Problem::new(Code::Internal, format!("{what} failed: {cause}")))
    }

    /// The disk refused at `path`; it is an internal failure where the cause is none of a disk's.
    pub fn disk(what: &str, path: &Path, cause: &std::io::Error) -> Self {
        let Some(why) = DiskProblem::of(cause) else { return Self::internal(what, cause) };
        let detail = format!("{what} failed: {}: {cause}", path.display());
        Self(Problem::new(Code::Disk, detail).hint(why.mend(path)))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = rendered(&self.0, None);
        response.extensions_mut().insert(Said(self.0));
        response
    }
}

/// A problem as RFC 9457 has it. Its type is its place on the page of the API.
#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'static str,
    #[serde(flatten)]
    problem: &'a Problem,
    /// The request's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    /// The code once more, where it is a word of RFC 8628.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Code>,
}

/// The answer that tells `problem`.
pub(super) fn rendered(problem: &Problem, instance: Option<&str>) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let place = format!("{PREFIX}{DOCS}#{}", problem.code.as_str());
    let error = problem.code.is_of_device_flow().then_some(problem.code);
    let document =
        Document { r#type: place, title: problem.code.title(), problem, instance, error };
    let mut response = (status, axum::Json(document)).into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/problem+json");
    headers.insert(header::CONTENT_TYPE, kind);
    let wait = match status {
        StatusCode::TOO_MANY_REQUESTS => Some(1),
        StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_AFTER),
        _ => None,
    };
    if let Some(seconds) = problem.retry_after.or(wait) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<IdError> for Refusal {
    fn from(error: IdError) -> Self {
        Self::bad(error.to_string())
    }
}

impl From<QueueError> for Refusal {
    fn from(error: QueueError) -> Self {
        let detail = error.to_string();
        let problem = |code| Problem::new(code, detail.clone());
        Self(match &error {
            QueueError::NotFound { what: "task", .. } => {
                problem(Code::NotFound).hint("`relay task ls` lists the tasks")
            }
            QueueError::NotFound { what: "project", .. } => problem(Code::NotFound)
                .hint("link the repository first: `relay link PATH` or `relay link OWNER/REPO`"),
            QueueError::NotFound { what: "worker", .. } => {
                problem(Code::NotFound).hint("`relay work status` lists the workers")
            }
            QueueError::NotFound { .. } => problem(Code::NotFound),
            QueueError::NotServed { worker, serves, .. } => {
                let serves: Vec<&str> = serves.iter().map(LaneName::as_str).collect();
                let hint = format!("{worker} serves {}", serves.join(", "));
                problem(Code::NotFound).hint(hint)
            }
            QueueError::Ends { worker, host, .. } => problem(Code::Conflict).hint(format!(
                "start it again on {host}, once it has ended: relay work --name {worker}"
            )),
            QueueError::LeaseLost(_) => problem(Code::LeaseLost),
            QueueError::WorkerUnknown(_) => problem(Code::WorkerUnknown),
            QueueError::Conflict { task, .. } => problem(Code::Conflict)
                .hint(format!("`relay task get '{task}'` shows how it stands")),
            QueueError::Invalid(_) => problem(Code::BadRequest),
            QueueError::Store(cause) => return stored(cause),
        })
    }
}

/// What the database did not do. What a person mends is not logged as relay's own failure: whoever
/// asked is told, and asks again.
fn stored(cause: &StoreError) -> Refusal {
    let code = match cause {
        StoreError::Disk { .. } | StoreError::Open { .. } => Code::Disk,
        StoreError::Busy { .. } => Code::Busy,
        StoreError::Away { .. } => Code::DatabaseAway,
        _ => {
            let mut refusal = Refusal::internal("the database", cause);
            refusal.0.hint = cause.hint();
            return refusal;
        }
    };
    tracing::debug!(%cause, "the database did not do it");
    let mut problem = Problem::new(code, cause.to_string());
    problem.hint = cause.hint();
    Refusal(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_away_is_said_with_when_to_ask_again() {
        let away =
            StoreError::Away { path: "postgres://…@db/relay".into(), detail: "refused".into() };
        let refusal = Refusal::from(QueueError::Store(away));
        assert_eq!(refusal.0.code, Code::DatabaseAway);
        assert!(refusal.0.hint.is_some());
        let response = refusal.into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], RETRY_AFTER.to_string());
    }
}
