//! The box, tried rather than assumed: a machine may have the programs and still forbid them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay_sandbox::{Confinement, Tools, choose, wall_in};
use serde::Serialize;

use super::walls::shared;
use crate::process::{Limits, Program, run};

pub(super) const LIMITS: Limits =
    Limits { time: Duration::from_secs(10), stdout: 64 * 1024, stderr: 16 * 1024 };

/// How one try came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "tried", rename_all = "snake_case")]
pub enum Tried {
    /// It works.
    Works,
    /// The programs for it are not here.
    Missing,
    /// They are here and fail.
    Fails {
        /// What they said.
        why: String,
    },
}

/// What keeps a lane in its box on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boxing {
    /// The box, as tried.
    pub outer: Tried,
    /// claude's own sandbox inside the box, as tried.
    pub nested: Tried,
    /// The box of lanes that bring no sandbox of their own.
    pub confinement: Confinement,
    /// The box of claude, weaker where its own sandbox does not nest in the usual one. `None`
    /// where its sandbox cannot be made at all.
    pub claude: Option<Confinement>,
}

impl Boxing {
    /// What stands before anything was tried: nothing.
    #[must_use]
    pub const fn untried() -> Self {
        let confinement = Confinement::Bare { setpriv: None };
        Self { outer: Tried::Missing, nested: Tried::Missing, confinement, claude: None }
    }
}

/// Tries the box in `folder` with the programs in `tools`, in an environment of nothing but
/// `path`.
pub async fn try_box(tools: &Tools, root: bool, path: &OsString, folder: &Path) -> Boxing {
    let chosen = choose(tools, root);
    let bare = Confinement::Bare { setpriv: tools.setpriv.clone() };
    let quiet = (PathBuf::from("/bin/sh"), vec![OsString::from("-c"), OsString::from(":")]);
    let outer = if matches!(chosen, Confinement::Bare { .. }) {
        Tried::Missing
    } else {
        attempt(&chosen, &quiet.0, &quiet.1, path, folder).await
    };
    let confinement = if outer == Tried::Works { chosen } else { bare.clone() };
    let (nested, claude) = match &tools.bwrap {
        // Seatbelt is a part of the system.
        None if cfg!(target_os = "macos") => (Tried::Missing, Some(bare)),
        None => (Tried::Missing, None),
        Some(bwrap) => {
            let nested = nest(&confinement, bwrap, path, folder).await;
            let mut claude = (nested == Tried::Works).then(|| confinement.clone());
            for weaker in confinement.without_walls().into_iter().chain([bare]) {
                if claude.is_none() && nest(&weaker, bwrap, path, folder).await == Tried::Works {
                    claude = Some(weaker);
                }
            }
            (nested, claude)
        }
    };
    Boxing { outer, nested, confinement, claude }
}

/// Tries the sandbox that claude makes for its commands, inside `confinement`.
async fn nest(confinement: &Confinement, bwrap: &Path, path: &OsString, folder: &Path) -> Tried {
    let words = "--dev-bind / / --unshare-pid --unshare-net --proc /proc -- /bin/sh -c :";
    let args: Vec<OsString> = words.split(' ').map(OsString::from).collect();
    attempt(confinement, bwrap, &args, path, folder).await
}

async fn attempt(
    confinement: &Confinement,
    program: &Path,
    args: &[OsString],
    path: &OsString,
    folder: &Path,
) -> Tried {
    let (path_of, args) = wall_in(confinement, &shared(), program, args);
    let program = Program {
        path: path_of,
        args,
        env: vec![("PATH".into(), path.clone())],
        cwd: folder.to_owned(),
        stdin: Vec::new(),
    };
    match run(&program, &LIMITS).await {
        Ok(output) if output.code == Some(0) => Tried::Works,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().next_back().unwrap_or("it failed without a word").to_owned();
            Tried::Fails { why }
        }
        Err(error) => Tried::Fails { why: error.to_string() },
    }
}
