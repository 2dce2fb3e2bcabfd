//! How the three vendors' real programs end, on scripted models: a task is run by a worker, and the
//! run's stop reason and error are looked at. A row is one run; a test runs the rows of one vendor,
//! and names the one that is wrong. Other ends are in `full_claude`, `full_codex` and `full_grok`.

use std::fs;
use std::path::Path;

use relay::model::Clock as _;
use relay::system::SystemClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::full::skip;
use crate::support::house::{House, only_has, processes_with};
use crate::support::model::Step;

mod claude;
mod codex;
mod grok;
mod logins;

/// Nobody listens there.
const NOBODY: &str = "http://127.0.0.1:9";

/// One end.
struct Row {
    named: &'static str,
    /// What the model does.
    steps: Vec<Step>,
    /// What the program's own start script does first, where it starts a run: in a shell, with the
    /// program's arguments as its own.
    first: &'static str,
    /// Whether the model's server is gone.
    down: bool,
    /// More of the worker's options.
    worker: &'static [&'static str],
    /// The run's stop reason.
    reason: &'static str,
    /// A part of the run's error.
    says: &'static str,
    /// Whether the stop tells an end in two hours.
    until: bool,
}

/// A row whose model does this, and which stops for this reason.
fn row(named: &'static str, steps: impl Into<Vec<Step>>, reason: &'static str) -> Row {
    let steps = steps.into();
    Row { named, steps, first: "", down: false, worker: &[], reason, says: "", until: false }
}

/// Where this machine's scripts/test has the real program; says why there is none.
#[expect(clippy::disallowed_methods, reason = "scripts/test says where the real programs are")]
fn real(lane: &str) -> Option<String> {
    let named = format!("RELAY_TEST_{}", lane.to_uppercase());
    let found = std::env::var(&named).ok();
    if found.is_none() {
        skip(&format!("the real {lane}, named by {named}"));
    }
    found
}

/// The real program as this machine's `lane`, started as a person's own script would: it does
/// `first` where a run is started, and not where its login or version is asked for.
fn start_script(house: &House, lane: &str, first: &str) -> Option<()> {
    let program = real(lane)?;
    let first = if first.is_empty() { ":" } else { first };
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in exec | -p | --prompt-file) {first} ;; esac\n\
         exec '{program}' \"$@\"\n"
    );
    house.program(lane, &text);
    Some(())
}

/// A machine with the real program as its `lane`, which is given what is `named` and reaches its
/// model at `port`.
fn with(mut house: House, lane: &str, row: &Row, named: &[&str], port: u16) -> Option<House> {
    start_script(&house, lane, row.first)?;
    house.set("RELAY_LANE_ENV", &named.join(","));
    house.set("RELAY_LANE_ALLOWED_DOMAINS", &format!("127.0.0.1:{port}, 127.0.0.1:9"));
    Some(house)
}

/// Runs each row to its end, on a machine and with a model of its own.
fn run<M>(
    lane: &'static str,
    machine: impl Fn(&Row) -> Option<(House, M)>,
    rows: impl IntoIterator<Item = Row>,
) {
    for row in rows {
        let Some((house, _model)) = machine(&row) else { return };
        Run::new(house, lane).whole(&row);
    }
}

/// A task and its worker, on a machine that is set up.
struct Run {
    house: House,
    lane: &'static str,
    task: String,
}

impl Run {
    fn new(house: House, lane: &'static str) -> Self {
        let task = house.task(&house.link(), lane, "Add a total");
        Self { house, lane, task }
    }

    fn worker<'a>(&self, more: &[&'a str]) -> Vec<&'a str> {
        [&["--once", "--name", "w", "--lanes", self.lane], more].concat()
    }

    /// To its end.
    fn whole(&self, row: &Row) -> Value {
        let worked = self.house.relay(&[&["work"], &self.worker(row.worker)[..]].concat());
        let detail = self.detail();
        assert!(detail["runs"][0]["stop_reason"].is_object(), "{}: {worked:?}", row.named);
        self.came_to(row, detail)
    }

    /// Until `begun`; then `meanwhile` is done to it, and it ends.
    fn disturbed(&self, row: &Row, begun: impl Fn() -> bool, meanwhile: impl FnOnce()) -> Value {
        let mut worker = self.house.work(&self.worker(row.worker));
        worker.until(row.named, begun);
        meanwhile();
        worker.ended();
        let detail = self.detail();
        let ended = detail["runs"][0]["stop_reason"].is_object();
        assert!(ended, "{}: {detail:#}\n{}", row.named, worker.said());
        self.came_to(row, detail)
    }

    fn detail(&self) -> Value {
        self.house.json(&["task", "get", &self.task, "--json"])
    }

    /// It is what the row says, what was recorded of it comes to the same, and nothing is left.
    fn came_to(&self, row: &Row, detail: Value) -> Value {
        let run = &detail["runs"][0];
        let log = self.house.relay(&["task", "log", &self.task]).ok();
        let stop = &run["stop_reason"]["reason"];
        println!("{}: {}: {} {run:#}\n{log}", self.lane, row.named, stop);
        assert_eq!(stop, row.reason, "{}: {run:#}\n{log}", row.named);
        let said = run["error"].as_str().unwrap_or_default();
        assert!(said.contains(row.says), "{}: {} is not in {said}", row.named, row.says);
        if row.until {
            // Some tell it to the minute.
            let until = run["stop_reason"]["until"].as_i64().unwrap_or_default();
            let ahead = until - SystemClock.now().0;
            assert!((6_000_000..=7_200_000).contains(&ahead), "{}: {run:#}", row.named);
        }
        // Of a run that was called off nothing is reported, and that nothing was changed is not its
        // program's end.
        if run["usage"].is_object() && row.reason != "no_changes" {
            self.house.transcript(&detail);
        }
        for folder in ["work", "vendor"] {
            let left = only_has(&self.house.home.join(folder), &[]);
            assert_eq!(left, Vec::<String>::new(), "{}: {folder}", row.named);
        }
        let left = processes_with(self.house.dir.path().to_str().unwrap());
        assert_eq!(left, Vec::<String>::new(), "{}", row.named);
        detail
    }
}

/// The processes of this machine whose program is called so, without those that they started: some
/// start themselves once more, as another tool.
fn called(house: &House, name: &str) -> Vec<Pid> {
    let place = house.dir.path().to_str().unwrap();
    let read = |folder: &Path| {
        let program = fs::read_link(folder.join("exe")).ok()?;
        let environment = fs::read(folder.join("environ")).ok()?;
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let parent: i32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let pid: i32 = folder.file_name()?.to_str()?.parse().ok()?;
        let is_it = program.file_name().is_some_and(|file| file == name)
            && String::from_utf8_lossy(&environment).contains(place);
        is_it.then_some((pid, parent))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let found: Vec<_> = entries.filter_map(|entry| read(&entry.path())).collect();
    let is_first = |(_, parent): &&(i32, i32)| found.iter().all(|(pid, _)| pid != parent);
    found.iter().filter(is_first).filter_map(|(pid, _)| Pid::from_raw(*pid)).collect()
}

/// Sends a signal to the one process that is called so.
fn send(house: &House, name: &str, signal: Signal) {
    let found = called(house, name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    kill_process(found[0], signal).unwrap();
}
