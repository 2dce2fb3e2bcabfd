//! What the program itself says: its words, its exit codes, its streams. Every run has a home and
//! an environment of its own.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use tempfile::TempDir;

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

    /// A shell script in the folder that [`Machine::doctor`] has for its PATH.
    fn program(&self, name: &str, script: &str) {
        let folder = self.home().join("bin");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn doctor(&self) -> serde_json::Value {
        let mut command = self.command(&["doctor", "--json"]);
        let output = command.env("PATH", self.home().join("bin")).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Exit code, stdout and stderr as one text, with this machine's folder named `$HOME`.
    fn run(&self, args: &[&str]) -> String {
        self.run_with(args, &[])
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
    hint: relay lane ls (this version has `claude` and `process:NAME`)
    ");
    assert_snapshot!(create("process:edit"), @"
    exit 3
    --- stderr
    error: there is no lane `process:edit`: $HOME/.harness/lanes/edit.json: No such file or directory (os error 2)
    hint: relay lane ls
    ");
    let lanes = machine.home().join(".harness/lanes");
    std::fs::create_dir_all(&lanes).unwrap();
    std::fs::write(lanes.join("edit.json"), "{\"command\": \"relative\"}").unwrap();
    assert_snapshot!(create("process:edit"), @r#"
    exit 2
    --- stderr
    error: the lane `process:edit`: $HOME/.harness/lanes/edit.json: `command` is not an absolute path: `relative`
    hint: {"command": "/absolute/program", "args": [], "env": []} is a whole one
    "#);
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

/// The programs that doctor tries are what stands on PATH; each refusal shows what was said and
/// what mends it.
#[test]
fn doctor_tries_the_programs_and_says_what_mends_them() {
    let machine = Machine::new();
    machine.program("git", "echo git version 2.20.1");
    machine.program("gh", "echo '{\"hosts\":{}}'");
    for name in ["bwrap", "unshare", "setpriv"] {
        machine.program(name, "echo no namespaces for you >&2; exit 1");
    }
    machine.program("claude", "exit 1");
    let doctor = machine.doctor();
    assert_eq!(doctor["ok"], false);
    let check = |name: &str| -> String {
        let checks = doctor["checks"].as_array().unwrap();
        let check = checks.iter().find(|c| c["name"] == name).unwrap();
        ["state", "seen", "mend"].map(|field| check[field].as_str().unwrap_or("-")).join(" | ")
    };
    assert_eq!(check("git"), "fail | git version 2.20.1 is too old | install git 2.31 or newer");
    assert!(check("github").starts_with("warn | github.com: gh has no login | gh auth login"));
    // root gets unshare, an ordinary user bubblewrap.
    let refused = check("box");
    assert!(refused.starts_with("fail | ") && refused.contains(": no namespaces for you | allow"));
    let sandbox = check("claude's sandbox");
    assert_eq!(sandbox, "fail | not on PATH: socat | sudo apt install bubblewrap socat");
    machine.program("socat", "exit 0");
    machine.program("bwrap", "exit 0");
    machine.program("setpriv", "exit 0");
    machine.program("git", "echo git version 2.31.0");
    let mended = machine.doctor();
    let checks = mended["checks"].as_array().unwrap();
    for name in ["git", "box", "claude's sandbox"] {
        assert!(checks.iter().any(|c| c["name"] == name && c["state"] == "ok"), "{mended}");
    }
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
