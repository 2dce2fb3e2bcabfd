//! `relay link`: a repository of a forge or of this disk becomes a project.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use super::output::one_line;
use super::site::Site;
use crate::api::{Code, LinkProject};
use crate::client::{Client, ClientError};
use crate::model::disk::quoted;
use crate::model::{ForgeKind, Project, RepoName, TokenScope};
use crate::work::linked::Linked;

/// Options of `relay link`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  relay link acme/shop        a repository on GitHub\n  \
                        relay link .                the repository in this folder")]
pub struct Options {
    /// OWNER/REPO on GitHub, or the path of a repository on this disk
    repository: String,
    /// What a repository on this disk is called: local/NAME (default: its folder's name)
    #[arg(long)]
    name: Option<String>,
    /// Print the project as JSON
    #[arg(long)]
    json: bool,
}

/// What the person meant.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Github(RepoName),
    Folder(PathBuf),
}

impl Options {
    /// Links it and prints the project's slug.
    ///
    /// # Errors
    /// When it is no repository, or cannot be seen with this machine's login.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let request = self.request(context)?;
        let linking = async |site: &Site| {
            let linked = match site.link(&request).await {
                Err(error) if error.code() == Some(Code::Forbidden) => {
                    there_already(site, &request).await.ok_or(error)
                }
                answer => answer,
            };
            let project = linked.map_err(|error| self.not_linked(error, &request))?;
            let namesake = match project.slug != request.slug {
                true => site.project(&request.slug).await.ok(),
                false => None,
            };
            anyhow::Ok((project, namesake, makes_tasks(site).await))
        };
        let (project, namesake, makes_tasks) = context.ask(linking).await?;
        if let Some(path) = &request.path {
            // What the person named, not what the site says of it.
            if !is_same_repository(path, &project.remote) {
                let text = format!("the site linked {}, not {path}", one_line(&project.remote));
                return Err(Failure::new(Exit::Failed, text).into());
            }
            Linked::of(&context.config.home).add(&project.remote).with_context(|| {
                format!("{} is linked, and this machine could not note it", project.slug)
            })?;
        }
        if let Some(namesake) = namesake {
            context.output.note(renamed(&namesake, &project));
        }
        if self.json {
            context.output.json(&project)?;
        } else {
            context.output.line(project.slug.to_string())?;
            let lane = context.config.program("claude").map_or("process:NAME", |_| "claude");
            let create =
                format!("relay task create --repo {} --lane {lane} --title \"…\"", project.slug);
            context.output.note(match makes_tasks {
                true => format!("next: {create}"),
                false => format!(
                    "next: relay work; this machine's token makes no tasks: on the site's machine, {create}"
                ),
            });
        }
        Ok(Exit::Ok)
    }

    fn request(&self, context: &Context) -> anyhow::Result<LinkProject> {
        let host = context.host();
        match self.target()? {
            Target::Github(slug) => {
                if self.name.is_some() {
                    let failure =
                        Failure::new(Exit::Usage, "--name is for a repository on this disk");
                    return Err(failure.into());
                }
                Ok(LinkProject { forge: ForgeKind::Github, slug, path: None, host })
            }
            Target::Folder(path) => {
                let slug = local_slug(&path, self.name.as_deref())?;
                let path = path.to_str().map(str::to_owned).ok_or_else(|| {
                    Failure::new(Exit::Usage, format!("`{}` is not UTF-8", path.display()))
                })?;
                Ok(LinkProject { forge: ForgeKind::Local, slug, path: Some(path), host })
            }
        }
    }

    /// A name that could be a folder's, which is not there either, may have been meant for one.
    fn not_linked(&self, error: ClientError, request: &LinkProject) -> anyhow::Error {
        if request.forge != ForgeKind::Github || error.code() == Some(Code::Forbidden) {
            return error.into();
        }
        let folder = format!("for a folder: relay link ./{}", self.repository);
        let ClientError::Refused(mut problem) = error else { return error.into() };
        problem.hint = Some(match problem.hint.take() {
            Some(hint) => format!("{hint}; or, {folder}"),
            None => folder,
        });
        ClientError::Refused(problem).into()
    }

    fn target(&self) -> Result<Target, Failure> {
        let text = self.repository.as_str();
        let path = Path::new(text);
        let path_like = path.is_absolute() || text.starts_with('.') || !text.contains('/');
        match text.parse::<RepoName>() {
            Ok(slug) if !path_like && !path.is_dir() => Ok(Target::Github(slug)),
            Ok(_) if !path_like => Err(Failure::new(
                Exit::Usage,
                format!("`{text}` is a folder here and could be a repository on GitHub"),
            )
            .hint(format!("for the folder: relay link ./{text}"))),
            _ => path.canonicalize().map(Target::Folder).map_err(|error| {
                Failure::new(Exit::NotFound, format!("`{text}`: {error}")).hint(
                    "give OWNER/REPO for a repository on GitHub, or the path of one on this disk",
                )
            }),
        }
    }
}

/// Whether this machine may make tasks: a worker's token of a site elsewhere may not.
async fn makes_tasks(site: &Site) -> bool {
    if !site.is_elsewhere() {
        return true;
    }
    let makes = [TokenScope::TasksWrite, TokenScope::Admin];
    let who = site.who_am_i().await;
    !who.is_ok_and(|who| !makes.iter().any(|scope| who.scopes.contains(scope)))
}

/// A repository of this disk that somebody linked before: whoever may only work says by linking it
/// that work may be sent into it here.
async fn there_already(site: &Client, request: &LinkProject) -> Option<Project> {
    let path = request.path.as_deref()?;
    let mut projects = site.projects().await.ok()?.into_iter();
    projects.find(|project| {
        project.forge == ForgeKind::Local
            && project.host == request.host
            && is_same_repository(path, &project.remote)
    })
}

/// Whether both name one repository: a folder, or the `.git` in it.
fn is_same_repository(one: &str, other: &str) -> bool {
    let folder = |path: &str| path.strip_suffix("/.git").unwrap_or(path).to_owned();
    !other.is_empty() && folder(one) == folder(other)
}

/// Why a local repository got another name than its folder's: somebody has that one.
fn renamed(namesake: &Project, project: &Project) -> String {
    let (old, new) = (Path::new(&namesake.remote), Path::new(&project.remote));
    let text = format!("{} is {}, so this one is {}", namesake.slug, old.display(), project.slug);
    if old.exists() {
        return text;
    }
    format!(
        "{text}. The other is no longer there: if it was moved here, `ln -s {} {}` keeps its name and tasks",
        quoted(new),
        quoted(old)
    )
}

/// `local/<name>`, after the folder where no name is given.
fn local_slug(path: &Path, name: Option<&str>) -> Result<RepoName, Failure> {
    let folder = || {
        let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        file.strip_suffix(".git").map(str::to_owned).unwrap_or(file)
    };
    let name = name.map_or_else(folder, str::to_owned);
    format!("local/{name}").parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("`{name}` cannot be a project's name"))
            .hint(format!("relay link {} --name NAME", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Problem;

    fn options(repository: &str) -> Options {
        Options { repository: repository.to_owned(), name: None, json: false }
    }

    #[test]
    fn a_site_cannot_have_another_repository_noted() {
        assert!(is_same_repository("/r/shop", "/r/shop"));
        assert!(is_same_repository("/r/shop/.git", "/r/shop"));
        assert!(is_same_repository("/r/shop", "/r/shop/.git"));
        for other in ["", "/", "/r", "/r/shop2", "/r/secret", "/r/shop/sub"] {
            assert!(!is_same_repository("/r/shop", other), "{other}");
        }
    }

    #[test]
    fn a_name_is_githubs_and_a_path_is_this_disks() {
        let github = Target::Github("acme/shop".parse().expect("valid"));
        assert_eq!(options("acme/shop").target(), Ok(github));
        let here = Path::new(".").canonicalize().expect("the working directory");
        assert_eq!(options(".").target(), Ok(Target::Folder(here.clone())));
        assert_eq!(options(&here.display().to_string()).target(), Ok(Target::Folder(here)));
        // Unit tests run in the package's folder.
        assert!(options("src/cli").target().is_err_and(|f| f.to_string().contains("is a folder")));
        assert!(options("./nowhere").target().is_err());
        assert!(options("nowhere").target().is_err());
    }

    #[test]
    fn a_name_that_github_does_not_know_may_have_been_a_folder() {
        let github = LinkProject {
            forge: ForgeKind::Github,
            slug: "src/nothere".parse().expect("valid"),
            path: None,
            host: "here".to_owned(),
        };
        let refused = || {
            let problem = Problem::new(Code::NotFound, "the forge has no such thing");
            ClientError::Refused(problem.hint("check the name"))
        };
        let told = |request: &LinkProject| {
            let error = options("src/nothere").not_linked(refused(), request);
            error.downcast_ref::<ClientError>().and_then(ClientError::hint)
        };
        let folder = "check the name; or, for a folder: relay link ./src/nothere";
        assert_eq!(told(&github).as_deref(), Some(folder));
        let local = LinkProject { forge: ForgeKind::Local, ..github };
        assert_eq!(told(&local).as_deref(), Some("check the name"));
    }

    #[test]
    fn a_local_project_is_called_like_its_folder() {
        let slug = |path: &str, name| local_slug(Path::new(path), name).map(|s| s.to_string());
        assert_eq!(slug("/srv/shop", None), Ok("local/shop".to_owned()));
        assert_eq!(slug("/srv/shop.git", None), Ok("local/shop".to_owned()));
        assert_eq!(slug("/srv/x", Some("y")), Ok("local/y".to_owned()));
        assert!(slug("/srv/a b", None).is_err());
        assert!(slug("/", None).is_err());
    }
}
