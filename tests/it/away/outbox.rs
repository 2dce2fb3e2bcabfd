//! What a job has for a site that is away.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::support::proxy::Fate;
use crate::support::served::Served;

const LANE: &str = "process:edit";
const WORK: [&str; 2] = ["--lanes", LANE];

/// A site with one task, whose lane says that it runs and waits for a word.
struct Stand {
    served: Served,
    task: String,
    runs: PathBuf,
    go: PathBuf,
}

impl Stand {
    fn new() -> Self {
        let served = Served::new();
        let dir = served.house.dir.path();
        let (runs, go) = (dir.join("runs"), dir.join("go"));
        let body = format!(
            "echo run >> {}; while [ ! -e {} ]; do sleep 0.02; done; echo change >> README.md",
            runs.display(),
            go.display()
        );
        served.house.process_lane("edit", &body, r#"{"reply":"Added a line."}"#);
        let slug = served.house.link();
        let task = served.house.task(&slug, LANE, "Say more");
        Self { served, task, runs, go }
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(&self.runs).unwrap_or_default().lines().count()
    }

    fn go(&self) {
        std::fs::write(&self.go, "").unwrap();
    }

    fn kept(&self, name: &str) -> usize {
        let folder = self.served.home_of(name).join(format!("results/worker-{name}"));
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|e| e.path().extension().is_some_and(|e| e == "json")).count()
    }

    /// The task is in review after one run, which was claimed once and ended once.
    fn assert_once(&self) {
        assert_eq!(self.runs(), 1, "the lane ran again");
        let said =
            self.served.house.json(&["events", "--task", &self.task, "--last", "100", "--json"]);
        let kinds: Vec<&str> =
            said["events"].as_array().unwrap().iter().filter_map(|e| e["kind"].as_str()).collect();
        for kind in ["run.claimed", "run.started", "run.finished"] {
            assert_eq!(kinds.iter().filter(|k| **k == kind).count(), 1, "{kinds:?}");
        }
        assert_eq!(self.served.house.state(&self.task), "review");
    }
}

#[test]
fn a_lane_runs_on_while_the_site_is_away_and_its_work_is_recorded_when_it_is_back() {
    let mut stand = Stand::new();
    let worker = stand.served.work("a", &WORK);
    worker.until("the lane", || stand.runs() == 1);
    stand.served.kill();
    stand.go();
    worker.until("the commit", || worker.said().contains("commit"));
    worker.until("the word", || worker.said().contains("the site is away since"));
    worker.until("what is kept", || stand.kept("a") == 1);
    stand.served.start();
    worker.until("the end", || stand.served.house.state(&stand.task) == "review");
    worker.until("the word", || worker.said().contains("the site is back after"));
    stand.assert_once();
    worker.until("an empty outbox", || stand.kept("a") == 0);
    assert_eq!(worker.said().matches("the site is away").count(), 1, "{}", worker.said());
}

#[test]
fn a_commit_that_could_not_be_recorded_outlives_its_worker() {
    let mut stand = Stand::new();
    let mut worker = stand.served.work("a", &WORK);
    worker.until("the lane", || stand.runs() == 1);
    stand.served.kill();
    stand.go();
    worker.until("what is kept", || stand.kept("a") == 1);
    worker.signal(Signal::KILL);
    worker.ended();
    stand.served.start();
    // It goes on from the commit: the lane is not run again.
    stand.served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]).ok();
    assert_eq!(stand.served.house.state(&stand.task), "review");
    assert_eq!((stand.runs(), stand.kept("a")), (1, 0));
}

#[test]
fn a_result_whose_worker_was_killed_is_handed_in_by_the_next_before_it_registers() {
    let stand = Stand::new();
    stand.served.proxy.only("/release", Fate::Silent);
    let mut worker = stand.served.work("a", &WORK);
    stand.go();
    worker.until("the result", || stand.served.proxy.count("/release") > 0);
    assert_eq!(stand.kept("a"), 1);
    worker.signal(Signal::KILL);
    worker.ended();
    assert_eq!(stand.served.house.state(&stand.task), "running");
    stand.served.proxy.all(Fate::Pass);
    let next = stand.served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]);
    assert!(next.err.contains("was handed in: the task is review"), "{}", next.err);
    assert_eq!(stand.kept("a"), 0);
    stand.assert_once();
}

#[test]
fn a_result_whose_answer_was_lost_is_taken_once() {
    let stand = Stand::new();
    stand.served.proxy.only("/release", Fate::LoseAnswer);
    let worker = stand.served.work("a", &WORK);
    stand.go();
    worker.until("it is told again", || stand.served.proxy.count("/release") > 2);
    assert_eq!(stand.kept("a"), 1, "it is not known to be taken");
    stand.served.proxy.all(Fate::Pass);
    worker.until("an empty outbox", || stand.kept("a") == 0);
    stand.assert_once();
}

#[test]
fn a_worker_told_to_stop_keeps_the_result_and_says_so() {
    let stand = Stand::new();
    stand.served.proxy.only("/release", Fate::Page(502, None));
    let mut worker = stand.served.work("a", &WORK);
    stand.go();
    worker.until("the result", || stand.served.proxy.count("/release") > 0);
    worker.signal(Signal::TERM);
    worker.until("the drain", || worker.said().contains("running jobs finish"));
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    assert!(worker.said().contains("the result is kept, and the next `relay work` hands it in"));
    assert_eq!(stand.kept("a"), 1);
    stand.served.proxy.all(Fate::Pass);
    stand.served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]).ok();
    assert_eq!(stand.kept("a"), 0);
    stand.assert_once();
}

#[test]
fn a_result_nobody_waits_for_any_more_is_let_go_and_that_is_said() {
    let stand = Stand::new();
    stand.served.proxy.only("/release", Fate::Silent);
    let mut worker = stand.served.work("a", &WORK);
    stand.go();
    worker.until("the result", || stand.served.proxy.count("/release") > 0);
    worker.signal(Signal::KILL);
    worker.ended();
    stand.served.house.relay(&["task", "cancel", &stand.task]).ok();
    stand.served.proxy.all(Fate::Pass);
    let next = stand.served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]);
    assert!(next.err.contains("is not waited for any more"), "{}", next.err);
    assert_eq!((next.code, stand.kept("a")), (0, 0));
    assert_eq!(stand.served.house.state(&stand.task), "cancelled");
}
