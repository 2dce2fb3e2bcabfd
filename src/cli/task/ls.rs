//! `relay task ls`: a line a task.

use clap::Args;

use super::super::context::Context;
use super::super::exit::Exit;
use super::super::output::{Output, Tone};
use super::super::site::Site;
use super::super::table::{Cell, Table};
use super::super::time::ago;
use super::super::words;
use crate::api::Tasks;
use crate::model::{Task, TaskState, Timestamp};

/// A title wider than this is cut; `relay task get` has all of it.
const TITLE: usize = 100;

/// Options of `relay task ls`.
#[derive(Debug, Args)]
pub struct Options {
    /// Only tasks in this state: queued, claimed, running, review, failed, done, parked, cancelled
    #[arg(long)]
    state: Option<TaskState>,
    /// Print the tasks as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Prints the tasks.
    ///
    /// # Errors
    /// When the site cannot be asked.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let asking = async |site: &Site| match self.json {
            true => site.tasks(self.state).await,
            false => site.task_lines(self.state).await,
        };
        let tasks = context.ask(asking).await?;
        if self.json {
            context.output.json(&Tasks { tasks })?;
        } else if tasks.is_empty() {
            context.output.note(match self.state {
                Some(state) => format!("no {state} tasks"),
                None => "no tasks; `relay task create --help` shows how to make one".to_owned(),
            });
        } else {
            let table = table(&tasks, context.clock.now(), context.output);
            context.output.text(&table)?;
        }
        Ok(Exit::Ok)
    }
}

fn table(tasks: &[Task], now: Timestamp, output: Output) -> String {
    let mut table = Table::new(["STATE", "TASK", "LANE", "CHANGED", "WHY", "TITLE"]);
    for task in tasks {
        table.row([
            Cell::toned(words::tone(task.state), task.state.as_str()),
            task.id.to_string().into(),
            task.lane.as_str().into(),
            ago(now, task.updated_at).into(),
            Cell::toned(Tone::Faint, why(task)),
            Cell::short(&task.title, TITLE),
        ]);
    }
    table.show(output)
}

/// What needs no look at the task itself to be understood: a reason that is not the usual one.
fn why(task: &Task) -> String {
    match (task.state, &task.stop_reason) {
        (TaskState::Failed | TaskState::Parked | TaskState::Cancelled, Some(reason)) => {
            reason.to_string()
        }
        _ => String::new(),
    }
}
