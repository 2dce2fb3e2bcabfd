//! Linking repositories.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;

use super::answer::Json;
use super::extract::{Body, OfProject};
use super::problem::{Answer, Refusal};
use super::sites::Notice;
use super::state::Site;
use crate::api::{Code, LinkProject, Problem, Projects};
use crate::model::{ForgeKind, Project, RepoName};

pub(super) async fn link(
    State(site): State<Arc<Site>>,
    Body(request): Body<LinkProject>,
) -> Answer<Json<Project>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let site = inner;
        let _turn = site.linking.lock().await;
        let project = match request.forge {
            ForgeKind::Local => local(&site, &request).await?,
            ForgeKind::Github => github(&site, &request).await?,
        };
        let project = site.queue.link(project).await?;
        site.timers.changed();
        site.linked.notify_one();
        site.sites.tell(Notice::Linked);
        Ok(Json(project))
    })
    .await
}

async fn local(site: &Site, request: &LinkProject) -> Answer<Project> {
    if !request.slug.is_local() {
        return Err(Refusal::bad(format!(
            "a repository on a disk is called `local/<name>`, not `{}`",
            request.slug
        )));
    }
    let path = request.path.as_deref().map(Path::new).filter(|path| path.is_absolute());
    let path = path.ok_or_else(|| Refusal::bad("a local repository needs its absolute path"))?;
    let found = site.forges.inspect(path).await?;
    let projects = site.queue.projects().await?;
    let linked = projects
        .iter()
        .find(|p| p.forge == ForgeKind::Local && p.host == request.host && p.remote == found.path);
    let slug = match linked {
        Some(project) => project.slug.clone(),
        None => free_slug(&request.slug, &projects)?,
    };
    Ok(Project {
        slug,
        forge: ForgeKind::Local,
        host: request.host.clone(),
        remote: found.path,
        api_base: None,
        default_branch: found.default_branch,
        linked_at: site.clock.now(),
    })
}

/// `local/name`, or `local/name-2` and so on where another repository has that name.
fn free_slug(wanted: &RepoName, projects: &[Project]) -> Answer<RepoName> {
    let taken = |slug: &RepoName| projects.iter().any(|p| p.slug == *slug);
    if !taken(wanted) {
        return Ok(wanted.clone());
    }
    // One of so many names is free among as many projects.
    for n in 2..=projects.len() + 2 {
        let slug: RepoName = format!("{wanted}-{n}").parse()?;
        if !taken(&slug) {
            return Ok(slug);
        }
    }
    Err(Refusal(Problem::new(Code::Conflict, format!("`{wanted}` is taken"))))
}

async fn github(site: &Site, request: &LinkProject) -> Answer<Project> {
    if request.slug.is_local() || request.path.is_some() {
        let problem = Problem::new(Code::BadRequest, "`local/…` is a repository on a disk");
        return Err(problem.hint("link it by its path: `relay link PATH`").into());
    }
    let found = site.forges.repository(&request.slug).await?;
    Ok(Project {
        slug: found.slug,
        forge: ForgeKind::Github,
        host: found.host,
        remote: found.remote,
        api_base: Some(found.api_base),
        default_branch: found.default_branch,
        linked_at: site.clock.now(),
    })
}

pub(super) async fn list(State(site): State<Arc<Site>>) -> Answer<Json<Projects>> {
    Ok(Json(Projects { projects: site.queue.projects().await? }))
}

pub(super) async fn one(
    State(site): State<Arc<Site>>,
    OfProject(slug): OfProject,
) -> Answer<Json<Project>> {
    Ok(Json(site.queue.project(&slug).await?))
}
