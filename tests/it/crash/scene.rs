//! A machine on which a worker dies at a named point, and what has to hold of it afterwards.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use relay::model::{Effect, TaskId};
use relay::store::Store;
use serde_json::Value;

use crate::support::house::{House, only_has, processes_with};

pub const LANE: &str = "process:edit";
/// Writes down under which epoch it runs, and changes a file.
const EDIT: &str = "printf '%s\\n' \"$line\" | sed 's/.*\"attempt\":\\([0-9]*\\).*/\\1/' >> RUNS; echo x >> README.md";
const DONE: &str = r#"{"reply":"Added a line."}"#;

/// One machine with a lane that counts its runs.
pub struct Scene {
    pub house: House,
    runs: PathBuf,
}

impl Scene {
    pub fn new() -> Self {
        let house = House::new();
        let runs = house.dir.path().join("runs");
        let scene = Self { house, runs };
        scene.lane("");
        scene
    }

    /// The lane does this before its change.
    pub fn lane(&self, first: &str) {
        let edit = EDIT.replace("RUNS", self.runs.to_str().unwrap());
        self.house.process_lane("edit", &format!("{first}\n{edit}"), DONE);
    }

    /// A linked repository with one task.
    pub fn with_task(&self) -> String {
        let slug = self.house.link();
        self.house.task(&slug, LANE, "Say more")
    }

    /// Runs a command that has to die of this fault; false where it got by without coming there.
    pub fn dies(&self, fault: &str, args: &[&str]) -> bool {
        let mut command = self.house.command(args);
        let out = command.env("RELAY_FAULT", fault).output().unwrap();
        if out.status.signal() == Some(9) {
            return true;
        }
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!said.contains("RELAY_FAULT"), "{fault}: {:?}\n{said}", out.status);
        false
    }

    /// A worker that drains the queue and has to die of this fault.
    pub fn worker_dies(&self, fault: &str) -> bool {
        self.dies(fault, &["work", "--once", "--name", "w", "--lanes", LANE])
    }

    /// The same worker, started again by whatever looks after it.
    pub fn drain(&self) {
        self.house.relay(&["work", "--once", "--name", "w", "--lanes", LANE]).ok();
    }

    /// The epochs under which the lane ran.
    pub fn runs(&self) -> Vec<i64> {
        let text = std::fs::read_to_string(&self.runs).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Nothing of any run is left: no process, copy, claim, lock or half-written file.
    pub fn assert_clean(&self, why: &str) {
        let root = self.house.dir.path().to_str().unwrap();
        assert_eq!(processes_with(root), Vec::<String>::new(), "{why}");
        assert_eq!(only_has(&self.house.home.join("work"), &[]), Vec::<String>::new(), "{why}");
        let lock = File::open(self.house.home.join("relay.lock")).unwrap();
        lock.try_lock().unwrap_or_else(|e| panic!("{why}: the home is still locked: {e}"));
        drop(lock);
        let mut half_written = Vec::new();
        for tree in [&self.house.home, &self.house.repo] {
            walk(tree, &mut |path| {
                let name = path.file_name().unwrap().to_string_lossy();
                let half = name.ends_with(".lock") && name != "relay.lock"
                    || relay::files::is_unfinished(&name)
                    || name.ends_with(".new")
                    || name.starts_with("tmp_")
                    || name.contains("incoming-");
                // An empty file that is locked while it is used.
                if half && !(name.ends_with(".lock") && unused_lock(path)) {
                    half_written.push(path.to_owned());
                }
            });
        }
        assert_eq!(half_written, Vec::<PathBuf>::new(), "{why}");
    }

    /// What every history of one task has to show, whatever died in the middle of it.
    pub fn assert_history(&self, task: &str, why: &str) -> Value {
        let detail = self.house.json(&["task", "get", task, "--json"]);
        let said = self.house.json(&["events", "--task", task, "--last", "1000", "--json"]);
        let (mut last, mut live) = (0, false);
        for event in said["events"].as_array().unwrap() {
            let kind = event["kind"].as_str().unwrap();
            match kind {
                "run.claimed" => {
                    let epoch = event["data"]["epoch"].as_i64().unwrap();
                    assert!(!live && epoch == last + 1, "{why}: {said:#}");
                    (last, live) = (epoch, true);
                }
                "lease.expired" | "run.finished" | "run.failed" | "task.cancelled"
                | "task.done" => live = false,
                _ => {}
            }
        }
        assert!(!live, "{why}: a lease is still live: {said:#}");
        assert_eq!(detail["task"]["epoch"], last, "{why}");
        let journal = self.journal(task);
        let first = |want: fn(&Effect) -> bool| {
            journal.iter().filter(|(_, effect)| want(effect)).map(|(epoch, _)| *epoch).min()
        };
        if let Some(committed) = first(|e| matches!(e, Effect::Committed { .. })) {
            let runs = self.runs();
            assert!(runs.iter().all(|epoch| *epoch <= committed), "{why}: {runs:?} {journal:?}");
            let pushes = journal.iter().filter(|(_, e)| matches!(e, Effect::Pushed { .. }));
            assert!(pushes.count() <= 1, "{why}: {journal:?}");
        }
        detail
    }

    fn journal(&self, task: &str) -> Vec<(i64, Effect)> {
        let id: TaskId = task.parse().unwrap();
        let url = format!("sqlite://{}", self.house.home.join("relay.db").display());
        let reading = async {
            let store = Store::open(&url).await.unwrap();
            let journal = store.journal(&id).await.unwrap();
            store.close().await;
            journal.into_iter().map(|entry| (entry.epoch.0, entry.effect)).collect()
        };
        // In a thread of its own: the caller may be inside a runtime.
        let read = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap().block_on(reading)
        };
        std::thread::scope(|scope| scope.spawn(read).join().unwrap())
    }

    /// The one branch, with one commit of relay's on it, that the task became.
    pub fn assert_local_review(&self, task: &str, why: &str) {
        let detail = self.assert_history(task, why);
        assert_eq!(detail["task"]["state"], "review", "{why}: {detail:#}");
        assert!(detail["local_pull"]["diff"].as_str().unwrap().contains("+x"), "{why}");
        let comment = detail["local_pull"]["comment"].as_str().unwrap_or_default();
        assert!(comment.contains("Added a line."), "{why}: {detail:#}");
        let heads = self.house.in_repo(&["for-each-ref", "--format=%(refname)", "refs/heads"]);
        assert_eq!(heads, "refs/heads/main\nrefs/heads/relay/process-edit-1", "{why}");
        let count = ["rev-list", "--count", "main..relay/process-edit-1"];
        assert_eq!(self.house.in_repo(&count), "1", "{why}");
        let head = self.house.in_repo(&["rev-parse", "relay/process-edit-1"]);
        assert_eq!(detail["local_pull"]["head"], head, "{why}");
    }
}

fn unused_lock(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.len() == 0)
        && File::open(path).is_ok_and(|file| file.try_lock().is_ok())
        && !path.components().any(|part| part.as_os_str() == ".git")
}

fn walk(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        visit(&entry.path());
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), visit);
        }
    }
}
