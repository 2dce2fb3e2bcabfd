//! The whole of it over two machines: a site watches the GitHub-like bench and keeps the queue; a
//! worker with another home, another login and a token of its own takes the labelled issue over
//! HTTP, runs the real claude, and makes the pull request. No token is anywhere it need not be.

use std::path::Path;

use serde_json::{Value, json};

use crate::full_label::{give_the_repository_a_test, machine};
use crate::support::bench::Bench;
use crate::support::house::{House, Working};
use crate::support::model::{Model, Step};
use crate::support::processes::with_environment;
use crate::support::served::Served;

/// The site's login at the forge, with which it watches; it pushes nothing.
const WATCHES: &str = "ghp_acme";
/// The worker's, with which it pushes.
const PUSHES: &str = "ghp_relay_bot";
/// What the lane is given for its model.
const KEY: &str = "dummy-key-of-the-lane";

/// Run by `npm test` in the lane: looks for the site, and for what opens it.
fn probe(site: &str) -> String {
    format!(
        r#"
env | grep -q -e ghp_ -e RELAY_TOKEN -e RELAY_SITE -e DATABASE_URL -e 'relay_[A-Za-z0-9]' && echo SAW-A-TOKEN >> findings
cat "$HOME/worker-w/token" "$HOME/worker-w/credentials.json" 2>/dev/null | grep -q . && echo READ-THE-SITES-TOKEN >> findings
command -v curl >/dev/null || echo NO-CURL >> findings
heard() {{ curl -si -m 5 "$@" 2>/dev/null | grep -qi '^relay-version'; }}
heard http://{site}/api/v1/status && echo REACHED-THE-SITE >> findings
heard --noproxy '*' http://{site}/api/v1/status && echo REACHED-THE-SITE >> findings
heard --unix-socket "$HOME/relay/relay.sock" http://relay/api/v1/status && echo REACHED-ITS-SOCKET >> findings
echo ended >> findings
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn full_a_labelled_issue_becomes_a_pull_request_through_a_site() {
    let Some(bench) = Bench::start() else { return };
    let model = Model::start([
        Step::Call("Write", json!({ "file_path": "total.txt", "content": "1\n" })),
        Step::Call("Bash", json!({ "command": "npm test", "description": "a step" })),
        Step::Say("Added the total."),
    ]);
    let Some(mut house) = machine(&bench, &model) else { return };
    house.set("RELAY_GITHUB_TOKEN", WATCHES).set("RELAY_DEBUG", "1");
    let served = Served::of(house, None);
    let house = &served.house;
    give_the_repository_a_test(&bench, &probe(served.addr()));
    assert_eq!(house.relay(&["link", "acme/shop"]).ok(), "acme/shop");
    let token = served.token("w");
    let mut work = served.command("w", &["work", "--name", "w", "--lanes", "claude"]);
    work.env("RELAY_GITHUB_TOKEN", PUSHES);
    let mut worker = served.spawn(work, "w");

    let issue = open_a_labelled_issue(&bench).await;
    let task = format!("acme/shop#{issue}");
    let mut seen = Vec::new();
    worker.until("the end of the run", || {
        seen.extend(lanes_with_a_secret(house.dir.path(), &token));
        has_ended(house, &task)
    });
    let log = house.relay(&["task", "log", &task]).ok();
    let detail = house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}\n{}", worker.said());
    assert_eq!(seen, Vec::<String>::new(), "programs of the lane that hold a token");

    let (pull, comment) = the_pull_request(&bench, issue).await;
    assert!(comment.contains("Added the total."), "{comment}");
    let bare = bench.repository();
    let bare = bare.to_str().unwrap();
    let shown = |file: &str| {
        let object = format!("refs/heads/relay/claude-{issue}:{file}");
        house.git(&["--git-dir", bare, "show", &object])
    };
    assert_eq!(shown("total.txt"), "1");
    assert_eq!(shown("findings"), "ended", "{log}");

    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    let told = everything_told(&served, &worker, &task, &[&pull, &comment]);
    for secret in [WATCHES, PUSHES, KEY, token.as_str()] {
        assert!(!told.contains(secret), "{secret} was told:\n{told}");
        assert_eq!(files_with(house.dir.path(), secret), Vec::<String>::new(), "{secret}");
    }

    bench.rest("ghp_acme", "PUT", &format!("pulls/{}/merge", pull_number(&pull)), json!({})).await;
    worker.until("the site to see the merge", || house.state(&task) == "done");
}

async fn open_a_labelled_issue(bench: &Bench) -> u64 {
    let text = json!({ "title": "Add a total", "body": "Please." });
    let issue = bench.rest("ghp_acme", "POST", "issues", text).await["number"].as_u64().unwrap();
    let labels = json!({ "labels": ["agent:claude"] });
    bench.rest("ghp_acme", "POST", &format!("issues/{issue}/labels"), labels).await;
    issue
}

fn has_ended(house: &House, task: &str) -> bool {
    let got = house.relay(&["task", "get", task, "--json"]);
    let is = |state: &str| got.out.contains(&format!("\"state\": \"{state}\""));
    got.code == 0 && (is("review") || is("failed"))
}

/// The one pull request, and the one comment on it.
async fn the_pull_request(bench: &Bench, issue: u64) -> (String, String) {
    let pulls = bench.rest("ghp_acme", "GET", "pulls?state=open", Value::Null).await;
    let pulls = pulls.as_array().unwrap();
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    assert_eq!(pulls[0]["title"], "claude: Add a total");
    assert_eq!(pulls[0]["head"]["ref"], format!("relay/claude-{issue}"));
    let path = format!("issues/{}/comments", pulls[0]["number"]);
    let comments = bench.rest("ghp_acme", "GET", &path, Value::Null).await;
    assert_eq!(comments.as_array().unwrap().len(), 1, "{comments:#}");
    (pulls[0].to_string(), comments[0]["body"].as_str().unwrap().to_owned())
}

fn pull_number(pull: &str) -> u64 {
    serde_json::from_str::<Value>(pull).unwrap()["number"].as_u64().unwrap()
}

/// The programs below a supervisor that hold a login of the forge or of the site.
fn lanes_with_a_secret(root: &Path, token: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, line, environment) in with_environment(root) {
        let environment = String::from_utf8_lossy(&environment);
        let holds = [WATCHES, PUSHES, token].iter().any(|secret| environment.contains(secret));
        let shows = [WATCHES, PUSHES, KEY, token].iter().any(|secret| line.contains(secret));
        // relay's own, and the git commands it starts by themselves.
        let is_relays =
            (name == "relay" && !line.contains("__supervise")) || name.starts_with("git");
        if shows || (holds && !is_relays) {
            found.push(format!("{name} {}", line.replace('\0', " ")));
        }
    }
    found
}

/// What people can read: both programs' words, each list as JSON, the forge.
fn everything_told(served: &Served, worker: &Working, task: &str, forge: &[&str]) -> String {
    let house = &served.house;
    let mut told = format!("{}{}{}", served.site().said(), worker.said(), forge.concat());
    for args in [
        &["task", "log", task][..],
        &["task", "get", task, "--json"],
        &["events", "--last", "1000", "--json"],
        &["token", "ls", "--json"],
        &["work", "status", "--json"],
    ] {
        told.push_str(&house.relay(args).ok());
    }
    told
}

/// The files below `root` that hold it, but the one in which this test keeps the worker's token, and
/// the site's own words, which tell an admin token once.
fn files_with(root: &Path, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && !path.ends_with("worker-w/token") {
                let bytes = std::fs::read(&path).unwrap_or_default();
                if bytes.windows(secret.len()).any(|part| part == secret.as_bytes()) {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found
}
