//! `relay task`: one issue and one lane, from its making to its end.

mod change;
mod create;
mod get;
mod log;
mod ls;

use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use crate::api::Code;
use crate::client::Client;
use crate::model::TaskId;

/// Options of `relay task`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a task of an issue or of a title, and print its id
    Create(create::Options),
    /// List tasks, newest first
    Ls(ls::Options),
    /// Show a task: why it waits, its runs, its pull request
    Get(get::Options),
    /// Print the log of a task's newest run
    Log(log::Options),
    /// Call a task off; a running lane is stopped
    Cancel(change::Options),
    /// Queue a task again
    Retry(change::Options),
    /// End a task by hand, as if its pull request were merged
    Done(change::Options),
}

impl Options {
    /// Does what was asked.
    ///
    /// # Errors
    /// When the task or project is not there, or does not fit what was asked.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Command::Create(options) => options.run(context).await,
            Command::Ls(options) => options.run(context).await,
            Command::Get(options) => options.run(context).await,
            Command::Log(options) => options.run(context).await,
            Command::Cancel(options) => options.run(context, change::Change::Cancel).await,
            Command::Retry(options) => options.run(context, change::Change::Retry).await,
            Command::Done(options) => options.run(context, change::Change::Done).await,
        }
    }
}

/// The task that a person means. The first of an issue is called by its number alone; its lane may be
/// said all the same.
async fn meant(site: &Client, id: &TaskId) -> TaskId {
    let not_there =
        async || site.task(id).await.is_err_and(|error| error.code() == Some(Code::NotFound));
    if id.lane.is_none() || !not_there().await {
        return id.clone();
    }
    let first = TaskId { lane: None, ..id.clone() };
    match site.task(&first).await {
        Ok(detail) if Some(&detail.task.lane) == id.lane.as_ref() => first,
        _ => id.clone(),
    }
}
