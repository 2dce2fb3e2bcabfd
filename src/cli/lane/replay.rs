//! `relay lane replay`: what a run's transcript comes to, without its program.

use std::path::PathBuf;

use clap::Args;
use relay_lanes::Said;
use serde::Serialize;

use super::super::context::Context;
use super::super::error::Failure;
use super::super::exit::Exit;
use super::super::output::{Tone, one_line, plain};
use super::super::time::date;
use super::super::words;
use crate::model::{StopReason, Usage};
use crate::work::transcript::{Header, LeftOut, Replayed, Transcript, TranscriptError, replay};
use crate::work::verdict::said;

/// Options of `relay lane replay`.
#[derive(Debug, Args)]
pub struct Options {
    /// The transcript; `relay task get` and the run's log name it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// What `relay lane replay --json` prints.
#[derive(Debug, Serialize)]
struct Told<'a> {
    run: &'a Header,
    events: Vec<Event<'a>>,
    /// What the file does not have of the output.
    left_out: LeftOut,
    /// What this relay makes of it. `null` where the end was not recorded.
    stop: Option<StopReason>,
    /// What the run came to when it was recorded.
    recorded: Option<&'a StopReason>,
    summary: Option<&'a str>,
    error: Option<&'a str>,
    hint: Option<&'a str>,
    note: Option<&'a str>,
    usage: Option<&'a Usage>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Event<'a> {
    Text { text: &'a str },
    Tool { name: &'a str, detail: &'a str },
    Note { text: &'a str },
}

impl Options {
    /// Prints what the transcript comes to.
    ///
    /// # Errors
    /// When the file is none that this relay can read.
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let refused = |error: TranscriptError| {
            let exit = match &error {
                TranscriptError::Read(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    Exit::NotFound
                }
                TranscriptError::Read(_) => Exit::Failed,
                TranscriptError::Newer { .. } => Exit::Version,
                _ => Exit::Usage,
            };
            let hint = match &error {
                TranscriptError::Newer { .. } => "replay it with that relay, or a later one",
                TranscriptError::UnknownLane(_) => "`relay lane ls` shows this relay's lanes",
                _ => "`relay task get TASK` names the transcript of a run that failed",
            };
            let error = one_line(&error.to_string());
            Failure::new(exit, format!("{}: {error}", self.file.display())).hint(hint)
        };
        let transcript = Transcript::read(&self.file).map_err(refused)?;
        let replayed = replay(&transcript).map_err(refused)?;
        if self.json {
            context.output.json(&told(&transcript, &replayed))?;
        } else {
            context.output.text(&show(context, &transcript, &replayed))?;
        }
        Ok(Exit::Ok)
    }
}

fn told<'a>(transcript: &'a Transcript, replayed: &'a Replayed) -> Told<'a> {
    let result = replayed.result.as_ref();
    let event = |said: &'a Said| match said {
        Said::Text(text) => Event::Text { text },
        Said::Tool { name, detail } => Event::Tool { name, detail },
        Said::Note(text) => Event::Note { text },
    };
    Told {
        run: &transcript.header,
        events: replayed.said.iter().map(event).collect(),
        left_out: replayed.left_out,
        stop: replayed.stop(),
        recorded: transcript.end.as_ref().map(|end| &end.stop),
        summary: result.and_then(|result| result.summary.as_deref()),
        error: result.and_then(|result| result.error.as_deref()),
        hint: result.and_then(|result| result.hint.as_deref()),
        note: result.and_then(|result| result.note.as_deref()),
        usage: result.map(|result| &result.usage),
    }
}

fn show(context: &Context, transcript: &Transcript, replayed: &Replayed) -> String {
    let (header, output) = (&transcript.header, context.output);
    let mut page = String::new();
    let mut field = |name: &str, value: &str| {
        let name = output.paint(Tone::Faint, &format!("{name:<9}"));
        page.push_str(&format!("  {name} {}\n", one_line(value)));
    };
    let version = header.version.as_deref().unwrap_or("not known");
    field("lane", &header.lane);
    field("version", version);
    if let Some(model) = &header.model {
        field("model", model);
    }
    field("run", &format!("{} of {}", header.run, header.task));
    field("recorded", &format!("{} by relay {}", date(header.at), header.relay));
    page.push('\n');
    for said_now in &replayed.said {
        page.push_str(&format!("{}\n", plain(&said(said_now)).trim_end()));
    }
    page.push('\n');
    let mut field = |name: &str, value: &str| {
        let name = output.paint(Tone::Faint, &format!("{name:<9}"));
        page.push_str(&format!("  {name} {}\n", one_line(value)));
    };
    if replayed.left_out.lines > 0 {
        let LeftOut { lines, bytes } = replayed.left_out;
        field(
            "left out",
            &format!("{lines} lines, {bytes} bytes: the file has not all of the run"),
        );
    }
    let Some(result) = &replayed.result else {
        field("stopped", "the end was not recorded: the worker was killed before");
        return page;
    };
    if let Some(end) = &transcript.end {
        let how = match (end.code, end.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        };
        field("ended", &format!("{how}, after {:.1} s", end.elapsed_ms as f64 / 1000.0));
    }
    let usage = words::usage(&result.usage);
    for (name, value) in [
        ("summary", result.summary.as_deref()),
        ("error", result.error.as_deref()),
        ("hint", result.hint.as_deref()),
        ("note", result.note.as_deref()),
        ("usage", Some(usage.as_str()).filter(|usage| !usage.is_empty())),
    ] {
        if let Some(value) = value {
            field(name, value);
        }
    }
    let stop = replayed.stop().map(|stop| stop.to_string()).unwrap_or_default();
    field("stopped", &stop);
    if let Some(recorded) = transcript.end.as_ref().map(|end| &end.stop)
        && replayed.stop().as_ref() != Some(recorded)
    {
        field("then", &format!("{recorded}: relay {} read it otherwise", header.relay));
    }
    page
}
