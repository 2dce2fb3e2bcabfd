//! What every command is handed: settings, time, ids, the terminal, and the way to the site.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;

use super::config::Config;
use super::log::ForPeople;
use super::machine;
use super::output::Output;
use super::site::Site;
use crate::client::ClientError;
use crate::forge::github::Accounts;
use crate::model::{Clock, Faults, Ids, NoFaults};
use crate::system::faults::PlannedFault;
use crate::system::{SystemClock, SystemIds};

/// How often a home's owner may close just as it is asked.
const TRIES: u32 = 10;

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

    /// Begins to log on stderr, on a terminal in sentences: warnings, and with RELAY_DEBUG=1 all of relay's own.
    pub fn start_log(&self) {
        // A pool of the database tells of each try; the error that comes of it names the cause.
        let filter = if self.config.debug {
            "warn,sqlx=off,sqlx_core=off,relay=debug"
        } else {
            "warn,sqlx=off,sqlx_core=off"
        };
        let terminal = std::io::stderr().is_terminal();
        let log = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .with_writer(std::io::stderr)
            .with_ansi(!self.config.no_colour && terminal);
        // Refused only where a log is there already, which is as good.
        let _ = match terminal && !self.config.debug {
            true => log.event_format(ForPeople).try_init(),
            false => log.try_init(),
        };
    }

    /// The site this command speaks to; closed by [`Site::close`] when the command is done.
    ///
    /// # Errors
    /// When there is none, or it is another version.
    pub async fn site(&self) -> anyhow::Result<Site> {
        Site::reach(self).await
    }

    /// Asks the site what a command has to ask, and lets it go. Where an owner of this home closed
    /// just then, the next one is asked the whole question, so that it may end in a write but not go
    /// on after one.
    ///
    /// # Errors
    /// As [`Context::site`], and those of the question.
    pub async fn ask<T, E: Into<anyhow::Error>>(
        &self,
        question: impl AsyncFn(&Site) -> Result<T, E>,
    ) -> anyhow::Result<T> {
        let mut tries = 0;
        loop {
            let site = self.site().await?;
            let answer = question(&site).await.map_err(Into::into);
            let closed = !site.is_elsewhere() && answer.as_ref().is_err_and(was_not_sent);
            site.close().await;
            if !closed || tries == TRIES {
                return answer;
            }
            tries += 1;
        }
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

fn was_not_sent(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(ClientError::was_not_sent)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often a question is asked whose first `failures` do not get through.
    async fn asks(vars: &[(&str, &str)], sent: bool, failures: u32) -> (u32, bool) {
        let home = tempfile::tempdir().unwrap();
        let place = [("HOME", home.path().to_str().unwrap())];
        let all = place.iter().chain(vars).map(|(name, value)| (name.into(), value.into()));
        let context = Context::new(Config::from_environment(all.collect()).unwrap());
        let asked = Cell::new(0);
        let question = async |_: &Site| {
            asked.set(asked.get() + 1);
            let (endpoint, why) = ("unix:/gone".to_owned(), "gone".to_owned());
            match asked.get() {
                times if times > failures => Ok(()),
                _ => Err(ClientError::Unreachable { endpoint, why, sent }),
            }
        };
        let is_answered = context.ask(question).await.is_ok();
        (asked.get(), is_answered)
    }

    #[tokio::test]
    async fn a_question_that_reached_nobody_is_asked_again_and_no_other() {
        assert_eq!(asks(&[], false, 2).await, (3, true));
        assert_eq!(asks(&[], true, 1).await, (1, false), "the site may have acted");
        assert_eq!(asks(&[], false, u32::MAX).await, (1 + TRIES, false));
    }

    #[tokio::test]
    async fn a_site_elsewhere_is_asked_once() {
        let elsewhere = [("RELAY_SITE", "http://127.0.0.1:9")];
        assert_eq!(asks(&elsewhere, false, 1).await, (1, false));
    }
}
