//! A repository on a GitHub of the test's own, a lane that counts its runs outside, and what each
//! refusal has to leave behind.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::hosted::Hosted;
use crate::support::repo::git;

pub const DONE: &str = r#"{"reply":"Said more."}"#;
pub const B: &str = "relay/process-edit-1";

/// `acme/shop` with one task for the lane `process:edit`.
pub struct Shop {
    pub at: Hosted,
    pub task: String,
}

impl Shop {
    /// The lane does `body` in its copy.
    pub async fn new(files: &[(&str, &str)], body: &str) -> Self {
        let at = Hosted::new(files).await;
        at.shop.has_files(&at.origin.bare);
        let runs = at.house.dir.path().join("runs");
        at.house.process_lane("edit", &format!("echo run >> {}; {body}", runs.display()), DONE);
        let task = at.task("process:edit", "Say more");
        Self { at, task }
    }

    /// As [`Shop::new`], with a lane that waits until [`Shop::meanwhile`] lets it go on.
    pub async fn waiting(files: &[(&str, &str)], body: &str) -> Self {
        let shop = Self::new(files, ":").await;
        let [begun, go, runs] = ["begun", "go", "runs"].map(|name| shop.place(name));
        let (begun, go, runs) = (begun.display(), go.display(), runs.display());
        let wait = format!("touch {begun}; while [ ! -e {go} ]; do sleep 0.02; done");
        shop.at.house.process_lane("edit", &format!("echo run >> {runs}; {wait}; {body}"), DONE);
        shop
    }

    fn place(&self, name: &str) -> PathBuf {
        self.at.house.dir.path().join(name)
    }

    /// One worker until nothing is queued.
    pub fn work(&self) {
        let args = ["work", "--once", "--name", "w", "--lanes", "process:edit"];
        self.at.house.relay(&args).ok();
    }

    /// A worker, and something that happens while its lane runs.
    pub fn meanwhile(&self, happens: impl FnOnce()) {
        let args = ["--once", "--name", "w", "--lanes", "process:edit"];
        let mut worker = self.at.house.work(&args);
        let begun = self.place("begun");
        worker.until("the lane", || begun.exists());
        happens();
        fs::write(self.place("go"), "").unwrap();
        assert_eq!(worker.ended(), 0, "{}", worker.said());
    }

    /// How often the lane ran.
    pub fn runs(&self) -> usize {
        fs::read_to_string(self.place("runs")).map_or(0, |text| text.lines().count())
    }

    pub fn detail(&self) -> Value {
        self.at.house.json(&["task", "get", &self.task, "--json"])
    }

    /// The last run was refused for this reason, a person is told what to do, and event, run and
    /// task agree. Gives the bundle.
    #[track_caller]
    pub fn assert_refused(&self, reason: &str) -> Option<String> {
        let detail = self.detail();
        assert_refused(&self.at.house, &detail, reason)
    }

    /// Works, and is refused so; the work is kept, and is the lane's change to `files`.
    #[track_caller]
    pub fn refused_and_kept(&self, reason: &str, files: &[&str]) {
        self.work();
        let bundle = self.assert_refused(reason).expect("a bundle");
        assert_eq!(self.in_bundle(&bundle), files);
    }

    /// What a bundle changes, read in a person's clone.
    pub fn in_bundle(&self, bundle: &str) -> Vec<String> {
        let person = &self.at.origin.person;
        git(person, &["fetch", "-q", bundle, B]);
        let changed = git(person, &["diff", "--name-only", "FETCH_HEAD^", "FETCH_HEAD"]);
        changed.lines().map(str::to_owned).collect()
    }

    pub fn retry(&self) {
        self.at.house.relay(&["task", "retry", &self.task]).ok();
    }

    /// A retry delivers what is there, and the lane has run `runs` times in all.
    #[track_caller]
    pub fn assert_retry_delivers(&self, runs: usize, files: &[&str]) {
        let bundle = self.detail()["runs"][0]["kept"].as_str().map(PathBuf::from);
        self.retry();
        self.work();
        self.assert_delivered(runs, files);
        assert!(bundle.is_none_or(|path| !path.exists()), "the bundle outlived the delivery");
    }

    /// The task is in review, and its pull request shows the lane's change alone.
    #[track_caller]
    pub fn assert_delivered(&self, runs: usize, files: &[&str]) {
        let detail = self.detail();
        assert_eq!(detail["task"]["state"], "review", "{detail:#}");
        assert_eq!(self.runs(), runs, "{detail:#}");
        let pull = detail["task"]["pr"].as_u64().expect("a pull request");
        assert_eq!(self.pull_shows(pull), files);
        assert_eq!(self.at.shop.comments(pull).len(), 1);
    }

    /// The files of a pull request, as GitHub shows them: from where the branches parted.
    pub fn pull_shows(&self, number: u64) -> Vec<String> {
        let base = self.at.shop.base_of(number);
        let range = format!("{base}...{B}");
        let shown = git(&self.at.origin.bare, &["diff", "--name-only", &range]);
        shown.lines().map(str::to_owned).collect()
    }

    /// A hook of the host's repository.
    pub fn hook(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.at.origin.bare.join("hooks").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn unhook(&self, name: &str) {
        fs::remove_file(self.at.origin.bare.join("hooks").join(name)).unwrap();
    }
}

/// What holds for each refusal, whatever its reason.
#[track_caller]
pub fn assert_refused(
    house: &crate::support::house::House,
    detail: &Value,
    reason: &str,
) -> Option<String> {
    let run = &detail["runs"][0];
    let stop = &run["stop_reason"];
    let said =
        format!("{} ({})", stop["reason"].as_str().unwrap(), stop["why"].as_str().unwrap_or("-"));
    assert_eq!(said, reason, "{detail:#}");
    assert_eq!(detail["task"]["state"], "failed", "{detail:#}");
    let error = run["error"].as_str().expect("an error");
    assert!(error.contains("(hint: ") && !error.contains("TASK"), "{error}");
    assert!(!error.contains("token-of"), "{error}");
    let task = detail["task"]["id"].as_str().unwrap();
    let events = house.json(&["events", "--task", task, "--json"]);
    let told = events["events"].as_array().unwrap();
    let failed = told.iter().rfind(|event| event["kind"] == "run.failed").expect("an event");
    assert_eq!((&failed["data"]["stop"], &failed["data"]["kept"]), (stop, &run["kept"]));
    let kept = run["kept"].as_str().map(str::to_owned);
    if let Some(kept) = &kept {
        let shown = house.relay(&["task", "get", task]).ok();
        assert!(shown.contains(kept.as_str()), "{shown}");
    }
    kept
}
