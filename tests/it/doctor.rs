//! `relay doctor` and `relay lane ls` on machines whose programs are stand-ins: what each says of
//! the lanes, and that nothing keeps it waiting.

use std::fs;

use serde_json::Value;

use crate::support::house::{House, Ran};
use crate::support::processes::Marked;
use crate::tokens::Site;

const CLAUDE: &str = r#"case "$1" in
--version) echo '2.1.332 (Claude Code)';;
auth) echo '{"loggedIn":true,"authMethod":"claude.ai"}';;
esac"#;
const CODEX: &str = r#"case "$1" in
--version) echo 'codex-cli 0.171.0';;
login) echo 'Logged in using ChatGPT' >&2;;
esac"#;
const GROK: &str = r#"case "$1" in
--version) echo 'grok 1.0.41 (4220f3b224a6)';;
models) echo 'You are logged in with grok.com.';;
esac"#;
const FX: &str = r#"case "$1" in
--version) echo 0.0.5;;
status) echo '{"kind":"status","auth":"Codex subscription","connected_providers":["codex","grok"]}';;
esac"#;

/// A machine with nothing on its PATH but stand-ins.
struct Desk(House);

impl Desk {
    /// With the three vendors' programs, logged in, and what a box is made with.
    fn new() -> Self {
        let desk = Self(House::new());
        desk.program("git", "echo git version 2.47.3");
        desk.program("gh", "echo '{\"hosts\":{}}'");
        for name in ["bwrap", "socat", "setpriv", "unshare"] {
            desk.program(name, "exit 0");
        }
        desk.program("claude", CLAUDE);
        desk.program("codex", CODEX);
        desk.program("grok", GROK);
        desk.codex_login(r#"{"auth_mode":"apikey","OPENAI_API_KEY":"dummy"}"#);
        desk
    }

    fn program(&self, name: &str, script: &str) {
        self.0.program(name, &format!("#!/bin/sh\n{script}\n"));
    }

    /// What stands in codex's file of its login.
    fn codex_login(&self, text: &str) {
        let folder = self.0.dir.path().join(".codex");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("auth.json"), text).unwrap();
    }

    /// A login of fx's.
    fn fx_login(&self, file: &str) {
        let login = r#"{"version":1,"access_token":"a","refresh_token":"r","expires_at_ms":1,"account_id":"ada"}"#;
        self.fx_file(file, login);
    }

    fn fx_settings(&self, text: &str) {
        self.fx_file("settings.json", text);
    }

    fn fx_file(&self, file: &str, text: &str) {
        let folder = self.0.dir.path().join(".fx");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    fn without(&self, name: &str) {
        fs::remove_file(self.0.dir.path().join("bin").join(name)).unwrap();
    }

    fn relay(&self, args: &[&str]) -> Ran {
        let out = self.0.command(args).env("PATH", self.0.dir.path().join("bin")).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: out.status.code().unwrap(), out: text(out.stdout), err: text(out.stderr) }
    }

    /// What doctor says, with all the time that a loaded machine may need.
    fn doctor(&self) -> Value {
        serde_json::from_str(&self.relay(&["doctor", "--json", "--patience", "60"]).out).unwrap()
    }

    fn lane(&self, name: &str) -> Value {
        let report: Value =
            serde_json::from_str(&self.relay(&["lane", "ls", "--json", "--patience", "60"]).ok())
                .unwrap();
        let mut lanes = report["lanes"].as_array().unwrap().iter();
        lanes.find(|lane| lane["lane"] == name).unwrap().clone()
    }
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut checks = report["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report:#}"))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field}: {value:#}"))
}

/// Every program waits until all have been called: one after the other none would ever answer.
#[test]
fn every_program_is_asked_at_the_same_time() {
    const CALLS: [&str; 10] = [
        "git",
        "gh",
        "systemctl",
        "box",
        "claude-version",
        "claude-auth",
        "codex-version",
        "codex-login",
        "grok-version",
        "grok-models",
    ];
    let desk = Desk::new();
    let arrived = desk.0.dir.path().join("arrived");
    fs::create_dir(&arrived).unwrap();
    let wait = |call: &str, answer: &str| {
        format!(
            "there={}; : >\"$there/{call}\"\nfor call in {}; do until [ -e \"$there/$call\" ]; do \
             /bin/sleep 0.02; done; done\n{answer}",
            arrived.display(),
            CALLS.join(" "),
        )
    };
    for (name, answer) in [
        ("git", "echo git version 2.47.3"),
        ("gh", "echo '{\"hosts\":{}}'"),
        ("systemctl", "echo LoadState=not-found"),
    ] {
        desk.program(name, &wait(name, answer));
    }
    // Root's box is the one, anybody else's the other.
    for name in ["bwrap", "unshare", "setpriv"] {
        desk.program(name, &wait("box", "exit 0"));
    }
    // `claude --version` is the call `claude-version`.
    for (name, answer) in [("claude", CLAUDE), ("codex", CODEX), ("grok", GROK)] {
        desk.program(name, &wait(&format!("{name}-${{1#--}}"), answer));
    }
    let report = desk.doctor();
    for lane in ["claude", "codex", "grok"] {
        let check = check(&report, &format!("lane {lane}"));
        assert_eq!(check["state"], "ok", "{report:#}");
    }
    for one in report["checks"].as_array().unwrap() {
        let seen = text(one, "seen");
        assert!(!seen.contains("no answer") && !seen.contains("did not end"), "{one:#}");
    }
    assert_eq!(report["ok"], true, "{report:#}");
}

#[tokio::test]
async fn a_program_that_hangs_for_ever_is_named_and_nothing_of_it_is_left() {
    let desk = Desk::new();
    let mark = Marked::new();
    let hang = format!(
        "trap '' TERM\n(/usr/bin/setsid /bin/sleep 600 {mark} &)\n/bin/sleep 600 {mark} &\n\
         /bin/sleep 600 {mark}",
        mark = mark.mark
    );
    desk.program("claude", &hang);
    desk.program("gh", &hang);
    // The look as a whole has a fifth more time than the program, which a loaded machine may need.
    let reports = [1, 5, 25, 125].map(|patience| {
        move |desk: &Desk| {
            let ran = desk.relay(&["doctor", "--json", "--patience", &patience.to_string()]);
            (patience, serde_json::from_str::<Value>(&ran.out).unwrap())
        }
    });
    let mut reports = reports.iter().map(|report| report(&desk));
    let (patience, report) =
        reports.find(|(_, report)| report.to_string().contains("\"lane claude\"")).unwrap();
    let lane = check(&report, "lane claude");
    assert_eq!(lane["state"], "warn", "{lane:#}");
    let seen = text(lane, "seen");
    assert!(seen.contains(&format!("/bin/claude did not end within {patience}s")), "{seen}");
    assert_eq!(text(lane, "mend"), "relay doctor --patience 30");
    let gh = check(&report, "github");
    assert_eq!(gh["state"], "warn", "{gh:#}");
    assert_eq!(text(gh, "mend"), "relay doctor --patience 30");
    mark.wait_for(0).await;
    let states: Vec<&Value> = report["lanes"].as_array().unwrap().iter().collect();
    assert_eq!(states[0]["state"], "silent", "{states:#?}");
    let listed = desk.relay(&["lane", "ls", "--patience", "1"]).ok();
    assert!(listed.contains("bin/claude did not end within 1s"), "{listed}");
    assert!(listed.contains("→ relay lane ls --patience 30"), "{listed}");
    mark.wait_for(0).await;
}

/// A listener that takes every connection and never answers, and an owner of the home that is stopped.
#[test]
fn a_site_that_says_nothing_is_told_and_not_waited_for() {
    let silent = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let site = format!("http://{}", silent.local_addr().unwrap());
    let mut desk = Desk::new();
    desk.0.process_lane("edit", "true", "{}");
    let told = |desk: &Desk, name: &str| {
        let ran = desk.relay(&["doctor", "--json", "--patience", "1"]);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let check = check(&report, name);
        assert_eq!(check["state"], "fail", "{report:#}");
        assert_eq!(text(check, "seen"), "no answer within 1.2 s");
        assert_eq!(text(check, "mend"), "relay doctor --patience 30");
        assert_eq!(ran.code, 6);
    };
    let worker = desk.0.work(&["--lanes", "process:edit"]);
    worker.signal(rustix::process::Signal::STOP);
    told(&desk, "database");
    worker.signal(rustix::process::Signal::CONT);
    drop(worker);
    desk.0.set("RELAY_SITE", &site);
    told(&desk, "site");
}

#[test]
fn a_lane_of_ones_own_without_its_interpreter_is_not_served() {
    let desk = Desk::new();
    desk.0.process_lane("own", "true", "{}");
    assert_eq!(text(&desk.lane("process:own"), "state"), "served");
    let script = desk.0.program("own-lane", "#!/bin/sh\r\nread -r line\r\n");
    let lane = desk.lane("process:own");
    assert_eq!(text(&lane, "state"), "no_interpreter", "{lane:#}");
    assert!(text(&lane, "detail").contains("is a script for `/bin/sh\\r`"), "{lane:#}");
    let mend = format!("its lines end as on Windows: sed -i 's/\\r$//' {}", script.display());
    assert_eq!(text(&lane, "hint"), mend);
    desk.0.program("own-lane", "#!/usr/bin/env pyhton3\n");
    assert!(text(&desk.lane("process:own"), "detail").contains("for `pyhton3`, which is not"));
}

#[test]
fn a_script_without_its_interpreter_is_told_by_name() {
    let desk = Desk::new();
    desk.0.program("codex", "#!/usr/bin/env node\nimport 'x';\n");
    let codex = desk.lane("codex");
    assert_eq!((&codex["served"], text(&codex, "state")), (&Value::Bool(false), "no_interpreter"));
    let detail = text(&codex, "detail");
    assert!(detail.ends_with("bin/codex is a script for `node`, which is not on PATH"), "{detail}");
    assert!(text(&codex, "hint").starts_with("install node, or put its folder on the PATH"));
    desk.program("node", &CODEX.replace("$1", "$2"));
    let codex = desk.lane("codex");
    assert_eq!((text(&codex, "state"), text(&codex, "version")), ("served", "0.171.0"));
}

#[test]
fn a_login_of_codex_that_no_run_would_find_serves_no_lane() {
    let desk = Desk::new();
    assert_eq!(desk.lane("codex")["served"], true);
    for kept_elsewhere in ["{}", r#"{"auth_mode":"chatgpt"}"#, "torn"] {
        desk.codex_login(kept_elsewhere);
        let codex = desk.lane("codex");
        assert_eq!(codex["state"], "not_logged_in", "{kept_elsewhere}: {codex:#}");
        assert!(text(&codex, "detail").contains("not in the file auth.json"), "{codex:#}");
        assert!(text(&codex, "hint").contains("cli_auth_credentials_store"), "{codex:#}");
    }
}

#[test]
fn a_version_that_is_known_to_be_bad_is_not_served_and_a_changed_one_is_told() {
    let desk = Desk::new();
    desk.program("codex", &CODEX.replace("0.171.0", "0.144.6"));
    desk.program("claude", &CLAUDE.replace("2.1.332", "2.1.197"));
    desk.program("grok", &GROK.replace("1.0.41", "1.9.0"));
    let codex = desk.lane("codex");
    assert_eq!((&codex["served"], text(&codex, "state")), (&Value::Bool(false), "known_bad"));
    assert!(text(&codex, "detail").contains("agents.enabled"), "{codex:#}");
    assert_eq!(text(&codex, "hint"), "npm install -g @openai/codex");
    let claude = desk.lane("claude");
    assert_eq!(claude["served"], true, "{claude:#}");
    let remark = claude["remarks"][0].as_str().unwrap();
    assert!(remark.contains("135 versions behind"), "{remark}");
    let report = desk.doctor();
    let codex = check(&report, "lane codex");
    let seen = "0.144.6 (relay was measured with 0.171.0): bad version: it ends before every run";
    assert_eq!(codex["state"], "warn");
    assert!(text(codex, "seen").starts_with(seen), "{codex:#}");
    let claude = check(&report, "lane claude");
    assert_eq!(claude["state"], "warn");
    assert!(text(claude, "seen").contains("Node.js is older than 22"), "{claude:#}");
    let grok = check(&report, "lane grok");
    assert_eq!(grok["state"], "ok", "a version that nobody looked at is told, and no more");
    assert!(text(grok, "seen").starts_with("1.9.0 (relay was measured with 1.0.41): "));
}

#[test]
fn where_no_box_can_be_made_no_lane_of_a_vendor_is_served() {
    let desk = Desk::new();
    for name in ["bwrap", "setpriv", "unshare"] {
        desk.program(name, "echo not permitted >&2; exit 1");
    }
    for lane in ["claude", "codex", "grok"] {
        let lane = desk.lane(lane);
        assert_eq!((&lane["served"], text(&lane, "state")), (&Value::Bool(false), "no_box"));
        assert!(text(&lane, "detail").contains("this machine can"), "{lane:#}");
        assert_eq!(text(&lane, "hint"), "relay doctor");
    }
    let shown = desk.relay(&["lane", "ls", "--patience", "60"]).ok();
    assert!(!shown.contains("served") && shown.contains("no box"), "{shown}");
    let report = desk.doctor();
    assert_eq!(check(&report, "lanes")["state"], "fail", "{report:#}");
    let refused = desk.relay(&["work", "--once"]);
    assert_eq!(refused.code, 6, "{refused:?}");
}

#[test]
fn a_machine_whose_site_others_work_for_needs_no_lane_of_its_own() {
    let desk = Desk::new();
    for name in ["claude", "codex", "grok"] {
        desk.without(name);
    }
    let lanes = || check(&desk.doctor(), "lanes").clone();
    assert_eq!(lanes()["state"], "fail");
    let site = Site::start(&desk.0);
    let there = lanes();
    assert_eq!(there["state"], "ok", "{there:#}");
    assert!(text(&there, "seen").contains("none can be served here"), "{there:#}");
    site.stop();
    assert_eq!(lanes()["state"], "fail");
}

#[test]
fn a_lane_whose_login_only_fx_has_is_served_through_it() {
    let desk = Desk::new();
    desk.program("fx", FX);
    let own = |lane: &str| {
        let lane = desk.lane(lane);
        assert_eq!(
            (&lane["through"], &lane["state"]),
            (&Value::Null, &"served".into()),
            "{lane:#}"
        );
    };
    let through_fx = |lane: &str| {
        let lane = desk.lane(lane);
        assert_eq!(
            (&lane["through"], &lane["state"]),
            (&"fx".into(), &"served".into()),
            "{lane:#}"
        );
        assert_eq!(text(&lane, "version"), "0.0.5");
        assert!(text(&lane, "program").ends_with("/bin/fx"));
        lane
    };
    // Without a login of its own it serves nothing.
    own("codex");
    desk.without("codex");
    assert_eq!(text(&desk.lane("codex"), "detail"), "the program `codex` is not on PATH");

    desk.fx_login("chatgpt-auth.json");
    let codex = desk.lane("codex");
    assert_eq!((text(&codex, "through"), text(&codex, "state")), ("fx", "unfit"), "{codex:#}");
    assert!(text(&codex, "hint").contains("RELAY_MODEL_CODEX"), "{codex:#}");
    desk.fx_settings(r#"{"provider":"gateway","codex_model":"gpt-5.4-mini"}"#);
    let codex = through_fx("codex");
    assert_eq!(text(&codex, "detail"), "a ChatGPT login, through fx");
    assert_eq!(text(&codex, "model"), "gpt-5.4-mini");
    own("grok");
    let shown = desk.relay(&["lane", "ls", "--patience", "60"]).ok();
    assert!(shown.contains("a ChatGPT login, through fx"), "{shown}");
    let report = desk.doctor();
    assert_eq!(text(check(&report, "lane codex"), "seen"), "0.0.5: a ChatGPT login, through fx");
    let status = desk.relay(&["work", "status"]).ok();
    assert!(status.contains("\ncodex: served through fx"), "{status}");

    // Where both have one it is the vendor's own, and where a run of that would have none, fx.
    desk.program("codex", CODEX);
    own("codex");
    desk.codex_login("{}");
    through_fx("codex");
    desk.codex_login(r#"{"auth_mode":"apikey","OPENAI_API_KEY":"dummy"}"#);
    fs::write(desk.0.bin.join("codex"), "#!/usr/bin/env nothing-here\n").unwrap();
    through_fx("codex");
    // The viewer of JSON that npm has under this name.
    desk.program("fx", "echo 'open status: no such file' >&2; exit 1");
    let codex = desk.lane("codex");
    assert_eq!(text(&codex, "state"), "unclear", "{codex:#}");
    assert!(text(&codex, "detail").contains("open status: no such file"), "{codex:#}");
}

/// docs/doctor.md tells this shape.
#[test]
fn the_json_has_the_shape_that_is_documented() {
    let report = Desk::new().doctor();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&report), ["checks", "lanes", "ok"]);
    for check in report["checks"].as_array().unwrap() {
        let mut all = keys(check);
        all.retain(|key| key != "mend");
        assert_eq!(all, ["name", "seen", "state"]);
        let state = text(check, "state");
        assert!(["ok", "warn", "fail"].contains(&state));
        assert_eq!(check.get("mend").is_some(), state != "ok", "{check:#}");
    }
    for name in ["home", "disk", "clock", "database", "git", "github", "service", "box"] {
        check(&report, name);
    }
    let fields = [
        "detail", "hint", "lane", "measured", "model", "program", "remarks", "served", "state",
        "through", "version",
    ];
    for lane in report["lanes"].as_array().unwrap() {
        assert_eq!(keys(lane), fields);
    }
    let page = include_str!("../../docs/doctor.md");
    for word in fields.iter().chain(&["`checks`", "`lanes`", "`ok`", "`mend`", "`seen`"]) {
        assert!(page.contains(word.trim_matches('`')), "docs/doctor.md does not tell {word}");
    }
}
