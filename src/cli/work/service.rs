//! The service that keeps `relay work` running, as this system has it: its file, and how it stands.

use std::path::PathBuf;
use std::time::Duration;

use relay_service::{Keeper, Service, Standing, Unit};
use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::output::{Output, Tone, one_line};
use crate::process::{self, Limits, Program};

/// A question to the service manager; it answers from memory.
const QUESTION: Limits =
    Limits { time: Duration::from_secs(5), stdout: 256 * 1024, stderr: 8 * 1024 };

/// Where the manager of this user listens, and what it is told apart by.
const NAMES: [&str; 7] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_CONFIG_HOME",
];

/// How the service stands, for `relay work status`.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct ServiceStatus {
    /// Its file.
    pub(in crate::cli) path: PathBuf,
    /// Whether the file is there.
    pub(in crate::cli) installed: bool,
    /// Whether the service manager knows it.
    pub(in crate::cli) loaded: bool,
    /// Whether it runs.
    pub(in crate::cli) active: bool,
    /// The manager's own word, or why it could not be asked.
    pub(in crate::cli) detail: String,
}

impl ServiceStatus {
    /// `service: active (running), /home/ada/.config/systemd/user/relay-work.service`.
    pub(super) fn show(&self, output: Output) -> String {
        if !self.installed && !self.loaded {
            return "service: none; `relay work --install` shows the one it would make\n"
                .to_owned();
        }
        let tone = if self.active { Tone::Good } else { Tone::Warn };
        let word = match (self.loaded, self.detail.as_str()) {
            (true, word) if !word.is_empty() => one_line(word),
            (true, _) => "loaded".to_owned(),
            (false, "") => "not loaded".to_owned(),
            (false, why) => format!("not loaded ({})", one_line(why)),
        };
        format!("service: {}, {}\n", output.paint(tone, &word), self.path.display())
    }
}

/// What keeps services of this user, on this system.
fn kind() -> Keeper {
    match cfg!(target_os = "macos") {
        true => Keeper::Launchd { uid: rustix::process::getuid().as_raw() },
        false => Keeper::Systemd { version: 0 },
    }
}

/// The same with its version, where that decides what a unit may say.
pub(super) async fn keeper(context: &Context) -> Keeper {
    let kind = kind();
    if matches!(kind, Keeper::Launchd { .. }) {
        return kind;
    }
    // `systemd 252 (252.38-1)`
    let said = ask(context, &["systemctl", "--version"].map(str::to_owned), QUESTION).await;
    let version = said.ok().and_then(|said| said.split_whitespace().nth(1)?.parse().ok());
    Keeper::Systemd { version: version.unwrap_or(0) }
}

/// How it stands now.
pub(in crate::cli) async fn status(context: &Context) -> ServiceStatus {
    let keeper = kind();
    let nothing = Service {
        program: String::new(),
        args: Vec::new(),
        environment: Vec::new(),
        log: String::new(),
        drain: Duration::ZERO,
        watchdog: Duration::ZERO,
    };
    let home = context.config.user_home.to_string_lossy();
    let Ok(Unit { path, show, .. }) = keeper.unit(&home, &nothing) else {
        let (path, detail) = (PathBuf::new(), "HOME cannot stand in a unit".to_owned());
        return ServiceStatus { path, installed: false, loaded: false, active: false, detail };
    };
    let installed = path.is_file();
    let shown = ask(context, &show, QUESTION).await;
    let Standing { loaded, active, word } = keeper.standing(shown.as_deref().ok());
    let detail = match shown {
        Ok(_) => word,
        // launchd knows nothing of what is not loaded, and says so as a failure.
        Err(_) if !installed => String::new(),
        Err(why) => why,
    };
    ServiceStatus { path, installed, loaded, active, detail }
}

/// Runs a command of the service manager and gives what it printed.
///
/// # Errors
/// What it said where it failed, for a person.
pub(super) async fn ask(
    context: &Context,
    argv: &[String],
    limits: Limits,
) -> Result<String, String> {
    let [name, args @ ..] = argv else { return Err("no command".to_owned()) };
    let Some(path) = context.config.program(name) else {
        return Err(format!("`{name}` is not on PATH"));
    };
    let environment = &context.config.environment;
    let keep = |name: &&str| {
        let (name, value) = environment.get_key_value(std::ffi::OsStr::new(name))?;
        Some((name.clone(), value.clone()))
    };
    let program = Program {
        path,
        args: args.iter().map(Into::into).collect(),
        env: NAMES.iter().filter_map(keep).collect(),
        cwd: "/".into(),
        stdin: Vec::new(),
    };
    let output = process::run(&program, &limits).await.map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.code {
        Some(0) => Ok(text(&output.stdout)),
        code if output.stderr.is_empty() => Err(format!("{name} ended with {code:?}")),
        _ => Err(text(&output.stderr)),
    }
}
