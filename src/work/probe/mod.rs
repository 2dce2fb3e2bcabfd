//! Which lanes this machine can serve: what is installed, what is logged in, and what can be kept
//! in a box.

mod interpreter;
mod version;

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use relay_lanes::{Login, Vendor, Weight};

use super::boxing::Boxing;
use super::lane::{Installed, Lanes, no_folder_text, process_config, process_lanes};
use crate::model::{LaneName, RunPreferences};
use crate::process::{
    Limits, Output, ProcessError, Program, WORKS_FOR, check_executable, own_mark, run,
};
use serde::Serialize;

pub use self::interpreter::missing;
pub use self::version::{Versions, version};

/// How long one question to a program may take where a person waits for the answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long where a worker waits, which asks once and serves by the answer for weeks: on a machine
/// that has just started, the first call of a vendor's program reads 200 MB from a cold disk.
pub const WORKER_PATIENCE: Duration = Duration::from_secs(60);

/// One lane, as this machine has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneStatus {
    /// The lane.
    pub lane: LaneName,
    /// Whether a worker started now would serve it.
    pub served: bool,
    /// That it is, or what is in the way first.
    pub state: LaneState,
    /// The name of that program, where it is not the vendor's own.
    pub through: Option<&'static str>,
    /// The program that runs it.
    pub program: Option<PathBuf>,
    /// That program's version.
    pub version: Option<String>,
    /// The version that relay was measured with.
    pub measured: Option<&'static str>,
    /// The model it would use.
    pub model: Option<String>,
    /// What was seen: the login, or why the lane is not served.
    pub detail: String,
    /// What a person can do about a lane that is not served.
    pub hint: Option<String>,
    /// What is to be known of this version, though the lane is served.
    pub remarks: Vec<String>,
}

/// How a lane stands on this machine. Of several reasons the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// A worker started now would serve it.
    Served,
    /// Its program is not on PATH.
    Missing,
    /// Its program is a script for a program that is not on PATH.
    NoInterpreter,
    /// This version of its program is known to behave badly.
    KnownBad,
    /// Its program did not say in time whether there is a login.
    Silent,
    /// There is no login.
    NotLoggedIn,
    /// What its program said of the login could not be read, or it could not be asked.
    Unclear,
    /// This machine can make no box for it.
    NoBox,
    /// Its configuration is valid, and the program or the folder that it names is not there, or is
    /// none.
    NotThere,
    /// Its configuration is not valid.
    Unfit,
}

impl LaneState {
    /// As a person reads it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Missing => "not installed",
            Self::NoInterpreter | Self::NotThere => "cannot start",
            Self::KnownBad => "bad version",
            Self::Silent => "no answer",
            Self::NotLoggedIn => "no login",
            Self::Unclear => "unclear",
            Self::NoBox => "no box",
            Self::Unfit => "misconfigured",
        }
    }
}

/// A program, as it is asked: in which environment, and for how long.
struct Asked<'a> {
    env: Vec<(OsString, OsString)>,
    home: &'a Path,
    patience: Duration,
}

/// What a vendor's program said.
enum Said {
    /// It could not be asked.
    Nothing(LaneState, String, String),
    /// Its version and its login, or what came instead.
    Answers(Result<Output, ProcessError>, Result<Output, ProcessError>),
}

/// Looks at every lane this machine could have, side by side, with the time that one question may
/// take.
pub async fn probe(lanes: &Lanes, patience: Duration) -> Vec<LaneStatus> {
    probe_within(lanes, std::future::ready(lanes.boxing.clone()), patience).await
}

/// [`probe`] where the box is still being tried.
pub async fn probe_within(
    lanes: &Lanes,
    boxing: impl Future<Output = Boxing>,
    patience: Duration,
) -> Vec<LaneStatus> {
    let asked = |vendor| asked(lanes, vendor, patience);
    let vendors = lanes
        .vendors
        .iter()
        .map(async |installed| asked(installed.vendor).of_login(installed).await);
    let (said, boxing) = tokio::join!(join_all(vendors), boxing);
    let boxed = Lanes { boxing, ..lanes.clone() };
    let vendors = lanes.vendors.iter().zip(said);
    let vendors = vendors.filter_map(|(installed, said)| status(&boxed, installed, said));
    let mut found: Vec<LaneStatus> = vendors.collect();
    found.extend(process_statuses(lanes));
    found
}

/// Looks at the lanes that are configured here; no program is asked for it.
#[must_use]
pub fn process_statuses(lanes: &Lanes) -> Vec<LaneStatus> {
    let configured = process_lanes(&lanes.process_dir);
    let path = lanes.parent_env.get(OsStr::new("PATH")).map(OsString::as_os_str);
    configured.into_iter().map(|(lane, file)| process_status(lane, &file, path)).collect()
}

/// Looks at one vendor's lane, with the time that one question may take.
pub async fn vendor_status(
    lanes: &Lanes,
    installed: &Installed,
    patience: Duration,
) -> Option<LaneStatus> {
    let said = asked(lanes, installed.vendor, patience).of_login(installed).await;
    status(lanes, installed, said)
}

fn asked<'a>(lanes: &'a Lanes, vendor: &Vendor, patience: Duration) -> Asked<'a> {
    Asked { env: lanes.probe_env(vendor), home: &lanes.home, patience }
}

impl Asked<'_> {
    async fn of_login(&self, installed: &Installed) -> Said {
        let vendor = installed.vendor;
        let Some(program) = installed.program.as_deref() else {
            let detail = format!("the program `{}` is not on PATH", vendor.program);
            return Said::Nothing(LaneState::Missing, detail, vendor.install.to_owned());
        };
        let path = self.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
        if let Some((detail, hint)) = no_interpreter(program, path.map(OsString::as_os_str)) {
            return Said::Nothing(LaneState::NoInterpreter, detail, hint);
        }
        let (version, login) = tokio::join!(
            self.question(program, vendor.version_args),
            self.question(program, vendor.login_args),
        );
        Said::Answers(version, login)
    }

    async fn question(&self, program: &Path, args: &[&str]) -> Result<Output, ProcessError> {
        let mark = own_mark().map(|mark| (WORKS_FOR.into(), mark));
        let program = Program {
            path: program.to_owned(),
            args: args.iter().map(OsString::from).collect(),
            env: self.env.iter().cloned().chain(mark).collect(),
            cwd: self.home.to_owned(),
            stdin: Vec::new(),
        };
        let limits = Limits { time: self.patience, stdout: 256 * 1024, stderr: 64 * 1024 };
        match run(&program, &limits).await {
            // One that died of itself told nothing of its login. It is asked once more: grok 1.0.41
            // does so now and then on its way out.
            Ok(died) if died.code.is_none() => run(&program, &limits).await,
            answer => answer,
        }
    }
}

fn status(lanes: &Lanes, installed: &Installed, said: Said) -> Option<LaneStatus> {
    let vendor = installed.vendor;
    let mut status = LaneStatus {
        lane: vendor.lane.parse().ok()?,
        served: false,
        state: LaneState::Missing,
        through: vendor.through(),
        program: installed.program.clone(),
        version: None,
        measured: Some(vendor.measured),
        model: installed.model(&RunPreferences::default()).map(str::to_owned),
        detail: String::new(),
        hint: None,
        remarks: Vec::new(),
    };
    let (version, login) = match said {
        Said::Nothing(state, detail, hint) => {
            return Some(LaneStatus { state, detail, hint: Some(hint), ..status });
        }
        Said::Answers(version, login) => (version, login),
    };
    match version {
        Ok(out) => status.version = (vendor.version)(&text(&out.stdout)),
        Err(error) => status.remarks.push(format!("its version is not known: {error}")),
    }
    let known = status.version.as_deref().map(|version| vendor.known_of(version));
    for known in known.into_iter().flatten() {
        match known.weight {
            Weight::Bad => {
                status.state = LaneState::KnownBad;
                status.detail = known.what.to_owned();
                status.hint = Some(vendor.install.to_owned());
            }
            Weight::Changed => status.remarks.push(known.what.to_owned()),
        }
    }
    if status.state == LaneState::KnownBad {
        return Some(status);
    }
    let (state, detail, hint) = match login {
        Err(error @ ProcessError::TimedOut { .. }) => {
            (LaneState::Silent, error.to_string(), Some(vendor.asks_login()))
        }
        Err(error) => (LaneState::Unclear, error.to_string(), Some(vendor.asks_login())),
        Ok(out) => match (vendor.login)(out.code, &text(&out.stdout), &text(&out.stderr)) {
            Login::Ready { detail } => match (installed.out_of_reach(), installed.lacks_model()) {
                (None, None) => (LaneState::Served, detail, None),
                (Some((why, hint)), _) => {
                    (LaneState::NotLoggedIn, why.to_owned(), Some(hint.to_owned()))
                }
                (None, Some((why, hint))) => {
                    (LaneState::Unfit, why.to_owned(), Some(hint.to_owned()))
                }
            },
            Login::NotLoggedIn { detail } => {
                (LaneState::NotLoggedIn, detail, Some(vendor.log_in.to_owned()))
            }
            Login::Unclear { detail } => (LaneState::Unclear, detail, Some(vendor.asks_login())),
        },
    };
    let status = LaneStatus { state, detail, hint, ..status };
    if state != LaneState::Served {
        return Some(status);
    }
    Some(match lanes.keeps(vendor) {
        Ok(()) => LaneStatus { served: true, ..status },
        Err(why) => {
            let detail = format!("{why} (it has {})", status.detail);
            let hint = Some("relay doctor".to_owned());
            LaneStatus { state: LaneState::NoBox, detail, hint, ..status }
        }
    })
}

/// What a script is run by is not there, and what helps.
fn no_interpreter(program: &Path, path: Option<&OsStr>) -> Option<(String, String)> {
    let name = interpreter::missing(program, path)?;
    let detail = format!("{} is a script for `{name}`, which is not on PATH", program.display());
    let hint = match name.strip_suffix("\\r") {
        Some(_) => format!("its lines end as on Windows: sed -i 's/\\r$//' {}", program.display()),
        None => format!("install {name}, or put its folder on the PATH of relay"),
    };
    Some((detail, hint))
}

fn process_status(lane: LaneName, path: &Path, programs: Option<&OsStr>) -> LaneStatus {
    let mend = format!("mend {}", path.display());
    let (state, program, detail, hint) = match process_config(path) {
        Ok(config) => {
            let no_folder = config.cwd.as_deref().filter(|cwd| !cwd.is_dir()).map(no_folder_text);
            let executable = check_executable(&config.command);
            let no_interpreter = no_interpreter(&config.command, programs);
            let (state, detail, hint) = match (executable, no_interpreter, no_folder) {
                (Err(error), ..) => {
                    let hint = match &error {
                        ProcessError::NotFound(_) => format!("put it there, or {mend}"),
                        _ if config.command.is_dir() => mend,
                        _ => format!("chmod +x it, or {mend}"),
                    };
                    (LaneState::NotThere, error.to_string(), Some(hint))
                }
                (_, Some((detail, hint)), None) => (LaneState::NoInterpreter, detail, Some(hint)),
                (.., Some(text)) => (LaneState::NotThere, text, Some(mend)),
                _ => (LaneState::Served, path.display().to_string(), None),
            };
            (state, Some(config.command), detail, hint)
        }
        Err(error) => (LaneState::Unfit, None, error.at(path), Some(mend)),
    };
    let served = state == LaneState::Served;
    let (through, version, measured, model, remarks) = (None, None, None, None, Vec::new());
    LaneStatus {
        lane,
        served,
        state,
        through,
        program,
        version,
        measured,
        model,
        detail,
        hint,
        remarks,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
