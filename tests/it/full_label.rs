//! The whole of it, with the real things: an issue on the GitHub-like bench gets a label, and the
//! real claude, on a scripted model, in its sandbox in relay's box, makes the pull request.

use serde_json::{Value, json};

use crate::support::bench::Bench;
use crate::support::full::skip;
use crate::support::house::{House, only_has};
use crate::support::model::{Model, Step};

/// Run by `npm test` in the lane: writes down what a command of the repository's own could do.
const PROBE: &str = r#"
(echo x > made-by-test) && echo wrote-in-copy >> findings
(echo x > "$HOME/outside") 2>/dev/null && echo WROTE-OUTSIDE >> findings
echo x > ../beside 2>/dev/null
grep -q secret "$HOME/.ssh/id" 2>/dev/null && echo READ-A-KEY >> findings
grep -q . "$HOME/relay/relay.db" 2>/dev/null && echo READ-THE-DATABASE >> findings
env | grep -q -e ghp_ -e dummy-key && echo SAW-A-TOKEN >> findings
git push origin HEAD 2>/dev/null && echo PUSHED >> findings
echo ended >> findings
"#;

/// What the lane is given for its model.
pub const KEY: &str = "dummy-key-of-the-lane";

fn bash(command: &str) -> Step {
    Step::Call("Bash", json!({ "command": command, "description": "a step" }))
}

/// Whether each tool call of the run failed, in their order, as the model was told.
fn failed(model: &Model) -> Vec<bool> {
    let requests = model.requests();
    let last = requests.iter().rfind(|body| body["tools"].is_array()).expect("the model was asked");
    let messages = last["messages"].as_array().unwrap();
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["type"] == "tool_result").map(|b| b["is_error"] == true).collect()
}

/// A machine with the real claude, logged in to the scripted model and, as relay-bot, to the bench.
pub fn machine(bench: &Bench, model: &Model) -> Option<House> {
    let mut house = House::new();
    let names = log_in(&mut house, model)?;
    std::fs::create_dir(house.dir.path().join(".ssh")).unwrap();
    std::fs::write(house.dir.path().join(".ssh/id"), "secret\n").unwrap();
    house
        .set("RELAY_GITHUB_API", &format!("{}/api/v3", bench.url))
        .set("RELAY_GITHUB_TOKEN", "ghp_relay_bot")
        .set("RELAY_LANE_ALLOWED_DOMAINS", &format!("127.0.0.1:{}", model.port))
        .set("RELAY_LANE_ENV", &names.join(","));
    Some(house)
}

/// Gives a machine the real claude, logged in with a key, and says which variables its lane needs.
#[expect(clippy::disallowed_methods, reason = "scripts/test says where the real claude is")]
pub fn log_in(house: &mut House, model: &Model) -> Option<Vec<&'static str>> {
    let Some(claude) = std::env::var_os("RELAY_TEST_CLAUDE") else {
        skip("RELAY_TEST_CLAUDE does not name the claude program");
        return None;
    };
    let claude = claude.to_string_lossy();
    house.program("claude", &format!("#!/bin/sh\nexec '{claude}' \"$@\"\n"));
    house.set("ANTHROPIC_BASE_URL", &model.url()).set("ANTHROPIC_API_KEY", KEY);
    Some(vec!["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"])
}

/// Pushes the repository's own test, a shell script, as its owner.
pub fn give_the_repository_a_test(bench: &Bench, script: &str) {
    let place = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let (well, said) = bench.git("ghp_acme", place.path(), args);
        assert!(well, "git {args:?}: {said}");
    };
    git(&["clone", "-q", "bench:acme/shop.git", "."]);
    let package = json!({ "name": "shop", "private": true, "scripts": { "test": "sh probe.sh" } });
    std::fs::write(place.path().join("package.json"), package.to_string()).unwrap();
    std::fs::write(place.path().join("probe.sh"), script).unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "a test"]);
    git(&["push", "-q", "origin", "HEAD:refs/heads/main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_a_labelled_issue_becomes_a_pull_request() {
    let Some(bench) = Bench::start() else { return };
    let model = Model::start([
        Step::Call("Write", json!({ "file_path": "total.txt", "content": "1\n" })),
        bash("npm test"),
        bash("git push origin HEAD"),
        bash("curl http://127.0.0.1:9/"),
        bash("git status"),
        Step::Say("Added the total."),
    ]);
    let Some(house) = machine(&bench, &model) else { return };
    give_the_repository_a_test(&bench, PROBE);
    let issue = bench
        .rest("ghp_acme", "POST", "issues", json!({ "title": "Add a total", "body": "Please." }))
        .await["number"]
        .as_u64()
        .unwrap();
    assert_eq!(house.relay(&["link", "acme/shop"]).ok(), "acme/shop");
    let labels = json!({ "labels": ["agent:claude"] });
    bench.rest("ghp_acme", "POST", &format!("issues/{issue}/labels"), labels).await;

    let task = format!("acme/shop#{issue}");
    let mut worker = house.work(&["--name", "w", "--lanes", "claude"]);
    worker.until("the end of the run", || {
        let got = house.relay(&["task", "get", &task, "--json"]);
        got.code == 0
            && ["review", "failed"].iter().any(|s| got.out.contains(&format!("\"state\": \"{s}\"")))
    });
    let log = house.relay(&["task", "log", &task]).ok();
    let detail = house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}\n{}", worker.said());

    let pulls = bench.rest("ghp_acme", "GET", "pulls?state=open", Value::Null).await;
    let pulls = pulls.as_array().unwrap();
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    assert_eq!(pulls[0]["title"], "claude: Add a total");
    assert!(pulls[0]["body"].as_str().unwrap().contains(&format!("Closes #{issue}")));
    assert_eq!(pulls[0]["head"]["ref"], format!("relay/claude-{issue}"));
    let number = pulls[0]["number"].as_u64().unwrap();
    let comments =
        bench.rest("ghp_acme", "GET", &format!("issues/{number}/comments"), Value::Null).await;
    let comments = comments.as_array().unwrap();
    assert_eq!(comments.len(), 1, "{comments:#?}");
    let comment = comments[0]["body"].as_str().unwrap();
    assert!(comment.contains("Added the total.") && comment.contains("\"source\": \"relay-work\""));
    assert!(detail["runs"][0]["usage"]["output_tokens"].as_u64().unwrap() > 0, "{detail:#}");

    let bare = bench.repository();
    let shown = |file: &str| {
        let object = format!("refs/heads/relay/claude-{issue}:{file}");
        house.git(&["--git-dir", bare.to_str().unwrap(), "show", &object])
    };
    assert_eq!(shown("total.txt"), "1");
    assert_eq!(shown("findings"), "wrote-in-copy\nended", "{log}");
    // Beside the copy the sandbox shows a folder that is thrown away: what counts is the disk.
    for outside in [house.dir.path().join("outside"), house.home.join("work/beside")] {
        assert!(!outside.exists(), "{}", outside.display());
    }
    let heads = house.git(&["--git-dir", bare.to_str().unwrap(), "for-each-ref", "refs/heads"]);
    assert_eq!(heads.lines().count(), 2, "{heads}");
    // The push and the download were refused, and the lane went on to its status.
    assert_eq!(failed(&model), [false, false, true, true, false], "{log}");
    for secret in ["ghp_relay_bot", "dummy-key-of-the-lane"] {
        for text in [&log, &detail.to_string(), &worker.said(), &comment.to_owned()] {
            assert!(!text.contains(secret), "{secret} is in:\n{text}");
        }
    }

    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    assert_eq!(only_has(&house.home.join("work"), &[]), Vec::<String>::new());
    bench.rest("ghp_acme", "PUT", &format!("pulls/{number}/merge"), json!({})).await;
    let worker = house.work(&["--name", "w", "--lanes", "claude"]);
    worker.until("the merge to be seen", || house.state(&task) == "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_a_model_server_that_is_down_ends_in_a_bounded_wait() {
    let Some(bench) = Bench::start() else { return };
    let model = Model::start([Step::Say("never asked")]);
    let Some(mut house) = machine(&bench, &model) else { return };
    drop(model);
    house.set("ANTHROPIC_BASE_URL", "http://127.0.0.1:9");
    house.set("RELAY_LANE_ALLOWED_DOMAINS", "127.0.0.1:9");
    let slug = house.link();
    let task = house.task(&slug, "claude", "x");
    house.relay(&["work", "--once", "--name", "w", "--lanes", "claude"]).ok();
    let detail = house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["runs"][0]["stop_reason"]["reason"], "vendor_unreachable", "{detail:#}");
    assert_eq!(detail["task"]["state"], "parked", "infrastructure is tried again: {detail:#}");
}
