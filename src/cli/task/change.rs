//! `relay task cancel`, `retry` and `done`: a person moves a task to another state.

use clap::Args;

use super::super::context::Context;
use super::super::exit::Exit;
use super::super::site::Site;
use super::super::words;
use super::meant;
use crate::model::TaskId;

/// Options of each of the three.
#[derive(Debug, Args)]
pub struct Options {
    /// The task, as `relay task ls` prints it: 'owner/repo#12'
    id: TaskId,
    /// Print the task as JSON
    #[arg(long)]
    json: bool,
}

/// Which of the three.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Call it off.
    Cancel,
    /// Queue it again.
    Retry,
    /// End it.
    Done,
}

impl Options {
    /// Changes the task and prints where it stands now.
    ///
    /// # Errors
    /// When it is not there, or its state does not allow it.
    pub async fn run(self, context: &Context, change: Change) -> anyhow::Result<Exit> {
        let by = context.config.user.as_str();
        let changing = async |site: &Site| {
            let id = meant(site, &self.id).await;
            match change {
                Change::Cancel => site.cancel(&id, by).await,
                Change::Retry => site.retry(&id, by).await,
                Change::Done => site.done(&id, by).await,
            }
        };
        let task = context.ask(changing).await?;
        if self.json {
            context.output.json(&task)?;
        } else {
            let state = context.output.paint(words::tone(task.state), task.state.as_str());
            context.output.line(format!("{} is {state}", task.id))?;
        }
        Ok(Exit::Ok)
    }
}
