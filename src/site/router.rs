//! Every route in one list. The transport is elsewhere: the same router is served on a socket and
//! over TCP.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::from_fn_with_state;

use super::caller::Door;
use super::gate::{Gate, gate};
use super::problem::Refusal;
use super::route::Route;
use super::state::Site;
use super::{approve, feed, orders, page, probe, projects, setup, tasks, tokens, work};
use crate::api::route;
use crate::api::{Code, Doorbell, Problem};
use crate::model::TokenScope::{self, Admin, FeedRead, TasksWrite, WorkClaim};

/// A log's chunk may grow when it is written as JSON, and a local pull request carries its diff;
/// both are checked for themselves.
const LOG_BODY_MAX: usize = 2 * 1024 * 1024;
const PULL_BODY_MAX: usize = 4 * 1024 * 1024;

/// A follower of a log is held for at most a minute.
const FOLLOW_TIME: Duration = Duration::from_secs(90);

/// Every route, in the order of the document.
pub(super) fn routes() -> Vec<Route> {
    let mut all = work_routes();
    all.extend(people_routes());
    all.extend(site_routes());
    all
}

fn work_routes() -> Vec<Route> {
    use Code::{Conflict, LeaseLost, TooLarge, WorkerUnknown};
    vec![
        Route::post(route::WORKERS, work::register)
            .may(&[WorkClaim])
            .says("Registers a worker by its name. A new instance ends the leases of the one before it."),
        Route::get(route::WORKERS, work::workers)
            .may(&[FeedRead])
            .says("Lists every worker that ever registered, with its state and its leases."),
        Route::post(route::ORDERS, orders::order)
            .may(&[WorkClaim])
            .refuses(&[Code::NotFound, Code::Forbidden])
            .says("Pauses, resumes or drains a worker, or lanes of it; a worker's token does so for its own."),
        Route::post(route::HEARTBEAT, work::heartbeat)
            .may(&[WorkClaim])
            .refuses(&[WorkerUnknown])
            .says("Renews the leases named, each for 30 minutes from now, and answers for each."),
        Route::get(route::DOORBELL, work::doorbell)
            .may(&[WorkClaim, FeedRead])
            .refuses(&[WorkerUnknown])
            .gives::<Doorbell>()
            .says("Tells whether there is work for these lanes; held for `wait` seconds where there is none."),
        Route::post(route::CLAIM, work::claim)
            .may(&[WorkClaim])
            .refuses(&[WorkerUnknown])
            .says("Leases the oldest queued task that fits, for 30 minutes; `claim` is null where none does."),
        Route::post(route::START, work::start)
            .may(&[WorkClaim])
            .refuses(&[LeaseLost])
            .says("The lane starts: the task is running."),
        Route::post(route::RECORD, work::record)
            .may(&[WorkClaim])
            .refuses(&[LeaseLost])
            .says("Writes into the run's journal what was done outside of the worker."),
        Route::post(route::LOG, work::log)
            .may(&[WorkClaim])
            .refuses(&[LeaseLost, TooLarge])
            .body_max(LOG_BODY_MAX)
            .says("Appends a chunk to the run's log."),
        Route::post(route::RELEASE, work::release)
            .may(&[WorkClaim])
            .refuses(&[LeaseLost])
            .says("Ends the run with the reason it stopped for, and gives the lease up."),
        Route::post(route::LOCAL_PULLS, work::open_local_pull)
            .may(&[WorkClaim])
            .refuses(&[LeaseLost, Conflict])
            .body_max(PULL_BODY_MAX)
            .says("Opens the pull request of a repository on a disk, or brings it up to date."),
    ]
}

fn people_routes() -> Vec<Route> {
    use Code::{Conflict, Forge};
    vec![
        Route::post(route::TASKS, tasks::create)
            .may(&[TasksWrite])
            .refuses(&[Forge, Conflict])
            .says("Makes a task of an issue or of a title, or gives the one that is there already."),
        Route::get(route::TASKS, tasks::list).may(&[FeedRead]).says("Lists tasks, newest first."),
        Route::get(route::TASK, tasks::detail)
            .may(&[FeedRead])
            .says("One task with its runs, what they did, and why it waits."),
        Route::get(route::TASK_LOG, feed::log)
            .may(&[FeedRead])
            .time(FOLLOW_TIME)
            .says("A piece of a run's log from an offset; held for `wait` seconds where there is nothing new."),
        Route::post(route::TASK_CANCEL, tasks::cancel)
            .may(&[TasksWrite])
            .refuses(&[Conflict])
            .says("Calls a task off; its worker hears of it within a moment."),
        Route::post(route::TASK_RETRY, tasks::retry)
            .may(&[TasksWrite])
            .refuses(&[Conflict])
            .says("Queues a task again."),
        Route::post(route::TASK_DONE, tasks::done)
            .may(&[TasksWrite])
            .refuses(&[Conflict])
            .says("Ends a task by hand."),
        Route::post(route::PROJECTS, projects::link)
            .may(&[Admin])
            .refuses(&[Forge, Conflict])
            .says("Links a repository, or brings its link up to date."),
        Route::get(route::PROJECTS, projects::list)
            .may(&[FeedRead])
            .says("Lists the linked repositories."),
        Route::get(route::PROJECT, projects::one)
            .may(&[FeedRead])
            .says("One linked repository."),
        Route::get(route::EVENTS, feed::events)
            .may(&[FeedRead])
            .says("What happened after `after`, oldest first."),
        Route::post(route::PREFERENCES, tasks::prefer)
            .may(&[Admin])
            .says("Sets a preference, or takes it away where there is no value; answers all of them."),
        Route::get(route::PREFERENCES, tasks::preferences)
            .may(&[FeedRead])
            .says("Lists the preferences, widest first."),
    ]
}

fn site_routes() -> Vec<Route> {
    vec![
        Route::post(route::TOKENS, tokens::create)
            .may(&[Admin])
            .refuses(&[Code::Conflict])
            .says("Makes a token. The answer is the only place where its secret is told."),
        Route::get(route::TOKENS, tokens::list)
            .may(&[Admin])
            .says("Lists every token, also the revoked ones, without their secrets."),
        Route::post(route::TOKEN_REVOKE, tokens::revoke)
            .may(&[Admin])
            .says("Revokes a token: what it holds is let go, and its worker's leases end."),
        Route::get(route::WHO_AM_I, tokens::who_am_i)
            .may(&TokenScope::ALL)
            .says("What the token that asks may, and which worker it speaks for."),
        Route::post(route::INVITES, setup::invite)
            .may(&[Admin])
            .says("Makes an invite. The answer is the only place where its code is told."),
        Route::post(route::INVITE_REDEEM, setup::redeem)
            .refuses(&[Code::Forbidden, Code::Conflict])
            .says("Trades an invite for a worker's token, once."),
        Route::post(route::DEVICE_CODE, setup::ask)
            .says("A machine asks a person for a worker's token (RFC 8628)."),
        Route::post(route::DEVICE_TOKEN, setup::poll)
            .refuses(&[
                Code::AuthorizationPending,
                Code::SlowDown,
                Code::AccessDenied,
                Code::ExpiredToken,
            ])
            .says("Whether the person answered; `error` has the word of RFC 8628."),
        Route::post(route::SIGN_INS, setup::sign_in)
            .may(&[Admin])
            .says("Makes a link that signs a person in to the site's pages, once."),
        Route::get(route::STATUS, feed::status)
            .may(&[WorkClaim, FeedRead])
            .says("The site's version and clock, and how it stands with the forges."),
        Route::get(route::HEALTH, feed::health)
            .may(&[FeedRead])
            .says("Reads the database through and tells its size."),
        Route::get(route::OPENAPI, page::json)
            .gives::<serde_json::Map<String, serde_json::Value>>()
            .says("This document."),
        Route::get(route::DOCS, page::html)
            .gives_text("text/html")
            .says("This document as a page for people."),
        Route::get(route::DOCS_STYLE, page::style)
            .gives_text("text/css")
            .says("How that page looks."),
        Route::new(Method::GET, route::HEALTHZ.to_owned(), probe::alive)
            .unpaced()
            .gives_text("text/plain")
            .says("The process is alive. Asks the database nothing."),
        Route::new(Method::GET, route::READYZ.to_owned(), probe::ready)
            .unpaced()
            .gives_text("text/plain")
            .says(
                "The database answers, and the site is not stopping. Asked at most once a second.",
            ),
        Route::new(Method::GET, route::METRICS.to_owned(), probe::metrics)
            .may(&[FeedRead])
            .gives_text("text/plain")
            .says("Counters for Prometheus, from memory alone."),
    ]
}

/// What people see in a browser: no part of the API.
fn pages() -> Vec<Route> {
    vec![
        Route::new(Method::GET, route::DEVICE_PAGE.to_owned(), approve::show),
        Route::new(Method::POST, route::DEVICE_PAGE.to_owned(), approve::decide),
        Route::new(Method::GET, route::OPEN_PAGE.to_owned(), approve::door),
        Route::new(Method::POST, route::OPEN_PAGE.to_owned(), approve::open),
    ]
}

/// The site's API, for requests that come in by `door`.
pub fn router(site: Arc<Site>, door: Door) -> Router {
    let mut routes = routes();
    routes.extend(pages());
    let guard = Arc::new(Gate::new(Arc::clone(&site), door, &routes));
    let mut router = Router::new();
    for route in routes {
        let (path, handler) = route.into_axum();
        router = router.route(&path, handler);
    }
    // One layer: each costs every request a box and a copy of all that is behind it.
    router.fallback(no_route).layer(from_fn_with_state(guard, gate)).with_state(site)
}

async fn no_route(request: Request) -> Refusal {
    let path = request.uri().path();
    Refusal(Problem::new(Code::NotFound, format!("there is no route {path}")))
}
