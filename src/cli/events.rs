//! `relay events`: what happened, oldest first.

use std::collections::VecDeque;

use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output::{Output, Tone};
use super::table::{Cell, Table};
use super::time::date;
use crate::api::{EventsAnswer, EventsQuery};
use crate::client::{Client, ClientError};
use crate::model::{Event, TaskId};

/// So many events are asked for at once.
const PAGE: u32 = 1_000;

/// Options of `relay events`.
#[derive(Debug, Args)]
pub struct Options {
    /// Only those of this task: 'owner/repo#12'
    #[arg(long)]
    task: Option<TaskId>,
    /// Only those after this number (the first column)
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: i64,
    /// Only the last so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    last: u32,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Prints the events.
    ///
    /// # Errors
    /// When the site cannot be asked.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let events = context.ask(async |site| self.read(site).await).await?;
        if self.json {
            context.output.json(&EventsAnswer { events })?;
        } else if events.is_empty() {
            context.output.note("no events");
        } else {
            context.output.text(&table(&events, context.output))?;
        }
        Ok(Exit::Ok)
    }

    /// The site tells the newest of one page; more than that are found by reading on.
    async fn read(&self, site: &Client) -> Result<Vec<Event>, ClientError> {
        let keep = usize::try_from(self.last).unwrap_or(usize::MAX);
        let mut last = VecDeque::new();
        let task = self.task.as_ref().map(ToString::to_string);
        let newest = self.last <= PAGE;
        let limit = if newest { self.last } else { PAGE };
        let mut query = EventsQuery { after: self.after, task, limit: Some(limit), newest };
        if newest {
            return site.events(&query).await;
        }
        loop {
            let page = site.events(&query).await?;
            let Some(end) = page.last().map(|event| event.seq) else { break };
            query.after = end;
            last.extend(page);
            last.drain(..last.len().saturating_sub(keep));
        }
        Ok(last.into())
    }
}

fn table(events: &[Event], output: Output) -> String {
    let mut table = Table::new(["SEQ", "AT", "EVENT", "BY", "TASK", "DETAILS"]);
    for event in events {
        table.row([
            event.seq.to_string().into(),
            date(event.at).into(),
            event.kind.as_str().into(),
            (&event.actor.0).into(),
            event.task.as_ref().map(ToString::to_string).unwrap_or_default().into(),
            Cell::toned(Tone::Faint, details(&event.data)),
        ]);
    }
    table.show(output)
}

/// `epoch 1, reason finished`: the parts that are a word or a number.
fn details(data: &serde_json::Value) -> String {
    let Some(data) = data.as_object() else { return String::new() };
    let word = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let parts: Vec<String> =
        data.iter().filter_map(|(name, value)| Some(format!("{name} {}", word(value)?))).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_words_and_numbers() {
        let data = serde_json::json!({"epoch": 2, "reason": "quota", "usage": {"a": 1}, "x": null});
        assert_eq!(details(&data), "epoch 2, reason quota");
        assert_eq!(details(&serde_json::Value::Null), "");
    }
}
