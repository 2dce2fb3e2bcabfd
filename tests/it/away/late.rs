//! An answer to a claim that comes after a person told the worker otherwise: the task is given back.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use crate::support::house::Working;
use crate::support::proxy::Fate;
use crate::support::served::Served;

/// A worker whose first claim of `process:edit` was made, and its answer lost.
struct Stand {
    served: Served,
    worker: Working,
    task: String,
    slug: String,
    runs: PathBuf,
}

impl Stand {
    /// `then` is what becomes of the claims after it.
    fn new(then: Fate) -> Self {
        let served = Served::new();
        let runs = served.house.dir.path().join("runs");
        let body = format!("echo run >> {}; echo x >> README.md", runs.display());
        served.house.process_lane("edit", &body, r#"{"reply":"Done."}"#);
        served.house.process_lane("other", "echo y >> README.md", r#"{"reply":"Done."}"#);
        let slug = served.house.link();
        let lost = AtomicBool::new(false);
        served.proxy.by(move |path| match path.contains("/work/claim") {
            true if !lost.swap(true, Ordering::Relaxed) => Fate::LoseAnswer,
            true => then.clone(),
            false => Fate::Pass,
        });
        let task = served.house.task(&slug, "process:edit", "Say more");
        let worker = served.work("a", &["--lanes", "process:edit,process:other"]);
        worker.until("another claim", || served.proxy.count("/work/claim") >= 2);
        assert_eq!(served.house.state(&task), "claimed");
        Self { served, worker, task, slug, runs }
    }

    fn was_given_back(&self) {
        assert_eq!(self.served.house.state(&self.task), "queued", "{}", self.worker.said());
        assert!(!self.runs.exists(), "it ran: {}", self.worker.said());
        let detail = self.served.house.json(&["task", "get", &self.task, "--json"]);
        let error = detail["runs"][0]["error"].as_str().unwrap();
        assert!(error.contains("paused or told to end"), "{detail:#}");
    }
}

#[test]
fn a_claim_of_a_lane_that_was_paused_meanwhile_is_given_back() {
    // It is left alone after that, and goes back to the bell.
    let stand = Stand::new(Fate::Page(413, None));
    let (served, worker) = (&stand.served, &stand.worker);
    worker.until("the failure", || worker.said().contains("could not claim"));
    served.house.relay(&["work", "pause", "a", "--lane", "process:edit"]).ok();
    worker.until("the pause", || worker.said().contains("process:edit paused by"));
    served.proxy.all(Fate::Pass);
    let other = served.house.task(&stand.slug, "process:other", "Say less");
    worker.until("the other lane", || served.house.state(&other) == "review");
    stand.was_given_back();
    served.house.relay(&["work", "resume", "a"]).ok();
    worker.until("its run", || served.house.state(&stand.task) == "review");
}

#[test]
fn a_claim_that_is_answered_while_the_worker_ends_is_given_back() {
    let mut stand = Stand::new(Fate::Page(502, None));
    stand.worker.signal(Signal::TERM);
    let worker = &stand.worker;
    worker.until("the drain", || worker.said().contains("nothing new is taken"));
    stand.served.proxy.all(Fate::Pass);
    assert_eq!(stand.worker.ended(), 0, "{}", stand.worker.said());
    stand.was_given_back();
}
