//! Which lanes this machine can serve: what is installed, and what is logged in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use relay_lanes::{Login, Vendor};

use super::lane::{Installed, Lanes, process_config, process_lanes};
use crate::model::{LaneName, RunPreferences};
use crate::process::{Limits, Program, check_executable, run};
use serde::Serialize;

/// A probe asks a program on this disk; one that takes longer is stuck.
const TIME: Duration = Duration::from_secs(10);
const LIMITS: Limits = Limits { time: TIME, stdout: 256 * 1024, stderr: 64 * 1024 };

/// One lane, as this machine has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneStatus {
    /// The lane.
    pub lane: LaneName,
    /// Whether a worker started now would serve it.
    pub served: bool,
    /// The program that runs it.
    pub program: Option<PathBuf>,
    /// That program's version.
    pub version: Option<String>,
    /// The model it would use.
    pub model: Option<String>,
    /// What was seen: the login, or why there is none.
    pub detail: String,
    /// What a person can do about a lane that is not served.
    pub hint: Option<String>,
}

/// Looks at every lane this machine could have, side by side.
pub async fn probe(lanes: &Lanes) -> Vec<LaneStatus> {
    let vendors = join_all(lanes.vendors.iter().map(|vendor| vendor_status(lanes, vendor))).await;
    let mut found: Vec<LaneStatus> = vendors.into_iter().flatten().collect();
    let configured = process_lanes(&lanes.process_dir);
    found.extend(configured.into_iter().map(|(lane, path)| process_status(lane, &path)));
    found
}

async fn vendor_status(lanes: &Lanes, installed: &Installed) -> Option<LaneStatus> {
    let vendor = installed.vendor;
    let mut status = LaneStatus {
        lane: vendor.lane.parse().ok()?,
        served: false,
        program: installed.program.clone(),
        version: None,
        model: installed.model(&RunPreferences::default()).map(str::to_owned),
        detail: format!("the program `{}` is not on PATH", vendor.lane),
        hint: Some(vendor.install.to_owned()),
    };
    let Some(program) = installed.program.as_deref() else { return Some(status) };
    let (version, login) = tokio::join!(
        ask(lanes, vendor, program, vendor.version_args),
        ask(lanes, vendor, program, vendor.login_args),
    );
    status.version = version.ok().and_then(|out| (vendor.version)(&text(&out.stdout)));
    let (served, detail, hint) = match login {
        Err(error) => (false, error.to_string(), Some(vendor.asks_login())),
        Ok(out) => match (vendor.login)(out.code, &text(&out.stdout), &text(&out.stderr)) {
            Login::Ready { detail } => (true, detail, None),
            Login::NotLoggedIn { detail } => (false, detail, Some(vendor.log_in.to_owned())),
            Login::Unclear { detail } => (false, detail, Some(vendor.asks_login())),
        },
    };
    Some(LaneStatus { served, detail, hint, ..status })
}

fn process_status(lane: LaneName, path: &Path) -> LaneStatus {
    let (served, program, detail, hint) = match process_config(path) {
        Ok(config) => match check_executable(&config.command) {
            Ok(()) => (true, Some(config.command), path.display().to_string(), None),
            Err(error) => {
                let hint = format!("chmod +x it, or mend {}", path.display());
                (false, Some(config.command), error.to_string(), Some(hint))
            }
        },
        Err(error) => (false, None, error, Some(format!("mend {}", path.display()))),
    };
    LaneStatus { lane, served, program, version: None, model: None, detail, hint }
}

async fn ask(
    lanes: &Lanes,
    vendor: &Vendor,
    program: &Path,
    args: &[&str],
) -> Result<crate::process::Output, crate::process::ProcessError> {
    let program = Program {
        path: program.to_owned(),
        args: args.iter().map(OsString::from).collect(),
        env: lanes.probe_env(vendor),
        cwd: lanes.home.clone(),
        stdin: Vec::new(),
    };
    match run(&program, &LIMITS).await {
        // One that died of itself told nothing of its login. It is asked once more: grok 1.0.41 does
        // so now and then on its way out.
        Ok(died) if died.code.is_none() => run(&program, &LIMITS).await,
        answer => answer,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
