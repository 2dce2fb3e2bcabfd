//! The codex lane on this machine.

use std::ffi::OsStr;
use std::path::PathBuf;

use relay_lanes::codex::{self, Brief, Sandbox};

use super::{Around, Described, Installed, Lanes, Prepared, TaskBrief, no_box};
use crate::model::StopReason;
use crate::work::job::Stop;

const NO_BOX: &str = "this machine can make neither walls nor the sandbox that codex runs in";

const KEYRING: &str = "codex is logged in, but its login is not in the file auth.json: a run has \
                       a home of its own and would find none";

const NO_LOGIN: &str =
    "codex has no login in the file auth.json, which is where a run's own home has it from";

const LOG_IN: &str = "`codex login`; where it keeps logins in a keyring, set \
                      cli_auth_credentials_store = \"file\" before";

const TO_FILE: &str = "set cli_auth_credentials_store = \"file\" and run `codex login`";

/// What is wrong with a login that codex has and no run would find, and what helps.
pub(super) const OUT_OF_REACH: (&str, &str) = (KEYRING, TO_FILE);

/// Whether a run's only network is the door to relay's proxy. A vendor's always is behind walls.
fn has_door(around: Around<'_>) -> bool {
    matches!(around, Around::Walls(wall) if wall.has_walls())
}

impl Lanes {
    pub(super) fn prepare_codex(
        &self,
        brief: &TaskBrief<'_>,
        installed: &Installed,
    ) -> Result<Prepared, Stop> {
        let program = installed.program()?;
        let (around, own_sandbox) = self.box_of_codex().map_err(no_box)?;
        let login = installed.login(brief.workdir)?;
        let home = match &login {
            Some(login) if !login.is_there() => {
                return Err(Stop::new(StopReason::NotLoggedIn, NO_LOGIN).hint(LOG_IN));
            }
            Some(login) => login.home(),
            None => self.home.join(installed.vendor.home.folder),
        };
        let file = home.join(installed.vendor.home.file);
        let stores: Vec<PathBuf> =
            self.stores.iter().filter(|store| store.is_dir()).cloned().collect();
        let sandbox = match own_sandbox {
            true => Sandbox::Own { login: &file, writable: &stores, network: has_door(around) },
            false => Sandbox::Walls,
        };
        let model = installed.model(brief.preferences);
        let invocation = codex::invocation(&Brief {
            prompt: brief.prompt,
            workdir: brief.workdir,
            model,
            sandbox,
            base_url: self.let_through(codex::BASE_URL),
            zone: self.parent_env.get(OsStr::new("TZ")).and_then(|zone| zone.to_str()),
        });
        let env = self.vendor_env(installed.vendor, login.as_ref(), brief.agent);
        let lane = Described {
            program,
            parts: self.parts(installed.vendor),
            given: &[],
            invocation,
            env,
            cwd: brief.workdir,
            reader: codex::reader(model),
            login,
        };
        self.prepared(brief, around, lane)
    }

    /// What stands around codex, and whether its own sandbox does inside that. Walls come first:
    /// behind them a run needs no sandbox of its own, and without them it never goes without.
    pub(super) fn box_of_codex(&self) -> Result<(Around<'_>, bool), &'static str> {
        let walls = &self.boxing.confinement;
        match &self.boxing.claude {
            // Where it cannot be made there either, its commands fail and the run says so.
            _ if !self.sandbox => Ok((Around::Processes(walls), true)),
            Some(nesting) if nesting.has_walls() => Ok((Around::Walls(nesting), true)),
            _ if walls.has_walls() => Ok((Around::Walls(walls), false)),
            Some(weaker) => Ok((Around::Walls(weaker), true)),
            None => Err(NO_BOX),
        }
    }

    /// A variable that the operator lets through to vendors' lanes.
    fn let_through(&self, name: &str) -> Option<&str> {
        let named = self.pass_env.iter().any(|named| named == name);
        self.parent_env.get(OsStr::new(name)).filter(|_| named)?.to_str()
    }
}

#[cfg(test)]
mod tests {
    use relay_sandbox::Confinement;

    use super::*;

    #[test]
    fn commands_have_a_network_only_where_it_is_a_door() {
        let walls = Confinement::Bubblewrap { bwrap: "/usr/bin/bwrap".into() };
        let bare = Confinement::Bare { setpriv: None };
        assert!(walls.has_walls() && has_door(Around::Walls(&walls)));
        assert!(!has_door(Around::Processes(&walls)), "--no-sandbox: this machine's own network");
        assert!(!has_door(Around::Walls(&bare)));
    }
}
