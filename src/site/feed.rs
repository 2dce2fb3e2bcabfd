//! What a reader follows: events, run logs, the site's own state.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;

use super::answer::Json;
use super::extract::{Asked, OfTask};
use super::logs::Piece;
use super::problem::{Answer, Refusal};
use super::state::Site;
use crate::api::{
    Code, EventsAnswer, EventsQuery, HealthAnswer, LogAnswer, LogQuery, Problem, StatusAnswer,
};
use crate::model::{RunId, TaskId};
use crate::queue::Health;

/// The longest a log's reader is held.
const FOLLOW_MAX: Duration = Duration::from_secs(60);

/// Events given where the reader does not say how many, and at most.
const EVENTS: u32 = 100;
const EVENTS_MAX: u32 = 1000;

pub(super) async fn events(
    State(site): State<Arc<Site>>,
    Asked(query): Asked<EventsQuery>,
) -> Answer<Json<EventsAnswer>> {
    let task: Option<TaskId> = query.task.as_deref().map(str::parse).transpose()?;
    let limit = query.limit.unwrap_or(EVENTS);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(Refusal::bad(format!("`limit` is 1 to {EVENTS_MAX}")));
    }
    let events = if query.newest {
        site.queue.last_events(query.after, task.as_ref(), limit).await?
    } else {
        site.queue.events(query.after, task.as_ref(), limit).await?
    };
    Ok(Json(EventsAnswer { events }))
}

pub(super) async fn log(
    State(site): State<Arc<Site>>,
    OfTask(id): OfTask,
    Asked(query): Asked<LogQuery>,
) -> Answer<Json<LogAnswer>> {
    let wait = Duration::from_secs(u64::from(query.wait)).min(FOLLOW_MAX);
    let mut over = site.clock.sleep_until(site.clock.now() + wait);
    let mut held = !wait.is_zero();
    loop {
        // Followed before it is looked at, so that nothing that comes in between is missed.
        let mut moved = site.logs.follow(&id);
        let answer = look(&site, &id, &query).await?;
        if !held || !answer.text.is_empty() || answer.end {
            return Ok(Json(answer));
        }
        held = tokio::select! {
            changed = moved.changed() => changed.is_ok(),
            () = site.closing.cancelled() => false,
            () = &mut over => false,
        };
    }
}

/// The log as it stands.
async fn look(site: &Arc<Site>, id: &TaskId, query: &LogQuery) -> Answer<LogAnswer> {
    // The state after the runs: it is not of before the end of a run that is said to have ended.
    let runs = site.queue.runs(id).await?;
    let state = site.queue.task(id).await?.state;
    let run = match &query.run {
        Some(asked) => Some(runs.into_iter().find(|run| run.id == *asked).ok_or_else(|| {
            Refusal(Problem::new(Code::NotFound, format!("`{id}` has no run `{asked}`")))
        })?),
        None => runs.into_iter().next(),
    };
    let Some(run) = run else {
        return Ok(LogAnswer {
            run: None,
            offset: 0,
            text: String::new(),
            next: 0,
            end: state.is_final(),
            state,
        });
    };
    let Piece { offset, text, next } = piece(site, &run.id, query.offset).await?;
    // Not where it may yet come: the run's worker claimed here, and may speak here.
    if text.is_empty() && site.sites.is_many() && !site.logs.keeps(&run.id) {
        return Err(elsewhere(id, &run.id));
    }
    let end = run.finished_at.is_some() && text.is_empty();
    Ok(LogAnswer { run: Some(run.id), offset, text, next, end, state })
}

/// A run's log is on the disk of the site that its worker speaks to.
fn elsewhere(id: &TaskId, run: &RunId) -> Refusal {
    let detail = format!("this site has no log of run `{run}`: another site has it, if any");
    let hint = format!(
        "ask the site that the run's worker speaks to: `RELAY_SITE=URL relay task log {id}`"
    );
    Problem::new(Code::NotFound, detail).hint(hint).into()
}

async fn piece(site: &Arc<Site>, run: &RunId, offset: u64) -> Answer<Piece> {
    let (logs, run) = (Arc::clone(&site.logs), run.clone());
    match tokio::task::spawn_blocking(move || logs.read(&run, offset)).await {
        Ok(read) => read.map_err(|e| Refusal::internal("reading the run's log", &e)),
        Err(cause) => Err(Refusal::internal("reading the run's log", &cause)),
    }
}

pub(super) async fn health(State(site): State<Arc<Site>>) -> Answer<Json<HealthAnswer>> {
    let Health { bytes, read_through, newest_event } = site.queue.health().await?;
    Ok(Json(HealthAnswer { bytes, read_through, newest_event }))
}

pub(super) async fn status(State(site): State<Arc<Site>>) -> Json<StatusAnswer> {
    Json(StatusAnswer {
        version: site.version.clone(),
        pid: std::process::id(),
        ts: site.clock.now(),
        forges: site.standing.all(),
        hosts: site.forges.hosts(site.clock.now()),
    })
}
