//! The logins of one process: one [`GitHub`] per API, so that cool-downs and ETags are shared.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::{Gate, GateState, GitHub, GitHubConfig, TIME_OUT};
use crate::forge::ForgeError;
use crate::model::{Clock, ForgeProblem, Secret};

/// Where tokens come from.
#[async_trait]
pub trait Source: Send + Sync + fmt::Debug {
    /// The token for a forge's host (`github.com`), where there is one.
    async fn token(&self, host: &str) -> Option<Secret>;
}

/// A login and what it opens.
#[derive(Clone, Debug)]
pub struct Login {
    /// The REST side.
    pub github: Arc<GitHub>,
    /// The token itself, for git and for redaction.
    pub token: Secret,
    /// The forge's host, as [`host_of`] names it.
    pub host: String,
}

/// One connection per API base, and one gate, which outlives a login that was renewed. Whatever
/// in a process talks to a forge shares these, so that a limit one of them met stops them all.
#[derive(Debug)]
pub struct Accounts {
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    open: Mutex<HashMap<String, Login>>,
    gates: std::sync::Mutex<BTreeMap<String, Arc<Gate>>>,
}

impl Accounts {
    /// Nothing is asked before the first [`Accounts::at`].
    #[must_use]
    pub fn new(source: Arc<dyn Source>, clock: Arc<dyn Clock>) -> Self {
        Self { source, clock, open: Mutex::default(), gates: std::sync::Mutex::default() }
    }

    /// The connection to `api_base`, with a token asked for once.
    ///
    /// # Errors
    /// `Unauthorized` where no token is to be had.
    pub async fn at(&self, api_base: &str) -> Result<Arc<GitHub>, ForgeError> {
        Ok(self.login(api_base).await?.github)
    }

    /// The same with its token.
    ///
    /// # Errors
    /// As [`Accounts::at`].
    pub async fn login(&self, api_base: &str) -> Result<Login, ForgeError> {
        let mut open = self.open.lock().await;
        if let Some(there) = open.get(api_base) {
            return Ok(there.clone());
        }
        let host = host_of(api_base);
        let token = self.source.token(&host).await.ok_or_else(|| ForgeError::Refused {
            why: ForgeProblem::Unauthorized,
            text: format!("{host}: no login"),
        })?;
        let github = Arc::new(GitHub::new(GitHubConfig {
            api_base: api_base.to_owned(),
            token: token.clone(),
            clock: self.clock.clone(),
            time_out: TIME_OUT,
            gate: self.gates().entry(api_base.to_owned()).or_default().clone(),
        })?);
        let made = Login { github, token, host };
        open.insert(api_base.to_owned(), made.clone());
        Ok(made)
    }

    /// Forgets the connection after `Unauthorized`: the person may have logged in anew. A rate
    /// limit that lasts is not forgotten.
    pub async fn forget(&self, api_base: &str) {
        self.open.lock().await.remove(api_base);
    }

    /// How it stands with each host that was asked.
    #[must_use]
    pub fn hosts(&self) -> Vec<(String, GateState)> {
        self.gates().iter().map(|(base, gate)| (host_of(base), gate.state())).collect()
    }

    /// Each change is one insertion, so a panic elsewhere leaves the map whole.
    fn gates(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Gate>>> {
        self.gates.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The forge's host as people and `gh` name it: `github.com` for the public API, `acme.ghe.com` for
/// that of a company with data residency.
#[must_use]
pub fn host_of(api_base: &str) -> String {
    let rest = api_base.split_once("://").map_or(api_base, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest).to_ascii_lowercase();
    match host.strip_prefix("api.") {
        Some(web) if web == "github.com" || web.ends_with(".ghe.com") => web.to_owned(),
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_as_gh_names_it() {
        for (base, host) in [
            ("https://api.github.com", "github.com"),
            ("https://API.GitHub.com", "github.com"),
            ("https://ghe.example/api/v3", "ghe.example"),
            ("https://api.acme.ghe.com", "acme.ghe.com"),
            ("https://api.ghe.example", "api.ghe.example"),
            ("http://127.0.0.1:4800", "127.0.0.1:4800"),
        ] {
            assert_eq!(host_of(base), host);
        }
    }
}
