//! What every command is handed: settings, time, ids, the terminal, and the way to the site.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;

use super::config::Config;
use super::machine;
use super::output::Output;
use super::site::Site;
use crate::client::Client;
use crate::forge::github::Accounts;
use crate::model::{Clock, Faults, Ids, NoFaults};
use crate::system::faults::PlannedFault;
use crate::system::{SystemClock, SystemIds};

/// The collaborators of a command.
#[derive(Debug)]
pub struct Context {
    /// The settings.
    pub config: Config,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The terminal.
    pub output: Output,
    faults: Arc<dyn Faults>,
    /// This machine's logins: one for all that this process does.
    pub accounts: Arc<Accounts>,
}

impl Context {
    /// The real ones.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let output = Output::new(config.no_colour);
        let faults: Arc<dyn Faults> = match config.fault {
            Some(plan) => Arc::new(PlannedFault::new(plan)),
            None => Arc::new(NoFaults),
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let accounts = Arc::new(machine::accounts(&config, Arc::clone(&clock)));
        Self { config, clock, output, faults, accounts }
    }

    /// Begins to log on stderr: warnings, and with RELAY_DEBUG=1 all of relay's own.
    pub fn start_log(&self) {
        // A pool of the database tells of each try; the error that comes of it names the cause.
        let filter = if self.config.debug {
            "warn,sqlx=off,sqlx_core=off,relay=debug"
        } else {
            "warn,sqlx=off,sqlx_core=off"
        };
        let log = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .with_writer(std::io::stderr)
            .with_ansi(!self.config.no_colour && std::io::stderr().is_terminal());
        // Refused only where a log is there already, which is as good.
        let _ = log.try_init();
    }

    /// The site this command speaks to; closed by [`Site::close`] when the command is done.
    ///
    /// # Errors
    /// When there is none, or it is another version.
    pub async fn site(&self) -> anyhow::Result<Site> {
        Site::reach(self).await
    }

    /// Asks the site what a command has to ask, and lets it go.
    ///
    /// # Errors
    /// As [`Context::site`], and those of the question.
    pub async fn ask<T, E: Into<anyhow::Error>>(
        &self,
        question: impl AsyncFnOnce(&Client) -> Result<T, E>,
    ) -> anyhow::Result<T> {
        let site = self.site().await?;
        let answer = question(&site).await;
        site.close().await;
        answer.map_err(Into::into)
    }

    /// Where new ids come from.
    #[must_use]
    pub fn ids(&self) -> Arc<dyn Ids> {
        Arc::new(SystemIds)
    }

    /// The fault points of this process.
    #[must_use]
    pub fn faults(&self) -> Arc<dyn Faults> {
        Arc::clone(&self.faults)
    }

    /// The same on another home, with no site elsewhere and no login: for the demo.
    #[must_use]
    pub fn in_home(&self, home: PathBuf) -> Self {
        let config = Config {
            home,
            site: None,
            token: None,
            worker: None,
            github_token: None,
            ..self.config.clone()
        };
        let (clock, faults) = (Arc::clone(&self.clock), self.faults());
        let accounts = Arc::new(machine::accounts(&config, Arc::clone(&clock)));
        Self { config, clock, output: self.output, faults, accounts }
    }

    /// This machine's name, as projects and workers know it.
    #[must_use]
    pub fn host(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }
}
