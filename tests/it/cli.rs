//! What the program itself says: its words, its exit codes, its streams. Every run has a home and
//! an environment of its own.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use relay::api::{EventsAnswer, TaskDetail, Tasks};
use relay::model::{Project, Task, WaitReason};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

mod lanes;

/// Does what its task's title says.
const LANE: &str = r#"
read -r line
field() { printf '%s' "$line" | sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"; }
[ "$(field title)" != edit ] || echo hello > "$(field workdir)/HELLO"
printf '{"schemaVersion":1,"jobKey":"%s","result":{"reply":"said hello"}}\n' "$(field jobKey)""#;

/// A machine with nothing on it: an empty home and no settings.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn home(&self) -> &Path {
        self.root.path()
    }

    fn command(&self, args: &[&str]) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test is started")]
        let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
        command
            .args(args)
            .current_dir(self.home())
            .env_clear()
            .env("HOME", self.home())
            .env("USER", "ada")
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// A bare repository with one commit in the working folder.
    fn repository(&self, name: &str) {
        let source = self.home().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("README.md"), "# shop\n").unwrap();
        self.git(&["init", "-q", "-b", "main", "source"]);
        self.git(&["-C", "source", "add", "."]);
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.invalid"];
        self.git(&[&["-C", "source"], &identity[..], &["commit", "-qm", "first"]].concat());
        self.git(&["clone", "-q", "--bare", "source", &format!("{name}.git")]);
    }

    fn git(&self, args: &[&str]) {
        #[expect(clippy::disallowed_methods, reason = "a repository is made for the test")]
        let mut git = Command::new("git");
        git.args(args).current_dir(self.home()).env("HOME", self.home());
        git.env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.status().unwrap().success(), "git {args:?}");
    }

    /// A lane that is configured and never run here.
    fn process_lane(&self, name: &str) {
        let lanes = self.home().join(".harness/lanes");
        std::fs::create_dir_all(&lanes).unwrap();
        let config = "{\"command\": \"/bin/true\", \"args\": [], \"env\": []}";
        std::fs::write(lanes.join(format!("{name}.json")), config).unwrap();
    }

    /// What a command prints with `--json`.
    fn json<T: DeserializeOwned>(&self, args: &[&str]) -> T {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A shell script in the folder that [`Machine::doctor`] has for its PATH.
    fn program(&self, name: &str, script: &str) {
        let folder = self.home().join("bin");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn doctor(&self) -> serde_json::Value {
        let mut command = self.command(&["doctor", "--json", "--patience", "60"]);
        let output = command.env("PATH", self.home().join("bin")).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Exit code, stdout and stderr as one text, with this machine's folder named `$HOME`.
    fn run(&self, args: &[&str]) -> String {
        self.run_with(args, &[])
    }

    /// [`Machine::run`] where times stand in the text: they become `[time]`, and columns, which move
    /// with them, are told apart by one blank.
    fn run_timed(&self, args: &[&str]) -> String {
        let mut shown = String::new();
        for line in self.run(args).lines() {
            let line = line.replace("just now", "[time]");
            let words: Vec<&str> = line.split_whitespace().collect();
            shown.push_str(&words.join(" "));
            shown.push('\n');
        }
        let mut shown = shown.replace("1s ago", "[time]").replace("2s ago", "[time]");
        if let Some(at) = shown.find("made 20") {
            shown.replace_range(at..at + "made 2026-11-29 15:24:05 UTC".len(), "made [time]");
        }
        shown
    }

    fn run_with(&self, args: &[&str], env: &[(&str, &OsStr)]) -> String {
        let output = self.command(args).envs(env.iter().copied()).output().unwrap();
        let mut text = format!("exit {}\n", output.status.code().unwrap());
        for (name, bytes) in [("stdout", output.stdout), ("stderr", output.stderr)] {
            let said = String::from_utf8(bytes).unwrap();
            if !said.is_empty() {
                text.push_str(&format!("--- {name}\n{said}"));
            }
        }
        let real = self.home().canonicalize().unwrap();
        text.replace(real.to_str().unwrap(), "$HOME")
            .replace(self.home().to_str().unwrap(), "$HOME")
    }
}

#[test]
fn a_wrong_command_line_is_told_what_is_right() {
    let machine = Machine::new();
    assert_snapshot!(machine.run(&["task", "create", "--repo", "acme"]), @"
    exit 2
    --- stderr
    error: invalid value 'acme' for '--repo <SLUG>': `acme` is not a repository (`owner/name`)

    For more information, try '--help'.
    ");
    assert_snapshot!(machine.run(&["task", "get", "acme/shop#007"]), @"
    exit 2
    --- stderr
    error: invalid value 'acme/shop#007' for '<ID>': `acme/shop#007` is not a task id (`owner/repo#12` or `owner/repo#12:lane`)

    For more information, try '--help'.
    ");
    assert_snapshot!(machine.run(&["task", "ls", "--state", "open"]), @"
    exit 2
    --- stderr
    error: invalid value 'open' for '--state <STATE>': `open` is not a task state (queued, claimed, running, review, failed, done, parked, cancelled)

    For more information, try '--help'.
    ");
    assert_snapshot!(machine.run(&["prefer", "lane.labels"]), @"
    exit 2
    --- stderr
    error: give `lane.labels` a value, or --unset
    ");
}

#[test]
fn a_wrong_setting_is_named() {
    let machine = Machine::new();
    let site = [("RELAY_SITE", OsStr::new("relay.example"))];
    assert_snapshot!(machine.run_with(&["task", "ls"], &site), @"
    exit 2
    --- stderr
    error: RELAY_SITE: `relay.example` is not a site (`https://host`, `http://host:port` or `unix:/absolute/path`)
    ");
    let gone = [("RELAY_SITE", OsStr::new("unix:/nowhere/relay.sock"))];
    assert_snapshot!(machine.run_with(&["task", "ls"], &gone), @"
    exit 5
    --- stderr
    error: the site at unix:/nowhere/relay.sock could not be reached: No such file or directory (os error 2)
    hint: is `relay work` still running? `relay work status` shows it
    ");
}

#[test]
fn a_lane_nobody_can_serve_is_refused_where_it_is_typed() {
    let machine = Machine::new();
    let create = |lane| {
        machine.run(&["task", "create", "--repo", "local/a", "--title", "t", "--lane", lane])
    };
    assert_snapshot!(create("cobol"), @"
    exit 3
    --- stderr
    error: there is no lane `cobol`
    hint: relay lane ls (this version has `claude`, `codex`, `grok` and `process:NAME`)
    ");
    assert_snapshot!(create("process:edit"), @"
    exit 3
    --- stderr
    error: there is no lane `process:edit`: $HOME/.harness/lanes/edit.json: No such file or directory (os error 2)
    hint: that file names the lane's program; docs/LANES.md shows how to write one
    ");
    let lanes = machine.home().join(".harness/lanes");
    std::fs::create_dir_all(&lanes).unwrap();
    std::fs::write(lanes.join("edit.json"), "{\"command\": \"relative\"}").unwrap();
    assert_snapshot!(create("process:edit"), @r#"
    exit 2
    --- stderr
    error: the lane `process:edit`: $HOME/.harness/lanes/edit.json: `command` is not an absolute path: `relative`
    hint: {"command": "/absolute/program"} is enough; the rest is in docs/LANES.md
    "#);
    assert_snapshot!(create("edit"), @"
    exit 3
    --- stderr
    error: there is no lane `edit`
    hint: --lane process:edit
    ");
}

#[test]
fn what_cannot_be_linked_says_why() {
    let machine = Machine::new();
    assert_snapshot!(machine.run(&["link", "./nowhere"]), @"
    exit 3
    --- stderr
    error: `./nowhere`: No such file or directory (os error 2)
    hint: give OWNER/REPO for a repository on GitHub, or the path of one on this disk
    ");
    std::fs::create_dir_all(machine.home().join("acme/shop")).unwrap();
    assert_snapshot!(machine.run(&["link", "acme/shop"]), @"
    exit 2
    --- stderr
    error: `acme/shop` is a folder here and could be a repository on GitHub
    hint: for the folder: relay link ./acme/shop
    ");
}

#[test]
fn completions_need_no_settings_at_all() {
    let machine = Machine::new();
    let output = machine.command(&["completions", "bash"]).env_clear().output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("complete -F _relay"));
}

#[test]
fn a_task_from_its_making_to_its_end_with_nobody_working() {
    let machine = Machine::new();
    machine.repository("shop");
    machine.process_lane("edit");
    assert_snapshot!(machine.run(&["link", "shop.git"]), @r#"
    exit 0
    --- stdout
    local/shop
    --- stderr
    next: relay task create --repo local/shop --lane process:NAME --title "…"
    "#);
    assert_snapshot!(machine.run(&["task", "create", "--repo", "local/shop", "--lane", "process:edit", "--title", "Say hello"]), @"
    exit 0
    --- stdout
    local/shop#1
    --- stderr
    next: relay work
    ");
    assert_snapshot!(machine.run_timed(&["task", "ls"]), @"
    exit 0
    --- stdout
    STATE TASK LANE CHANGED WHY TITLE
    queued local/shop#1 process:edit [time] Say hello
    ");
    assert_snapshot!(machine.run_timed(&["task", "get", "local/shop#1"]), @"
    exit 0
    --- stdout
    local/shop#1 Say hello
    state queued, [time]
    waits no worker is there: start one with `relay work`
    lane process:edit
    asked by ada
    made [time]
    ");
    assert_snapshot!(machine.run(&["task", "log", "local/shop#1"]), @"
    exit 0
    --- stderr
    local/shop#1 has not run: it is queued
    ");
    assert_snapshot!(machine.run(&["task", "cancel", "local/shop#1"]), @"
    exit 0
    --- stdout
    local/shop#1 is cancelled
    ");
    assert_snapshot!(machine.run(&["task", "ls", "--state", "queued"]), @"
    exit 0
    --- stderr
    no queued tasks
    ");
    assert_snapshot!(machine.run(&["task", "retry", "local/shop#1"]), @"
    exit 0
    --- stdout
    local/shop#1 is queued
    ");
    assert_snapshot!(machine.run(&["task", "done", "local/shop#1"]), @"
    exit 0
    --- stdout
    local/shop#1 is done
    ");
    assert_snapshot!(machine.run(&["task", "cancel", "local/shop#1"]), @"
    exit 4
    --- stderr
    error: task `local/shop#1` is done: there is nothing to call off
    hint: `relay task get 'local/shop#1'` shows how it stands
    ");
}

#[test]
fn what_is_not_there_is_named() {
    let machine = Machine::new();
    machine.process_lane("edit");
    assert_snapshot!(machine.run(&["task", "create", "--repo", "local/shop", "--lane", "process:edit", "--title", "t"]), @"
    exit 3
    --- stderr
    error: no project `local/shop`
    hint: link the repository first: `relay link PATH` or `relay link OWNER/REPO`
    ");
    assert_snapshot!(machine.run(&["task", "get", "local/shop#1"]), @"
    exit 3
    --- stderr
    error: no task `local/shop#1`
    hint: `relay task ls` lists the tasks
    ");
    std::fs::create_dir(machine.home().join("plain")).unwrap();
    assert_snapshot!(machine.run(&["link", "./plain"]), @"
    exit 2
    --- stderr
    error: $HOME/plain: not a git repository
    hint: name the folder that holds `.git`, or a bare repository
    ");
    assert_snapshot!(machine.run(&["link", "acme/shop"]), @"
    exit 5
    --- stderr
    error: github.com: no login
    hint: log in with `gh auth login`, or set RELAY_GITHUB_TOKEN; or, for a folder: relay link ./acme/shop
    ");
}

#[test]
fn preferences_are_set_listed_and_taken_away() {
    let machine = Machine::new();
    machine.repository("shop");
    machine.run(&["link", "shop.git"]);
    let gpu = ["prefer", "lane.labels", "gpu", "--scope", "project", "--scope-id", "local/shop"];
    assert_snapshot!(machine.run(&gpu), @"
    exit 0
    --- stdout
    KEY          SCOPE               VALUE
    lane.labels  project local/shop  gpu
    ");
    assert_snapshot!(machine.run(&["prefer", "lane.labels", "xcode,gpu"]), @"
    exit 0
    --- stdout
    KEY          SCOPE               VALUE
    lane.labels  global              xcode,gpu
    lane.labels  project local/shop  gpu
    ");
    assert_snapshot!(machine.run(&["prefer", "--json"]), @r#"
    exit 0
    --- stdout
    {
      "preferences": [
        {
          "key": "lane.labels",
          "scope": {
            "scope": "global"
          },
          "value": "xcode,gpu"
        },
        {
          "key": "lane.labels",
          "scope": {
            "scope": "project",
            "slug": "local/shop"
          },
          "value": "gpu"
        }
      ]
    }
    "#);
    assert_snapshot!(machine.run(&["prefer", "lane.labels", "--unset"]), @"
    exit 0
    --- stdout
    KEY          SCOPE               VALUE
    lane.labels  project local/shop  gpu
    ");
    assert_snapshot!(machine.run(&["prefer", "lane.labels", "no spaces"]), @"
    exit 2
    --- stderr
    error: lane.labels: `no spaces` is not a label (1 to 64 of a-z, 0-9, `.`, `_`, `:`, `-`)
    ");
}

/// Programs read what the API says, under the API's names.
#[test]
fn json_is_the_apis_types() {
    let machine = Machine::new();
    machine.repository("shop");
    machine.process_lane("edit");
    let project: Project = machine.json(&["link", "shop.git", "--json"]);
    assert_eq!(project.slug.to_string(), "local/shop");
    let create =
        ["task", "create", "--repo", "local/shop", "--lane", "process:edit", "--title", "t"];
    let task: Task = machine.json(&[&create[..], &["--json"]].concat());
    assert_eq!((task.id.to_string().as_str(), task.asked_by.as_str()), ("local/shop#1", "ada"));
    let listed: Tasks = machine.json(&["task", "ls", "--json"]);
    assert_eq!(listed.tasks, std::slice::from_ref(&task));
    let detail: TaskDetail = machine.json(&["task", "get", "local/shop#1", "--json"]);
    assert_eq!((detail.task, detail.waiting), (task, vec![WaitReason::NoWorker]));
    let told: EventsAnswer = machine.json(&["events", "--task", "local/shop#1", "--json"]);
    let kinds: Vec<&str> = told.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["task.queued"]);
    let after = told.events[0].seq.to_string();
    let later: EventsAnswer = machine.json(&["events", "--after", &after, "--json"]);
    assert_eq!(later.events, []);
    let status: serde_json::Value = machine.json(&["work", "status", "--json"]);
    assert_eq!(status["running"], false);
    assert_eq!(status["workers"], serde_json::json!([]));
}

/// Somebody follows from before a worker is there until the run has ended, and learns how it did.
#[test]
fn a_follower_sees_the_whole_run_and_how_it_ended() {
    let machine = Machine::new();
    machine.repository("shop");
    machine.program("lane", LANE);
    let config = format!("{{\"command\": \"{}/bin/lane\"}}", machine.home().display());
    machine.process_lane("edit");
    std::fs::write(machine.home().join(".harness/lanes/edit.json"), config).unwrap();
    machine.run(&["link", "shop.git"]);
    let follow = |title: &str, id: &str| {
        let create = ["task", "create", "--repo", "local/shop", "--lane", "process:edit"];
        machine.run(&[&create[..], &["--title", title]].concat());
        let mut follower = machine.command(&["task", "log", id, "--follow"]);
        let follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let worked = machine.run(&["work", "--once"]);
        assert!(worked.starts_with("exit 0"), "{worked}");
        let followed = follower.wait_with_output().unwrap();
        (followed.status.code(), String::from_utf8(followed.stdout).unwrap())
    };
    let (code, log) = follow("edit", "local/shop#1");
    assert_eq!(code, Some(0), "{log}");
    for step in ["== run", "== push", "== pull request"] {
        assert_eq!(log.matches(step).count(), 1, "{step} in {log}");
    }
    let page = machine.run(&["task", "get", "local/shop#1"]);
    for line in ["pull      #1", "  said hello", "+hello", "`git merge relay/process-edit-1`"] {
        assert!(page.contains(line), "{line} in {page}");
    }
    let (code, log) = follow("rest", "local/shop#2");
    assert_eq!(code, Some(8), "{log}");
    let failed = machine.run(&["task", "ls", "--state", "failed"]);
    assert!(failed.contains("no_changes"), "{failed}");
}

/// `relay … | head -0`: the reader is gone before the program writes.
#[test]
fn a_reader_that_went_away_ends_the_program_quietly() {
    let machine = Machine::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = machine.command(&["completions", "bash"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
