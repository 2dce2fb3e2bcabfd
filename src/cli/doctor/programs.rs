//! The programs relay calls.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::super::context::Context;
use super::Check;
use crate::git::is_new_enough;
use crate::process::{self, Limits, Program, WORKS_FOR, own_mark};

const LIMITS: Limits =
    Limits { time: Duration::from_secs(15), stdout: 64 * 1024, stderr: 8 * 1024 };

/// Whether git is there and new enough.
pub async fn git(context: &Context) -> Check {
    let mend = "install git 2.31 or newer";
    let Some(path) = context.config.program("git") else {
        return Check::fail("git", "not on PATH", mend);
    };
    let said = match run(context, &path, vec!["--version".into()]).await {
        Ok(said) => said,
        Err(error) => return Check::fail("git", error, mend),
    };
    match said.strip_prefix("git version ") {
        Some(version) if is_new_enough(version) => Check::ok("git", said),
        Some(_) => Check::fail("git", format!("{said} is too old"), mend),
        None => Check::fail("git", format!("said `{said}` for its version"), mend),
    }
}

/// Runs a trusted program and gives what it printed; where its exit code is not 0, what it said
/// about that.
pub async fn run(context: &Context, path: &Path, args: Vec<OsString>) -> Result<String, String> {
    let keep = |name: &str| {
        let value = context.config.environment.get(&OsString::from(name))?;
        Some((name.into(), value.clone()))
    };
    let program = Program {
        path: path.to_owned(),
        args,
        env: ["PATH", "HOME"]
            .into_iter()
            .filter_map(keep)
            .chain(own_mark().map(|mark| (WORKS_FOR.into(), mark)))
            .collect(),
        cwd: "/".into(),
        stdin: Vec::new(),
    };
    let output = process::run(&program, &LIMITS).await.map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.code {
        Some(0) => Ok(text(&output.stdout)),
        code if output.stderr.is_empty() => Err(format!("{} ended with {code:?}", path.display())),
        _ => Err(text(&output.stderr)),
    }
}
