//! The real Claude Code against a scripted model, with the arguments, environment, settings and
//! walls of a worker: what a job may run works, what it may not fails, and each end is read right.

use std::path::Path;

use relay_lanes::{Reason, Said, claude};
use relay_sandbox::Confinement;
use serde_json::{Value, json};

use crate::support::model::{Model, Step};
use crate::support::processes::tool;
use machine::{KEY, Machine, Run, SECRET, SECRETS, With, is_root, program, walls};

mod machine;

fn bash(command: impl AsRef<str>) -> Step {
    Step::Call("Bash", json!({ "command": command.as_ref(), "description": "a step" }))
}

fn file(tool: &'static str, path: &Path) -> Step {
    Step::Call(
        tool,
        match tool {
            "Write" => json!({ "file_path": path, "content": "by the lane\n" }),
            "Edit" => json!({ "file_path": path, "old_string": "o", "new_string": "0" }),
            _ => json!({ "file_path": path }),
        },
    )
}

/// The results of the run's tool calls, in their order: whether each failed, and its text.
fn results(model: &Model) -> Vec<(bool, String)> {
    let requests = model.requests();
    let last = requests.iter().rfind(|body| body["tools"].is_array()).expect("no request");
    let messages = last["messages"].as_array().unwrap();
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    blocks
        .filter(|block| block["type"] == "tool_result")
        .map(|block| (block["is_error"] == true, text(&block["content"])))
        .collect()
}

fn text(content: &Value) -> String {
    match content {
        Value::String(words) => words.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn asked(model: &Model) -> String {
    model.requests().iter().map(Value::to_string).collect()
}

fn done(run: &Run) {
    assert_eq!(run.verdict.reason, Reason::Done, "{:?} {}", run.verdict, run.stderr);
}

/// Run by git at the lane's commit, so inside the sandbox and named by no rule. It writes down
/// what it could do, one word a line.
const REPOSITORY_SCRIPT: &str = r#"#!/bin/sh
exec >findings 2>noise
echo x >made-by-script && echo wrote-in-copy
(echo x >"$HOME/outside") && echo WROTE-IN-HOME
echo x >"$HOME/.harness/outside"
(echo x >.git/hooks/post-commit) && echo WROTE-A-HOOK
(echo x >"$HOME/.npm/kept") && echo wrote-in-store
grep -q readable "$HOME/toolchain/lib" && echo read-the-rest
for path in $SECRET_PATHS; do
    grep -q 'SECRET-of' "$HOME/$path" && echo "LEAKED-$path"
done
env | grep -q -e dummy-model -e SECRET-of && echo LEAKED-ENVIRONMENT
git push --quiet origin HEAD && echo PUSHED
git ls-remote https://forbidden.example/x 2>&1 | grep -q 403 && echo refused-by-proxy
socat -u TCP-LISTEN:18099,bind=127.0.0.1 CREATE:got &
echo hello | socat -u - TCP:127.0.0.1:18099,retry=1200,interval=0.05
wait
grep -q hello got && echo bound-localhost
socat -u /dev/null "TCP:127.0.0.1:$MODEL_PORT" && echo REACHED-THE-HOST
exit 0
"#;

#[test]
fn full_what_a_job_may_run_works_and_its_scripts_are_boxed() {
    let Some(program) = program() else { return };
    for wall in walls() {
        let machine = Machine::new();
        let new = machine.copy.join("new.txt");
        let model = Model::start([
            file("Write", &new),
            file("Read", &machine.copy.join("a.txt")),
            file("Edit", &machine.copy.join("a.txt")),
            bash("git status"),
            bash("git diff"),
            bash("git add --all"),
            bash("git commit -m 'fix the bug'"),
            bash("git log --oneline"),
            bash("git checkout -b side"),
            bash("git restore a.txt"),
            Step::Say("I fixed it."),
        ]);
        let script = REPOSITORY_SCRIPT
            .replace("$SECRET_PATHS", &SECRETS.join(" "))
            .replace("$MODEL_PORT", &model.port.to_string());
        machine.commit_hook(&script);
        let run = machine.run(&program, &wall, &model, &With::default());
        done(&run);
        assert_eq!(run.verdict.summary.as_deref(), Some("I fixed it."));
        assert_eq!(run.verdict.hint, None, "nothing was refused");
        for (at, (failed, words)) in results(&model).iter().enumerate() {
            assert!(!failed, "{wall:?}: call {at} failed: {words}");
        }
        let findings = std::fs::read_to_string(machine.copy.join("findings")).unwrap();
        let noise = std::fs::read_to_string(machine.copy.join("noise")).unwrap();
        assert_eq!(
            findings.lines().collect::<Vec<_>>(),
            [
                "wrote-in-copy",
                "wrote-in-store",
                "read-the-rest",
                "refused-by-proxy",
                "bound-localhost"
            ],
            "{wall:?}: {noise}"
        );
        let (persons, runs) = (machine.home.join(".npm/kept"), machine.store().join("kept"));
        assert_eq!((persons.exists(), runs.exists()), (!wall.has_walls(), wall.has_walls()));
        // relay's own folder is an empty one that is thrown away.
        for outside in ["outside", ".harness/outside"] {
            assert!(!machine.home.join(outside).exists(), "{outside}");
        }
        let log = machine.git(&["log", "-1", "--format=%an %s", "--name-only", "main"]);
        let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, ["relay-agent fix the bug", "a.txt", "new.txt"], "no stub came along");
    }
}

#[test]
fn full_what_a_job_may_not_run_is_refused() {
    let Some(program) = program() else { return };
    for wall in walls() {
        let machine = Machine::new();
        let outside = machine.home.join("outside");
        let at_home = |path: &str| machine.home.join(path);
        let model = Model::start([
            file("Write", &outside),
            file("Write", &at_home(".harness/work/other/file")),
            file("Write", &machine.copy.join(".git/hooks/post-commit")),
            file("Edit", &at_home(".claude/planted")),
            file("Read", &at_home(".ssh/id_ed25519")),
            file("Read", &at_home(".harness/credentials.json")),
            file("Read", &at_home("toolchain/lib")),
            file("Read", Path::new("/etc/passwd")),
            bash("git push origin main"),
            bash("git add . && git push origin main"),
            bash("git -c core.pager=env log"),
            bash("git config user.name x"),
            bash("git remote -v"),
            bash("pnpm dlx thing"),
            bash("pnpm exec thing"),
            bash("npm exec thing"),
            bash("npx thing"),
            bash("curl http://127.0.0.1/"),
            bash("wget http://127.0.0.1/"),
            bash("env"),
            bash("make"),
            bash(format!("cat {}", at_home(".ssh/id_ed25519").display())),
            bash(format!("echo x > {}", outside.display())),
            bash("bash -c 'git push'"),
            Step::Call("WebFetch", json!({ "url": "http://127.0.0.1/", "prompt": "x" })),
            Step::Call(
                "Bash",
                json!({ "command": "env", "description": "x", "dangerouslyDisableSandbox": true }),
            ),
            Step::Say("Nothing worked."),
        ]);
        let run = machine.run(&program, &wall, &model, &With::default());
        done(&run);
        let results = results(&model);
        assert_eq!(results.len(), 26);
        for (at, (failed, words)) in results.iter().enumerate() {
            assert!(failed, "{wall:?}: call {at} went through: {words}");
        }
        assert!(!outside.exists() && !machine.copy.join(".git/hooks/post-commit").exists());
        for path in SECRETS {
            let kept = std::fs::read_to_string(machine.home.join(path)).unwrap();
            assert!(kept.contains(SECRET), "{path} was changed");
        }
        let asked = asked(&model);
        for secret in [SECRET, KEY] {
            let around = asked.find(secret).map(|at| &asked[at.saturating_sub(200)..at + 200]);
            assert_eq!(around, None, "a secret reached the model");
        }
        assert!(run.verdict.hint.unwrap().contains("refused tool calls: Bash"));
    }
}

#[test]
fn full_the_arguments_and_the_prompt_arrive_whole() {
    let Some(program) = program() else { return };
    let machine = Machine::new();
    let model = Model::start([Step::Say("ok")]);
    let wall = Confinement::Bare { setpriv: None };
    let run = machine.run(&program, &wall, &model, &With::default());
    done(&run);
    let requests = model.requests();
    let main = requests.iter().find(|body| body["tools"].is_array()).unwrap();
    let messages = main["messages"].to_string();
    assert!(messages.contains("Fix the --bug- of issue 12: ＠a.txt"), "{messages}");
    assert!(!messages.contains("Called the Read tool"), "it read a file that it was not asked to");
    assert!(main["model"].as_str().unwrap().contains(claude::DEFAULT_MODEL));
    let tools: Vec<&str> = main["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .filter(|name| *name != "DeferredToolPlaceholder")
        .collect();
    assert!(tools.iter().all(|tool| claude::TOOLS.contains(tool)), "{tools:?}");
    assert!(["Bash", "Edit", "Read", "Write"].iter().all(|tool| tools.contains(tool)));
    assert!(matches!(&run.said[..], [Said::Note(_), Said::Text(words)] if words == "ok"));
    assert_eq!(run.stderr, "");
}

#[test]
fn full_every_end_has_its_reason() {
    let Some(program) = program() else { return };
    let refuse = |status, kind| Step::Refuse(status, kind, &[]);
    let wall = Confinement::Bare { setpriv: None };
    for (steps, expected) in [
        (vec![refuse(401, "authentication_error")], Reason::NotLoggedIn),
        (vec![refuse(404, "not_found_error")], Reason::VendorError),
        (vec![refuse(429, "rate_limit_error")], Reason::Quota { until_ms: None }),
        (vec![refuse(500, "api_error")], Reason::VendorUnreachable),
        (vec![refuse(529, "overloaded_error")], Reason::VendorUnreachable),
        (vec![Step::Stop("refusal")], Reason::PermissionRefused),
        (vec![Step::Stop("max_tokens")], Reason::VendorError),
        (vec![bash("git status"), bash("git log")], Reason::MaxTurns),
    ] {
        let machine = Machine::new();
        let model = Model::start(steps.clone());
        let with = With { max_turns: 2, ..With::default() };
        let run = machine.run(&program, &wall, &model, &with);
        assert_eq!(run.verdict.reason, expected, "{steps:?}: {:?} {}", run.verdict, run.stderr);
        assert!(run.verdict.error.is_some());
    }
}

#[test]
fn full_a_machine_that_cannot_run_it_says_why() {
    let Some(program) = program() else { return };
    let wall = Confinement::Bare { setpriv: None };
    let (machine, model) = (Machine::new(), Model::start([Step::Say("ok")]));
    let run = |with: &With| machine.run(&program, &wall, &model, with).verdict;

    let empty = machine.home.join("empty");
    std::fs::create_dir(&empty).unwrap();
    let without_tools = run(&With { path: Some(empty.into()), ..With::default() });
    assert_eq!(without_tools.reason, Reason::SandboxUnavailable, "{without_tools:?}");
    assert!(without_tools.error.unwrap().contains("bubblewrap"));

    let without_login = run(&With { key: false, ..With::default() });
    assert_eq!(without_login.reason, Reason::NotLoggedIn, "{without_login:?}");
    assert_eq!(model.requests().len(), 0, "the model was never asked");

    // Port 9 is nobody's: the connection is refused at once.
    let dead = Some("http://127.0.0.1:9".to_owned());
    let without_vendor = run(&With { url: dead, impatient: false, ..With::default() });
    assert_eq!(without_vendor.reason, Reason::VendorUnreachable, "{without_vendor:?}");
}

/// As root, bubblewrap inside bubblewrap cannot mount /proc: every command fails and the program
/// still exits with 0.
#[test]
fn full_a_box_that_cannot_nest_is_told_from_a_run_that_worked() {
    let Some(program) = program() else { return };
    let Some(bwrap) = tool("bwrap") else { return crate::support::full::skip("bubblewrap") };
    let machine = Machine::new();
    let model = Model::start([bash("git status"), bash("git log"), Step::Say("Nothing worked.")]);
    let run = machine.run(&program, &Confinement::Bubblewrap { bwrap }, &model, &With::default());
    let broken = results(&model).iter().all(|(failed, words)| *failed && words.contains("bwrap: "));
    assert!(is_root() || !broken, "an ordinary user's boxes nest: {:?}", results(&model));
    let expected = if broken { Reason::SandboxUnavailable } else { Reason::Done };
    assert_eq!(run.verdict.reason, expected, "{:?}", run.verdict);
}
