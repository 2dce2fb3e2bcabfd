//! `relay demo`: the whole flow on a scratch repository in a scratch home, without a login and
//! without a network. Nothing of the person's own home is read or written.

mod lane;
mod scratch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

pub use self::lane::{DEMO_LANE, demo_lane_main};
use self::scratch::Scratch;
use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use super::machine;
use super::output::{Tone, plain};
use super::progress::Progress;
use super::site::Site;
use super::work::start::{Start, work};
use crate::api::{CreateTask, LinkProject, TaskDetail};
use crate::client::Client;
use crate::model::{ForgeKind, LaneName, TaskId, TaskState, Usage};
use crate::work::probe::{WORKER_PATIENCE, probe};
use crate::work::{Limits, Shutdown, WorkerConfig};

/// Options of `relay demo`.
#[derive(Debug, Args)]
pub struct Options {
    /// Who does the work: a small scripted program, or the real claude with your login
    #[arg(long, value_enum, default_value_t = Who::Scripted)]
    lane: Who,
    /// Make the scratch folder in this folder instead of in the temporary one
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Scripted,
    Claude,
}

impl Options {
    /// Runs the demo and says what happened.
    ///
    /// # Errors
    /// When a step fails; the scratch folder then stays for a look.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let scratch = {
            let folder = self.folder.as_deref().unwrap_or(&context.config.temp);
            Scratch::make(folder, context.clock.now())?
        };
        let out = context.output;
        if let Some(made) = &scratch.made {
            out.line(format!("The folder {} was not there: it was made", made.display()))?;
        }
        out.line(format!("A scratch home and repository are in {}", scratch.root.display()))?;
        let context = context.in_home(scratch.home.clone());
        let lane: LaneName = match self.lane {
            Who::Scripted => {
                scratch.configure_lane(&machine::own_program()?)?;
                "process:demo".parse()?
            }
            Who::Claude => LaneName::claude(),
        };
        let site = Site::to_work(&context).await?;
        let ended = steps(&context, &scratch, site.client(), lane).await;
        site.close().await;
        let detail = ended?;
        tell(&context, &scratch, &detail)?;
        Ok(if detail.task.state == TaskState::Review { Exit::Ok } else { Exit::TaskFailed })
    }
}

async fn steps(
    context: &Context,
    scratch: &Scratch,
    client: &Client,
    lane: LaneName,
) -> anyhow::Result<TaskDetail> {
    let lanes = machine::lanes(context, true, Vec::new()).await;
    if lane == LaneName::claude() {
        let found = probe(&lanes, WORKER_PATIENCE).await;
        if let Some(status) = found.iter().find(|s| s.lane == lane && !s.served) {
            let hint = status.hint.clone().unwrap_or_else(|| "relay doctor".to_owned());
            return Err(Failure::new(Exit::NotReady, format!("claude: {}", status.detail))
                .hint(hint)
                .into());
        }
    }
    let project = client
        .link(&LinkProject {
            forge: ForgeKind::Local,
            slug: "local/greeter".parse()?,
            path: Some(scratch.repo.display().to_string()),
            host: context.host(),
        })
        .await?;
    context.output.line(format!("Linked it as {}", project.slug))?;
    let task = client
        .create_task(&CreateTask {
            slug: project.slug,
            lane: lane.clone(),
            issue: None,
            title: Some(scratch::TITLE.to_owned()),
            body: Some(scratch::BODY.to_owned()),
            asked_by: context.config.user.clone(),
        })
        .await?;
    context.output.line(format!("Opened task {}: {}\n", task.id, task.title))?;
    let worker = WorkerConfig {
        name: "demo".parse()?,
        host: context.host(),
        lanes: vec![lane],
        labels: Vec::new(),
        forges: Vec::new(),
        limits: Limits::default(),
        jobs: 1,
        interval: Duration::from_secs(15),
        max_interval: Duration::from_secs(300),
        once: true,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let start = Start {
        context,
        worker,
        client: client.clone(),
        lanes,
        progress: Arc::new(Progress::on_stdout(context.output)),
        max_run: Some(Duration::from_secs(600)),
        keep: false,
    };
    work(start, Shutdown::default(), None).await?;
    read(client, &task.id).await
}

async fn read(client: &Client, id: &TaskId) -> anyhow::Result<TaskDetail> {
    Ok(client.task(id).await?)
}

/// The diff, where the branch is, what it cost, and how to do the same for real.
fn tell(context: &Context, scratch: &Scratch, detail: &TaskDetail) -> anyhow::Result<()> {
    let out = context.output;
    let task = &detail.task;
    if task.state != TaskState::Review {
        let why = task.stop_reason.as_ref().map_or_else(String::new, ToString::to_string);
        let message = task.message.as_deref().unwrap_or("no more is known");
        out.line(format!("\nThe task is {}: {why}: {}", task.state, plain(message)))?;
        out.line(format!("Everything is still in {}", scratch.root.display()))?;
        return Ok(());
    }
    if let Some(pull) = &detail.local_pull {
        out.line(format!("\nPull request: {}\n", plain(&pull.title)))?;
        for line in plain(&pull.diff).lines() {
            let tone = match line.chars().next() {
                Some('+') => Tone::Good,
                Some('-') => Tone::Bad,
                Some('@') => Tone::Busy,
                _ => Tone::Plain,
            };
            out.line(out.paint(tone, line))?;
        }
        out.line(format!("\nBranch: {} in {}", pull.branch, scratch.repo.display()))?;
    }
    if let Some(run) = detail.runs.first() {
        out.line(format!("Cost:   {}", cost(run.usage.as_ref())))?;
    }
    let lane =
        if task.lane == LaneName::claude() { "claude" } else { "claude   # or process:NAME" };
    out.line(format!(
        "\nThe same on your own repository:\n\n  \
         relay link PATH|OWNER/REPO\n  \
         relay task create --repo SLUG --title \"What you want\" --lane {lane}\n  \
         relay work --once\n\n\
         The scratch folder can go: rm -rf {}",
        scratch.root.display()
    ))?;
    Ok(())
}

/// What a run cost, in words; what was not reported is said to be so.
fn cost(usage: Option<&Usage>) -> String {
    let Some(usage) = usage.filter(|u| u.is_reported()) else {
        return "not reported".to_owned();
    };
    let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let money =
        usage.cost_usd.map_or_else(|| "money not reported".to_owned(), |usd| format!("${usd:.4}"));
    format!(
        "{money}, {} tokens in, {} tokens out",
        number(usage.input_tokens),
        number(usage.output_tokens)
    )
}
