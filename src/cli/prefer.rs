//! `relay prefer`: settings kept on the site; the narrowest scope wins.

use clap::{Args, ValueEnum};
use relay_lanes::VENDORS;

use super::context::Context;
use super::error::{Failure, fail};
use super::exit::Exit;
use super::site::Site;
use super::table::Table;
use super::words::scope_words;
use crate::api::{PreferRequest, Preferences};
use crate::client::{Client, ClientError};
use crate::model::{LaneName, PreferenceKey, Scope};
use crate::work::lane::process_lanes;

/// Options of `relay prefer`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  relay prefer                                                   list\n  \
    relay prefer lane.labels gpu --scope project --scope-id acme/shop\n  \
    relay prefer lane.labels gpu --scope project-lane --scope-id acme/shop:claude\n  \
    relay prefer lane.labels --unset                               take the global one away\n  \
    relay prefer lane.model sonnet --scope lane --scope-id claude\n  \
    relay prefer run.max_minutes 90 --scope project --scope-id acme/shop\n  \
    relay prefer run.max_turns 60\n  \
    relay prefer budget.usd_day 20                                 nothing is begun once runs cost $20\n  \
    relay prefer push.workflows allow --scope project --scope-id acme/shop\n                               \
    lanes may change .github/workflows there"
)]
pub struct Options {
    /// What to set: lane.labels (comma-separated labels a worker must have), lane.model (the model
    /// a vendor's lane is asked for), run.max_minutes and run.max_turns (the limits of a run),
    /// budget.usd_day (what runs may cost in a day, UTC, in US dollars), push.workflows (allow or
    /// refuse work that changes workflow files)
    key: Option<PreferenceKey>,
    /// To what
    #[arg(requires = "key", conflicts_with = "unset")]
    value: Option<String>,
    /// Take the preference away
    #[arg(long, requires = "key")]
    unset: bool,
    /// For whom it holds; narrower beats wider
    #[arg(long, value_enum, default_value_t = Width::Global)]
    scope: Width,
    /// Which lane (claude), project (acme/shop) or both (acme/shop:claude)
    #[arg(long)]
    scope_id: Option<String>,
    /// Print all preferences as JSON
    #[arg(long)]
    json: bool,
}

/// The kinds of scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Width {
    /// Everywhere
    Global,
    /// One lane, in every project
    Lane,
    /// One project, every lane
    Project,
    /// One lane of one project
    ProjectLane,
}

impl Options {
    /// Sets, unsets or lists.
    ///
    /// # Errors
    /// When the scope or the value is not valid.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let request = self.request(context)?;
        let asking = async |site: &Site| -> Result<_, ClientError> {
            let Some(request) = &request else { return Ok((site.preferences().await?, None)) };
            let preferences = site.prefer(request).await?;
            let lane = lane_of(&request.scope).filter(|_| request.value.is_some());
            let warning = match lane {
                Some(lane) if without_model(request.key, lane) => Some(format!(
                    "warning: a process lane has no model, so this changes nothing for `{lane}`"
                )),
                Some(lane) => unknown(context, site, lane).await,
                None => None,
            };
            Ok((preferences, warning))
        };
        let (preferences, warning) = context.ask(asking).await?;
        if let Some(warning) = warning {
            context.output.note(warning);
        }
        if self.json {
            context.output.json(&Preferences { preferences })?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(["KEY", "SCOPE", "VALUE"]);
        for p in &preferences {
            table.row([p.key.as_str().into(), scope_words(&p.scope).into(), (&p.value).into()]);
        }
        if table.is_empty() {
            context.output.note("no preferences");
        } else {
            context.output.text(&table.show(context.output))?;
        }
        Ok(Exit::Ok)
    }

    fn request(&self, context: &Context) -> anyhow::Result<Option<PreferRequest>> {
        let Some(key) = self.key else { return Ok(None) };
        if self.value.is_none() && !self.unset {
            return fail(Exit::Usage, format!("give `{}` a value, or --unset", key.as_str()));
        }
        let scope = scope(self.scope, self.scope_id.as_deref())?;
        let (value, by) = (self.value.clone(), context.config.user.clone());
        Ok(Some(PreferRequest { key, scope, value, by }))
    }
}

/// The lane that a scope names.
fn lane_of(scope: &Scope) -> Option<&LaneName> {
    match scope {
        Scope::Lane { lane } | Scope::ProjectLane { lane, .. } => Some(lane),
        Scope::Global | Scope::Project { .. } => None,
    }
}

/// Whether the lane is asked for no model.
fn without_model(key: PreferenceKey, lane: &LaneName) -> bool {
    key == PreferenceKey::LaneModel && lane.process_name().is_some()
}

/// A warning where nobody knows the lane: it may be there tomorrow, or be a slip of the hand.
async fn unknown(context: &Context, site: &Client, lane: &LaneName) -> Option<String> {
    let of_workers = site.workers().await.unwrap_or_default();
    let of_workers = of_workers.into_iter().flat_map(|worker| worker.lanes);
    let here = process_lanes(&context.config.lanes_folder()).into_iter().map(|(lane, _)| lane);
    let mut known: Vec<String> = VENDORS.iter().map(|vendor| vendor.lane.to_owned()).collect();
    known.extend(here.chain(of_workers).map(|lane| lane.to_string()));
    known.sort();
    known.dedup();
    (!known.iter().any(|name| name == lane.as_str())).then(|| {
        let names = known.join(", ");
        format!(
            "warning: no lane `{lane}` is known, so this holds once there is one; known are {names}"
        )
    })
}

fn scope(width: Width, id: Option<&str>) -> anyhow::Result<Scope> {
    let needs = |example: &str| {
        Failure::new(Exit::Usage, "this scope needs an id").hint(format!("--scope-id {example}"))
    };
    Ok(match (width, id) {
        (Width::Global, None) => Scope::Global,
        (Width::Global, Some(_)) => {
            return fail(Exit::Usage, "--scope-id goes with --scope lane, project or project-lane");
        }
        (Width::Lane, id) => Scope::Lane { lane: id.ok_or_else(|| needs("claude"))?.parse()? },
        (Width::Project, id) => {
            Scope::Project { slug: id.ok_or_else(|| needs("acme/shop"))?.parse()? }
        }
        (Width::ProjectLane, id) => {
            let id = id.ok_or_else(|| needs("acme/shop:claude"))?;
            let (slug, lane) = id.split_once(':').ok_or_else(|| {
                Failure::new(Exit::Usage, format!("`{id}` names a project and no lane"))
                    .hint(format!("--scope-id {id}:claude"))
            })?;
            Scope::ProjectLane { slug: slug.parse()?, lane: lane.parse()? }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_with_their_ids() {
        let read = |width, id| scope(width, id).map(|s| scope_words(&s)).map_err(|e| e.to_string());
        assert_eq!(read(Width::Global, None), Ok("global".to_owned()));
        assert_eq!(read(Width::Lane, Some("process:edit")), Ok("lane process:edit".to_owned()));
        assert_eq!(
            read(Width::ProjectLane, Some("acme/shop:process:edit")),
            Ok("project acme/shop, lane process:edit".to_owned())
        );
        assert_eq!(read(Width::Project, None), Err("this scope needs an id".to_owned()));
        assert_eq!(
            read(Width::ProjectLane, Some("acme/shop")),
            Err("`acme/shop` names a project and no lane".to_owned())
        );
        assert!(read(Width::Global, Some("acme/shop")).is_err());
        assert!(read(Width::Lane, Some("No")).is_err());
    }
}
