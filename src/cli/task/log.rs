//! `relay task log`: what a run printed, as far as it has come.

use std::time::Duration;

use clap::Args;

use super::super::context::Context;
use super::super::exit::Exit;
use super::super::output::plain;
use super::super::site::Site;
use crate::api::{LogAnswer, LogQuery};
use crate::client::ClientError;
use crate::model::{RunId, TaskId, TaskState};

/// How long the site may hold an answer while there is nothing new, in seconds.
const HELD: u32 = 20;
/// The pause between two looks where this process is the owner for a moment, and after an answer
/// that did not come.
const PAUSE: Duration = Duration::from_secs(1);
/// So many answers in a row may fail before a follower of this home's owner gives up, and of a site
/// elsewhere, which may be started anew.
const PATIENCE: u32 = 10;
const PATIENCE_ELSEWHERE: u32 = 600;

/// After so many a person is told why nothing comes.
const SAID_AFTER: u32 = 3;

/// Options of `relay task log`.
#[derive(Debug, Args)]
pub struct Options {
    /// The task, as `relay task ls` prints it: 'owner/repo#12'
    id: TaskId,
    /// Go on until the run ends; exits with 8 when it failed
    #[arg(long, short)]
    follow: bool,
    /// Which run (default: the newest), as `relay task get --json` names it
    #[arg(long)]
    run: Option<RunId>,
}

impl Options {
    /// Prints the log.
    ///
    /// # Errors
    /// When the task is not there or the site cannot be asked.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let mut query = LogQuery { run: self.run.clone(), offset: 0, wait: 0 };
        let mut site = context.site().await?;
        let mut failed = 0;
        let mut alone = false;
        let elsewhere = context.config.site.is_some();
        let patience = if elsewhere { PATIENCE_ELSEWHERE } else { PATIENCE };
        loop {
            query.wait = if self.follow && !site.is_for_a_moment() { HELD } else { 0 };
            let answer = site.task_log(&self.id, &query).await;
            let answer = match answer {
                Ok(answer) => answer,
                // `relay work` may end or begin while somebody follows, a site be started anew.
                Err(error) if self.follow && error.is_passing() && failed < patience => {
                    failed += 1;
                    if failed == SAID_AFTER {
                        context.output.note(format!("{error}; waiting for it"));
                    }
                    site = self.again(context, site, error.retry_after()).await?;
                    continue;
                }
                Err(error) => return finish(site, Err(error)).await,
            };
            failed = 0;
            if answer.offset > query.offset {
                context.output.note(format!("({} bytes cut)", answer.offset - query.offset));
            }
            context.output.text(&plain(&answer.text))?;
            let quiet = answer.text.is_empty();
            query.offset = answer.next;
            query.run = query.run.or_else(|| answer.run.clone());
            if self.is_over(&answer, quiet) {
                if answer.run.is_none() {
                    context.output.note(format!("{} has not run: it is {}", self.id, answer.state));
                } else if self.follow {
                    context.output.note(format!("{} is {}", self.id, answer.state));
                }
                return finish(site, Ok(self.exit(answer.state))).await;
            }
            if quiet && site.is_for_a_moment() {
                if !std::mem::replace(&mut alone, true) {
                    context.output.note(format!(
                        "no `relay work` runs on this home, and {} is {}: waiting for one",
                        self.id, answer.state
                    ));
                }
                site = self.again(context, site, None).await?;
            }
        }
    }

    fn is_over(&self, answer: &LogAnswer, quiet: bool) -> bool {
        if self.follow {
            answer.end || (answer.run.is_none() && answer.state.is_final())
        } else {
            answer.end || quiet
        }
    }

    fn exit(&self, state: TaskState) -> Exit {
        if self.follow && state == TaskState::Failed { Exit::TaskFailed } else { Exit::Ok }
    }

    /// Lets go of the home for a moment, so that a `relay work` can take it, and looks again.
    async fn again(
        &self,
        context: &Context,
        site: Site,
        asked: Option<Duration>,
    ) -> anyhow::Result<Site> {
        site.close().await;
        let pause = asked.unwrap_or_default().clamp(PAUSE, Duration::from_secs(60));
        context.clock.sleep_until(context.clock.now() + pause).await;
        context.site().await
    }
}

async fn finish(site: Site, end: Result<Exit, ClientError>) -> anyhow::Result<Exit> {
    site.close().await;
    Ok(end?)
}
