//! The claude lane on this machine.

use std::path::Path;

use relay_lanes::{Brief, claude};
use relay_sandbox::ClaudeSettings;

use super::{Around, Described, Installed, Lanes, Prepared, TaskBrief, no_box};
use crate::work::job::Stop;

const NO_BOX: &str = "this machine cannot make the sandbox that claude runs in";

impl Lanes {
    pub(super) fn prepare_claude(
        &self,
        brief: &TaskBrief<'_>,
        installed: &Installed,
    ) -> Result<Prepared, Stop> {
        let program = installed.program()?;
        let around = self.box_of_claude().map_err(no_box)?;
        for store in &self.stores {
            if let Err(error) = std::fs::create_dir_all(store) {
                tracing::debug!(path = %store.display(), %error, "a package store is missing");
            }
        }
        let settings = self.claude_settings(brief.workdir).to_string();
        let invocation = claude::invocation(&Brief {
            prompt: brief.prompt,
            workdir: brief.workdir,
            model: installed.model(brief.preferences).unwrap_or(claude::DEFAULT_MODEL),
            settings: Some(&settings),
            max_turns: brief.turns(),
        });
        let login = installed.login(brief.workdir)?;
        let env = self.vendor_env(installed.vendor, login.as_ref(), brief.agent);
        let lane = Described {
            program,
            parts: self.parts(installed.vendor),
            given: &[],
            invocation,
            env,
            cwd: brief.workdir,
            reader: claude::reader(),
            login,
        };
        self.prepared(brief, around, lane)
    }

    /// What stands around claude: never nothing, unless the operator asked for it.
    pub(super) fn box_of_claude(&self) -> Result<Around<'_>, &'static str> {
        match &self.boxing.claude {
            _ if !self.sandbox => Ok(Around::Processes(&self.boxing.confinement)),
            Some(wall) => Ok(Around::Walls(wall)),
            None => Err(NO_BOX),
        }
    }

    /// The one settings document a run sees; `relay lane settings` prints it.
    #[must_use]
    pub fn claude_settings(&self, workdir: &Path) -> serde_json::Value {
        relay_sandbox::claude_settings(&ClaudeSettings {
            home: &self.home,
            relay_home: &self.relay_home,
            workdir,
            moved: &relay_sandbox::moved_logins(&self.parent_env),
            extra_domains: &self.extra_domains,
            sandbox: self.sandbox,
        })
    }
}
