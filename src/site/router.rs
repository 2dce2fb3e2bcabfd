//! Every route in one list. The transport is elsewhere: the same router is served on a socket and
//! over TCP.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};

use super::caller::{Door, admit, identify};
use super::problem::Refusal;
use super::state::Site;
use super::{feed, projects, tasks, tokens, work};
use crate::api::route::{self, PREFIX};
use crate::api::{Code, Problem, VERSION_HEADER};
use crate::model::TokenScope::{self, Admin, FeedRead, TasksWrite, WorkClaim};

/// The longest body, in bytes. A log's chunk may grow when it is written as JSON, and a local pull
/// request carries its diff; both are checked for themselves.
const BODY_MAX: usize = 1024 * 1024;
const LOG_BODY_MAX: usize = 2 * 1024 * 1024;
const PULL_BODY_MAX: usize = 4 * 1024 * 1024;

/// The site's API, for requests that come in by `door`. Each route names who may: any of its scopes.
pub fn router(site: Arc<Site>, door: Door) -> Router {
    let limit = DefaultBodyLimit::max;
    let api = Router::new()
        .route(route::WORKERS, of(&[WorkClaim], post(work::register)))
        .route(route::WORKERS, of(&[FeedRead], get(work::workers)))
        .route(route::HEARTBEAT, of(&[WorkClaim], post(work::heartbeat)))
        .route(route::DOORBELL, of(&[WorkClaim, FeedRead], get(work::doorbell)))
        .route(route::CLAIM, of(&[WorkClaim], post(work::claim)))
        .route(route::START, of(&[WorkClaim], post(work::start)))
        .route(route::RECORD, of(&[WorkClaim], post(work::record)))
        .route(route::LOG, of(&[WorkClaim], post(work::log)).layer(limit(LOG_BODY_MAX)))
        .route(route::RELEASE, of(&[WorkClaim], post(work::release)))
        .route(route::TASKS, of(&[TasksWrite], post(tasks::create)))
        .route(route::TASKS, of(&[FeedRead], get(tasks::list)))
        .route(route::TASK, of(&[FeedRead], get(tasks::detail)))
        .route(route::TASK_LOG, of(&[FeedRead], get(feed::log)))
        .route(route::TASK_CANCEL, of(&[TasksWrite], post(tasks::cancel)))
        .route(route::TASK_RETRY, of(&[TasksWrite], post(tasks::retry)))
        .route(route::TASK_DONE, of(&[TasksWrite], post(tasks::done)))
        .route(route::PROJECTS, of(&[Admin], post(projects::link)))
        .route(route::PROJECTS, of(&[FeedRead], get(projects::list)))
        .route(route::PROJECT, of(&[FeedRead], get(projects::one)))
        .route(
            route::LOCAL_PULLS,
            of(&[WorkClaim], post(work::open_local_pull)).layer(limit(PULL_BODY_MAX)),
        )
        .route(route::EVENTS, of(&[FeedRead], get(feed::events)))
        .route(route::PREFERENCES, of(&[Admin], post(tasks::prefer)))
        .route(route::PREFERENCES, of(&[FeedRead], get(tasks::preferences)))
        .route(route::TOKENS, of(&[Admin], post(tokens::create)))
        .route(route::TOKENS, of(&[Admin], get(tokens::list)))
        .route(route::TOKEN_REVOKE, of(&[Admin], post(tokens::revoke)))
        .route(route::WHO_AM_I, of(&TokenScope::ALL, get(tokens::who_am_i)))
        .route(route::HEALTH, of(&[FeedRead], get(feed::health)))
        .route(route::STATUS, of(&[WorkClaim, FeedRead], get(feed::status)));
    Router::new()
        .nest(PREFIX, api)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(limit(BODY_MAX))
        .layer(from_fn_with_state(Arc::clone(&site), versions))
        .layer(from_fn_with_state((Arc::clone(&site), door), identify))
        .with_state(site)
}

/// A route for those who have one of the scopes.
fn of(scopes: &'static [TokenScope], route: MethodRouter<Arc<Site>>) -> MethodRouter<Arc<Site>> {
    route.route_layer(from_fn_with_state(scopes, admit))
}

async fn no_route(request: Request) -> Refusal {
    let path = request.uri().path();
    Refusal(Problem::new(Code::NotFound, format!("there is no route {path}")))
}

async fn no_method(request: Request) -> Refusal {
    let (method, path) = (request.method(), request.uri().path());
    let mut problem = Problem::new(Code::BadRequest, format!("{path} does not take {method}"));
    problem.status = StatusCode::METHOD_NOT_ALLOWED.as_u16();
    Refusal(problem)
}

/// Every answer says the site's version, and a request that says another one is refused: the two
/// may mean different things by the same words. Only the status is told to every version.
async fn versions(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let theirs = request.headers().get(VERSION_HEADER);
    let same = theirs.is_none_or(|theirs| theirs.as_bytes() == site.version.as_bytes());
    let of_status = request.uri().path().strip_prefix(PREFIX) == Some(route::STATUS);
    let mut response = if same || of_status {
        next.run(request).await
    } else {
        let theirs = theirs.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let detail = format!(
            "the site runs relay {}, the request came from relay {}",
            site.version,
            theirs.unwrap_or_default()
        );
        Refusal(Problem::new(Code::VersionMismatch, detail).hint("restart the older one"))
            .into_response()
    };
    if let Ok(version) = HeaderValue::from_str(&site.version) {
        response.headers_mut().insert(VERSION_HEADER, version);
    }
    response
}
