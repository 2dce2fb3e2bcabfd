//! The paths, in one place, so that site and client cannot drift apart.

use crate::model::{RepoName, TaskId, WorkerId};

/// In front of every route.
pub const PREFIX: &str = "/api/v1";

/// On every request and every answer: the version of relay that sent it.
pub const VERSION_HEADER: &str = "relay-version";

/// On every request and every answer: the [`REVISION`] of what the two say to each other.
pub const REVISION_HEADER: &str = "relay-api";

/// On every answer, and in the site's log where a request failed. A request may bring its own.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

/// Counts the changes of the wire that an older peer has to know of. Peers whose revisions differ
/// by one understand each other; docs/api.md has the rules that keep it so.
pub const REVISION: u32 = 1;

/// `POST`: register. `GET`: list.
pub const WORKERS: &str = "/workers";
/// `POST`: a person pauses, resumes or drains a worker.
pub const ORDERS: &str = "/workers/orders";
/// `POST`.
pub const HEARTBEAT: &str = "/workers/{id}/heartbeat";
/// `GET`, may be held.
pub const DOORBELL: &str = "/work/doorbell";
/// `POST`.
pub const CLAIM: &str = "/work/claim";
/// `POST`. `{task}` is `repo%23issue` or `repo%23issue:lane`.
pub const START: &str = "/work/{owner}/{task}/start";
/// `POST`: an effect goes into the journal.
pub const RECORD: &str = "/work/{owner}/{task}/record";
/// `POST`: a chunk of the run's log.
pub const LOG: &str = "/work/{owner}/{task}/log";
/// `POST`.
pub const RELEASE: &str = "/work/{owner}/{task}/release";
/// `POST`: create. `GET`: list, `?state=`.
pub const TASKS: &str = "/tasks";
/// `GET`.
pub const TASK: &str = "/tasks/{owner}/{task}";
/// `GET`, may be held: the run's log from an offset.
pub const TASK_LOG: &str = "/tasks/{owner}/{task}/log";
/// `POST`.
pub const TASK_CANCEL: &str = "/tasks/{owner}/{task}/cancel";
/// `POST`.
pub const TASK_RETRY: &str = "/tasks/{owner}/{task}/retry";
/// `POST`.
pub const TASK_DONE: &str = "/tasks/{owner}/{task}/done";
/// `POST`: link. `GET`: list.
pub const PROJECTS: &str = "/projects";
/// `GET`.
pub const PROJECT: &str = "/projects/{owner}/{repo}";
/// `POST`: a worker opens, or updates, a pull request of a local repository.
pub const LOCAL_PULLS: &str = "/projects/{owner}/{repo}/pulls";
/// `GET`, `?after=`.
pub const EVENTS: &str = "/events";
/// `POST`: set. `GET`: list.
pub const PREFERENCES: &str = "/preferences";
/// `GET`: version, home, forges and their cool-downs.
pub const STATUS: &str = "/status";
/// `POST`: make one. `GET`: list.
pub const TOKENS: &str = "/tokens";
/// `POST`.
pub const TOKEN_REVOKE: &str = "/tokens/{id}/revoke";
/// `GET`: what the token that asks may.
pub const WHO_AM_I: &str = "/whoami";
/// `POST`: make one.
pub const INVITES: &str = "/invites";
/// `POST`, without a token: an invite for a token.
pub const INVITE_REDEEM: &str = "/invites/redeem";
/// `POST`, without a token: a machine asks (RFC 8628).
pub const DEVICE_CODE: &str = "/device/code";
/// `POST`, without a token: whether it was answered.
pub const DEVICE_TOKEN: &str = "/device/token";
/// `POST`: a link that signs a person in.
pub const SIGN_INS: &str = "/sign-ins";

/// The page where a person answers machines; not under [`PREFIX`].
pub const DEVICE_PAGE: &str = "/device";
/// The page that a link of `relay open` leads to; not under [`PREFIX`].
pub const OPEN_PAGE: &str = "/open/{code}";

/// `GET`: the database, read through.
pub const HEALTH: &str = "/health";

/// `GET`: this API as an OpenAPI document.
pub const OPENAPI: &str = "/openapi.json";
/// `GET`: the same as a page for people.
pub const DOCS: &str = "/docs";

/// `GET`: how that page looks.
pub const DOCS_STYLE: &str = "/docs/style.css";

/// `GET`, outside of the prefix: the process is alive.
pub const HEALTHZ: &str = "/healthz";
/// `GET`, outside of the prefix: the database answers.
pub const READYZ: &str = "/readyz";
/// `GET`, outside of the prefix: counters for Prometheus.
pub const METRICS: &str = "/metrics";

/// The path of a task's route, with the `#` escaped.
#[must_use]
pub fn task_path(template: &str, task: &TaskId) -> String {
    let mut rest = format!("{}%23{}", task.repo.name(), task.number);
    if let Some(lane) = &task.lane {
        rest.push(':');
        rest.push_str(lane.as_str());
    }
    let path = template.replace("{owner}", task.repo.owner()).replace("{task}", &rest);
    format!("{PREFIX}{path}")
}

/// The path of a project's route.
#[must_use]
pub fn project_path(template: &str, slug: &RepoName) -> String {
    let path = template.replace("{owner}", slug.owner()).replace("{repo}", slug.name());
    format!("{PREFIX}{path}")
}

/// The path of a worker's route.
#[must_use]
pub fn worker_path(template: &str, id: &WorkerId) -> String {
    format!("{PREFIX}{}", template.replace("{id}", id.as_str()))
}
