//! `relay lane schema` against what relay itself takes and writes: they cannot drift apart.

use relay::work::lane::process_config;
use relay_lanes::process::{Request, TaskDetails, parse_answer};
use serde_json::{Value, json};

use super::program::{KEY, TASK};
use crate::support::house::House;
use crate::support::schema::errors;

fn schema(part: &str) -> Value {
    House::new().json(&["lane", "schema", part])
}

/// Whether relay takes a file with this configuration, read as a lane's is.
fn is_taken(config: &[u8]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    std::fs::write(&path, config).unwrap();
    process_config(&path).is_ok()
}

#[test]
fn the_parts_stand_in_the_whole() {
    let house = House::new();
    let whole = house.json(&["lane", "schema"]);
    assert_eq!(house.json(&["lane", "schema", "--json"]), whole);
    assert_eq!(whole["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for part in ["config", "request", "response"] {
        let mut alone = house.json(&["lane", "schema", part]);
        let dialect = alone.as_object_mut().unwrap().remove("$schema");
        assert_eq!(dialect.as_ref(), Some(&whole["$defs"][part]).map(|_| &whole["$schema"]));
        assert_eq!(alone, whole["$defs"][part]);
    }
    assert_eq!(house.relay(&["lane", "schema", "cobol"]).code, 2);
}

#[test]
fn a_configuration_is_taken_where_its_schema_fits_and_only_there() {
    let schema = schema("config");
    let args = |n: usize, len: usize| json!({"command": "/a", "args": vec!["é".repeat(len); n]});
    let env = |name: &str| json!({"command": "/a", "env": [name]});
    let good = [
        json!({"command": "/usr/bin/python3"}),
        json!({"command": "/a", "args": ["/b.py", "", "--x"], "cwd": "/opt", "env": ["KEY", "_x9"]}),
        json!({"command": "/a", "args": [], "env": []}),
        args(32, 1),
        args(1, 4096),
        json!({"command": "/a", "env": vec!["A"; 32]}),
        env("RELAYS"),
        env("OPENAI_API_KEY"),
    ];
    let bad = [
        json!({"command": "/a", "shell": true}),
        json!({"args": []}),
        json!([]),
        json!({"command": "python3"}),
        json!({"command": ""}),
        json!({"command": "/a\0b"}),
        json!({"command": "/a", "cwd": "b"}),
        json!({"command": "/a", "cwd": "/\0"}),
        json!({"command": "/a", "cwd": null}),
        json!({"command": "/a", "args": ["a\0"]}),
        json!({"command": "/a", "args": [1]}),
        json!({"command": "/a", "args": "x"}),
        args(33, 1),
        args(1, 4097),
        json!({"command": "/a", "env": vec!["A"; 33]}),
        env(""),
        env("1A"),
        env("A-B"),
        env("A=B"),
        env("A\0"),
        env("Ä"),
        env("RELAY_TOKEN"),
        env("RELAY_ANYTHING"),
        env("RELAYGER_PROFILE"),
        env("GH_TOKEN"),
        env("GITLAB_TOKEN"),
        env("SSH_AUTH_SOCK"),
        env("DATABASE_URL"),
        env("TEST_DATABASE_URL"),
        env("S3_ACCESS_KEY_ID"),
        env("S3_SECRET_ACCESS_KEY"),
        env("PGPASSWORD"),
    ];
    for (configs, fits) in [(&good[..], true), (&bad[..], false)] {
        for config in configs {
            let found = errors(&schema, config);
            assert_eq!(found.is_empty(), fits, "by the schema: {config:.200}: {found:?}");
            assert_eq!(is_taken(config.to_string().as_bytes()), fits, "by relay: {config:.200}");
        }
    }
    // What no schema can say, by its own words.
    for config in [env("relay_token"), args(8, 4096)] {
        assert_eq!(errors(&schema, &config), [""; 0]);
        assert!(!is_taken(config.to_string().as_bytes()), "{config:.200}");
    }
    let mut long = good[0].to_string().into_bytes();
    long.resize(65_536, b' ');
    assert!(is_taken(&long));
    long.push(b' ');
    assert!(!is_taken(&long));
    assert!(!is_taken(br#"{"command":"/a","command":"/a"}"#));
    assert!(!is_taken(b"{\"command\":\"/\xff\"}"));
}

#[test]
fn a_file_that_never_ends_or_is_none_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.json");
    let (at, mode) = (rustix::fs::CWD, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(at, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for path in [pipe.as_path(), "/dev/zero".as_ref(), dir.path()] {
        let error = process_config(path).unwrap_err().at(path);
        assert_eq!(error, format!("{}: is not a file", path.display()));
    }
}

#[test]
fn every_request_fits_its_schema() {
    let schema = schema("request");
    let long = "x".repeat(200_000);
    for task in [TASK, TaskDetails { prompt: &long, title: "", ..TASK }] {
        let request = Request { job_key: KEY, runtime_id: "0199", attempt: 7, payload: &task };
        let mut request: Value = serde_json::from_slice(&request.line().unwrap()).unwrap();
        assert_eq!(errors(&schema, &request), [""; 0]);
        // Each field is named in both.
        let known = |schema: &Value| schema["properties"].as_object().unwrap().len();
        assert_eq!(request.as_object().unwrap().len(), known(&schema));
        assert_eq!(
            request["task"].as_object().unwrap().len(),
            known(&schema["properties"]["task"])
        );
        request["attempt"] = (-1).into();
        assert_eq!(errors(&schema, &request).len(), 1);
    }
}

#[test]
fn an_answer_is_taken_where_its_schema_fits_and_only_there() {
    let schema = schema("response");
    let answer = |result: Value| json!({"schemaVersion": 1, "jobKey": KEY, "result": result});
    let good = [
        answer(json!({})),
        answer(json!({"reply": "Done. 👋\nAll of it."})),
        answer(json!({"reply": "x".repeat(16_000)})),
        answer(json!({"skip": true})),
        answer(json!({"skip": false, "reply": "x", "note": {"text": "n"}})),
        answer(json!({"note": {"text": "n", "key": "k", "version": 1, "sourceMessageIds": []}})),
        answer(json!({"usage": {"modelCalls": 0}, "skip": true})),
        answer(json!({"usage": {"inputTokens": 9_007_199_254_740_991_u64, "outputTokens": 1}})),
    ];
    let bad = [
        json!({}),
        json!([]),
        json!({"schemaVersion": 2, "jobKey": KEY, "result": {}}),
        json!({"schemaVersion": 1, "jobKey": 1, "result": {}}),
        json!({"schemaVersion": 1, "jobKey": KEY, "result": {}, "more": 1}),
        answer(json!({"reply": ""})),
        answer(json!({"reply": " \n"})),
        answer(json!({"reply": null})),
        answer(json!({"reply": "a\0b"})),
        answer(json!({"reply": "x".repeat(16_001)})),
        answer(json!({"skip": true, "reply": "x"})),
        answer(json!({"skip": true, "note": {"text": "x"}})),
        answer(json!({"skip": "yes"})),
        answer(json!({"note": "x"})),
        answer(json!({"note": {}})),
        answer(json!({"note": {"text": "x".repeat(4001)}})),
        answer(json!({"note": {"text": "x", "sourceMessageIds": vec!["m"; 9]}})),
        answer(json!({"usage": {"modelCalls": -1}})),
        answer(json!({"usage": {"modelCalls": 1.5}})),
        answer(json!({"usage": {"inputTokens": 9_007_199_254_740_992_u64}})),
        answer(json!({"usage": {"costUsd": 1}})),
        answer(json!({"done": true})),
    ];
    for (answers, fits) in [(&good[..], true), (&bad[..], false)] {
        for answer in answers {
            let found = errors(&schema, answer);
            assert_eq!(found.is_empty(), fits, "by the schema: {answer:.200}: {found:?}");
            let taken = parse_answer(answer.to_string().as_bytes(), KEY);
            assert_eq!(taken.is_ok(), fits, "by relay: {answer:.200}: {taken:?}");
        }
    }
}

#[test]
fn every_example_of_the_page_fits_its_schema() {
    let page = include_str!("../../../docs/LANES.md");
    let house = House::new();
    let mut seen = [0; 3];
    for block in page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        let value: Value = serde_json::from_str(block).unwrap();
        let kind =
            ["command", "task", "result"].iter().position(|field| value.get(field).is_some());
        let kind =
            kind.unwrap_or_else(|| panic!("neither configuration, request nor answer: {block}"));
        seen[kind] += 1;
        let part = ["config", "request", "response"][kind];
        assert_eq!(errors(&house.json(&["lane", "schema", part]), &value), [""; 0], "{block}");
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}
