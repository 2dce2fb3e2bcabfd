//! The grok lane on this machine.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use relay_lanes::grok;

use super::{Around, Described, Installed, Lanes, Prepared, TaskBrief};
use crate::model::{MAX_TURNS, StopReason};
use crate::work::job::Stop;

const NO_BOX: &str = "this machine cannot make the box that grok runs in";

/// The turns of a run where no preference names a number, as for claude.
const TURNS: u32 = 40;

impl Lanes {
    pub(super) fn prepare_grok(
        &self,
        brief: &TaskBrief<'_>,
        installed: &Installed,
    ) -> Result<Prepared, Stop> {
        let found = installed.program()?;
        let around = match &self.boxing.confinement {
            wall if !self.sandbox => Around::Processes(wall),
            wall if wall.has_walls() => Around::Walls(wall),
            _ => {
                return Err(Stop::new(StopReason::SandboxUnavailable, NO_BOX)
                    .hint("`relay doctor` says what is missing"));
            }
        };
        let mut login = installed.login(brief.workdir)?;
        let mut boxed = false;
        if let (Around::Walls(_), Some(login)) = (around, &mut login) {
            let place = self.home.join(grok::POLICY_FOLDER);
            match login.stand_in(&place, grok::POLICY_FILE, grok::POLICY) {
                Ok(()) => boxed = true,
                Err(error) => {
                    tracing::warn!(path = %place.display(), %error, "grok runs by its stricter rules");
                }
            }
        }
        let invocation = grok::invocation(&grok::Brief {
            prompt: brief.prompt,
            workdir: brief.workdir,
            model: installed.model(brief.preferences),
            max_turns: brief.preferences.max_turns.unwrap_or(TURNS).clamp(1, MAX_TURNS),
            boxed,
        });
        let env = self.vendor_env(installed.vendor, login.as_ref(), brief.agent);
        let mut parts = self.parts(installed.vendor);
        let native = self.native(found);
        parts.extend(native.as_deref().and_then(Path::parent).map(Path::to_owned));
        let lane = Described {
            program: native.as_deref().unwrap_or(found),
            parts,
            given: &[],
            invocation,
            env,
            cwd: brief.workdir,
            reader: grok::reader(),
            login,
        };
        self.prepared(brief, around, lane)
    }

    /// The program itself, where the one on PATH is the package's launcher: that one unpacks
    /// 166 MB into the home of every run.
    fn native(&self, found: &Path) -> Option<PathBuf> {
        let moved = self.parent_env.get(OsStr::new(grok::VENDOR.home.variable));
        let moved = moved.filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = moved.unwrap_or_else(|| self.home.join(grok::VENDOR.home.folder));
        let native = home.join("bin").join(grok::VENDOR.lane);
        (is_script(found) && native.is_file()).then_some(native)
    }
}

fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    File::open(program).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}
