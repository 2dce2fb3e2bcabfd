//! One machine with the real claude, codex and grok, each on a scripted model: three labelled issues
//! on the GitHub-like bench become three pull requests at the same time, and what no lane may do is
//! refused to each. Which rule held for which lane is a table that `scripts/test` prints.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::bench::Bench;
use crate::support::chat::{Chat, TICKS};
use crate::support::house::{House, only_has, processes_with};
use crate::support::model::{Model, RESPONSE_TOKENS, Step};
use crate::support::processes::Marked;
use crate::{full_codex, full_grok, full_label};

const LANES: [&str; 3] = ["claude", "codex", "grok"];

/// What a run must do, and what it must not, by the word that its probe writes down.
const RULES: [(&str, &str); 17] = [
    ("wrote-in-its-copy", "write its copy"),
    ("made-a-temporary-file", "make a temporary file"),
    ("WROTE-IN-THE-HOME", "write the person's home"),
    ("WROTE-IN-A-REPOSITORY", "write another repository"),
    ("WROTE-A-PROGRAM", "write a program on PATH"),
    ("WROTE-IN-RELAYS-FOLDER", "write relay's folder"),
    ("READ-A-KEY", "read an SSH key"),
    ("READ-THE-FORGES-LOGIN", "read the forge's login"),
    ("READ-ANOTHER-LANES-LOGIN", "read another lane's login"),
    ("READ-ITS-OWN-LOGIN", "read the login it runs under"),
    ("READ-THE-DATABASE", "read relay's database"),
    ("SAW-A-TOKEN", "see the forge's token"),
    ("SAW-THE-WORKERS-ENVIRONMENT", "see the worker's environment"),
    ("REACHED-A-HOST", "reach a host that is not listed"),
    ("REACHED-IT-BY-ITS-PROXY", "reach it by its proxy"),
    ("PUSHED", "push"),
    ("OUTLIVED-ITS-RUN", "leave a process behind"),
];

/// Run by each lane, by the test's own hand as well: `SHUT` is a port of this machine that nobody
/// listed, `MARK` the word of what it leaves behind. What stands in a person's home is found by HOME.
const PROBE: &str = r#"
try() { what=$1; shift; "$@" >/dev/null 2>&1 && echo "$what" >>findings; }
copy=$(basename "$PWD")
try wrote-in-its-copy touch made-by-a-command
try made-a-temporary-file sh -c 'f=$(mktemp) && echo x >"$f"'
try WROTE-IN-THE-HOME touch "$HOME/outside"
try WROTE-IN-A-REPOSITORY touch "$HOME/shop/outside"
try WROTE-A-PROGRAM touch "$HOME/bin/outside"
try said-it-wrote-in-relays-folder touch "$HOME/relay/outside-$copy"
try READ-A-KEY grep -q SECRET "$HOME/.ssh/id"
try READ-THE-FORGES-LOGIN grep -q SECRET "$HOME/.config/gh/hosts.yml"
case "$CODEX_HOME,$GROK_HOME" in
    ?*,*) others=$HOME/.grok/auth.json;;
    *,?*) others=$HOME/.codex/auth.json;;
    *) others="$HOME/.grok/auth.json $HOME/.codex/auth.json";;
esac
try READ-ANOTHER-LANES-LOGIN grep -q of- $others
try READ-ITS-OWN-LOGIN sh -c 'env | grep -q dummy-key || grep -q of- "$CODEX_HOME/auth.json" "$HOME/.codex/auth.json" "$PWD"/../../vendor/*/grok/auth.json'
try READ-THE-DATABASE test -s "$HOME/relay/relay.db"
try SAW-A-TOKEN sh -c 'env | grep -q ghp_'
try SAW-THE-WORKERS-ENVIRONMENT sh -c 'cat /proc/[0-9]*/environ | grep -aq CANARY-of-the-worke[r]'
try has-curl command -v curl
try REACHED-A-HOST curl -sf -m 300 --noproxy '*' http://127.0.0.1:SHUT/direct
try REACHED-IT-BY-ITS-PROXY curl -sf -m 300 http://127.0.0.1:SHUT/proxy
try PUSHED git push -q origin HEAD:refs/heads/pushed-by-a-lane
setsid sleep 600 MARK </dev/null >/dev/null 2>&1 &
(sleep 600 MARK </dev/null >/dev/null 2>&1 &)
echo ended >>findings
"#;

#[tokio::test(flavor = "multi_thread")]
async fn full_three_vendors_on_one_machine() {
    let Some(bench) = Bench::start() else { return };
    let mark = Marked::new();
    let shut = Shut::start();
    let probe = PROBE.replace("MARK", &mark.mark).replace("SHUT", &shut.port.to_string());
    let models = Models::new();
    let Some(house) = machine(&bench, &models) else { return };
    the_probe_can_tell(&house, &probe, &shut, &mark).await;

    full_label::give_the_repository_a_test(&bench, &probe);
    assert_eq!(house.relay(&["link", "acme/shop"]).ok(), "acme/shop");
    let mut issues = Vec::new();
    for lane in LANES {
        let issue = json!({ "title": format!("Add a total by {lane}"), "body": "Please." });
        let number = bench.rest("ghp_acme", "POST", "issues", issue).await["number"].as_u64();
        issues.push((lane, number.unwrap()));
    }
    for (lane, issue) in &issues {
        let labels = json!({ "labels": [format!("agent:{lane}")] });
        bench.rest("ghp_acme", "POST", &format!("issues/{issue}/labels"), labels).await;
    }
    let served = LANES.join(",");
    let mut worker = house.work(&["--name", "w", "--lanes", &served, "--jobs", "3"]);
    let task = |issue: u64| format!("acme/shop#{issue}");
    for (_, issue) in &issues {
        worker.until("the end of a run", || {
            let got = house.relay(&["task", "get", &task(*issue), "--json"]);
            let state = |s| got.out.contains(&format!("\"state\": \"{s}\""));
            got.code == 0 && (state("review") || state("failed") || state("parked"))
        });
    }

    let mut table = Table::default();
    let mut told = String::new();
    for (lane, issue) in &issues {
        let detail = house.json(&["task", "get", &task(*issue), "--json"]);
        let log = house.relay(&["task", "log", &task(*issue)]).ok();
        assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}\n{}", worker.said());
        the_pull_request(&bench, lane, *issue).await;
        models.is_counted(lane, &detail["runs"][0]["usage"]);
        if *lane == "claude" {
            is_what_claude_said(&house, &detail);
        }
        table.add(lane, &found(&house, &bench, lane, *issue, (&shut, &mark)));
        told.push_str(&format!("{log}{detail}"));
    }
    told.push_str(&worker.said());
    for secret in
        ["ghp_relay_bot", full_label::KEY, full_codex::KEY].iter().chain(&full_grok::TOKENS)
    {
        assert!(!told.contains(secret), "{secret} is in:\n{told}");
    }
    assert_eq!(mark.alive(), [], "{:?}", mark.names());
    for folder in ["work", "vendor"] {
        assert_eq!(only_has(&house.home.join(folder), &[]), Vec::<String>::new());
        let path = house.home.join(folder);
        assert_eq!(processes_with(path.to_str().unwrap()), Vec::<String>::new());
    }
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    table.print();
    assert_eq!(table.broken(), Vec::<String>::new());
}

/// The cost is claude's own word, from its prices and its counts of tokens.
#[track_caller]
fn is_what_claude_said(house: &House, detail: &Value) {
    let (transcript, _) = house.transcript(detail);
    let said = transcript.rsplit_once("\"total_cost_usd\":").expect("it said no cost").1;
    let said = said.split([',', '}']).next().unwrap().trim().parse::<f64>().unwrap();
    let cost = detail["runs"][0]["usage"]["cost_usd"].as_f64();
    assert!(said > 0.0, "{said}");
    assert_eq!(cost, Some(said), "{detail:#}");
}

/// What each lane's model does, and what it was asked.
struct Models {
    claude: Model,
    codex: Model,
    grok: Chat,
}

impl Models {
    fn new() -> Self {
        let say = || Step::Say("Added the total.");
        let shell = |tool, name: &str, line: &str| Step::Call(tool, json!({ name: line }));
        let patch =
            "apply_patch <<'E'\n*** Begin Patch\n*** Add File: total.txt\n+1\n*** End Patch\nE";
        Self {
            claude: Model::start([
                Step::Call("Write", json!({ "file_path": "total.txt", "content": "1\n" })),
                Step::Call("Bash", json!({ "command": "npm test", "description": "a step" })),
                say(),
            ]),
            codex: Model::start([
                shell("exec_command", "cmd", patch),
                Step::Call(
                    "exec_command",
                    json!({ "cmd": "sh probe.sh", "yield_time_ms": 30_000 }),
                ),
                say(),
            ]),
            grok: Chat::start(
                true,
                [
                    Step::Call("write", json!({ "file_path": "total.txt", "content": "1\n" })),
                    Step::Call(
                        "run_terminal_command",
                        json!({ "command": "sh probe.sh", "description": "a step" }),
                    ),
                    say(),
                ],
            ),
        }
    }

    /// Whether a run's usage is to the token what its model said in all its answers.
    #[track_caller]
    fn is_counted(&self, lane: &str, usage: &Value) {
        let turns = |asked: usize| u64::try_from(asked).unwrap();
        let (answers, [input, cached, output]) = match lane {
            "claude" => (turns(self.claude.requests().len()), [10, 0, 5]),
            "codex" => {
                let [all, cached, output] = RESPONSE_TOKENS;
                (turns(self.codex.requests().len()), [all - cached, cached, output])
            }
            _ => (turns(self.grok.requests().len()), [700, 300, 50]),
        };
        assert!(answers >= 3, "{lane}: {answers} answers");
        assert_eq!(usage["input_tokens"], input * answers, "{lane}: {usage:#}");
        assert_eq!(usage["output_tokens"], output * answers, "{lane}: {usage:#}");
        let seen = usage["cache_read_tokens"].as_u64().unwrap_or(0);
        assert_eq!(seen, cached * answers, "{lane}: {usage:#}");
        let cost = usage["cost_usd"].as_f64();
        match lane {
            "codex" => assert_eq!(cost, None, "codex tells no price"),
            "grok" => {
                let expected = 3.0 * TICKS as f64 / 1e10;
                assert!((cost.unwrap() - expected).abs() < 1e-9, "{usage:#}");
            }
            _ => {}
        }
    }
}

/// A machine with the three, logged in, and a person's things beside them.
fn machine(bench: &Bench, models: &Models) -> Option<House> {
    let mut house = House::new();
    let mut names = full_label::log_in(&mut house, &models.claude)?;
    names.extend(full_codex::log_in(&mut house, &models.codex)?);
    names.extend(full_grok::log_in(&mut house, &models.grok)?);
    let ports = [models.claude.port, models.codex.port, models.grok.port];
    let listed = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    for (path, text) in [(".ssh/id", "SECRET\n"), (".config/gh/hosts.yml", "token: SECRET\n")] {
        let path = house.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    house
        .set("RELAY_GITHUB_API", &format!("{}/api/v3", bench.url))
        .set("RELAY_GITHUB_TOKEN", "ghp_relay_bot")
        .set("SOME_KEY", "CANARY-of-the-worker")
        .set("RELAY_LANE_PATHS", "")
        .set("RELAY_LANE_ALLOWED_DOMAINS", &listed)
        .set("RELAY_LANE_ENV", &names.join(","));
    Some(house)
}

/// Outside of every box the probe finds all of it: a table of refusals is one of a probe that works.
#[expect(clippy::disallowed_methods, reason = "a person's own shell")]
async fn the_probe_can_tell(house: &House, probe: &str, shut: &Shut, mark: &Marked) {
    let place = tempfile::tempdir().unwrap();
    let home = place.path();
    let copy = home.join("copy");
    for folder in [".ssh", ".config/gh", ".grok", ".codex", "shop", "bin", "relay", "copy"] {
        fs::create_dir_all(home.join(folder)).unwrap();
    }
    for (path, text) in [
        (".ssh/id", "SECRET"),
        (".config/gh/hosts.yml", "SECRET"),
        (".grok/auth.json", "token-of-ada"),
        (".codex/auth.json", "key-of-the-lane"),
        ("relay/relay.db", "x"),
        ("copy/probe.sh", probe),
    ] {
        fs::write(home.join(path), text).unwrap();
    }
    let origin = home.join("origin.git");
    house.git(&["init", "-q", "--bare", origin.to_str().unwrap()]);
    let text = copy.to_str().unwrap();
    house.git(&["init", "-q", text]);
    house.git(&["-C", text, "remote", "add", "origin", origin.to_str().unwrap()]);
    let who = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
    house.git(&[&["-C", text], &who[..], &["commit", "-q", "--allow-empty", "-m", "one"]].concat());
    let status = Command::new("sh")
        .arg("probe.sh")
        .current_dir(&copy)
        .env_remove("CODEX_HOME")
        .env_remove("GROK_HOME")
        .env("HOME", home)
        .env("A_TOKEN", "ghp_x")
        .env("SOME_KEY", "CANARY-of-the-worker")
        .env("no_proxy", "*")
        .status();
    assert!(status.unwrap().success());
    let findings = fs::read_to_string(copy.join("findings")).unwrap();
    mark.wait_for(2).await;
    for pid in mark.alive() {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    mark.wait_for(0).await;
    for (word, _) in RULES {
        let word = match word {
            "WROTE-IN-RELAYS-FOLDER" => "said-it-wrote-in-relays-folder",
            "OUTLIVED-ITS-RUN" => continue,
            word => word,
        };
        assert!(findings.lines().any(|line| line == word), "{word} is not in:\n{findings}");
    }
    assert_eq!(shut.asked.swap(0, Ordering::SeqCst), 2);
}

/// The lane's pull request, with one comment that has the run's block.
async fn the_pull_request(bench: &Bench, lane: &str, issue: u64) {
    let pulls = bench.rest("ghp_acme", "GET", "pulls?state=open", Value::Null).await;
    let pulls = pulls.as_array().unwrap();
    assert_eq!(pulls.len(), 3, "{pulls:#?}");
    let branch = format!("relay/{lane}-{issue}");
    let pull = pulls.iter().find(|pull| pull["head"]["ref"] == branch.as_str()).expect("no pull");
    assert_eq!(pull["title"], format!("{lane}: Add a total by {lane}"));
    assert!(pull["body"].as_str().unwrap().contains(&format!("Closes #{issue}")), "{pull:#}");
    let path = format!("issues/{}/comments", pull["number"]);
    let comments = bench.rest("ghp_acme", "GET", &path, Value::Null).await;
    let comments = comments.as_array().unwrap();
    assert_eq!(comments.len(), 1, "{comments:#?}");
    assert!(comments[0]["body"].as_str().unwrap().contains("\"source\": \"relay-work\""));
}

/// The words that stand for what a lane could do, from its own findings and from what is on the disk.
fn found(
    house: &House,
    bench: &Bench,
    lane: &str,
    issue: u64,
    (shut, mark): (&Shut, &Marked),
) -> Vec<String> {
    let bare = bench.repository();
    let git = |args: &[&str]| house.git(&[&["--git-dir", bare.to_str().unwrap()], args].concat());
    let branch = format!("refs/heads/relay/{lane}-{issue}");
    assert_eq!(git(&["show", &format!("{branch}:total.txt")]), "1");
    let findings = git(&["show", &format!("{branch}:findings")]);
    let mut words: Vec<String> = findings.lines().map(str::to_owned).collect();
    assert_eq!(words.pop().as_deref(), Some("ended"), "{lane}: the probe came to its end");
    assert!(words.iter().any(|word| word == "has-curl"), "{lane}: {words:?}");
    // What a command writes beside its copy is thrown away: what counts is the disk.
    for (place, word) in [
        (house.home.clone(), "WROTE-IN-RELAYS-FOLDER"),
        (house.dir.path().to_owned(), "WROTE-IN-THE-HOME"),
        (house.dir.path().join("shop"), "WROTE-IN-A-REPOSITORY"),
        (house.dir.path().join("bin"), "WROTE-A-PROGRAM"),
    ] {
        if has_an_outside(&place) {
            words.push(word.to_owned());
        }
    }
    if shut.asked.load(Ordering::SeqCst) > 0 {
        words.push("REACHED-A-HOST".to_owned());
    }
    if git(&["for-each-ref", "refs/heads"]).contains("pushed-by-a-lane") {
        words.push("PUSHED".to_owned());
    }
    if !mark.alive().is_empty() {
        words.push("OUTLIVED-ITS-RUN".to_owned());
    }
    words
}

fn has_an_outside(folder: &Path) -> bool {
    let names = only_has(folder, &[]);
    names.iter().any(|name| name.starts_with("outside"))
}

/// Lane by rule.
#[derive(Default)]
struct Table {
    columns: Vec<(String, Vec<String>)>,
}

impl Table {
    fn add(&mut self, lane: &str, words: &[String]) {
        self.columns.push((lane.to_owned(), words.to_vec()));
    }

    /// What a run did of a rule's deed.
    fn verdict(words: &[String], word: &str) -> &'static str {
        let done = words.iter().any(|found| found == word);
        let may = word.starts_with(|c: char| c.is_lowercase());
        match (done, may) {
            (true, true) => "can",
            (false, true) => "CANNOT",
            (false, false) => "refused",
            (true, false) => "DID IT",
        }
    }

    /// The cells that are not as they must be.
    fn broken(&self) -> Vec<String> {
        let all = self.columns.iter().flat_map(|(lane, words)| {
            RULES.iter().map(move |(word, rule)| (lane, rule, Self::verdict(words, word)))
        });
        let bad = all.filter(|(_, _, verdict)| !["can", "refused"].contains(verdict));
        bad.map(|(lane, rule, verdict)| format!("{lane}: {rule}: {verdict}")).collect()
    }

    /// Puts it on the output, and into the file that `scripts/test` prints at its end.
    #[expect(clippy::disallowed_methods, reason = "the test's own setting, not the program's")]
    fn print(&self) {
        let mut text = format!("{:32}", "what a run may do");
        for (lane, _) in &self.columns {
            text.push_str(&format!("{lane:>9}"));
        }
        for (word, rule) in RULES {
            text.push_str(&format!("\n{rule:32}"));
            for (_, words) in &self.columns {
                text.push_str(&format!("{:>9}", Self::verdict(words, word)));
            }
        }
        text.push('\n');
        println!("{text}");
        if let Some(path) = std::env::var_os("RELAY_TEST_TABLE").filter(|path| !path.is_empty()) {
            fs::write(path, text).unwrap();
        }
    }
}

/// A server on this machine's loopback that nobody listed, and how often it was asked.
struct Shut {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Shut {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let _asked = client.read(&mut [0; 4096]);
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _gone = client.write_all(answer);
            }
        });
        Self { port, asked }
    }
}
