//! `relay task get`: everything about one task.

use std::path::{Path, PathBuf};

use clap::Args;

use super::super::context::Context;
use super::super::exit::Exit;
use super::super::output::{Output, Tone, one_line, plain};
use super::super::table::{Cell, Table};
use super::super::time::{ago, date, span};
use super::super::words;
use super::meant;
use crate::api::TaskDetail;
use crate::model::{Effect, Outcome, Run, TaskId, TaskState, Timestamp};
use crate::work::transcript::file_of;

/// Options of `relay task get`.
#[derive(Debug, Args)]
pub struct Options {
    /// The task, as `relay task ls` prints it: 'owner/repo#12'
    id: TaskId,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Prints the task.
    ///
    /// # Errors
    /// When it is not there or the site cannot be asked.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let detail = context
            .ask(async |site| {
                let id = meant(site, &self.id).await;
                site.task(&id).await
            })
            .await?;
        if self.json {
            context.output.json(&detail)?;
        } else {
            let transcript = transcript(&detail, &context.config.home);
            let now = context.clock.now();
            context.output.text(&show(&detail, transcript.as_deref(), now, context.output))?;
        }
        Ok(Exit::Ok)
    }
}

/// The transcript of a newest run that did not finish, where this machine has it.
fn transcript(detail: &TaskDetail, home: &Path) -> Option<PathBuf> {
    let run = detail.runs.first()?;
    let ended_badly = run.finished_at.is_some() && run.outcome != Some(Outcome::Finished);
    Some(file_of(&home.join("runs"), &run.id)).filter(|file| ended_badly && file.exists())
}

/// The whole page.
fn show(detail: &TaskDetail, transcript: Option<&Path>, now: Timestamp, output: Output) -> String {
    let mut page = Page { text: String::new(), output };
    head(&mut page, detail, now);
    if let Some(file) = transcript {
        let replay = format!("{} (`relay lane replay` reads it)", file.display());
        page.field("recorded", &one_line(&replay));
    }
    if !detail.runs.is_empty() {
        page.section("runs");
        page.text.push_str(&runs(&detail.runs, now, output));
    }
    if let Some(summary) = detail.runs.first().and_then(|run| run.summary.as_deref()) {
        page.section("summary of the newest run");
        page.block(&plain(summary));
    }
    if let Some(pull) = &detail.local_pull {
        page.section(&format!("{} ({} into {})", one_line(&pull.title), pull.branch, pull.base));
        page.diff(&plain(&pull.diff));
    }
    if let Some(next) = words::next(detail.task.state, &detail.task.id.to_string()) {
        page.section("next");
        page.block(&next);
    }
    page.text
}

fn head(page: &mut Page, detail: &TaskDetail, now: Timestamp) {
    let task = &detail.task;
    page.text.push_str(&format!("{}  {}\n", task.id, one_line(&task.title)));
    let state = page.output.paint(words::tone(task.state), task.state.as_str());
    page.field("state", &format!("{state}, {}", ago(now, task.updated_at)));
    for why in &detail.waiting {
        page.field("waits", &words::waiting(why, now));
    }
    page.field("lane", task.lane.as_str());
    page.field("asked by", &one_line(&task.asked_by));
    page.field("made", &date(task.created_at));
    if !task.required_labels.is_empty() {
        let labels: Vec<&str> = task.required_labels.iter().map(|l| l.as_str()).collect();
        page.field("needs", &labels.join(", "));
    }
    if let Some(at) = task.expires_at.filter(|_| task.state.is_leased()) {
        page.field("lease", &format!("claim {}, ends {}", task.epoch, ago(now, at)));
    }
    if let Some(reason) = &task.stop_reason {
        page.field("stopped", &reason.to_string());
    }
    // A message that is the summary stands below in full.
    let summary = detail.runs.first().and_then(|run| run.summary.as_deref());
    if let Some(message) = task.message.as_deref().filter(|m| Some(*m) != summary) {
        page.field("message", &one_line(message));
    }
    if let Some(kept) = detail.runs.first().and_then(|run| run.kept.as_deref()) {
        page.field("kept", &one_line(kept));
    }
    // A task has its branch's name from the beginning, and the branch once something was pushed.
    let pushed = detail.effects.iter().any(|effect| matches!(effect, Effect::Pushed { .. }));
    if let Some(branch) = task.branch.as_ref().filter(|_| pushed || task.pr.is_some()) {
        page.field("branch", branch);
    }
    // A local repository's pull request has a number and no page.
    if let Some(url) = task.pr_url.as_deref().filter(|url| !url.is_empty()) {
        page.field("pull", &one_line(url));
    } else if let Some(number) = task.pr {
        page.field("pull", &format!("#{number}"));
    }
    if task.state == TaskState::Review && detail.local_pull.is_some() {
        let branch = task.branch.as_deref().unwrap_or_default();
        page.field("then", &format!("`git merge {branch}`, or `relay task done '{}'`", task.id));
    }
}

fn runs(runs: &[Run], now: Timestamp, output: Output) -> String {
    let mut table = Table::new(["CLAIM", "STOPPED", "BEGAN", "TOOK", "USAGE"]);
    for run in runs {
        let tone = match run.outcome {
            Some(Outcome::Finished) => Tone::Good,
            Some(Outcome::Failed) => Tone::Bad,
            Some(Outcome::Released) => Tone::Warn,
            None => Tone::Busy,
        };
        let stopped = match (&run.stop_reason, run.finished_at) {
            (Some(reason), _) => reason.to_string(),
            (None, Some(_)) => "expired".to_owned(),
            (None, None) => "running".to_owned(),
        };
        let took = run.finished_at.unwrap_or(now).since(run.started_at.unwrap_or(run.claimed_at));
        table.row([
            run.epoch.to_string().into(),
            Cell::toned(tone, stopped),
            ago(now, run.claimed_at).into(),
            span(took).into(),
            run.usage.as_ref().map(words::usage).unwrap_or_default().into(),
        ]);
    }
    table.show(output)
}

/// Text that grows from above.
struct Page {
    text: String,
    output: Output,
}

impl Page {
    fn field(&mut self, name: &str, value: &str) {
        let name = self.output.paint(Tone::Faint, &format!("{name:<9}"));
        self.text.push_str(&format!("  {name} {value}\n"));
    }

    fn section(&mut self, title: &str) {
        self.text.push_str(&format!("\n{}\n", self.output.paint(Tone::Faint, title)));
    }

    fn block(&mut self, text: &str) {
        for line in text.trim_end().lines() {
            self.text.push_str(&format!("  {line}\n"));
        }
    }

    fn diff(&mut self, diff: &str) {
        for line in diff.lines() {
            let tone = match line.as_bytes().first() {
                Some(b'+') => Tone::Good,
                Some(b'-') => Tone::Bad,
                Some(b'@') => Tone::Busy,
                _ => Tone::Plain,
            };
            self.text.push_str(&self.output.paint(tone, line));
            self.text.push('\n');
        }
    }
}
