//! Whole runs: a program in a vendor's place prints what the real one did, the worker records it,
//! and the replay comes to the same.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::folder;
use crate::support::house::House;

const TOKEN: &str = "sk-Canary/0123456789+x";

/// A machine on which each vendor's program prints the file that its task's title names, and ends
/// as that says.
fn machine() -> House {
    let house = House::new();
    for (lane, version) in [("claude", "2.1.332 (Claude Code)"), ("codex", "codex-cli 0.171.0")]
        .into_iter()
        .chain([("grok", "grok 1.0.41")])
    {
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in --version) echo '{version}'; exit 0;; login|auth|models) exit 0;; esac\n\
             case \"$*\" in *' -') asked=$(cat);; *-p*play*) asked=\"$*\";; *) asked=$(cat);; esac\n\
             set -- $(printf '%s\\n' \"$asked\" | grep -o 'play [a-z_]* [a-z0-9]*' | head -1)\n\
             echo done >> README.md; echo \"said $2\" >&2\n\
             case $2 in\n\
             half) head -c 100 {folder}/done.jsonl; kill -9 $$;;\n\
             rubbish) echo 'not json at all'; printf '\\377\\000\\n';;\n\
             token) cat \"$CODEX_HOME/auth.json\"; echo; cat \"$CODEX_HOME/auth.json\" >&2; cat {folder}/done.jsonl;;\n\
             *) cat {folder}/$2.jsonl;;\n\
             esac\nexit $3\n",
            folder = folder(lane).display(),
        );
        house.program(lane, &script);
    }
    let home = house.dir.path();
    for (folder, login) in [
        (".claude", json!({})),
        (".codex", json!({ "auth_mode": "apikey", "OPENAI_API_KEY": TOKEN })),
        (".grok", json!({ "https://auth.example::c": { "key": "k", "refresh_token": "r" } })),
    ] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
        std::fs::write(home.join(folder).join("auth.json"), login.to_string()).unwrap();
    }
    house
}

/// Runs one task to its end, and gives what the site has of it.
fn play(house: &House, slug: &str, lane: &str, what: &str) -> Value {
    let task = house.task(slug, lane, &format!("play {what}"));
    house.relay(&["work", "--once", "--no-sandbox", "--name", "w", "--lanes", lane]);
    house.json(&["task", "get", &task, "--json"])
}

fn transcript(house: &House, detail: &Value) -> PathBuf {
    house.home.join("runs").join(detail["runs"][0]["id"].as_str().unwrap()).join("transcript")
}

#[test]
fn a_replay_comes_to_what_the_run_came_to() {
    for lane in ["claude", "codex", "grok"] {
        let house = machine();
        let slug = house.link();
        // A used-up limit may keep the lane from the next task, so it comes last.
        for (what, reason) in [
            ("done 0", "finished"),
            ("done 3", "crashed"),
            ("server_error 1", "vendor_unreachable"),
            ("half 0", "crashed"),
            ("rubbish 0", "protocol_violation"),
            ("no_model 1", "vendor_error"),
            ("rate_limited 1", "quota"),
        ] {
            let detail = play(&house, &slug, lane, what);
            let (_, told) = house.transcript(&detail);
            assert_eq!(told["run"]["lane"], lane, "{what}");
            assert_eq!(told["stop"]["reason"], reason, "{lane}, {what}");
            let version = &told["run"]["version"];
            assert!(version.as_str().is_some_and(|v| v.starts_with(['0', '1', '2'])), "{told:#}");
            // What is tried again would be before the next one.
            if detail["task"]["state"] == "parked" {
                let task = detail["task"]["id"].as_str().unwrap();
                house.relay(&["task", "cancel", task]).ok();
            }
            // The lane is left alone after an outage.
            let _there_was_none = std::fs::remove_dir_all(house.home.join("rests"));
        }
    }
}

#[test]
fn a_failure_names_its_file_and_a_person_can_read_it() {
    let house = machine();
    let slug = house.link();
    let detail = play(&house, &slug, "claude", "rubbish 0");
    let file = transcript(&house, &detail).display().to_string();
    let task = detail["task"]["id"].as_str().unwrap();
    let log = house.relay(&["task", "log", task]).ok();
    assert!(log.contains(&format!("transcript: {file} (`relay lane replay`")), "{log}");
    let got = house.relay(&["task", "get", task]).ok();
    assert!(got.contains(&format!("recorded  {file} (`relay lane replay`")), "{got}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\n> not json at all\n= /wA=\n"), "{text}");
    assert!(text.contains("said rubbish"), "{text}");
    let shown = house.relay(&["lane", "replay", &file]).ok();
    for part in ["claude", "2.1.332", "exit code 0", "protocol_violation"] {
        assert!(shown.contains(part), "`{part}` is missing in:\n{shown}");
    }
    let done = play(&house, &slug, "claude", "done 0");
    let got = house.relay(&["task", "get", done["task"]["id"].as_str().unwrap()]).ok();
    assert!(!got.contains("relay lane replay"), "{got}");
}

#[test]
fn a_token_in_the_output_is_not_in_the_file() {
    let house = machine();
    let slug = house.link();
    let detail = play(&house, &slug, "codex", "token 0");
    let (text, _) = house.transcript(&detail);
    assert!(text.contains("\"OPENAI_API_KEY\":\"[redacted]\""), "{text}");
    assert!(!text.contains("Canary"), "{text}");
}

#[test]
fn of_a_process_lane_the_answer_is_kept_and_standard_error_is_not() {
    let house = House::new();
    house.process_lane("x", "echo told-to-nobody >&2; echo more >> README.md", r#"{"reply":"ok"}"#);
    house.process_lane("bad", "echo told-to-nobody >&2; echo first", r#"{"reply":"ok"}"#);
    let slug = house.link();
    for (lane, stop) in [("process:x", "finished"), ("process:bad", "protocol_violation")] {
        let detail = play(&house, &slug, lane, "x 0");
        let (text, told) = house.transcript(&detail);
        assert_eq!(told["stop"]["reason"], stop);
        assert_eq!(told["run"]["version"], Value::Null);
        assert!(text.contains("\"reply\":\"ok\"") && !text.contains("told-to-nobody"), "{text}");
    }
}
