//! `relay lane`: which lanes this machine serves, what claude may do in its own, what a program of
//! one's own has to keep to, and what a run was.

mod replay;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use relay_lanes::process::{DIALECT, SCHEMAS, schema, schemas};
use serde::Serialize;
use serde_json::{Value, json};

use super::at_work::{at_work, unserved};
use super::context::Context;
use super::exit::Exit;
use super::logins::{LoginState, login_states};
use super::machine;
use super::output::Tone;
use super::table::{Cell, Table};
use super::time::patience;
use crate::model::WorkerName;
use crate::process::{WORKS_FOR, kill_marked, own_mark};
use crate::work::lane::misnamed_lanes;
use crate::work::probe::{LaneState, LaneStatus, probe};

/// Options of `relay lane`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the lanes of this machine, whether it serves them, and why not
    Ls {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
        /// How long one program may take to answer, in seconds; all are asked at once
        #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = patience)]
        patience: Duration,
    },
    /// Print the JSON Schema of a process lane's configuration, request and answer
    Schema {
        /// Only this part, as a schema of its own
        #[arg(value_parser = PossibleValuesParser::new(SCHEMAS))]
        part: Option<String>,
        /// Print JSON, as it does in any case
        #[arg(long)]
        json: bool,
    },
    /// Read a run's transcript again, and print what it comes to
    Replay(replay::Options),
    /// Print the settings claude runs under, the only ones it sees
    Settings {
        /// The copy it works in; its own folder in a run
        #[arg(long, value_name = "FOLDER")]
        workdir: Option<PathBuf>,
        /// As they are with `relay work --no-sandbox`
        #[arg(long)]
        no_sandbox: bool,
        /// Print JSON, as it does in any case
        #[arg(long)]
        json: bool,
    },
}

/// What `relay lane ls --json` prints.
#[derive(Debug, Serialize)]
struct Lanes {
    lanes: Vec<Shown>,
    /// Files that were meant for lanes, and whose name is none's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    misnamed: Vec<String>,
}

/// What is wrong with a file whose name is no lane's.
pub(super) const MISNAMED: &str = "no lane can be called that, so it is not served";
/// What mends it.
pub(super) const RENAME: &str = "rename it: NAME.json, with a NAME of at most 40 of a-z, 0-9, `_` and `-`, not `_` or `-` first";

/// A lane, and what keeps a worker from it now.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    status: LaneStatus,
    #[serde(flatten)]
    login: Option<LoginState>,
    /// Workers of this machine that run and do not serve it, where none of them does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_served_by: Vec<WorkerName>,
}

impl Options {
    /// Prints what was asked.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Command::Ls { json, patience } => ls(context, json, patience).await,
            Command::Replay(options) => options.run(context),
            Command::Schema { part, json: _ } => {
                context.output.json(&contract(part.as_deref()))?;
                Ok(Exit::Ok)
            }
            Command::Settings { workdir, no_sandbox, json: _ } => {
                settings(context, workdir, !no_sandbox).await
            }
        }
    }
}

async fn ls(context: &Context, json: bool, patience: Duration) -> anyhow::Result<Exit> {
    let looking = async { probe(&machine::lanes(context, true, Vec::new()).await, patience).await };
    let (lanes, running) = tokio::join!(looking, at_work(context));
    if let Some(mark) = own_mark() {
        // What a program left running that was asked.
        kill_marked(WORKS_FOR, &mark);
    }
    let mut states = login_states(context);
    let shown = |status: LaneStatus| {
        let own = states.iter().position(|state| state.lane == status.lane);
        // What a worker serves it found at its start, or between two tasks.
        let not_served_by =
            if status.served { unserved(&status.lane, &running) } else { Vec::new() };
        Shown { login: own.map(|own| states.swap_remove(own)), not_served_by, status }
    };
    let lanes: Vec<Shown> = lanes.into_iter().map(shown).collect();
    let misnamed = misnamed_lanes(&context.config.lanes_folder());
    let misnamed: Vec<String> = misnamed.iter().map(|path| path.display().to_string()).collect();
    if json {
        context.output.json(&Lanes { lanes, misnamed })?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(["LANE", "STATE", "VERSION", "MODEL", "LOGIN"]);
    let now = context.clock.now();
    for Shown { status: lane, login, not_served_by } in &lanes {
        let tone = if lane.served { Tone::Good } else { Tone::Warn };
        table.row([
            lane.lane.as_str().into(),
            Cell::toned(tone, lane.state.words()),
            lane.version.as_deref().unwrap_or_default().into(),
            lane.model.as_deref().unwrap_or_default().into(),
            (&lane.detail).into(),
        ]);
        if let Some(login) = login {
            let words = Cell::toned(Tone::Warn, login.words(now));
            table.row(["".into(), "".into(), "".into(), "".into(), words]);
        }
        let hint = match lane.state {
            LaneState::Silent => Some("relay lane ls --patience 30"),
            _ => lane.hint.as_deref(),
        };
        let hint = hint.map(|hint| format!("→ {hint}"));
        let names: Vec<&str> = not_served_by.iter().map(|name| name.as_str()).collect();
        let again = (!names.is_empty()).then(|| {
            format!(
                "→ {} runs and does not serve it: it does within a moment, or once it is started \
                 again where it was given --lanes",
                names.join(", ")
            )
        });
        for line in lane.remarks.iter().cloned().chain(hint).chain(again) {
            let line = Cell::toned(Tone::Faint, line);
            table.row(["".into(), "".into(), "".into(), "".into(), line]);
        }
    }
    for path in &misnamed {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        let (state, why) = (Cell::toned(Tone::Warn, "bad name"), format!("{path}: {MISNAMED}"));
        table.row([name.into(), state, "".into(), "".into(), why.into()]);
        let line = Cell::toned(Tone::Faint, format!("→ {RENAME}"));
        table.row(["".into(), "".into(), "".into(), "".into(), line]);
    }
    context.output.text(&table.show(context.output))?;
    if misnamed.is_empty() && lanes.iter().all(|lane| lane.status.lane.process_name().is_none()) {
        context.output.note(format!(
            "a lane of your own is a file in {}: docs/LANES.md shows how",
            context.config.lanes_folder().display()
        ));
    }
    Ok(Exit::Ok)
}

fn contract(part: Option<&str>) -> Value {
    let never_given = relay_sandbox::refused_pattern();
    let Some(part) = part.and_then(|part| schema(part, &never_given)) else {
        return schemas(&never_given);
    };
    let mut alone = json!({ "$schema": DIALECT });
    if let (Some(alone), Value::Object(part)) = (alone.as_object_mut(), part) {
        alone.extend(part);
    }
    alone
}

async fn settings(
    context: &Context,
    workdir: Option<PathBuf>,
    sandbox: bool,
) -> anyhow::Result<Exit> {
    // A run's copy has a name of its own; what stands for it is as good to look at.
    let workdir = workdir.unwrap_or_else(|| context.config.home.join("work/OWNER_REPO_N_ID"));
    let lanes = machine::lanes(context, sandbox, Vec::new()).await;
    context.output.json(&lanes.claude_settings(&workdir))?;
    Ok(Exit::Ok)
}
