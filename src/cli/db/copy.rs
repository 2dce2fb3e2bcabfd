//! `relay db copy FROM TO`.

use std::io::IsTerminal;
use std::path::Path;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::super::context::Context;
use super::super::exit::Exit;
use super::super::table::{Cell, Table};
use crate::store::{Copied, CopyStep, copy};

/// Options of `relay db copy`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  relay db copy sqlite:///home/ada/.harness/relay.db postgres://relay@db/relay"
)]
pub struct Options {
    /// What is copied: sqlite:///PATH or postgres://…
    #[arg(value_name = "FROM")]
    from: String,
    /// An empty database: postgres://… or sqlite:///PATH
    #[arg(value_name = "TO")]
    to: String,
    /// Print counts and hashes as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    tables: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    table: String,
    from: Side,
    to: Side,
}

#[derive(Debug, Serialize)]
struct Side {
    rows: u64,
    sha256: String,
}

impl Options {
    /// Copies and compares.
    ///
    /// # Errors
    /// When somebody is at work on either, the target is not empty, or they differ afterwards;
    /// nothing is written then.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let path =
            |url: &'_ str| url.strip_prefix("sqlite://").map(|path| Path::new(path).to_owned());
        let files: Vec<_> = [path(&self.from), path(&self.to)].into_iter().flatten().collect();
        let files: Vec<&Path> = files.iter().map(|file| file.as_path()).collect();
        let _held = super::hold_homes(context, &files)?;
        let bar = bar();
        let mut tell = |step: CopyStep<'_>| {
            bar.set_length(step.of);
            bar.set_position(step.done);
            bar.set_message(step.table.to_owned());
        };
        let copied = copy(&self.from, &self.to, &mut tell).await;
        bar.finish_and_clear();
        let copied = copied?;
        if self.json {
            context
                .output
                .json(&Report { tables: copied.into_iter().map(Line::from).collect() })?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(["TABLE", "ROWS", "SHA-256 ON BOTH SIDES"]);
        for Copied { table: name, to, .. } in &copied {
            table.row([name.into(), to.rows.to_string().into(), Cell::short(&to.hash, 17)]);
        }
        context.output.text(&table.show(context.output))?;
        context.output.note("the source is as it was: start relay on one of the two, not on both");
        Ok(Exit::Ok)
    }
}

impl From<Copied> for Line {
    fn from(copied: Copied) -> Self {
        let side = |sum: crate::store::Sum| Side { rows: sum.rows, sha256: sum.hash };
        Self { table: copied.table, from: side(copied.from), to: side(copied.to) }
    }
}

/// Where nobody looks there is none.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}
