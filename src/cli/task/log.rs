//! `relay task log`: what a run printed, as far as it has come.

use std::time::Duration;

use clap::Args;

use super::super::context::Context;
use super::super::exit::Exit;
use super::super::output::plain;
use super::super::site::Site;
use super::super::words::waiting;
use super::meant;
use crate::api::{LogAnswer, LogQuery, TaskDetail};
use crate::client::ClientError;
use crate::model::{RunId, TaskId, TaskState};

/// How long the site may hold an answer while there is nothing new, in seconds.
const HELD: u32 = 20;
/// The pause between two looks at what the site does not hold an answer for, and after an answer that
/// did not come.
const PAUSE: Duration = Duration::from_secs(1);
/// So many answers in a row may fail before a follower of this home's owner gives up, and of a site
/// elsewhere, which may be started anew.
const PATIENCE: u32 = 10;
const PATIENCE_ELSEWHERE: u32 = 600;

/// After so many a person is told why nothing comes.
const SAID_AFTER: u32 = 3;

/// So often it is asked how a task stands whose run has ended, and that is said to run it still.
const LOOKS: u32 = 10;

/// Options of `relay task log`.
#[derive(Debug, Args)]
pub struct Options {
    /// The task, as `relay task ls` prints it: 'owner/repo#12'
    id: TaskId,
    /// Go on until the run ends, the next one where the task waits; exits with 8 when it failed
    #[arg(long, short)]
    follow: bool,
    /// Which run (default: the newest), as `relay task get --json` names it
    #[arg(long)]
    run: Option<RunId>,
}

/// What a follower looks at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Whether a run is there, or still to come.
    ForRun,
    /// The run's log.
    AtLog,
    /// How the task stands after the run.
    AtEnd,
}

/// What was seen.
enum Seen {
    Task(Box<TaskDetail>),
    Log(LogAnswer),
}

impl Options {
    /// Prints the log.
    ///
    /// # Errors
    /// When the task is not there or the site cannot be asked.
    pub async fn run(mut self, context: &Context) -> anyhow::Result<Exit> {
        let mut query = LogQuery { run: self.run.clone(), offset: 0, wait: 0 };
        let mut site = context.site().await?;
        self.id = meant(&site, &self.id).await;
        let (mut failed, mut looks, mut alone) = (0, 0, false);
        let mut look = if self.follow && self.run.is_none() { Look::ForRun } else { Look::AtLog };
        // The newest run of a task that waits for another.
        let mut over: Option<Option<RunId>> = None;
        let elsewhere = context.config.site.is_some();
        let patience = if elsewhere { PATIENCE_ELSEWHERE } else { PATIENCE };
        loop {
            query.wait = if self.follow && !site.is_for_a_moment() { HELD } else { 0 };
            let seen = match look {
                Look::AtLog => site.task_log(&self.id, &query).await.map(Seen::Log),
                Look::ForRun | Look::AtEnd => {
                    site.task(&self.id).await.map(|detail| Seen::Task(Box::new(detail)))
                }
            };
            let seen = match seen {
                Ok(seen) => seen,
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
            let answer = match seen {
                Seen::Log(answer) => answer,
                Seen::Task(detail) if look == Look::ForRun => {
                    let newest = detail.runs.first().map(|run| run.id.clone());
                    if is_to_come(&detail, over.as_ref()) {
                        if over.is_none() {
                            context.output.note(self.why(context, &site, &detail));
                            alone = site.is_for_a_moment();
                            over = Some(newest);
                        }
                        site = self.later(context, site).await?;
                    } else {
                        query.run = newest;
                        look = Look::AtLog;
                    }
                    continue;
                }
                Seen::Task(detail) => {
                    looks += 1;
                    let run = detail.runs.first().map(|run| &run.id);
                    let state = detail.task.state;
                    if state.is_leased() && run == query.run.as_ref() && looks < LOOKS {
                        site = self.later(context, site).await?;
                        continue;
                    }
                    context.output.note(format!("{} is {state}", self.id));
                    return finish(site, Ok(self.exit(state))).await;
                }
            };
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
                } else if self.follow && answer.state.is_leased() {
                    look = Look::AtEnd;
                    continue;
                } else if self.follow {
                    context.output.note(format!("{} is {}", self.id, answer.state));
                }
                return finish(site, Ok(self.exit(answer.state))).await;
            }
            if quiet && site.is_for_a_moment() {
                if !std::mem::replace(&mut alone, true) {
                    context.output.note(self.nobody(answer.state));
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

    /// Why nothing is printed yet.
    fn why(&self, context: &Context, site: &Site, detail: &TaskDetail) -> String {
        let state = detail.task.state;
        if site.is_for_a_moment() && state == TaskState::Queued {
            return self.nobody(state);
        }
        let now = context.clock.now();
        let why: Vec<String> = detail.waiting.iter().map(|why| waiting(why, now)).collect();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        format!("{} is {state}{why}: waiting for its run, Ctrl-C ends this", self.id)
    }

    fn nobody(&self, state: TaskState) -> String {
        format!(
            "no `relay work` runs on this home, and {} is {state}: waiting for one, Ctrl-C ends this",
            self.id
        )
    }

    /// Looks again after a pause. Where this process is the owner, a `relay work` can take the home
    /// meanwhile.
    async fn later(&self, context: &Context, site: Site) -> anyhow::Result<Site> {
        if site.is_for_a_moment() {
            return self.again(context, site, None).await;
        }
        context.clock.sleep_until(context.clock.now() + PAUSE).await;
        Ok(site)
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

/// Whether the run to follow has not begun: the task waits, and its newest run is the one that was
/// `over` when it was first looked at.
fn is_to_come(detail: &TaskDetail, over: Option<&Option<RunId>>) -> bool {
    let newest = detail.runs.first();
    let waits = matches!(detail.task.state, TaskState::Queued | TaskState::Parked);
    waits && over.is_none_or(|over| over.as_ref() == newest.map(|run| &run.id))
}
