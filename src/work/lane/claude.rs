//! The claude lane on this machine.

use std::ffi::OsString;

use relay_lanes::{Brief, claude};
use relay_sandbox::{ClaudeSettings, EnvRequest, clean_env};

use super::{Described, Lanes, Prepared, TaskBrief};
use crate::model::StopReason;
use crate::work::job::Stop;

/// The seed's number.
const MAX_TURNS: u32 = 40;

impl Lanes {
    pub(super) fn prepare_claude(&self, brief: &TaskBrief<'_>) -> Result<Prepared, Stop> {
        let program = self.claude.as_deref().ok_or_else(|| Stop {
            reason: StopReason::NotLoggedIn,
            error: Some("the program `claude` is not on PATH (hint: `relay doctor`)".to_owned()),
        })?;
        for store in &self.stores {
            if let Err(error) = std::fs::create_dir_all(store) {
                tracing::debug!(path = %store.display(), %error, "a package store is missing");
            }
        }
        let settings = self.claude_settings(brief.workdir).to_string();
        let invocation = claude::invocation(&Brief {
            prompt: brief.prompt,
            workdir: brief.workdir,
            model: &self.claude_model,
            settings: Some(&settings),
            max_turns: MAX_TURNS,
        });
        let mut env = clean_env(
            &self.parent_env,
            &EnvRequest::Vendor { names: &self.pass_env, agent: brief.agent },
        );
        env.extend(claude::ENV.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
        let (cwd, workdir) = (brief.workdir, brief.workdir);
        let lane = Described { program, invocation, env, cwd, workdir, reader: claude::reader() };
        self.prepared(brief.max_run, &self.boxing.claude, lane)
    }

    /// The one settings document a run sees; `relay lane settings` prints it.
    #[must_use]
    pub fn claude_settings(&self, workdir: &std::path::Path) -> serde_json::Value {
        relay_sandbox::claude_settings(&ClaudeSettings {
            home: &self.home,
            relay_home: &self.relay_home,
            workdir,
            moved: &relay_sandbox::moved_logins(&self.parent_env),
            extra_domains: &self.extra_domains,
            sandbox: self.sandbox,
        })
    }

    /// The environment vendor programs are asked for their login in.
    #[must_use]
    pub fn probe_env(&self) -> Vec<(OsString, OsString)> {
        let agent = ("", "");
        let mut env =
            clean_env(&self.parent_env, &EnvRequest::Vendor { names: &self.pass_env, agent });
        env.extend(claude::ENV.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
        env
    }
}
