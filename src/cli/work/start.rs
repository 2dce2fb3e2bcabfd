//! From options and settings to a running worker.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::mpsc;

use super::WorkOptions;
use super::logfile::{self, LogFile};
use super::lookout::Lookout;
use super::signals;
use crate::cli::context::Context;
use crate::cli::descriptors;
use crate::cli::error::Failure;
use crate::cli::exit::Exit;
use crate::cli::machine;
use crate::cli::progress::Progress;
use crate::cli::site::Site;
use crate::client::{Client, Endpoint, Reach};
use crate::forge::github::host_of;
use crate::git::{Git, OLDEST_GIT, is_new_enough};
use crate::model::{Label, LaneName, Secret, WorkerName};
use crate::process::{adopt_orphans, kill_orphaned_commands, wake_orphaned_supervisors};
use crate::system::notify::Notifier;
use crate::work::away::Standing;
use crate::work::copies::Copies;
use crate::work::courier::Courier;
use crate::work::egress::{USABLE, unusable};
use crate::work::job;
use crate::work::lane::Lanes;
use crate::work::linked::Linked;
use crate::work::misfit;
use crate::work::outbox::Outbox;
use crate::work::probe::{LaneState, LaneStatus, WORKER_PATIENCE, probe};
use crate::work::{Observer, Shutdown, WorkError, Worker, WorkerConfig};

/// The longest wait of an idle worker unless told otherwise (seed 002).
const MAX_INTERVAL: Duration = Duration::from_secs(300);

/// How long the vendors' programs may be asked before a person is told of it.
const QUIET: Duration = Duration::from_secs(3);

/// Descriptors of a worker: the queue, the caches, git, what is kept beside the jobs.
const OWN_FILES: usize = 256;
/// Of a job: two for each of the tunnels that its lane may have, its connections that are refused,
/// its pipes and files.
const FILES_OF_A_JOB: usize = 768;

pub(super) async fn run(options: WorkOptions, context: &Context) -> anyhow::Result<Exit> {
    let jobs = usize::from(options.jobs);
    descriptors::raise(jobs.saturating_mul(FILES_OF_A_JOB).saturating_add(OWN_FILES));
    if options.log {
        let log = logfile::path(&context.config.home);
        let taken = LogFile::take_over(&context.config.home);
        let kept = taken.with_context(|| format!("the log {}", log.display()))?;
        tokio::spawn(kept.keep());
    }
    let progress = Arc::new(progress(&options, context));
    let github = machine::github(context).await;
    let logins = github.iter().map(|login| login.token.clone());
    let secrets: Vec<Secret> = logins.chain(context.config.site_secrets.clone()).collect();
    let lanes = machine::lanes(context, !options.no_sandbox, secrets).await;
    if let Some(why) = unusable(lanes.egress.outward.as_ref())
        && !options.no_sandbox
    {
        progress.warning(&format!("{why} (hint: {USABLE})"));
    }
    // Lanes that were named are what they are.
    let looks = options.lanes.is_empty() && !options.once;
    let lookout = looks.then(|| Lookout::new(context, lanes.clone()));
    let serves = served(&options, &lanes, &progress).await?;
    let site = Site::to_work(context).await?;
    let client = site.client().clone();
    let name = match options.name.clone() {
        Some(name) => name,
        None => own_name(context, &client).await?,
    };
    let worker = worker_config(&options, name, context, serves, github.is_some())?;
    let shutdown = Shutdown::default();
    signals::listen(shutdown.clone(), Arc::clone(&progress))?;
    let told = Arc::clone(&progress);
    let (max_run, keep) = (options.max_minutes, options.keep);
    let start = Start { context, worker, client, lanes, progress, max_run, keep };
    let ended = work(start, shutdown, lookout).await;
    site.close().await;
    told.ended();
    match ended {
        // Started again it would end the other worker's jobs, and the other its own, for ever.
        Err(error) if options.log && is_replaced(&error) => {
            told.warning(&format!("{error:#}: this service does not start again by itself"));
            Ok(Exit::Ok)
        }
        ended => ended.map(|()| Exit::Ok),
    }
}

fn progress(options: &WorkOptions, context: &Context) -> Progress {
    let progress = Progress::on_stderr(context.output);
    let progress = if options.log { progress.timed(Arc::clone(&context.clock)) } else { progress };
    progress.telling(manager(context))
}

/// The service manager that started this process, where one did.
fn manager(context: &Context) -> Option<Notifier> {
    let get = |name: &str| context.config.environment.get(OsStr::new(name));
    let number = |name: &str| get(name)?.to_str()?.parse::<u64>().ok();
    let for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let watchdog = number("WATCHDOG_USEC").filter(|usec| for_us && *usec > 0);
    match Notifier::new(get("NOTIFY_SOCKET")?, watchdog.map(Duration::from_micros)) {
        Ok(notifier) => Some(notifier),
        Err(error) => {
            tracing::warn!(%error, "NOTIFY_SOCKET is not spoken to");
            None
        }
    }
}

fn is_replaced(error: &anyhow::Error) -> bool {
    // Once a worker is registered, nothing else is a conflict.
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.exit() == Exit::Conflict)
}

/// All that a worker is started with; the demo starts one as well.
pub(in crate::cli) struct Start<'a> {
    pub(in crate::cli) context: &'a Context,
    pub(in crate::cli) worker: WorkerConfig,
    pub(in crate::cli) client: Client,
    pub(in crate::cli) lanes: Lanes,
    pub(in crate::cli) progress: Arc<Progress>,
    pub(in crate::cli) max_run: Option<Duration>,
    pub(in crate::cli) keep: bool,
}

/// Registers the worker and runs it to its end; a `lookout` tells it of other lanes meanwhile.
pub(in crate::cli) async fn work(
    start: Start<'_>,
    shutdown: Shutdown,
    lookout: Option<Lookout<'_>>,
) -> anyhow::Result<()> {
    let Start { context, worker, client, lanes, progress, max_run, keep } = start;
    let home = lanes.relay_home.clone();
    if let Err(error) = adopt_orphans() {
        tracing::warn!(%error, "what a killed supervisor leaves behind may live on");
    }
    let copies = Copies::open(home.join("work"))?;
    copies.sweep();
    // Only now: what the sweep ended cannot stop it again.
    wake_orphaned_supervisors();
    let left = kill_orphaned_commands();
    if left > 0 {
        progress.line(&format!("ended {left} command(s) that a killed worker had left running"));
    }
    machine::logins(&context.config).for_each(|logins| logins.sweep());
    let git = git(context, &home).await?;
    let clock = Arc::clone(&context.clock);
    let ids = context.ids();
    let (name, serves) = (worker.name.clone(), worker.lanes.clone());
    let observer: Arc<dyn Observer> = progress;
    let standing = Arc::new(Standing::new(Arc::clone(&clock), Arc::clone(&observer)));
    let client = client.watched(Arc::clone(&standing) as Arc<dyn Reach>);
    let outbox = Outbox::new(&home.join("results"), &name);
    let courier = Courier {
        client: client.clone(),
        outbox: outbox.clone(),
        clock: Arc::clone(&clock),
        ids: Arc::clone(&ids),
        observer: Arc::clone(&observer),
    };
    let registering =
        Worker::register(worker, client.clone(), Arc::clone(&clock), Arc::clone(&ids), &courier);
    let worker = tokio::select! {
        biased;
        registered = registering => registered.map_err(|error| work_failure(&name, error))?,
        // Whoever is not there yet has nothing to end.
        () = shutdown.drain.cancelled() => return Ok(()),
    };
    let far = matches!(context.config.site, Some(Endpoint::Http(_)));
    let linked = far.then(|| Linked::of(&home));
    let shared = Arc::new(job::Context {
        client,
        worker: worker.id().clone(),
        git,
        lanes: lanes.into(),
        copies,
        kept: home.join("kept"),
        runs: home.join("runs"),
        outbox,
        accounts: Arc::clone(&context.accounts),
        forge_api: context.config.github_api.clone(),
        linked: linked.clone(),
        supervisor: machine::own_program()?,
        max_run,
        keep,
        clock,
        ids,
        faults: context.faults(),
        standing,
        observer,
    });
    let (tells, found) = mpsc::channel(1);
    let looking = async {
        if let Some(linked) = linked {
            tell_unlinked(&linked, &context.host(), &shared.client, &*shared.observer).await;
        }
        if let Some(lookout) = lookout {
            lookout.tell(serves, tells).await;
        }
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        ended = worker.run(Arc::clone(&shared), courier, shutdown, found) => ended,
        never = looking => match never {},
    };
    let kept = shared.outbox.read(&shared.client.endpoint().to_string()).len();
    if kept > 0 {
        shared.observer.warning(&format!(
            "what the site did not take of {kept} run(s) is kept in {}; the next `relay work` hands it in",
            shared.outbox.folder().display()
        ));
    }
    ended.map_err(|error| work_failure(&name, error))
}

/// Names the repositories of this machine that nobody linked from this home. A site that does not
/// tell of its repositories is not asked again: a task of one of them says the same.
async fn tell_unlinked(linked: &Linked, host: &str, client: &Client, observer: &dyn Observer) {
    for project in client.projects().await.unwrap_or_default() {
        if linked.lacks(&project, host) {
            let (slug, place) = (&project.slug, &project.remote);
            observer.warning(&format!(
                "{slug}: {place} was not linked from this home: its tasks fail here (hint: relay link {place})"
            ));
        }
    }
}

async fn git(context: &Context, home: &Path) -> anyhow::Result<Git> {
    let program = context.config.program("git").ok_or_else(|| {
        Failure::new(Exit::NotReady, "the program `git` is not on PATH").hint("relay doctor")
    })?;
    let path = context.config.path_variable();
    let environment = &context.config.environment;
    let network = environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    // It keeps only the names by which a machine reaches its forge.
    let git = Git::with_network(program, path, home.join("cache"), network);
    let version = git.version().await?;
    if !is_new_enough(&version) {
        let (major, minor) = OLDEST_GIT;
        let text = format!("git {version} is too old: relay needs {major}.{minor} or newer");
        return Err(Failure::new(Exit::NotReady, text).hint("relay doctor").into());
    }
    Ok(git)
}

/// The lanes of the options, else those this machine is logged in for.
async fn served(
    options: &WorkOptions,
    lanes: &Lanes,
    progress: &Progress,
) -> anyhow::Result<Vec<LaneName>> {
    let found = asked(lanes, progress).await;
    lanes_are_there(options, lanes, &found)?;
    let mut served: Vec<LaneName> = Vec::new();
    if options.lanes.is_empty() {
        served.extend(found.iter().filter(|s| s.served).map(|s| s.lane.clone()));
        for silent in found.iter().filter(|s| s.state == LaneState::Silent) {
            progress.warning(&format!("{} is not served: {}", silent.lane, silent.detail));
        }
    }
    for lane in &options.lanes {
        let status = found.iter().find(|status| status.lane == *lane);
        if let Some(status) = status.filter(|status| !status.served) {
            progress.warning(&format!("{lane} is served as you asked, but {}", status.detail));
        }
        if !served.contains(lane) {
            served.push(lane.clone());
        }
    }
    if served.is_empty() {
        return Err(work_failure_no_lanes());
    }
    for (lane, _) in options.limits.iter().filter(|(lane, _)| !served.contains(lane)) {
        progress.warning(&format!("--limit {lane}: this worker does not serve it"));
    }
    for lane in found.iter().filter(|lane| lane.served && served.contains(&lane.lane)) {
        for remark in &lane.remarks {
            progress.warning(&format!("{}: {remark}", lane.lane));
        }
    }
    let around_claude = lanes.boxing.claude.as_ref().unwrap_or(&lanes.boxing.confinement);
    for (lane, around) in [("claude", around_claude), ("codex", &lanes.boxing.confinement)] {
        let is_served = served.iter().any(|served| served.as_str() == lane);
        if is_served && lanes.sandbox && !around.has_walls() && cfg!(target_os = "linux") {
            progress.warning(&format!(
                "no walls around {lane}: `relay doctor` says why, docs/SECURITY.md what it means",
            ));
        }
    }
    if !lanes.sandbox {
        progress.warning("no sandbox: what a vendor's lane runs can do all that you can");
    }
    Ok(served)
}

/// Whether this machine has each lane that the options name.
///
/// # Errors
/// At the first that it has not: every task of it would fail, and a limit of nothing would let run
/// what it was to hold back.
pub(super) fn lanes_are_there(
    options: &WorkOptions,
    lanes: &Lanes,
    found: &[LaneStatus],
) -> anyhow::Result<()> {
    let is_there = |lane: &LaneName| found.iter().any(|status| status.lane == *lane);
    if let Some((lane, _)) = options.limits.iter().find(|(lane, _)| !is_there(lane)) {
        return Err(no_lane_to_limit(lane, found));
    }
    match options.lanes.iter().find(|lane| !is_there(lane)) {
        Some(lane) => Err(no_such_lane(lane, lanes)),
        None => Ok(()),
    }
}

/// The lanes of this machine, with a word where the vendors' programs are slow to answer.
async fn asked(lanes: &Lanes, progress: &Progress) -> Vec<LaneStatus> {
    let mut asking = pin!(probe(lanes, WORKER_PATIENCE));
    match tokio::time::timeout(QUIET, &mut asking).await {
        Ok(found) => found,
        Err(_) => {
            progress.line("asking the vendors' programs whether they are logged in");
            asking.await
        }
    }
}

/// The name that the token speaks for, which of RELAY_TOKEN only the site knows; else this
/// machine's.
async fn own_name(context: &Context, client: &Client) -> anyhow::Result<WorkerName> {
    let config = &context.config;
    let bound = match (&config.worker, &config.token) {
        (Some(name), _) => Some(name.clone()),
        // A site that cannot say it is asked to register next, and says what is wrong then.
        (None, Some(_)) => client.who_am_i().await.ok().and_then(|who| who.worker),
        (None, None) => None,
    };
    match bound {
        Some(name) => Ok(name),
        None => machine::worker_name(&context.host()),
    }
}

fn worker_config(
    options: &WorkOptions,
    name: WorkerName,
    context: &Context,
    lanes: Vec<LaneName>,
    github: bool,
) -> anyhow::Result<WorkerConfig> {
    let mut labels = options.labels.clone();
    if options.no_sandbox {
        labels.push("sandbox:off".parse::<Label>()?);
    }
    Ok(WorkerConfig {
        name,
        host: context.host(),
        lanes,
        labels,
        forges: github.then(|| host_of(&context.config.github_api)).into_iter().collect(),
        jobs: usize::from(options.jobs),
        limits: options.limits(),
        interval: options.interval,
        max_interval: options.max_interval.or(context.config.max_interval).unwrap_or(MAX_INTERVAL),
        once: options.once,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn no_such_lane(lane: &LaneName, lanes: &Lanes) -> anyhow::Error {
    let hint = match lane.process_name() {
        Some(name) => format!(
            "a process lane is a file, {}; docs/LANES.md has one to start from",
            lanes.process_dir.join(format!("{name}.json")).display()
        ),
        None => "`relay lane ls` lists the lanes that this version can run here".to_owned(),
    };
    let text = format!("this machine has no lane `{lane}`");
    Failure::new(Exit::NotReady, text).hint(hint).into()
}

fn no_lane_to_limit(lane: &LaneName, found: &[LaneStatus]) -> anyhow::Error {
    let names: Vec<&str> = found.iter().map(|status| status.lane.as_str()).collect();
    let text = format!("--limit {lane}: this machine has no lane `{lane}`");
    let hint = format!("its lanes are {}", names.join(", "));
    Failure::new(Exit::NotReady, text).hint(hint).into()
}

fn work_failure_no_lanes() -> anyhow::Error {
    Failure::new(Exit::NotReady, WorkError::NoLanes.to_string())
        .hint("`relay lane ls` shows what each lane lacks; `relay work --lanes LANE` serves it all the same")
        .into()
}

fn work_failure(name: &WorkerName, error: WorkError) -> anyhow::Error {
    match &error {
        WorkError::NoLanes => work_failure_no_lanes(),
        WorkError::Replaced(_) => Failure::new(Exit::Conflict, error.to_string())
            .hint(format!(
                "give each worker its own name: relay work --name NAME (this one was `{name}`)"
            ))
            .into(),
        WorkError::NoRoom { folder, lacking } => {
            Failure::new(Exit::Failed, error.to_string()).hint(lacking.mend(folder)).into()
        }
        WorkError::Misfit(_) => {
            Failure::new(Exit::Failed, error.to_string()).hint(misfit::HINT).into()
        }
        WorkError::Register { .. }
        | WorkError::Barred { .. }
        | WorkError::Unclaimed(_)
        | WorkError::Id(_) => error.into(),
    }
}
