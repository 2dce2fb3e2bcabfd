//! What the worker does, on the terminal: a spinner for long steps where somebody looks, plain
//! lines elsewhere.

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::output::{Output, Tone, one_line};
use super::time::{date, span};
use super::words::{self, actor};
use crate::model::{Clock, LaneName, Orders, Outcome, Pause, TaskId, Timestamp, WorkerId};
use crate::system::notify::Notifier;
use crate::work::gate::Shut;
use crate::work::{Observer, Step, StepEvent};

/// What a person is told where the last lane was taken away.
const NOTHING_LEFT: &str = "the last lane of this machine is gone: nothing is claimed until there is \
    one (hint: `relay lane ls` shows what each lacks)";

/// Prints each step of each job. The lane's own words are in the run's log, not here.
#[derive(Debug)]
pub struct Progress {
    output: Output,
    bars: MultiProgress,
    spinners: Mutex<HashMap<TaskId, ProgressBar>>,
    /// Tasks whose job has not come to its end.
    at_work: Mutex<HashSet<TaskId>>,
    terminal: bool,
    /// Lines go to stdout: they are what the command is for.
    stdout: bool,
    waiting_said: Mutex<bool>,
    /// Each line of a log begins with its time.
    clock: Option<Arc<dyn Clock>>,
    manager: Option<Notifier>,
}

impl Progress {
    /// For a worker: remarks, in no program's way.
    #[must_use]
    pub fn on_stderr(output: Output) -> Self {
        Self::new(output, false)
    }

    /// For the demo: the steps are what a person came to see.
    #[must_use]
    pub fn on_stdout(output: Output) -> Self {
        Self::new(output, true)
    }

    fn new(output: Output, stdout: bool) -> Self {
        Self {
            output,
            bars: MultiProgress::new(),
            spinners: Mutex::default(),
            at_work: Mutex::default(),
            terminal: std::io::stderr().is_terminal()
                && (!stdout || std::io::stdout().is_terminal()),
            stdout,
            waiting_said: Mutex::new(false),
            clock: None,
            manager: None,
        }
    }

    /// The same for a log that is read later, each line with its time.
    #[must_use]
    pub fn timed(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The same, which also tells the service manager that started this process.
    #[must_use]
    pub fn telling(mut self, manager: Option<Notifier>) -> Self {
        self.manager = manager;
        self
    }

    /// Nothing new is taken; running jobs finish.
    pub fn draining(&self) {
        self.line("ending: nothing new is taken, running jobs finish; a second Ctrl-C stops them");
        if let Some(manager) = &self.manager {
            manager.status("draining: running jobs finish");
            manager.draining();
        }
    }

    /// Nothing runs any more.
    pub fn ended(&self) {
        if let Some(manager) = &self.manager {
            manager.stopping();
        }
    }

    /// One line, above the spinners.
    pub fn line(&self, text: &str) {
        // A line that the bars print leaves the cursor behind it, so they do it only where one spins.
        let spins = !self.spinners.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if self.terminal && spins {
            // Hidden bars print nothing by themselves; then the line goes the plain way.
            if self.bars.println(text).is_ok() && !self.bars.is_hidden() {
                return;
            }
        }
        let timed = self.clock.as_ref().map(|clock| format!("{}  {text}", date(clock.now())));
        let text = timed.as_deref().unwrap_or(text);
        if !self.stdout || self.output.line(text).is_err() {
            self.output.note(text);
        }
    }

    fn step_line(&self, task: &TaskId, step: Step, tone: Tone, mark: &str, note: &str) {
        let step = self.output.paint(Tone::Faint, &format!("{:<13}", step.as_str()));
        let mark = self.output.paint(tone, mark);
        self.line(format!("{task}  {step} {mark} {}", one_line(note)).trim_end());
    }

    fn spin(&self, task: &TaskId, step: Step) {
        if !self.terminal || !matches!(step, Step::Fetch | Step::Checkout | Step::Run | Step::Push)
        {
            return;
        }
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(format!("{task}  {}", step.as_str()));
        bar.enable_steady_tick(Duration::from_millis(120));
        let mut spinners = self.spinners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = spinners.insert(task.clone(), bar) {
            old.finish_and_clear();
        }
    }

    fn still(&self, task: &TaskId) {
        let mut spinners = self.spinners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = spinners.remove(task) {
            bar.finish_and_clear();
        }
    }

    /// A job ends with its release, however it came there.
    fn count(&self, task: &TaskId, step: Step, event: &StepEvent) {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            _ if step == Step::Release => drop(at_work.remove(task)),
            StepEvent::Began => drop(at_work.insert(task.clone())),
            StepEvent::Ended { .. } | StepEvent::Failed { .. } => {}
        }
    }

    fn said_waiting(&self, now: bool) -> bool {
        let mut said = self.waiting_said.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *said, now)
    }
}

impl Observer for Progress {
    fn registered(&self, _worker: &WorkerId, lanes: &str) {
        let serving =
            if lanes.is_empty() { "serving no lane" } else { &format!("serving {lanes}") };
        match lanes {
            "" => self.warning(NOTHING_LEFT),
            _ => self.line(serving),
        }
        if let Some(manager) = &self.manager {
            manager.ready(serving);
        }
    }

    fn beats(&self) -> Option<Duration> {
        self.manager.as_ref()?.every()
    }

    fn beat(&self) {
        if let Some(manager) = &self.manager {
            manager.alive();
        }
    }

    fn waiting(&self) {
        if !self.said_waiting(true) {
            self.line(&self.output.paint(Tone::Faint, "waiting for work"));
        }
    }

    fn step(&self, task: &TaskId, step: Step, event: &StepEvent) {
        self.said_waiting(false);
        self.count(task, step, event);
        match event {
            StepEvent::Began => self.spin(task, step),
            StepEvent::Ended { note, outcome } => {
                self.still(task);
                let (tone, mark) = done(step, *outcome);
                self.step_line(task, step, tone, mark, note);
            }
            StepEvent::Failed { reason, error } => {
                self.still(task);
                let note = error
                    .as_ref()
                    .map_or_else(|| reason.to_string(), |error| format!("{reason}: {error}"));
                let failed = reason.outcome() == Outcome::Failed;
                self.step_line(
                    task,
                    step,
                    Tone::Bad,
                    if failed { "failed" } else { "stopped" },
                    &note,
                );
            }
        }
    }

    fn site_away(&self, since: Timestamp, why: &str) {
        let none = self.at_work.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let jobs = if none { "" } else { "; running jobs go on" };
        self.warning(&format!("the site is away since {}{jobs} ({why})", date(since)));
    }

    fn site_silent(&self, why: &str, hint: Option<&str>) {
        let hint = hint.map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
        self.warning(&format!("{why}; it is waited for{hint}"));
    }

    fn site_answers(&self, after: Duration) {
        self.line(&format!("the site answers, after {}", span(after)));
    }

    fn site_back(&self, after: Duration) {
        self.line(&format!("the site is back after {}", span(after)));
    }

    fn shut(&self, lane: &LaneName, why: &Shut, now: Timestamp) {
        self.warning(&format!("{lane}: {}", words::shut(why, now)));
    }

    fn ordered(&self, orders: &Orders, running: &[TaskId]) {
        let runs: Vec<String> = running.iter().map(ToString::to_string).collect();
        let runs = match &runs[..] {
            [] => "nothing runs".to_owned(),
            runs => format!("waits for {}", runs.join(", ")),
        };
        if let Some(drain) = &orders.drain {
            let text = format!("told to end by {}: nothing new is taken; {runs}", actor(&drain.by));
            self.line(&text);
            if let Some(manager) = &self.manager {
                manager.status(&format!("draining: {runs}"));
            }
            return;
        }
        let word = |pause: &Pause| {
            let what = pause.lane.as_ref().map_or("everything", |lane| lane.as_str());
            format!("{what} paused by {}", actor(&pause.by))
        };
        let words: Vec<String> = orders.paused.iter().map(word).collect();
        let text = match &words[..] {
            [] => "resumed: every lane is taken again".to_owned(),
            words => format!("{}; `relay work resume` goes on", words.join(", ")),
        };
        self.line(&text);
        if let Some(manager) = &self.manager {
            manager.status(&text);
        }
    }

    fn warning(&self, text: &str) {
        let word = self.output.paint(Tone::Warn, "warning:");
        self.line(&format!("{word} {}", one_line(text)));
    }
}

/// How a step that was done looks.
fn done(step: Step, outcome: Outcome) -> (Tone, &'static str) {
    match outcome {
        // That the site was told says nothing of how the job ended.
        _ if step == Step::Release => (Tone::Good, "told"),
        Outcome::Finished => (Tone::Good, "ok"),
        Outcome::Failed => (Tone::Bad, "failed"),
        Outcome::Released => (Tone::Warn, "stopped"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_failed_is_not_called_ok() {
        assert_eq!(done(Step::Run, Outcome::Finished).1, "ok");
        assert_eq!(done(Step::Run, Outcome::Failed), (Tone::Bad, "failed"));
        assert_eq!(done(Step::Run, Outcome::Released).1, "stopped");
        assert_eq!(done(Step::Release, Outcome::Finished).1, "told");
    }
}
