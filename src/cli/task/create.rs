//! `relay task create`: a task from an issue, or from a title where there is no issue.

use clap::{ArgGroup, Args};
use relay_lanes::VENDORS;

use super::super::context::Context;
use super::super::error::Failure;
use super::super::exit::Exit;
use super::super::machine;
use super::super::output::one_line;
use super::super::site::Site;
use super::super::words::waiting;
use crate::api::CreateTask;
use crate::model::{LaneName, RepoName, TaskId, WaitReason};
use crate::work::boxing::Boxing;
use crate::work::lane::{LaneFileError, process_config};
use crate::work::probe::{LaneStatus, process_statuses};

/// What is said of a lane that is here and that no worker serves yet.
const COMES: &str = "is configured on this machine: a `relay work` that runs here without --lanes \
    takes it up within seconds";

/// Options of `relay task create`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true).args(["issue", "title"]),
    after_help = "Examples:\n  relay task create --repo acme/shop --lane claude --issue 12\n  \
    relay task create --repo local/shop --lane claude --title \"Say hello\" --body \"In README.md\""
)]
pub struct Options {
    /// The project's slug, as `relay link` printed it
    #[arg(long, value_name = "SLUG")]
    repo: RepoName,
    /// Who does it: claude, codex, or process:NAME
    #[arg(long)]
    lane: LaneName,
    /// The number of an issue on GitHub
    #[arg(long, value_name = "N")]
    issue: Option<u64>,
    /// What is to be done, in one line
    #[arg(long)]
    title: Option<String>,
    /// More about it
    #[arg(long, requires = "title")]
    body: Option<String>,
    /// Print the task as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Makes the task and prints its id.
    ///
    /// # Errors
    /// When the project, the issue or the lane is not there.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let process = process_lane(context, &self.lane)?.map(str::to_owned);
        let request = CreateTask {
            slug: self.repo,
            lane: self.lane,
            issue: self.issue,
            title: self.title,
            body: self.body,
            asked_by: context.config.user.clone(),
        };
        let creating = async |site: &Site| {
            if let Some(name) = process.as_deref().filter(|_| !site.serves_others()) {
                check_lane(context, &request.lane, name)?;
            }
            let task = site.create_task(&request).await?;
            let nobody_works = site.is_for_a_moment();
            let lacking = if nobody_works { None } else { lacking(site, &task.id).await };
            anyhow::Ok((task, nobody_works, lacking))
        };
        let (task, nobody_works, lacking) = context.ask(creating).await?;
        if self.json {
            context.output.json(&task)?;
        } else {
            context.output.line(task.id.to_string())?;
            if nobody_works {
                context.output.note("next: relay work");
            }
        }
        let here = here(context, &task.lane);
        if let Some(why) = lacking {
            let no_lane = matches!(why, WaitReason::NoLane { .. });
            let comes = here.as_ref().filter(|here| no_lane && here.served);
            let comes = comes.map(|here| format!("; {} {COMES}", here.lane)).unwrap_or_default();
            let why = waiting(&why, context.clock.now());
            context.output.note(format!("warning: {} waits: {why}{comes}", task.id));
        }
        if let Some(here) = here.filter(|here| !here.served) {
            let hint = here.hint.map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
            let text = format!("{} cannot run on this machine: {}{hint}", here.lane, here.detail);
            context.output.note(format!("warning: {}", one_line(&text)));
        }
        Ok(Exit::Ok)
    }
}

/// What every worker that the site knows lacks for the task, so that it waits until a person does
/// something. Nobody is kept from the task's id where that cannot be found out.
async fn lacking(site: &Site, task: &TaskId) -> Option<WaitReason> {
    let reasons = site.task(task).await.ok()?.waiting;
    reasons.into_iter().find(|reason| {
        matches!(
            reason,
            WaitReason::NoWorker
                | WaitReason::NoLane { .. }
                | WaitReason::NoLabel { .. }
                | WaitReason::OtherHost { .. }
                | WaitReason::NoForgeLogin { .. }
        )
    })
}

/// How a lane of one's own stands on this machine; `None` where it is a vendor's, or is not here.
fn here(context: &Context, lane: &LaneName) -> Option<LaneStatus> {
    lane.process_name()?;
    let lanes = machine::lanes_with(context, Boxing::untried(), true, Vec::new());
    process_statuses(&lanes).into_iter().find(|status| status.lane == *lane)
}

/// The program's name of a process lane; `None` for a vendor's.
fn process_lane<'a>(context: &Context, lane: &'a LaneName) -> Result<Option<&'a str>, Failure> {
    match lane.process_name() {
        None if !VENDORS.iter().any(|vendor| vendor.lane == lane.as_str()) => {
            Err(unknown_lane(context, lane))
        }
        name => Ok(name),
    }
}

/// A task of a lane that nobody can ever serve would wait for ever, so it is refused here, where
/// the person still looks. A site that others work for knows nothing of their lanes.
fn check_lane(context: &Context, lane: &LaneName, name: &str) -> Result<(), Failure> {
    let path = context.config.lanes_folder().join(format!("{name}.json"));
    process_config(&path).map(drop).map_err(|error| match error {
        LaneFileError::Read(_) => {
            Failure::new(Exit::NotFound, format!("there is no lane `{lane}`: {}", error.at(&path)))
                .hint("that file names the lane's program; docs/LANES.md shows how to write one")
        }
        _ => Failure::new(Exit::Usage, format!("the lane `{lane}`: {}", error.at(&path)))
            .hint("{\"command\": \"/absolute/program\"} is enough; the rest is in docs/LANES.md"),
    })
}

fn unknown_lane(context: &Context, lane: &LaneName) -> Failure {
    let meant = context.config.lanes_folder().join(format!("{lane}.json")).exists();
    Failure::new(Exit::NotFound, format!("there is no lane `{lane}`")).hint(if meant {
        format!("--lane process:{lane}")
    } else {
        let names: Vec<String> = VENDORS.iter().map(|v| format!("`{}`", v.lane)).collect();
        format!("relay lane ls (this version has {} and `process:NAME`)", names.join(", "))
    })
}
