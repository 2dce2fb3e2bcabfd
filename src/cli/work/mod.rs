//! `relay work`: this machine takes tasks and does them.

mod baked;
mod install;
mod logfile;
mod lookout;
mod orders;
pub(super) mod service;
mod signals;
pub(super) mod start;
mod status;

use std::time::Duration;

use clap::{Args, Subcommand};

use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use crate::model::{IdError, Label, LaneName, Order, WorkerName};
use crate::work::Limits;

/// Options of `relay work`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Ctrl-C or SIGTERM lets running jobs finish; a second one stops them.")]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    work: WorkOptions,
    /// Show the service that keeps `relay work` with these options running, and how it is loaded;
    /// with --yes, do it
    #[arg(long, conflicts_with_all = ["once", "uninstall", "log"])]
    install: bool,
    /// Show how that service is stopped and removed; with --yes, do it
    #[arg(long, conflicts_with_all = ["once", "log"])]
    uninstall: bool,
    /// Do what --install or --uninstall shows
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the owner of this home, its workers and what they do
    Status(status::Options),
    /// A worker takes nothing more, or nothing of some lanes, until it is resumed; what runs goes on
    Pause(orders::LaneOptions),
    /// A paused worker, or lanes of it, go on
    Resume(orders::LaneOptions),
    /// A worker takes nothing more, and ends once what runs has ended
    Drain(orders::DrainOptions),
}

/// What a worker can be told.
#[derive(Clone, Debug, Args)]
pub struct WorkOptions {
    /// Do what is queued, then end
    #[arg(long)]
    once: bool,
    /// How many jobs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// How many of them at once of one lane (codex=1,process:edit=2)
    #[arg(long = "limit", value_name = "LANE=N,…", value_delimiter = ',', value_parser = limit)]
    limits: Vec<(LaneName, usize)>,
    /// How many of them at once of one repository (default: no limit)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    per_repo: Option<u16>,
    /// The lanes to serve, whatever the logins say
    #[arg(long, value_name = "LANE,…", value_delimiter = ',')]
    lanes: Vec<LaneName>,
    /// What this machine has (gpu, xcode), for tasks whose preferences ask for it
    #[arg(long, value_name = "LABEL,…", value_delimiter = ',')]
    labels: Vec<Label>,
    /// What this worker is called (default: this machine's name)
    #[arg(long)]
    name: Option<WorkerName>,
    /// The time limit of a run, in minutes, whatever `relay prefer run.max_minutes` says (default:
    /// that, else 60)
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    max_minutes: Option<Duration>,
    /// The first wait between two looks for work at a site that cannot call this worker, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    interval: Duration,
    /// The longest wait for a call or between two looks, in seconds (default: 300, or
    /// RELAY_WORK_MAX_INTERVAL)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_interval: Option<Duration>,
    /// Leave the lanes' copies on disk
    #[arg(long)]
    keep: bool,
    /// Run vendor lanes without their sandbox: their commands can do all that you can
    #[arg(long)]
    no_sandbox: bool,
    /// Write to work.log in relay's folder, which is kept small, and not to the terminal
    #[arg(long)]
    log: bool,
}

impl Options {
    /// Works, or tells about it.
    ///
    /// # Errors
    /// When the home is taken, there is nothing to serve, or another worker took over.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Some(Command::Status(options)) => options.run(context).await,
            Some(Command::Pause(options)) => options.run(context, Order::Pause).await,
            Some(Command::Resume(options)) => options.run(context, Order::Resume).await,
            Some(Command::Drain(options)) => options.run(context).await,
            None if self.install => install::install(&self.work, self.yes, context).await,
            None if self.uninstall => install::uninstall(self.yes, context).await,
            None if self.yes => Err(Failure::new(Exit::Usage, "--yes to what?")
                .hint("relay work --install --yes, or relay work --uninstall --yes")
                .into()),
            None => start::run(self.work, context).await,
        }
    }
}

impl WorkOptions {
    /// How many jobs at once of one lane and of one repository; of a lane that is named twice the
    /// last word counts.
    pub(super) fn limits(&self) -> Limits {
        let lanes = self.limits.iter().cloned().collect();
        Limits { lanes, per_repo: self.per_repo.map(usize::from) }
    }
}

fn limit(text: &str) -> Result<(LaneName, usize), String> {
    let (lane, jobs) = text.rsplit_once('=').ok_or("a lane and a number, as in codex=1")?;
    let lane = lane.parse().map_err(|error: IdError| error.to_string())?;
    match jobs.parse() {
        Ok(jobs @ 1..=64) => Ok((lane, jobs)),
        _ => Err("a number of jobs from 1 to 64; `relay work pause --lane` keeps a lane from all"
            .to_owned()),
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(n) if n > 0.0 && n <= 7.0 * 24.0 * 60.0 => Ok(Duration::from_secs_f64(n * 60.0)),
        _ => Err("a number of minutes, at most a week".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(n) if (1..=86_400).contains(&n) => Ok(Duration::from_secs(n)),
        _ => Err("a number of seconds from 1 to 86400".to_owned()),
    }
}
