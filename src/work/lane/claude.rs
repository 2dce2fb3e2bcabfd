//! The claude lane on this machine.

use std::ffi::OsString;
use std::path::Path;

use relay_lanes::{Brief, claude};
use relay_sandbox::{ClaudeSettings, EnvRequest, clean_env};

use super::{Around, Described, Lanes, Prepared, TaskBrief};
use crate::model::{MAX_TURNS, ModelName, RepoProblem, RunPreferences, StopReason};
use crate::work::job::Stop;
use crate::work::login::Login;

/// What claude takes for its home, instead of `~/.claude` and `~/.claude.json`.
const HOME_OF_CLAUDE: &str = "CLAUDE_CONFIG_DIR";

const NO_BOX: &str = "this machine cannot make the sandbox that claude runs in";

/// The turns of a run where no preference names a number: the seed's.
const TURNS: u32 = 40;

impl Lanes {
    pub(super) fn prepare_claude(&self, brief: &TaskBrief<'_>) -> Result<Prepared, Stop> {
        let program = self.claude.as_deref().ok_or_else(|| {
            Stop::new(StopReason::NotLoggedIn, "the program `claude` is not on PATH")
                .hint("`relay doctor`")
        })?;
        let around = match &self.boxing.claude {
            _ if !self.sandbox => Around::Processes(&self.boxing.confinement),
            Some(wall) => Around::Walls(wall),
            None => {
                return Err(Stop::new(StopReason::SandboxUnavailable, NO_BOX)
                    .hint("`relay doctor` says what is missing"));
            }
        };
        for store in &self.stores {
            if let Err(error) = std::fs::create_dir_all(store) {
                tracing::debug!(path = %store.display(), %error, "a package store is missing");
            }
        }
        let settings = self.claude_settings(brief.workdir).to_string();
        let invocation = claude::invocation(&Brief {
            prompt: brief.prompt,
            workdir: brief.workdir,
            model: self.model_of_claude(brief.preferences),
            settings: Some(&settings),
            max_turns: brief.preferences.max_turns.unwrap_or(TURNS).clamp(1, MAX_TURNS),
        });
        let mut env = clean_env(
            &self.parent_env,
            &EnvRequest::Vendor { names: &self.pass_env, agent: brief.agent },
        );
        env.extend(claude::ENV.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
        let login = self.login(brief.workdir)?;
        if let Some(login) = &login {
            env.retain(|(name, _)| name != HOME_OF_CLAUDE);
            env.push((HOME_OF_CLAUDE.into(), login.home().into()));
        }
        // One way to install it puts the program into its own home.
        let installed = self.home.join(".claude/local");
        let lane = Described {
            program,
            parts: vec![&installed],
            given: &[],
            invocation,
            env,
            cwd: brief.workdir,
            reader: claude::reader(),
            login,
        };
        self.prepared(brief, around, lane)
    }

    /// The environment beats a preference, which beats the lane's own.
    #[must_use]
    pub fn model_of_claude<'a>(&'a self, preferences: &'a RunPreferences) -> &'a str {
        let preferred = preferences.model.as_ref().map(ModelName::as_str);
        self.claude_model.as_deref().or(preferred).unwrap_or(claude::DEFAULT_MODEL)
    }

    fn login(&self, copy: &Path) -> Result<Option<Login>, Stop> {
        let name = copy.file_name().unwrap_or_default().to_string_lossy();
        let made = self.logins.as_ref().map(|logins| logins.take(&name)).transpose();
        made.map_err(|error| {
            let why = RepoProblem::Disk;
            Stop::new(StopReason::RepoUnusable { why }, format!("a home for claude: {error}"))
        })
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
