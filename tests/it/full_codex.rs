//! The real Codex on a scripted model, from a task on a repository of this disk to its pull
//! request: what its commands can do, what is counted, and how its ends are read.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::full::{says_version, skip};
use crate::support::house::{House, only_has};
use crate::support::model::{Model, RESPONSE_TOKENS, Step};
use crate::support::processes::{Marked, tool};

/// Its login.
pub const KEY: &str = "dummy-key-of-the-lane";

/// Run by a command of the agent's: writes down what it could do, one word a line.
const PROBE: &str = r#"
exec >findings 2>noise
try() { word=$1; shift; "$@" && echo "$word"; }
try wrote-in-copy touch made-by-a-command
try wrote-temporary sh -c 'f=$(mktemp) && echo x >"$f"'
try WROTE-IN-HOME touch "$HOME/outside"
touch "$PWD.beside"
try WROTE-A-HOOK sh -c 'mkdir -p .git/hooks && touch .git/hooks/post-commit'
try WROTE-IN-ETC touch /etc/relay-was-here
try READ-A-KEY grep -q secret "$HOME/.ssh/id"
try READ-THE-LOGIN grep -rq dummy-key "$HOME/.codex" "$HOME/relay/vendor"
try READ-THE-DATABASE grep -q . "$HOME/relay/relay.db"
try SAW-A-KEY sh -c 'env | grep -q dummy-key'
try SAW-ITS-HOME sh -c 'env | grep -q CODEX_HOME='
try SAW-ANOTHER-ENVIRONMENT sh -c 'cat /proc/[0-9]*/environ | tr "\0" "\n" | grep -q ^CODEX_HOME='
try has-a-program git status --short
try PASSED-THE-PROXY-BY bash -c 'echo >/dev/tcp/127.0.0.1/$MODEL_PORT'
try reached-what-is-listed curl -sS -m 300 -o page http://127.0.0.1:$MODEL_PORT/
curl -sS -m 300 http://127.0.0.1:9/ | grep -q 'relay refuses' && echo refused-what-is-not
rm -f page
(setsid sh -c 'sleep 600 $MARK' &)
(sh -c 'sleep 600 $MARK' &)
echo "zone $(date +%z)"
echo "temporary $TMPDIR"
true
"#;

/// A machine with the real codex, logged in with a key, its model scripted.
fn machine(model: &Model) -> Option<House> {
    machine_of(House::new(), model)
}

fn machine_of(mut house: House, model: &Model) -> Option<House> {
    let names = log_in(&mut house, model)?;
    fs::create_dir(house.dir.path().join(".ssh")).unwrap();
    fs::write(house.dir.path().join(".ssh/id"), "secret\n").unwrap();
    house
        .set("RELAY_LANE_ALLOWED_DOMAINS", &format!("127.0.0.1:{}", model.port))
        .set("LANE_API_KEY", "dummy-key-of-the-environment")
        .set("RELAY_LANE_ENV", &format!("{},LANE_API_KEY", names.join(",")));
    Some(house)
}

/// Gives a machine the real codex, logged in with a key, and says which variables its lane needs.
#[expect(clippy::disallowed_methods, reason = "scripts/test says where the real codex is")]
pub fn log_in(house: &mut House, model: &Model) -> Option<Vec<&'static str>> {
    let Some(codex) = std::env::var_os("RELAY_TEST_CODEX") else {
        skip("RELAY_TEST_CODEX does not name the codex program");
        return None;
    };
    house.program("codex", &format!("#!/bin/sh\nexec '{}' \"$@\"\n", codex.display()));
    let folder = house.dir.path().join(".codex");
    fs::create_dir(&folder).unwrap();
    let login = json!({ "auth_mode": "apikey", "OPENAI_API_KEY": KEY });
    fs::write(folder.join("auth.json"), login.to_string()).unwrap();
    // The person's own settings are not a run's: with these it would ask nobody.
    let nobody = "model_provider = \"nobody\"\n[model_providers.nobody]\nname = \"nobody\"\n\
                  base_url = \"http://127.0.0.1:9/v1\"\n";
    fs::write(folder.join("config.toml"), nobody).unwrap();
    house.set("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    Some(vec!["OPENAI_BASE_URL"])
}

/// Runs one task to its end.
fn run(house: &House) -> (Value, String) {
    let slug = house.link();
    let task = house.task(&slug, "codex", "Add a total");
    house.relay(&["work", "--once", "--name", "w", "--lanes", "codex"]);
    let log = house.relay(&["task", "log", &task]).ok();
    (house.json(&["task", "get", &task, "--json"]), log)
}

fn commit_probe(house: &House, mark: &Marked, model: &Model) {
    let probe = PROBE.replace("$MARK", &mark.mark);
    let probe = probe.replace("$MODEL_PORT", &model.port.to_string());
    fs::write(house.repo.join("probe.sh"), probe).unwrap();
    house.in_repo(&["add", "-A"]);
    house.in_repo(&["-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-qm", "test"]);
}

fn command(command: &str) -> Step {
    Step::Call("exec_command", json!({ "cmd": command, "yield_time_ms": 20_000 }))
}

/// With the default model the tools come another way than with one that the program does not know.
fn from_task_to_pull_request(house: House, named: Option<&str>) {
    let mark = Marked::new();
    let model = Model::start([
        command("sh probe.sh"),
        command(
            "apply_patch <<'E'\n*** Begin Patch\n*** Add File: total.txt\n+1\n*** End Patch\nE",
        ),
        command("git add -A && git commit -qm mine"),
        Step::Say("Added the total."),
    ]);
    let Some(mut house) = machine_of(house, &model) else { return };
    // codex makes no helpers in a home that is under TMPDIR.
    let temporary = if house.home.starts_with("/tmp") { "/var/tmp" } else { "/tmp" };
    if let Some(named) = named {
        house.set("RELAY_MODEL_CODEX", named);
    }
    commit_probe(&house, &mark, &model);
    let lanes = house.json(&["lane", "ls", "--json", "--patience", "60"]);
    let codex = lanes["lanes"].as_array().unwrap().iter().find(|l| l["lane"] == "codex").unwrap();
    assert_eq!(codex["served"], true, "{codex:#}");
    assert_eq!(codex["detail"], "an API key");
    let version = says_version(&house.bin.join("codex"), relay_lanes::codex::VENDOR.version);
    assert_eq!(codex["version"], *version, "{codex:#}");
    assert_eq!(codex["model"], json!(named));

    let (detail, log) = run(&house);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    let shown = |file: &str| house.in_repo(&["show", &format!("relay/codex-1:{file}")]);
    assert_eq!(shown("total.txt"), "1", "{log}");
    assert_eq!(
        shown("findings").lines().collect::<Vec<_>>(),
        [
            "wrote-in-copy",
            "wrote-temporary",
            "?? findings",
            "?? made-by-a-command",
            "?? noise",
            "has-a-program",
            "reached-what-is-listed",
            "refused-what-is-not",
            "zone +0000",
            &format!("temporary {temporary}")
        ],
        "{log}\n{}",
        shown("noise")
    );
    assert_eq!(mark.alive(), [], "{:?}", mark.names());
    assert!(!house.dir.path().join("outside").exists());

    let usage = &detail["runs"][0]["usage"];
    let turns = u64::try_from(model.requests().len()).unwrap();
    let [input, cached, output] = RESPONSE_TOKENS.map(|tokens| tokens * turns);
    let last = model.requests().last().unwrap()["input"].clone();
    // On a slow machine a command is waited for in turns of its own.
    assert!(turns >= 4, "{last:#}\n{log}");
    // relay commits, not the agent.
    assert!(last.to_string().contains("index.lock"), "{last:#}");
    assert_eq!(usage["input_tokens"], input - cached, "{usage:#}");
    assert_eq!(usage["cache_read_tokens"], cached, "{usage:#}");
    assert_eq!(usage["output_tokens"], output, "{usage:#}");
    assert_eq!(usage["cost_usd"], Value::Null, "it tells no price");
    let asked = model.requests();
    assert!(asked[0].to_string().contains("Add a total"), "the prompt arrived");
    let shown = model.logins();
    assert!(shown.iter().all(|login| *login == format!("Bearer {KEY}")), "{shown:?}");
    assert_eq!(shown.len(), asked.len());
    assert_eq!(asked[0]["model"].as_str().filter(|_| named.is_some()), named);
    let (transcript, told) = house.transcript(&detail);
    assert_eq!(told["run"]["version"], codex["version"]);
    for text in [&log, &detail.to_string(), &format!("{asked:?}"), &transcript] {
        assert!(!text.contains(KEY), "the key is in:\n{text}");
    }
    // What codex keeps in its home, and what was written beside the copy, went with the run; the person's is as it was.
    for folder in ["vendor", "work"] {
        assert_eq!(only_has(&house.home.join(folder), &[]), Vec::<String>::new());
    }
    let mut left = only_has(&house.dir.path().join(".codex"), &[]);
    left.retain(|name| name != "auth.json" && name != "config.toml" && name != "tmp");
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn full_a_task_becomes_a_pull_request_with_the_model_that_codex_chooses() {
    from_task_to_pull_request(House::new(), None);
}

#[test]
fn full_a_task_becomes_a_pull_request_with_a_model_of_the_operators() {
    from_task_to_pull_request(House::new(), Some("scripted"));
}

/// As on a person's machine: no test's home is in a place for temporary files.
#[test]
fn full_a_task_becomes_a_pull_request_from_a_home_that_is_no_temporary_folder() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let is_temporary = ["/tmp", "/var/tmp"].iter().any(|place| folder.starts_with(place));
    if is_temporary || !rustix::process::geteuid().is_root() {
        println!("skipped: {} is no home for this user", folder.display());
        return;
    }
    from_task_to_pull_request(House::under(folder), None);
}

/// A bubblewrap that cannot be made inside another: the box of relay stands, and codex's does not.
#[test]
fn full_where_its_sandbox_does_not_nest_the_walls_keep_it() {
    let Some(bwrap) = tool("bwrap") else { return skip("bubblewrap") };
    let model = Model::start([command("sh probe.sh"), Step::Say("Tried it.")]);
    let Some(house) = machine(&model) else { return };
    let no_nesting = format!(
        "#!/bin/sh\ncase \" $* \" in *' --dev-bind / / '*) echo no nesting >&2; exit 1;; esac\n\
         exec {} \"$@\"\n",
        bwrap.display()
    );
    house.program("bwrap", &no_nesting);
    let mark = Marked::new();
    commit_probe(&house, &mark, &model);
    let report =
        house.relay(&["doctor", "--json", "--patience", "60"]).out.parse::<Value>().unwrap();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "codex's sandbox").unwrap();
    assert_eq!(check["state"], "warn", "{check:#}");
    assert!(check["seen"].as_str().unwrap().contains("the walls alone keep codex"), "{check:#}");
    let (detail, log) = run(&house);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    let findings = house.in_repo(&["show", "relay/codex-1:findings"]);
    let reached: Vec<&str> =
        findings.lines().filter(|word| word.starts_with(|c: char| c.is_uppercase())).collect();
    // What only its own sandbox keeps: docs/SECURITY.md says so.
    let own = ["WROTE-A-HOOK", "READ-THE-LOGIN", "SAW-ANOTHER-ENVIRONMENT"];
    assert_eq!(reached, own, "{log}");
    assert_eq!(mark.alive(), [], "{:?}", mark.names());
    assert!(!house.dir.path().join("outside").exists());
}

#[test]
fn full_without_walls_it_is_never_run_without_its_sandbox() {
    let model = Model::start([Step::Say("Hello.")]);
    let Some(house) = machine(&model) else { return };
    house.without_namespaces();
    let (detail, log) = run(&house);
    let stop = &detail["runs"][0]["stop_reason"];
    assert_eq!(stop["reason"], "sandbox_unavailable", "{detail:#}\n{log}");
    assert_eq!(model.requests().len(), 0, "the model was asked");
}

#[test]
fn full_every_end_of_the_real_codex_has_its_reason() {
    let answer = |status, error: Value| Step::Answer(status, json!({ "error": error }));
    let in_an_hour = relay::model::Clock::now(&relay::system::SystemClock).0 / 1000 + 3600;
    let limit = json!({
        "type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_at": in_an_hour,
    });
    for (step, expected) in [
        (answer(401, json!({ "message": "Incorrect API key provided" })), "not_logged_in"),
        (answer(400, json!({ "message": "No.", "type": "invalid_request_error" })), "vendor_error"),
        (answer(429, limit), "quota"),
    ] {
        let model = Model::start([step.clone()]);
        let Some(house) = machine(&model) else { return };
        let (detail, log) = run(&house);
        let stop = &detail["runs"][0]["stop_reason"];
        assert_eq!(stop["reason"], expected, "{step:?}: {detail:#}\n{log}");
        if expected == "quota" {
            // It is told to the minute, in the run's own zone.
            let until = stop["until"].as_i64().unwrap() / 1000;
            assert!((in_an_hour - 60..=in_an_hour).contains(&until), "{stop:#} {in_an_hour}");
        }
        assert_eq!(detail["runs"][0]["usage"]["output_tokens"], Value::Null, "{detail:#}");
    }
}
