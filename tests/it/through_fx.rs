//! Lanes whose vendor's login only fx has, from a task to its pull request. fx is a stand-in that
//! does as the real one: it asks no proxy, looks its vendor's host up by the system's lookup and
//! connects to it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::house::House;

#[cfg(target_os = "linux")]
mod full_doors;

/// What its program answers with, for the one that is done.
const DONE: &str = r#"{"output":"Looking.\nAdded it.","final_output":"Added it.","exit_code":0,"model":"gpt-5.4-mini","session_id":"","steps":2,"tool_calls":[{"name":"terminal","status":"success","command_result":{"command":"cargo test"}}],"usage":{"input_tokens":1200,"output_tokens":80}}"#;

/// A machine with fx alone, logged in at both vendors, whose runs do `body` in the copy.
fn machine(lane: &str, body: &str) -> House {
    let house = House::new();
    let folder = house.dir.path().join(".fx");
    fs::create_dir_all(folder.join("sessions")).unwrap();
    for file in ["chatgpt-auth.json", "grok-auth.json"] {
        fs::write(folder.join(file), login(file, "old", 10).to_string()).unwrap();
    }
    let settings = json!({
        "provider": "gateway", "codex_model": "gpt-5.4-mini", "grok_model": "grok-4.6",
        "permission_mode": "yolo",
    });
    fs::write(folder.join("settings.json"), settings.to_string()).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n--version) echo 0.0.5; exit 0;;\n\
         status) echo '{{\"kind\":\"status\",\"auth\":\"missing\"}}'; exit 0;;\nesac\n\
         prompt=$(cat)\nargs=\"$*\"\nset -- {}\n\
         unset HTTPS_PROXY https_proxy HTTP_PROXY http_proxy ALL_PROXY all_proxy\n\
         try() {{ what=$1; shift; \"$@\" >/dev/null 2>&1 && echo \"$what\" >>findings; }}\n\
         refresh() {{ sed 's/-old/-new/g; s/\"expires_at_ms\":10/\"expires_at_ms\":20/' \
         \"$HOME/.fx/$1\" >\"$HOME/.fx/$1.new\" && mv \"$HOME/.fx/$1.new\" \"$HOME/.fx/$1\"; }}\n\
         {body}\n",
        own_file(lane),
    );
    house.program("fx", &script);
    // Whatever else this machine has is not its.
    for own in ["codex", "grok"] {
        house.program(own, "#!/nothing-here\n");
    }
    house
}

fn own_file(lane: &str) -> &'static str {
    if lane == "codex" { "chatgpt-auth.json" } else { "grok-auth.json" }
}

fn login(file: &str, name: &str, expires: u64) -> Value {
    json!({
        "version": 1, "access_token": format!("access-{file}-{name}"),
        "refresh_token": format!("refresh-{file}-{name}"), "expires_at_ms": expires,
        "account_id": "ada",
    })
}

fn persons_login(house: &House, lane: &str) -> Value {
    let file = house.dir.path().join(".fx").join(own_file(lane));
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Runs one task to its end, and gives it with its log.
fn run(house: &House, lane: &str, options: &[&str]) -> (Value, String) {
    let slug = house.link();
    let task = house.task(&slug, lane, "Say more");
    let mut args = vec!["work", "--once", "--name", "w", "--lanes", lane];
    args.extend_from_slice(options);
    let worked = house.relay(&args);
    let log = house.relay(&["task", "log", &task]).ok();
    (house.json(&["task", "get", &task, "--json"]), format!("{log}\n{}", worked.err))
}

fn findings(house: &House, lane: &str) -> Vec<String> {
    let object = format!("relay/{lane}-1:findings");
    house.in_repo(&["show", &object]).lines().map(str::to_owned).collect()
}

/// What the run's home has, whatever stands around it.
const HOME_OF_THE_RUN: &str = r#"
try was-asked-by-stdin test "$args" = 'ask --auto --json --no-save --no-color'
case $prompt in *'Say more'*) echo was-told-the-task >>findings;; esac
try has-its-login grep -q -e -old "$HOME/.fx/$1"
try HAS-THE-OTHER-LOGIN sh -c 'test $(ls "$HOME"/.fx/*-auth.json | wc -l) != 1'
try HAS-THE-PERSONS-SETTINGS grep -q -e yolo -e gateway "$HOME/.fx/settings.json"
try HAS-SESSIONS test -e "$HOME/.fx/sessions"
try has-settings-of-its-own grep -qE '"(codex|grok)_model":"(gpt-5.4-mini|grok-4.6)"' "$HOME/.fx/settings.json"
try has-a-number-of-steps test "$FX_MAX_AGENT_STEPS" -ge 1
touch "$HOME/.fx/of-the-lane"
refresh "$1"
"#;

const HOME_FINDINGS: [&str; 5] = [
    "was-asked-by-stdin",
    "was-told-the-task",
    "has-its-login",
    "has-settings-of-its-own",
    "has-a-number-of-steps",
];

/// Of a run that came to its end: its usage, its words, its login, and its record.
#[track_caller]
fn is_done(house: &House, lane: &str, detail: &Value, log: &str) {
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    let usage = &detail["runs"][0]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(1200), &json!(80)));
    assert_eq!((&usage["turns"], &usage["cost_usd"]), (&json!(2), &Value::Null), "{usage:#}");
    assert_eq!(usage["model"], "gpt-5.4-mini");
    assert!(log.contains("→ terminal success cargo test"), "{log}");
    assert!(!log.contains("access-"), "{log}");
    assert_eq!(persons_login(house, lane), login(own_file(lane), "new", 20));
    let persons = house.dir.path().join(".fx");
    assert!(!persons.join("of-the-lane").exists());
    let settings = fs::read_to_string(persons.join("settings.json")).unwrap();
    assert!(settings.contains("yolo"), "the person's own: {settings}");
    let (text, _) = house.transcript(detail);
    assert!(text.lines().next().unwrap().contains(r#""through":"fx""#), "{text}");
    assert_eq!(fs::read_dir(house.home.join("vendor")).unwrap().count(), 0);
}

#[test]
fn a_task_is_done_through_it_under_a_login_of_the_runs_own() {
    for lane in ["codex", "grok"] {
        let body = format!(
            "{HOME_OF_THE_RUN}\ntry HAS-THE-PERSONS-HOME test -d \"$HOME/shop\"\nprintf '%s\\n' '{DONE}'"
        );
        let house = machine(lane, &body);
        let (detail, log) = run(&house, lane, &["--no-sandbox"]);
        is_done(&house, lane, &detail, &log);
        assert_eq!(findings(&house, lane), HOME_FINDINGS, "{log}");
    }
}

/// Each end of its program as the task's own.
#[test]
fn how_it_ends_is_how_the_task_ends() {
    let auth = r#"{"output":"","exit_code":1,"model":"m","session_id":"","steps":0,"tool_calls":[],"auth_failure":{"source":"Codex subscription","reason":"http_unauthorized","http_status":401}}"#;
    let away = r#"{"output":"","exit_code":1,"model":"m","session_id":"","steps":0,"tool_calls":[],"recovery":{"state":"paused","kind":"terminal_provider_error","cause":"network_interrupted","attempt":10,"attempt_limit":10,"message":"it paused"}}"#;
    let nothing = r#"{"output":"","exit_code":0,"model":"m","session_id":"","steps":1,"tool_calls":[],"usage":{"input_tokens":null,"output_tokens":null}}"#;
    for (answer, code, reason) in [
        (auth, 1, "not_logged_in"),
        (away, 1, "vendor_unreachable"),
        (nothing, 0, "no_changes"),
        ("Done.", 0, "protocol_violation"),
        ("", 0, "protocol_violation"),
    ] {
        let house = machine("codex", &format!("printf '%s\\n' '{answer}'\nexit {code}"));
        let (detail, log) = run(&house, "codex", &["--no-sandbox"]);
        let stop = &detail["runs"][0]["stop_reason"]["reason"];
        assert_eq!(stop, reason, "{answer}: {detail:#}\n{log}");
        assert_eq!(detail["runs"][0]["usage"]["input_tokens"], Value::Null, "{detail:#}");
        let message = detail["task"]["message"].as_str().unwrap_or_default();
        assert!(reason != "not_logged_in" || message.contains("fx login"), "{detail:#}");
    }
}

/// Another run under the same login, by whichever program of relay's.
#[test]
fn two_runs_are_never_under_one_login_of_it() {
    let house = machine("codex", &format!("printf '%s\\n' '{DONE}'"));
    let lock = house.dir.path().join(".fx/chatgpt-auth.json.relay-lock");
    let held = fs::File::create(&lock).unwrap();
    held.try_lock().unwrap();
    let refused = house.relay(&["probe", "codex", "--no-sandbox"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("relay probe codex --wait"), "{}", refused.err);
    drop(held);
    let probed = house.relay(&["probe", "codex", "--no-sandbox"]);
    assert!(probed.out.starts_with("codex through fx 0.0.5 answered, "), "{probed:?}");
    let probed = house.json(&["probe", "codex", "--no-sandbox", "--json"]);
    assert_eq!((&probed["through"], &probed["said"]), (&"fx".into(), &"Added it.".into()));
    assert!(!Path::new(&lock).exists());
}

/// The vendor's own program came with a login: the next run is its, under the worker that runs.
#[test]
fn a_worker_that_runs_leaves_it_for_the_vendors_own() {
    let house = machine("codex", &format!("echo fx >>by\nprintf '%s\\n' '{DONE}'"));
    let slug = house.link();
    let worker = house.work(&["--name", "w", "--no-sandbox"]);
    let serves = |times| worker.said().matches("serving codex, grok").count() == times;
    worker.until("it serves", || serves(1));
    let done_by = |title: &str| {
        let task = house.task(&slug, "codex", title);
        worker.until("its task is done", || house.state(&task) == "review");
        let number = task.rsplit('#').next().unwrap();
        house.in_repo(&["show", &format!("relay/codex-{number}:by")])
    };
    assert_eq!(done_by("One"), "fx");
    let folder = house.dir.path().join(".codex");
    fs::create_dir(&folder).unwrap();
    let key = json!({ "auth_mode": "apikey", "OPENAI_API_KEY": "dummy" });
    fs::write(folder.join("auth.json"), key.to_string()).unwrap();
    let turn = r#"{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1}}"#;
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n--version) echo 'codex-cli 0.171.0'; exit 0;;\n\
         login) echo 'Logged in using an API key' >&2; exit 0;;\nesac\n\
         cat >/dev/null\necho codex >>by\necho '{{\"type\":\"turn.started\"}}'\necho '{turn}'\n"
    );
    house.program("codex", &script);
    worker.until("it has looked again", || serves(2));
    assert_eq!(done_by("Two"), "codex");
}

/// Without a model it serves nothing; the one that a person then chooses in it is taken up.
#[test]
fn a_model_that_is_chosen_while_a_worker_runs_is_taken_up() {
    let house = machine("codex", &format!("echo fx >>by\nprintf '%s\\n' '{DONE}'"));
    let settings = house.dir.path().join(".fx/settings.json");
    let chosen = fs::read(&settings).unwrap();
    fs::write(&settings, r#"{"grok_model":"grok-4.6"}"#).unwrap();
    let worker = house.work(&["--name", "w", "--no-sandbox"]);
    worker.until("it serves", || worker.said().contains("serving grok"));
    fs::write(&settings, chosen).unwrap();
    worker.until("it has looked again", || worker.said().contains("serving codex, grok"));
}
