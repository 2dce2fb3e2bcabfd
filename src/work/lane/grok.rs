//! The grok lane on this machine.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use relay_lanes::grok;
use relay_sandbox::{Confinement, SHELL, shell};

use super::{Around, Described, Installed, Lanes, Prepared, TaskBrief, no_box};
use crate::model::{RepoProblem, StopReason};
use crate::work::job::Stop;
use crate::work::login::Login;

const NO_BOX: &str = "this machine cannot make the box that grok runs in";

impl Lanes {
    pub(super) fn prepare_grok(
        &self,
        brief: &TaskBrief<'_>,
        installed: &Installed,
    ) -> Result<Prepared, Stop> {
        let found = installed.program()?;
        let around = self.box_of_grok().map_err(no_box)?;
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
        let home = login.as_ref().map(Login::home);
        let invocation = grok::invocation(&grok::Brief {
            prompt: brief.prompt,
            workdir: brief.workdir,
            model: installed.model(brief.preferences),
            max_turns: brief.turns(),
            boxed,
            home: home.as_deref(),
        });
        let mut env = self.vendor_env(installed.vendor, login.as_ref(), brief.agent);
        let mut parts = self.parts(installed.vendor);
        if let Some(shell) = self.shell_of_grok(around, login.as_ref(), brief.workdir)? {
            env.push((grok::SHELL.into(), shell.clone().into()));
            parts.push(shell);
        }
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

    /// What its commands run in, so that they do not read the login which it runs under; none where
    /// a sandbox cannot be made in the walls.
    fn shell_of_grok(
        &self,
        around: Around<'_>,
        login: Option<&Login>,
        copy: &Path,
    ) -> Result<Option<PathBuf>, Stop> {
        let nesting = self.boxing.claude.as_ref().and_then(Confinement::bwrap);
        let (Around::Walls(_), Some(bwrap), Some(login)) = (around, nesting, login) else {
            return Ok(None);
        };
        let mut folder = copy.as_os_str().to_owned();
        // Removed with the copy, as all that is named after it.
        folder.push(".shell");
        let file = Path::new(&folder).join(SHELL);
        let text = shell(bwrap, &login.home(), grok::KEPT_BACK);
        let made = DirBuilder::new().mode(0o700).recursive(true).create(&folder).and_then(|()| {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o700)
                .open(&file)?
                .write_all(&text)
        });
        made.map_err(|error| {
            let why = RepoProblem::Disk;
            Stop::new(StopReason::RepoUnusable { why }, format!("{}: {error}", file.display()))
        })?;
        Ok(Some(file))
    }

    /// What stands around grok: walls, or what the operator asked for instead.
    pub(super) fn box_of_grok(&self) -> Result<Around<'_>, &'static str> {
        match &self.boxing.confinement {
            wall if !self.sandbox => Ok(Around::Processes(wall)),
            wall if wall.has_walls() => Ok(Around::Walls(wall)),
            _ => Err(NO_BOX),
        }
    }

    /// The program itself, where the one on PATH is the package's launcher: that one unpacks
    /// 166 MB into the home of every run.
    fn native(&self, found: &Path) -> Option<PathBuf> {
        let variable = grok::VENDOR.home.variable.map(OsStr::new);
        let moved = variable.and_then(|name| self.parent_env.get(name));
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
