//! `relay doctor`: what this machine has, side by side, each with what to do about it.

mod confine;
mod database;
mod disk;
mod github;
mod home;
mod lanes;
mod programs;
mod repositories;
mod site;

use clap::Args;
use serde::Serialize;

use super::context::Context;
use super::exit::Exit;
use super::output::{Output, Tone};
use super::table::{Cell, Table};

/// Options of `relay doctor`.
#[derive(Debug, Args)]
pub struct Options {
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// relay works; something named does not, or is weaker.
    Warn,
    /// Tasks cannot be done before this is mended.
    Fail,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it came out.
    pub state: State,
    /// What was seen.
    pub seen: String,
    /// The command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// Every check. `ok` is whether none failed.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
}

impl Options {
    /// Runs every check, all at once, and prints them. Exits with 6 where one failed.
    ///
    /// # Errors
    /// When the answer cannot be printed; a check that cannot be made is a failed check.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let report = Report::make(context).await;
        if self.json {
            context.output.json(&report)?;
        } else {
            context.output.text(&report.show(context.output))?;
        }
        Ok(if report.ok { Exit::Ok } else { Exit::NotReady })
    }
}

impl Report {
    async fn make(context: &Context) -> Self {
        let (site, database, git, github, boxes, lanes) = tokio::join!(
            site::site(context),
            database::checks(context),
            programs::git(context),
            github::login(context),
            confine::boxes(context),
            lanes::lanes(context),
        );
        let mut checks = vec![home::folder(context), disk::home(context)];
        checks.extend(disk::scratch(context));
        checks.extend(site);
        checks.extend(database);
        checks.extend(home::copies(context));
        checks.extend([git, github]);
        checks.extend(boxes.into_iter().chain(lanes));
        Self { ok: checks.iter().all(|c| c.state != State::Fail), checks }
    }

    fn show(&self, output: Output) -> String {
        let mut table = Table::new(["CHECK", "", "SEEN"]);
        for check in &self.checks {
            let (tone, word) = match check.state {
                State::Ok => (Tone::Good, "ok"),
                State::Warn => (Tone::Warn, "warn"),
                State::Fail => (Tone::Bad, "fail"),
            };
            table.row([(&check.name).into(), Cell::toned(tone, word), (&check.seen).into()]);
            if let Some(mend) = &check.mend {
                table.row(["".into(), "".into(), Cell::toned(Tone::Faint, format!("→ {mend}"))]);
            }
        }
        table.show(output)
    }
}

impl Check {
    /// A check that came out well.
    pub fn ok(name: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { name: name.into(), state: State::Ok, seen: seen.into(), mend: None }
    }

    /// Something that does not stop relay.
    pub fn warn(name: impl Into<String>, seen: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { state: State::Warn, mend: Some(mend.into()), ..Self::ok(name, seen) }
    }

    /// Something that does.
    pub fn fail(name: impl Into<String>, seen: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { state: State::Fail, mend: Some(mend.into()), ..Self::ok(name, seen) }
    }
}
