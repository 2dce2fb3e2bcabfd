//! The routes for whoever runs the site: is it alive, is it ready, what does it count.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::problem::{Answer, Refusal};
use super::state::Site;
use crate::api::{Code, Problem};

/// The database is asked at most this often, however many ask.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn alive() -> Response {
    text("ok\n".to_owned())
}

pub(super) async fn ready(State(site): State<Arc<Site>>) -> Answer<Response> {
    if site.stopping.is_cancelled() {
        return Err(busy("the site is stopping"));
    }
    if answers(&site).await {
        Ok(text("ok\n".to_owned()))
    } else {
        Err(busy("the database does not answer"))
    }
}

/// Whether the database answers now, or did so just before. Nobody needs a token to ask, so one
/// question serves all.
async fn answers(site: &Site) -> bool {
    let mut last = site.ready.lock().await;
    let now = site.clock.uptime();
    if let Some((at, answered)) = *last
        && now.saturating_sub(at) < ASK_EVERY
    {
        return answered;
    }
    let answered = matches!(tokio::time::timeout(PATIENCE, site.queue.answers()).await, Ok(Ok(())));
    *last = Some((now, answered));
    answered
}

pub(super) async fn metrics(State(site): State<Arc<Site>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let mut response = text(site.counters());
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Site {
    /// Everything counted, as Prometheus reads it. The database is not asked.
    pub fn counters(&self) -> String {
        let now = self.clock.now();
        let gauges = [
            ("relay_doorbells_held", "doorbells held by workers now", self.bell.present().len()),
            ("relay_queued", "tasks that wait for a worker, as the bell knows", self.bell.queued()),
            ("relay_leases", "live leases this process has seen", self.logs.live(now)),
        ];
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.metrics.text(&gauges.map(|(name, help, n)| (name, help, count(n))))
    }
}

fn text(text: String) -> Response {
    (StatusCode::OK, text).into_response()
}

fn busy(detail: &str) -> Refusal {
    Refusal(Problem::new(Code::Busy, detail))
}
