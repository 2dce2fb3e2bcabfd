//! `relay work --install` and `--uninstall`: what would be written and run, and with `--yes` doing it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use relay_service::{Keeper, Service, Unit};

use super::WorkOptions;
use super::{baked, logfile, service, start};
use crate::cli::context::Context;
use crate::cli::credentials::Kept;
use crate::cli::error::Failure;
use crate::cli::exit::Exit;
use crate::cli::machine;
use crate::cli::output::one_line;
use crate::files;
use crate::model::MAX_MINUTES;
use crate::model::disk::quoted;
use crate::process::Limits;
use crate::site::owner::{Role, living_role};
use crate::work::probe::{WORKER_PATIENCE, probe};

/// What a stop waits for where the worker can ask for more as it goes.
const RUN: Duration = Duration::from_secs(60 * 60);
/// The longest that a preference may let a run take.
const LONGEST_RUN: Duration = Duration::from_secs(60 * MAX_MINUTES as u64);
/// What a stop waits for besides the run itself: commit, push, pull request, a site that is away.
const DELIVERY: Duration = Duration::from_secs(10 * 60);
/// A claim and its answer may take two minutes of the loop's time; a stuck loop has no end.
const WATCHDOG: Duration = Duration::from_secs(5 * 60);
/// Started within this, or the manager says why not.
const LOADED: Duration = Duration::from_secs(16 * 60);

/// Shows the service, and with `yes` writes and loads it.
///
/// # Errors
/// Where something it would hold cannot stand in a unit, its token would be missing, `relay work`
/// refuses the same options, or a command fails.
pub(super) async fn install(
    options: &WorkOptions,
    yes: bool,
    context: &Context,
) -> anyhow::Result<Exit> {
    token_is_kept(context)?;
    can_work(options, context).await?;
    let keeper = service::keeper(context).await;
    let service = described(keeper, options, context)?;
    let unit = unit(keeper, context, &service)?;
    let again = unit.path.is_file() && service::status(context).await.loaded;
    let commands = if again { &unit.reload } else { &unit.load };
    for remark in baked::remarks(&context.config) {
        context.output.note(remark);
    }
    if !yes {
        let mut text = format!("{}\n\n", unit.path.display());
        for line in unit.text.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text.push('\n');
        shown(&mut text, commands);
        text.push_str("\nnothing was done; `--yes` does it\n");
        context.output.text(&text)?;
        linger(keeper, context);
        return Ok(Exit::Ok);
    }
    make_home(&context.config.home)?;
    logfile::make(&context.config.home).map_err(|error| {
        Failure::new(Exit::Failed, format!("the log in {}: {error}", context.config.home.display()))
    })?;
    write(&unit)?;
    context.output.line(format!("wrote {}", unit.path.display()))?;
    for command in commands {
        context.output.line(in_words(command))?;
        run(context, command).await?;
    }
    context.output.line("the service is loaded; `relay work status` shows how it stands")?;
    linger(keeper, context);
    Ok(Exit::Ok)
}

/// Shows how the service is stopped and removed, and with `yes` does it.
///
/// # Errors
/// Where the file cannot be removed.
pub(super) async fn uninstall(yes: bool, context: &Context) -> anyhow::Result<Exit> {
    let keeper = service::keeper(context).await;
    // Only the names of files and commands are of interest.
    let unit = unit(keeper, context, &nothing())?;
    let there = unit.path.is_file();
    let standing = service::status(context).await;
    if !there && !standing.loaded {
        context.output.line("there is no service to remove")?;
        return Ok(Exit::Ok);
    }
    if !yes {
        let mut text = String::new();
        shown(&mut text, &unit.unload);
        let _ = writeln!(text, "    rm {}", quoted(&unit.path));
        shown(&mut text, &unit.forget);
        text.push_str("\nnothing was done; `--yes` does it, after running jobs have finished\n");
        context.output.text(&text)?;
        return Ok(Exit::Ok);
    }
    if standing.active {
        context.output.note("running jobs finish first");
    }
    for command in unit.unload.iter().filter(|_| standing.loaded) {
        context.output.line(in_words(command))?;
        // A service that is not loaded any more is as good as one that was just unloaded, so its
        // file is removed all the same: it would be loaded at the next login.
        if let Err(error) = run(context, command).await {
            context.output.note(format!("warning: {error:#}"));
        }
    }
    if there {
        std::fs::remove_file(&unit.path).map_err(|e| disk(&unit.path, &e))?;
        context.output.line(format!("removed {}", unit.path.display()))?;
    }
    for command in &unit.forget {
        context.output.line(in_words(command))?;
        if let Err(error) = run(context, command).await {
            context.output.note(format!("warning: {error:#}"));
        }
    }
    Ok(Exit::Ok)
}

/// The service that these options and this environment make.
fn described(keeper: Keeper, options: &WorkOptions, context: &Context) -> anyhow::Result<Service> {
    let program = machine::own_program()?;
    let program = text(&program, "relay's own path")?;
    let args = ["work".to_owned(), "--log".to_owned()].into_iter().chain(options.words()).collect();
    Ok(Service {
        program,
        args,
        environment: baked::environment(&context.config)?,
        log: text(&logfile::path(&context.config.home), "the log's path")?,
        drain: drain(keeper, options.max_minutes),
        watchdog: WATCHDOG,
    })
}

/// How long a stop waits for running jobs. A preference, which may be set tomorrow, can give a run a
/// week: systemd is asked for more time while one goes on, launchd cannot be.
fn drain(keeper: Keeper, max_run: Option<Duration>) -> Duration {
    let longest = match keeper {
        Keeper::Systemd { .. } => RUN,
        Keeper::Launchd { .. } => LONGEST_RUN,
    };
    max_run.unwrap_or(longest).saturating_add(DELIVERY)
}

fn nothing() -> Service {
    let (program, args, environment) = (String::new(), Vec::new(), Vec::new());
    let (drain, watchdog) = (Duration::ZERO, Duration::ZERO);
    Service { program, args, environment, log: String::new(), drain, watchdog }
}

fn unit(keeper: Keeper, context: &Context, service: &Service) -> anyhow::Result<Unit> {
    let home = text(&context.config.user_home, "HOME")?;
    keeper.unit(&home, service).map_err(|error| Failure::new(Exit::Usage, error.to_string()).into())
}

fn text(path: &Path, what: &str) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("{what}, {}, is not UTF-8", path.display())).into()
    })
}

/// A service has no RELAY_TOKEN: its token is the one that `relay setup` keeps.
fn token_is_kept(context: &Context) -> anyhow::Result<()> {
    let config = &context.config;
    let (Some(site), true) = (&config.site, baked::is_set(config, "RELAY_TOKEN")) else {
        return Ok(());
    };
    let kept = Kept::read(&config.home)?.token;
    if kept.is_some_and(|kept| kept.site == *site) {
        return Ok(());
    }
    let file = config.home.join("credentials.json");
    let why = format!(
        "RELAY_TOKEN is never written into a service: its token must be in {}",
        file.display()
    );
    Err(Failure::new(Exit::NotReady, why).hint(format!("relay setup --site {site}")).into())
}

/// What `relay work` refuses in these options is refused here. What may be otherwise once the service
/// starts is only told.
async fn can_work(options: &WorkOptions, context: &Context) -> anyhow::Result<()> {
    let config = &context.config;
    let lanes = machine::lanes(context, !options.no_sandbox, Vec::new()).await;
    let found = probe(&lanes, WORKER_PATIENCE).await;
    start::lanes_are_there(options, &lanes, &found)?;
    if options.lanes.is_empty() && !found.iter().any(|lane| lane.served) {
        context.output.note(
            "warning: this machine can serve no lane now, so the service would fail until it can; \
             `relay lane ls` shows what each lane lacks",
        );
    }
    if config.site.is_none() && living_role(&config.home).await == Some(Role::Serve) {
        context.output.note(format!(
            "warning: {} is in use by `relay serve`, so the service would fail while that runs; a \
             worker beside it has a home of its own (docs/SITE.md)",
            config.home.display()
        ));
    }
    Ok(())
}

fn make_home(home: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let mut folder = std::fs::DirBuilder::new();
    Ok(folder.recursive(true).mode(0o700).create(home).map_err(|e| disk(home, &e))?)
}

/// Writes it whole or not at all; launchd loads no file that others could write.
fn write(unit: &Unit) -> anyhow::Result<()> {
    let failed = |e: &std::io::Error| disk(&unit.path, e);
    let folder = unit.path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    Ok(files::replace(&unit.path, unit.text.as_bytes()).map_err(|e| failed(&e))?)
}

fn disk(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
}

async fn run(context: &Context, command: &[String]) -> anyhow::Result<()> {
    let drains = command.iter().any(|word| word == "stop" || word == "bootout");
    // A stop ends when the manager says so; it has a time-out of its own.
    let time = if drains { Duration::from_secs(8 * 24 * 60 * 60) } else { LOADED };
    let limits = Limits { time, stdout: 64 * 1024, stderr: 8 * 1024 };
    match service::ask(context, command, limits).await {
        Ok(_) => Ok(()),
        Err(why) => {
            let text = format!("{} failed: {}", in_words(command), one_line(&why));
            Err(Failure::new(Exit::NotReady, text).hint(hint_of(&why, &account(context))).into())
        }
    }
}

fn hint_of(why: &str, account: &str) -> String {
    // A shell of `su` or `sudo` has no way to the user's manager.
    if why.contains("XDG_RUNTIME_DIR") || why.contains("connect to bus") {
        return format!(
            "log in as that user (ssh, machinectl shell), or: sudo loginctl enable-linger {account}; \
             export XDG_RUNTIME_DIR=/run/user/$(id -u)"
        );
    }
    "relay work status shows the last lines of its log; the file stays until \
     `relay work --uninstall --yes`"
        .to_owned()
}

fn shown(text: &mut String, commands: &[Vec<String>]) {
    for command in commands {
        let _ = writeln!(text, "    {}", in_words(command));
    }
}

fn in_words(command: &[String]) -> String {
    command.iter().map(|word| quoted(Path::new(word))).collect::<Vec<_>>().join(" ")
}

/// Without it a user's services end with the last login, and are not started at boot.
fn linger(keeper: Keeper, context: &Context) {
    let account = account(context);
    let lingers = Path::new("/var/lib/systemd/linger").join(&account).exists();
    if matches!(keeper, Keeper::Systemd { .. }) && !lingers {
        context.output.note(format!(
            "hint: it ends when its user logs out, and starts with the next login; to keep it running: \
             loginctl enable-linger {account}"
        ));
    }
}

/// This user for `loginctl`: the name, else the number, by which it takes one as well.
fn account(context: &Context) -> String {
    let name = |name: &str| context.config.environment.get(OsStr::new(name))?.to_str();
    let names = ["USER", "LOGNAME"].into_iter().filter_map(name);
    let number = || rustix::process::getuid().as_raw().to_string();
    names.map(str::to_owned).find(|name| !name.is_empty()).unwrap_or_else(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_cannot_be_given_more_time_has_what_the_longest_run_takes() {
        let minutes = |keeper, max_run: Option<u64>| {
            let max_run = max_run.map(|minutes| Duration::from_secs(60 * minutes));
            drain(keeper, max_run).as_secs() / 60
        };
        let launchd = Keeper::Launchd { uid: 501 };
        assert_eq!(minutes(launchd, None), 7 * 24 * 60 + 10);
        assert_eq!(minutes(launchd, Some(90)), 100);
        assert_eq!(minutes(Keeper::Systemd { version: 252 }, None), 70);
    }
}
