//! Which lanes this machine can serve: what is installed, and what is logged in.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use relay_lanes::{Login, Vendor};

use super::lane::{Installed, Lanes, no_folder_text, process_config, process_lanes};
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

/// What the vendors' programs said of their versions, for as long as each is the same file.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<Mutex<BTreeMap<PathBuf, (Stamp, Option<String>)>>>);

/// By what a file is known to be another: its number, its size, and when it was written.
type Stamp = (u64, u64, i64, i64);

impl Versions {
    fn known(&self) -> MutexGuard<'_, BTreeMap<PathBuf, (Stamp, Option<String>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The version of a vendor's program. It is asked once for each file that it is.
pub async fn version(lanes: &Lanes, installed: &Installed) -> Option<String> {
    let (vendor, program) = (installed.vendor, installed.program.as_deref()?);
    let file = std::fs::canonicalize(program).ok()?;
    let about = std::fs::metadata(&file).ok()?;
    let stamp = (about.ino(), about.len(), about.mtime(), about.mtime_nsec());
    let known = lanes.versions.known().get(&file).filter(|known| known.0 == stamp).cloned();
    if let Some((_, version)) = known {
        return version;
    }
    let out = ask(lanes, vendor, program, vendor.version_args).await.ok()?;
    let version = (vendor.version)(&text(&out.stdout));
    lanes.versions.known().insert(file, (stamp, version.clone()));
    version
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
    let (version, login) =
        tokio::join!(version(lanes, installed), ask(lanes, vendor, program, vendor.login_args),);
    status.version = version;
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
    let mend = format!("mend {}", path.display());
    let (served, program, detail, hint) = match process_config(path) {
        Ok(config) => {
            let no_folder = config.cwd.as_deref().filter(|cwd| !cwd.is_dir());
            let (detail, hint) = match (check_executable(&config.command), no_folder) {
                (Err(error), _) => (error.to_string(), Some(format!("chmod +x it, or {mend}"))),
                (Ok(()), Some(cwd)) => (no_folder_text(cwd), Some(mend)),
                (Ok(()), None) => (path.display().to_string(), None),
            };
            (hint.is_none(), Some(config.command), detail, hint)
        }
        Err(error) => (false, None, error.at(path), Some(mend)),
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
