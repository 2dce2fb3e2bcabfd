//! The routes for people: tasks and preferences.

use std::sync::Arc;

use axum::extract::State;

use super::answer::Json;
use super::extract::{Asked, Body, OfTask};
use super::problem::{Answer, Refusal};
use super::state::{Site, person};
use crate::api::{
    CancelRequest, Code, CreateTask, LocalPull, PreferRequest, Preferences, Problem, SetDone,
    TaskDetail, Tasks, TasksQuery,
};
use crate::model::{ForgeKind, LaneName, Preference, Project, Scope, Task, WaitReason};
use crate::queue::bounds::{BODY_MOST, TITLE_MOST};
use crate::queue::{Added, Changed, LocalPullRow, NewTask};

/// The vendor lanes relay knows. A worker may serve others; those are taken once one registered.
const LANES: [&str; 3] = ["claude", "codex", "grok"];

pub(super) async fn create(
    State(site): State<Arc<Site>>,
    Body(request): Body<CreateTask>,
) -> Answer<Json<Task>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let site = inner;
        person(&request.asked_by)?;
        check_length("a title", request.title.as_deref(), TITLE_MOST)?;
        check_length("a text", request.body.as_deref(), BODY_MOST)?;
        check_lane(&site, &request.lane).await?;
        let (number, title, body) = match title_of_local(&request) {
            // Nothing has to be known of its project but that it is linked, which the write asks.
            Some(title) => (None, title, request.body.clone().unwrap_or_default()),
            None => {
                let project = site.queue.project(&request.slug).await?;
                wording(&site, &project, &request).await?
            }
        };
        let task = NewTask {
            slug: request.slug,
            lane: request.lane,
            number,
            title,
            body,
            asked_by: request.asked_by,
            seen_at: site.clock.now(),
        };
        let added = site.queue.add(task).await?;
        match added {
            Added::New(task) | Added::Again(task) => {
                site.timers.changed();
                Ok(Json(task))
            }
            Added::Existing(task) => Ok(Json(task)),
        }
    })
    .await
}

/// What GitHub would not take as an issue is none here either.
fn check_length(what: &str, text: Option<&str>, most: usize) -> Answer<()> {
    match text.map(|text| text.chars().count()) {
        Some(length) if length > most => {
            let detail = format!("{what} has at most {most} characters; this one has {length}");
            Err(Problem::new(Code::BadRequest, detail).hint("shorten it").into())
        }
        _ => Ok(()),
    }
}

async fn check_lane(site: &Site, lane: &LaneName) -> Answer<()> {
    if LANES.contains(&lane.as_str()) || lane.process_name().is_some() {
        return Ok(());
    }
    if site.queue.workers().await?.iter().any(|worker| worker.lanes.contains(lane)) {
        return Ok(());
    }
    Err(Refusal(
        Problem::new(Code::BadRequest, format!("no lane is called `{lane}`"))
            .hint("`relay lane ls` lists the lanes of this machine"),
    ))
}

/// The title of a wish that is whole as it stands: a repository on a disk has no issues.
fn title_of_local(request: &CreateTask) -> Option<String> {
    let title = request.title.as_deref().map(str::trim).filter(|title| !title.is_empty())?;
    (request.slug.is_local() && request.issue.is_none()).then(|| title.to_owned())
}

/// The issue's number, title and text: read from the forge, opened there, or as given.
async fn wording(
    site: &Site,
    project: &Project,
    request: &CreateTask,
) -> Answer<(Option<u64>, String, String)> {
    let body = request.body.clone().unwrap_or_default();
    match (project.forge, request.issue, request.title.as_deref().map(str::trim)) {
        (_, Some(_), Some(_)) => Err(Refusal::bad("a task has an issue or a title, not both")),
        (_, Some(_), None) if request.body.is_some() => {
            Err(Refusal::bad("an issue has its own text: leave the body out"))
        }
        (_, None, None | Some("")) => {
            let problem = Problem::new(Code::BadRequest, "a task needs an issue or a title");
            Err(problem.hint("pass `--issue N` or `--title TEXT`").into())
        }
        (ForgeKind::Local, Some(number), None) => {
            let detail = format!("`{}` is on a disk and has no issue {number}", project.slug);
            Err(Problem::new(Code::BadRequest, detail).hint("pass `--title TEXT` instead").into())
        }
        (ForgeKind::Local, None, Some(title)) => Ok((None, title.to_owned(), body)),
        (ForgeKind::Github, Some(number), None) => {
            let issue = site.forges.issue(project, number).await?;
            Ok((Some(issue.number), issue.title, issue.body))
        }
        (ForgeKind::Github, None, Some(title)) => {
            let issue = site.forges.open_issue(project, title, &body).await?;
            Ok((Some(issue.number), issue.title, issue.body))
        }
    }
}

pub(super) async fn list(
    State(site): State<Arc<Site>>,
    Asked(query): Asked<TasksQuery>,
) -> Answer<Json<Tasks>> {
    // Whole, the texts of a busy site would be more than a reader takes or this process holds.
    Ok(Json(Tasks { tasks: site.queue.task_lines(query.state).await? }))
}

pub(super) async fn detail(
    State(site): State<Arc<Site>>,
    OfTask(id): OfTask,
) -> Answer<Json<TaskDetail>> {
    site.hear_held();
    let task = site.queue.task(&id).await?;
    let mut waiting = site.queue.waiting(&id).await?;
    if !waiting.is_empty() {
        let trouble = site.standing.trouble(&task.id.repo);
        waiting.extend(trouble.map(|error| WaitReason::Unreachable { error }));
    }
    Ok(Json(TaskDetail {
        waiting,
        runs: site.queue.runs(&id).await?,
        effects: site.queue.effects(&id).await?,
        local_pull: site.queue.local_pull(&id).await?.map(local_pull),
        task,
    }))
}

pub(super) async fn cancel(
    State(site): State<Arc<Site>>,
    OfTask(id): OfTask,
    Body(request): Body<CancelRequest>,
) -> Answer<Json<Task>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let changed = inner.queue.cancel(&id, person(&request.by)?).await?;
        Ok(Json(ended(&inner, changed)))
    })
    .await
}

pub(super) async fn done(
    State(site): State<Arc<Site>>,
    OfTask(id): OfTask,
    Body(request): Body<SetDone>,
) -> Answer<Json<Task>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let changed = inner.queue.done(&id, person(&request.by)?).await?;
        Ok(Json(ended(&inner, changed)))
    })
    .await
}

/// Tells the holder, where there was one, and whoever waits.
fn ended(site: &Site, changed: Changed) -> Task {
    site.called_off(&changed);
    site.timers.changed();
    changed.task
}

pub(super) async fn retry(
    State(site): State<Arc<Site>>,
    OfTask(id): OfTask,
    Body(request): Body<SetDone>,
) -> Answer<Json<Task>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let task = inner.queue.retry(&id, person(&request.by)?).await?;
        inner.timers.changed();
        Ok(Json(task))
    })
    .await
}

pub(super) async fn prefer(
    State(site): State<Arc<Site>>,
    Body(request): Body<PreferRequest>,
) -> Answer<Json<Preferences>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let by = person(&request.by)?;
        let PreferRequest { key, scope, value, by: _ } = request;
        if let (Scope::Project { slug } | Scope::ProjectLane { slug, .. }, Some(_)) =
            (&scope, &value)
        {
            // A preference for a name that was misspelt would hold for nothing, silently.
            inner.queue.project(slug).await?;
        }
        match value {
            Some(value) => inner.queue.prefer(&Preference { key, scope, value }, by).await?,
            None => inner.queue.unprefer(key, &scope, by).await?,
        }
        inner.timers.changed();
        Ok(Json(Preferences { preferences: inner.queue.preferences().await? }))
    })
    .await
}

pub(super) async fn preferences(State(site): State<Arc<Site>>) -> Answer<Json<Preferences>> {
    Ok(Json(Preferences { preferences: site.queue.preferences().await? }))
}

/// A row as it is sent.
pub(super) fn local_pull(row: LocalPullRow) -> LocalPull {
    let LocalPullRow { number, title, body, branch, base, head, diff, comment } = row;
    LocalPull { number, title, body, branch, base, head, diff, comment }
}
