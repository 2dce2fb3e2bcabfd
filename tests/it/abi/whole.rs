//! Whole runs: what a person sees of a program that keeps its contract, or breaks it.

use serde_json::Value;

use crate::support::house::House;

/// A machine with one lane a row, each a shell script that has `$KEY` and `$GOOD`.
fn machine(rows: &[(&str, &str)]) -> House {
    let house = House::new();
    for (name, script) in rows {
        let head = "#!/bin/sh\nread -r line\n\
                    KEY=$(printf '%s' \"$line\" | sed 's/.*\"jobKey\":\"\\([^\"]*\\)\".*/\\1/')\n\
                    GOOD='{\"schemaVersion\":1,\"jobKey\":\"'$KEY'\",\"result\":{\"reply\":\"ok\"}}'";
        let path = house.program(&format!("{name}-lane"), &format!("{head}\n{script}\n"));
        let config = serde_json::json!({ "command": path });
        let file = house.home.join(format!("lanes/{name}.json"));
        std::fs::write(file, config.to_string()).unwrap();
    }
    house
}

fn work(house: &House, lanes: &[String]) {
    let lanes = lanes.join(",");
    house.relay(&["work", "--once", "--jobs", "4", "--name", "w", "--lanes", &lanes]);
}

#[test]
fn each_broken_contract_fails_its_task_under_its_name() {
    let rows = [
        ("two", "echo \"$GOOD\"; echo \"$GOOD\"", "it answered 2 lines, not one"),
        ("banner", "echo Hello; echo \"$GOOD\"", "it printed something else before its answer"),
        ("utf", "printf '{\"schemaVersion\":1,\"x\":\"\\377\"}\\n'", "its answer is not UTF-8"),
        ("job", "echo \"$GOOD\" | sed 's/#[0-9]*/#99/'", "its answer is for another job"),
        (
            "long",
            "head -c 131073 /dev/zero | tr '\\0' ' '",
            "its answer has more than 131072 bytes",
        ),
        ("nothing", "cat > /dev/null", "it answered nothing"),
        (
            "noise",
            "head -c 32769 /dev/zero >&2; echo \"$GOOD\"",
            "it wrote more than 32768 bytes on standard error",
        ),
        ("code", "echo told-to-nobody >&2; echo \"$GOOD\"; exit 3", "it exited with 3, not 0"),
        ("nul", "echo \"$GOOD\" | sed 's/ok/o\\\\u0000k/'", "its reply holds a NUL character"),
    ];
    let house = machine(&rows.map(|(name, script, _)| (name, script)));
    let slug = house.link();
    let lanes: Vec<String> = rows.iter().map(|row| format!("process:{}", row.0)).collect();
    let tasks: Vec<String> = lanes.iter().map(|lane| house.task(&slug, lane, "Break it")).collect();
    work(&house, &lanes);
    for (task, (name, _, words)) in tasks.iter().zip(rows) {
        let got = house.json(&["task", "get", task, "--json"]);
        assert_eq!(got["task"]["state"], "failed", "{name}: {got:#}");
        assert_eq!(got["task"]["stop_reason"]["reason"], "protocol_violation", "{name}: {got:#}");
        let message = got["task"]["message"].as_str().unwrap();
        let expected = format!("the program broke its contract: {words} (hint: ");
        assert!(message.starts_with(&expected), "{name}: {message}");
        let log = house.relay(&["task", "log", task]).out;
        assert!(!log.contains("told-to-nobody"), "{log}");
    }
}

#[test]
fn what_an_answer_says_is_what_becomes_of_its_task() {
    let rows = [
        ("bare", "{}"),
        ("skip", r#"{"skip":true,"usage":{"modelCalls":1,"inputTokens":2}}"#),
        ("all", r#"{"reply":"Said 👋","note":{"text":"for later"},"usage":{"modelCalls":0}}"#),
    ];
    let house = House::new();
    for (name, result) in rows {
        house.process_lane(name, "echo more >> README.md", result);
    }
    let slug = house.link();
    let lanes: Vec<String> = rows.iter().map(|row| format!("process:{}", row.0)).collect();
    let tasks: Vec<String> = lanes.iter().map(|lane| house.task(&slug, lane, "Do it")).collect();
    work(&house, &lanes);
    let got = |at: usize| house.json(&["task", "get", &tasks[at], "--json"]);
    let (bare, skip, all) = (got(0), got(1), got(2));
    assert_eq!(bare["task"]["state"], "review", "{bare:#}");
    assert_eq!(bare["runs"][0]["usage"]["model_calls"], Value::Null, "none is not zero");
    assert_eq!(skip["task"]["state"], "done");
    assert_eq!(skip["task"]["stop_reason"]["reason"], "skipped");
    assert_eq!(skip["runs"][0]["usage"]["input_tokens"], 2);
    assert_eq!(all["task"]["message"], "Said 👋");
    assert_eq!(all["runs"][0]["usage"]["model_calls"], 0);
    assert_eq!(all["runs"][0]["usage"]["input_tokens"], Value::Null);
    let events = house.relay(&["events", "--task", &tasks[2], "--json"]).ok();
    assert!(events.contains("for later"), "{events}");
}

#[test]
fn a_task_has_one_key_whatever_becomes_of_its_runs() {
    let place = tempfile::tempdir().unwrap();
    let seen = place.path().join("requests");
    let script = format!(
        "printf '%s\\n' \"$line\" >> {0}; [ $(wc -l < {0}) -gt 2 ] || exit 1\n\
         echo one >> README.md; echo \"$GOOD\"",
        seen.display()
    );
    let mut house = machine(&[("again", &script)]);
    house.set("RELAY_LANE_PATHS", place.path().to_str().unwrap());
    house.link();
    let task = house.task("local/shop", "process:again", "Again");
    for _ in 0..2 {
        work(&house, &["process:again".to_owned()]);
        assert_eq!(house.state(&task), "failed");
        house.relay(&["task", "retry", &task]).ok();
    }
    work(&house, &["process:again".to_owned()]);
    assert_eq!(house.state(&task), "review");
    let requests = std::fs::read_to_string(&seen).unwrap();
    let requests: Vec<Value> =
        requests.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<&str> = requests.iter().map(|r| r["jobKey"].as_str().unwrap()).collect();
    assert_eq!(keys, [task.as_str(); 3]);
    let attempts: Vec<i64> = requests.iter().map(|r| r["attempt"].as_i64().unwrap()).collect();
    assert!(attempts.is_sorted_by(|a, b| a < b), "{attempts:?}");
    assert_eq!(requests[0]["runtimeId"], requests[2]["runtimeId"]);
}

#[test]
fn a_program_gets_the_short_list_and_what_is_named() {
    let mut house = machine(&[]);
    let seen = house.dir.path().join("env");
    let script = format!(
        "#!/bin/sh\nread -r line\nenv | sed 's/=.*//' | sort | tr '\\n' ' ' > {}\n\
         printf '{{\"schemaVersion\":1,\"jobKey\":\"local/shop#1\",\"result\":{{\"skip\":true}}}}'\n",
        seen.display()
    );
    let path = house.program("env-lane", &script);
    let config = serde_json::json!({ "command": path, "env": ["MY_PROVIDER_API_KEY", "NOT_SET"] });
    std::fs::write(house.home.join("lanes/env.json"), config.to_string()).unwrap();
    house.without_namespaces();
    for name in ["MY_PROVIDER_API_KEY", "OTHER_API_KEY", "NODE_OPTIONS", "LANG", "TZ", "LC_ALL"] {
        house.set(name, "C");
    }
    let slug = house.link();
    let task = house.task(&slug, "process:env", "Look");
    work(&house, &["process:env".to_owned()]);
    assert_eq!(house.state(&task), "done");
    let names = std::fs::read_to_string(&seen).unwrap();
    let own = ["_", "OLDPWD", "PWD", "SHLVL"];
    let names: Vec<&str> = names.split(' ').filter(|n| !n.is_empty() && !own.contains(n)).collect();
    assert_eq!(names, ["LANG", "LC_ALL", "MY_PROVIDER_API_KEY", "PATH", "RELAY_COPY", "TZ"]);
}

#[test]
fn a_folder_to_start_in_that_is_gone_is_told_before_the_run() {
    let house = machine(&[("x", "echo \"$GOOD\"")]);
    let slug = house.link();
    let file = house.home.join("lanes/x.json");
    let task = house.task(&slug, "process:x", "Start");
    let config = std::fs::read_to_string(&file).unwrap().replace('}', ",\"cwd\":\"/nowhere\"}");
    std::fs::write(&file, config).unwrap();
    let listed = house.relay(&["lane", "ls", "--patience", "60"]).out;
    assert!(listed.contains("`cwd` is no folder on this machine: /nowhere"), "{listed}");
    work(&house, &["process:x".to_owned()]);
    let got = house.json(&["task", "get", &task, "--json"]);
    assert_eq!(got["task"]["stop_reason"]["reason"], "vendor_error", "{got:#}");
    let message = got["task"]["message"].as_str().unwrap();
    assert!(message.starts_with("`cwd` is no folder on this machine: /nowhere"), "{message}");
}
