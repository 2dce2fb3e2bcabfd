//! `relay doctor`: what this machine has, side by side, each with what to do about it.

mod confine;
mod cure;
mod database;
mod disk;
mod gather;
mod github;
mod home;
mod lanes;
mod programs;
mod repositories;
mod service;
mod site;

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt;
use serde::Serialize;

use super::context::Context;
use super::exit::Exit;
use super::machine;
use super::output::{Output, Tone};
use super::table::{Cell, Table};
use super::time::patience;
use crate::process::{WORKS_FOR, kill_marked, own_mark};
use crate::work::probe::LaneStatus;
use gather::{Look, apart, side_by_side};

/// Options of `relay doctor`.
#[derive(Debug, Args)]
pub struct Options {
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
    /// How long one program may take to answer, in seconds; all are asked at once
    #[arg(long, value_name = "SECONDS", default_value = "1.5", value_parser = patience)]
    patience: Duration,
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

/// Every check, and the lanes once more as `relay lane ls --json` has them. `ok` is whether none
/// failed.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
    lanes: Vec<LaneStatus>,
}

impl Options {
    /// Runs every check, all at once, and prints them. Exits with 6 where one failed.
    ///
    /// # Errors
    /// When the answer cannot be printed; a check that cannot be made is a failed check.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let report = Report::make(context, self.patience).await;
        // What was asked and did not end is killed by now, with its group. Whoever left the group
        // is found by its mark.
        if let Some(mark) = own_mark() {
            kill_marked(WORKS_FOR, &mark);
        }
        if self.json {
            context.output.json(&report)?;
        } else {
            context.output.text(&report.show(context.output))?;
        }
        Ok(if report.ok { Exit::Ok } else { Exit::NotReady })
    }
}

impl Report {
    /// All looks at once, so that the longest of them is how long it takes.
    async fn make(context: &Context, patience: Duration) -> Self {
        let config = &context.config;
        let boxing = machine::boxing(context).shared();
        let statuses = RefCell::new(None);
        let serves_others = RefCell::new(false);
        let [on_home, on_disk, on_copies] = std::array::from_fn(|_| config.home.clone());
        let temp = config.temp.clone();
        let looks = vec![
            Look::vital("home", apart(move || vec![home::folder(&on_home)])),
            Look::vital("disk", apart(move || vec![disk::home(&on_disk)])),
            Look::minor("TMPDIR", apart(move || disk::scratch(&temp).into_iter().collect())),
            Look::vital("site", async { site::site(context).await.into_iter().collect() }),
            Look::vital("database", async {
                let (checks, others) = database::checks(context).await;
                serves_others.replace(others);
                checks
            }),
            Look::minor("copies", apart(move || home::copies(&on_copies).into_iter().collect())),
            Look::vital("git", async { vec![programs::git(context).await] }),
            Look::minor("github", async { vec![github::login(context).await] }),
            Look::minor("service", async { vec![service::service(context).await] }),
            Look::minor("box", confine::boxes(context, boxing.clone())),
            Look::minor("walls", confine::walls(context, boxing.clone())),
            Look::minor("network", confine::network(context, boxing.clone())),
            Look::vital("lanes", async {
                let found = lanes::found(context, boxing.clone(), patience).await;
                let mut checks = lanes::checks(&found);
                checks.extend(lanes::misnamed(context));
                statuses.replace(Some(found));
                checks
            }),
        ];
        // A look names the program that did not answer, where it is given the time to.
        let mut checks = side_by_side(looks, patience + patience / 5).await;
        let found: Option<Vec<LaneStatus>> = statuses.into_inner();
        checks.extend(found.iter().map(|found| lanes::together(found, *serves_others.borrow())));
        let ok = checks.iter().all(|check| check.state != State::Fail);
        Self { ok, checks, lanes: found.unwrap_or_default() }
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
