//! The real grok on a scripted model, from a task to a pull request: what a run costs, what it may
//! do, how its ends are read, and that nothing of it is left.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::chat::{Chat, MODEL, TICKS};
use crate::support::full::{says_version, skip};
use crate::support::house::{House, Ran, only_has, processes_with};
use crate::support::model::Step;
use crate::support::processes::tool;

/// The word that no run may ever see.
const SECRET: &str = "SECRET-of-a-person";
/// The tokens of the person's login.
pub const TOKENS: [&str; 2] = ["access-token-of-ada", "refresh-token-of-ada"];

/// Points grok at the scripted model.
const ADDRESSES: &[&str] = &[
    "GROK_XAI_API_BASE_URL",
    "XAI_API_BASE_URL",
    "GROK_MODELS_BASE_URL",
    "GROK_CLI_CHAT_PROXY_BASE_URL",
];

/// The program under test; says why there is none.
#[expect(clippy::disallowed_methods, reason = "the test's own setting, not the program's")]
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("RELAY_TEST_GROK").map(PathBuf::from);
    if named.is_none() {
        skip("the real grok, named by RELAY_TEST_GROK");
    }
    named
}

/// Gives a machine the real grok, logged in, and says which variables its lane needs.
pub fn log_in(house: &mut House, chat: &Chat) -> Option<Vec<&'static str>> {
    let program = program()?;
    house.program("grok", &format!("#!/bin/sh\nexec {} \"$@\"\n", program.display()));
    let base = format!("{}/v1", chat.url());
    for name in ADDRESSES {
        house.set(name, &base);
    }
    house.set("GROK_OAUTH2_ISSUER", &chat.url()).set("GROK_OAUTH2_CLIENT_ID", "client");
    house.set("RELAY_MODEL_GROK", MODEL);
    let grok = house.dir.path().join(".grok");
    fs::create_dir(&grok).unwrap();
    let login = json!({ format!("{}::client", chat.url()): {
        "key": TOKENS[0], "auth_mode": "oidc", "create_time": "2026-11-30T00:00:00Z",
        "user_id": "ada", "refresh_token": TOKENS[1], "expires_at": "2099-01-01T00:00:00Z",
        "oidc_issuer": chat.url(), "oidc_client_id": "client",
    }});
    fs::write(grok.join("auth.json"), login.to_string()).unwrap();
    Some([ADDRESSES, &["GROK_OAUTH2_ISSUER", "GROK_OAUTH2_CLIENT_ID"]].concat())
}

/// A person's machine with grok on it, logged in, and a model that takes these steps.
struct Machine {
    house: House,
    chat: Chat,
    slug: String,
}

impl Machine {
    fn new(tells_cost: bool, steps: impl IntoIterator<Item = Step>) -> Option<Self> {
        let chat = Chat::start(tells_cost, steps);
        let mut house = House::new();
        let names = log_in(&mut house, &chat)?;
        house.set("RELAY_LANE_ENV", &names.join(","));
        house.set("RELAY_LANE_ALLOWED_DOMAINS", &format!("127.0.0.1:{}", chat.port));
        fs::create_dir(house.dir.path().join(".ssh")).unwrap();
        fs::write(house.dir.path().join(".ssh/id_ed25519"), SECRET).unwrap();
        let slug = house.link();
        Some(Self { house, chat, slug })
    }

    /// Puts a file into the repository.
    fn commit(&self, name: &str, text: &str) {
        fs::write(self.house.repo.join(name), text).unwrap();
        self.house.in_repo(&["add", "-A"]);
        let who = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
        self.house.in_repo(&[&who[..], &["commit", "-qm", name]].concat());
    }

    /// What the program under test says itself.
    fn version(&self) -> String {
        says_version(&self.house.bin.join("grok"), relay_lanes::grok::VENDOR.version)
    }

    fn task(&self) -> String {
        self.house.task(&self.slug, "grok", "Fix it")
    }

    fn drain(&self, more: &[&str]) -> Ran {
        let usual = ["work", "--once", "--name", "w", "--lanes", "grok"];
        self.house.relay(&[&usual, more].concat())
    }

    fn detail(&self, task: &str) -> Value {
        self.house.json(&["task", "get", task, "--json"])
    }

    /// Runs one task to its end and says why it stopped.
    fn stop(&self, more: &[&str]) -> Value {
        let task = self.task();
        let worker = self.drain(more);
        let detail = self.detail(&task);
        let stop = detail["runs"][0]["stop_reason"].clone();
        assert!(stop["reason"].is_string(), "{worker:?} {detail:#}");
        stop
    }

    /// Nothing of a run is left on the disk, and no process of it.
    fn is_clean(&self) {
        assert_eq!(only_has(&self.house.home.join("work"), &[]), Vec::<String>::new());
        assert_eq!(only_has(&self.house.home.join("vendor"), &[]), Vec::<String>::new());
        let copies = self.house.home.join("work");
        assert_eq!(processes_with(copies.to_str().unwrap()), Vec::<String>::new());
    }
}

fn command(line: impl AsRef<str>) -> Step {
    let input = json!({ "command": line.as_ref(), "description": "a step" });
    Step::Call("run_terminal_command", input)
}

fn write(path: &str) -> Step {
    Step::Call("write", json!({ "file_path": path, "content": "by grok\n" }))
}

#[test]
fn full_a_task_becomes_a_pull_request_and_its_usage_is_right() {
    let edit = json!({ "file_path": "README.md", "old_string": "# shop", "new_string": "# Shop" });
    let steps = [
        Step::Call("read_file", json!({ "target_file": "README.md" })),
        write("new.txt"),
        Step::Call("search_replace", edit),
        command("sh run.sh && git status --short"),
        command("git add -A && git commit -qm mine && git log --oneline | head -1"),
        command("cat ../../vendor/*/grok/auth.json"),
        Step::Say("I wrote new.txt."),
    ];
    let Some(machine) = Machine::new(true, steps) else { return };
    let lanes = machine.house.json(&["lane", "ls", "--json", "--patience", "60"]);
    let grok = lanes["lanes"].as_array().unwrap().iter().find(|lane| lane["lane"] == "grok");
    let grok = grok.expect("no grok lane");
    assert_eq!(
        (&grok["served"], &grok["version"]),
        (&json!(true), &json!(machine.version())),
        "{grok}"
    );
    assert_eq!(grok["detail"], "a login of grok.com");
    assert_eq!(grok["model"], MODEL);

    let login = machine.house.dir.path().join(".grok/auth.json");
    let before = fs::read(&login).unwrap();
    let task = machine.task();
    let worker = machine.drain(&[]);
    let results = machine.chat.results();
    let detail = machine.detail(&task);
    assert_eq!(detail["task"]["state"], "review", "{worker:?} {results:#?} {detail:#}");
    let diff = detail["local_pull"]["diff"].as_str().unwrap();
    assert!(diff.contains("+by grok") && diff.contains("+# Shop"), "{diff}");
    assert!(results[3].contains("hello") && results[3].contains("new.txt"), "{results:#?}");
    let usage = &detail["runs"][0]["usage"];
    assert_eq!(usage["model"], MODEL);
    assert_eq!(usage["input_tokens"], 7 * 700, "{usage}");
    assert_eq!(usage["cache_read_tokens"], 7 * 300);
    assert_eq!(usage["output_tokens"], 7 * 50);
    assert_eq!((&usage["model_calls"], &usage["turns"]), (&json!(7), &json!(7)));
    let cost = usage["cost_usd"].as_f64().unwrap();
    assert!((cost - 7.0 * TICKS as f64 / 1e10).abs() < 1e-9, "{usage}");
    assert_eq!(detail["runs"][0]["summary"], "I wrote new.txt.");

    let (logins, bodies): (Vec<_>, Vec<_>) = machine.chat.requests().into_iter().unzip();
    assert!(logins.iter().all(|login| login == "Bearer access-token-of-ada"), "{logins:?}");
    let tools: Vec<_> = bodies[0]["tools"].as_array().unwrap().iter().collect();
    let tools: Vec<_> = tools.iter().map(|t| t["function"]["name"].as_str().unwrap()).collect();
    for left_out in relay_lanes::grok::LEFT_OUT {
        assert!(!tools.contains(left_out), "{left_out} is among {tools:?}");
    }
    assert!(!tools.contains(&"spawn_subagent") && tools.contains(&"write"), "{tools:?}");
    let log = machine.house.relay(&["task", "log", &task]).ok();
    assert!(log.contains("→ write new.txt") && log.contains("→ run_terminal_command"), "{log}");
    let (transcript, told) = machine.house.transcript(&detail);
    assert_eq!(told["run"]["version"], *machine.version());
    for token in TOKENS {
        assert!(!format!("{log}{detail}{transcript}").contains(token), "{log}");
    }
    assert_eq!(fs::read(&login).unwrap(), before, "the person's login was touched");
    let settings = machine.house.dir.path().join(".claude");
    assert_eq!(only_has(&settings, &[]), Vec::<String>::new(), "the person's settings are hers");
    machine.is_clean();
}

/// What a repository's script may try to get at the login of the program that runs it.
const TAKE: &str = r#"
exec 2>/dev/null
has() { grep -aq -e -of-ada "$@" && echo "TOOK by $1"; }
test -z "$GROK_HOME" || echo "TOOK by its name"
relay=${PWD%/*/*}
vendor=$(echo "$relay/vendor/"*.grok)
GROK_HOME=$vendor/grok
test -d "$GROK_HOME" || echo "TOOK nothing: no $GROK_HOME"
export GROK_HOME
for login in "$GROK_HOME/auth.json" "$GROK_HOME"/*; do has "$login"; done
for process in /proc/[0-9]*; do
    has "$process/environ"
    has "$process/root$GROK_HOME/auth.json"
    has "$process/cwd/../../vendor/"*/grok/auth.json
    tr '\0' ' ' <"$process/cmdline" | grep -q 'grok .*--prompt-file' && echo TOOK-A-LOOK-AT-GROK
done
umount -l "$GROK_HOME"; has "$GROK_HOME/auth.json"
unshare -Urm sh -c 'umount -l "$GROK_HOME"; cat "$GROK_HOME/auth.json"' >stolen; has stolen
nsenter -t 1 -m cat "$GROK_HOME/auth.json" >stolen; has stolen
rm -f stolen
policy=$HOME/.claude/settings.json
grep -q dontAsk "$policy" || echo "TOOK nothing: no $policy"
for file in "$policy" "$vendor"/stands-in/*; do
    echo '{}' >"$file" && echo "TOOK $file"
    rm -f "$file" && echo "TOOK $file away"
done
ln -s "$GROK_HOME" link
move() { mv "$1" "$2" && echo "TOOK $1 to $2"; }
move "$PWD.shell" "$relay/work/elsewhere"
move "$PWD.shell/bash" "$PWD.shell/zsh"
move "$vendor" "$relay/vendor/elsewhere"
move "$vendor/stands-in" "$vendor/elsewhere"
for folder in work vendor; do move "$relay/$folder" "$relay/$folder.elsewhere"; done
move "$relay" "${relay%/*}/elsewhere"
move "${relay%/*}" "${relay%/*}.elsewhere"
echo ended
"#;

/// The same after all that [`TAKE`] moved, by a command that found none of it in its way.
const TAKE_MOVED: &str = r#"
exec 2>/dev/null
has() { grep -raq -e -of-ada "$@" && echo "TOOK by $*"; }
relay=${PWD%/*/*}
has "$relay/vendor" "${relay%/*}/elsewhere" "${relay%/*}.elsewhere"
for place in "$relay"/*.elsewhere "$relay"/*/elsewhere; do has "$place"; done
rm link
echo ended
"#;

#[test]
fn full_what_a_run_may_not_do_is_refused_and_the_run_goes_on() {
    let steps = [
        write("../outside-of-the-copy"),
        Step::Call("write", json!({ "file_path": "/var/tmp/relay-outside", "content": "x" })),
        command("touch \"$HOME/outside\"; touch /var/tmp/x && ls /var/tmp; echo done"),
        Step::Call("read_file", json!({ "target_file": "~/.ssh/id_ed25519" })),
        command("cat \"$HOME/.ssh/id_ed25519\" \"$HOME/.grok/auth.json\" \"$HOME/relay/relay.db\""),
        command("echo x > redirected"),
        command("git push origin HEAD"),
        command("curl http://127.0.0.1:1/"),
        command("env"),
        command("cat README.md"),
        command("sh take.sh"),
        // What take.sh left: a link to Grok's home, which for Grok's own tools is as it is.
        Step::Call("read_file", json!({ "target_file": "link/auth.json" })),
        Step::Call("grep", json!({ "pattern": "of-ada", "path": "link" })),
        Step::Call("grep", json!({ "pattern": "of-ada", "path": "../.." })),
        Step::Call("grep", json!({ "pattern": "of-ada", "path": "/" })),
        Step::Call("grep", json!({ "pattern": "GROK_HOME", "path": "/proc/self" })),
        Step::Call("read_file", json!({ "target_file": "/proc/self/environ" })),
        command("sh moved.sh"),
        write("new.txt"),
        Step::Say("Done."),
    ];
    let Some(machine) = Machine::new(false, steps) else { return };
    machine.commit("take.sh", TAKE);
    machine.commit("moved.sh", TAKE_MOVED);
    let task = machine.task();
    let worker = machine.drain(&[]);
    let results = machine.chat.results();
    let detail = machine.detail(&task);
    assert_eq!(detail["task"]["state"], "review", "{worker:?} {results:#?} {detail:#}");
    let refused = "was not executed: denied by prompt policy";
    for at in [0, 1, 5] {
        assert!(results[at].contains(refused), "{at}: {}", results[at]);
    }
    for at in [6, 7, 11, 12, 13, 14, 15, 16] {
        assert!(results[at].contains("Denied by permission policy"), "{at}: {}", results[at]);
    }
    assert!(results[9].contains("# shop"), "what it may do works: {}", results[9]);
    // The login that Grok runs under is not there for what Grok runs.
    for at in [10, 17] {
        assert!(results[at].ends_with("ended\n"), "{}", results[at]);
        assert!(!results[at].contains("TOOK"), "{}", results[at]);
    }
    let home = machine.house.dir.path();
    assert!(
        !home.join("outside").exists() && !home.join("relay/work/outside-of-the-copy").exists()
    );
    let told = machine.chat.requests().iter().map(|(_, body)| body.to_string()).collect::<String>();
    for secret in [SECRET, TOKENS[0], TOKENS[1], "RELAY_HOME", "RELAY_LANE_ENV", "GROK_HOME="] {
        assert!(!told.contains(secret), "{secret} reached the model");
    }
    let usage = &detail["runs"][0]["usage"];
    assert_eq!((&usage["cost_usd"], &usage["input_tokens"]), (&Value::Null, &json!(20 * 700)));
    machine.is_clean();
}

/// A bubblewrap that cannot be made inside another: the walls stand, and no command has a sandbox.
#[test]
fn full_where_a_sandbox_does_not_nest_the_walls_keep_its_commands_and_doctor_says_so() {
    let Some(bwrap) = tool("bwrap") else { return skip("bubblewrap") };
    let look = "cat ../../vendor/*/grok/auth.json; cat \"$HOME/.ssh/id_ed25519\" \
                \"$HOME/.grok/auth.json\" \"$HOME/relay/relay.db\"; touch \"$HOME/outside\"; echo looked";
    let steps = [command("sh look.sh"), write("new.txt"), Step::Say("Done.")];
    let Some(machine) = Machine::new(true, steps) else { return };
    machine.commit("look.sh", look);
    let no_nesting = format!(
        "#!/bin/sh\ncase \" $* \" in *' --dev-bind / / '*) echo no nesting >&2; exit 1;; esac\n\
         exec {} \"$@\"\n",
        bwrap.display()
    );
    machine.house.program("bwrap", &no_nesting);
    let report = machine.house.relay(&["doctor", "--json", "--patience", "60"]);
    let report = report.out.parse::<Value>().unwrap();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "grok's sandbox").unwrap();
    assert_eq!(check["state"], "warn", "{check:#}");
    let seen = check["seen"].as_str().unwrap();
    assert!(seen.contains("no nesting") && seen.contains("can read its login"), "{check:#}");
    assert!(check["mend"].is_string(), "{check:#}");
    let task = machine.task();
    let worker = machine.drain(&[]);
    let results = machine.chat.results();
    let detail = machine.detail(&task);
    assert_eq!(detail["task"]["state"], "review", "{worker:?} {results:#?} {detail:#}");
    // What only a sandbox of its own would keep from it; the walls keep the rest.
    assert!(results[0].contains("looked") && results[0].contains(TOKENS[0]), "{}", results[0]);
    assert!(!results[0].contains(SECRET), "{}", results[0]);
    assert!(!machine.house.dir.path().join("outside").exists());
    machine.is_clean();
}

#[test]
fn full_a_path_in_an_issue_puts_no_file_before_the_model() {
    let Some(machine) = Machine::new(true, [write("new.txt"), Step::Say("Done.")]) else { return };
    let body = "See @README.md, (@/proc/self/environ ) and \u{200b}@/proc/self/environ .\n\
                @ /proc/self/environ\n@\n/proc/self/environ\n@\u{2028}README.md a\u{301}@README.md\n\
                Mail ann@host.example of @decorator.";
    let title = "Read @/proc/self/environ first";
    let more = ["--repo", &machine.slug, "--lane", "grok", "--title", title, "--body", body];
    let task = machine.house.relay(&[&["task", "create"], &more[..]].concat()).ok();
    let worker = machine.drain(&[]);
    let detail = machine.detail(&task);
    assert_eq!(detail["task"]["state"], "review", "{worker:?} {detail:#}");
    let told = machine.chat.requests().iter().map(|(_, body)| body.to_string()).collect::<String>();
    for kept in ["See ＠README.md", "ann@host.example of ＠decorator", "Read ＠/proc"] {
        assert!(told.contains(kept), "{kept}: {told}");
    }
    for read in ["file_contents", "# shop", "GROK_HOME=", TOKENS[0], TOKENS[1]] {
        assert!(!told.contains(read), "{read} reached the model");
    }
    machine.is_clean();
}

#[test]
fn full_without_the_box_a_question_ends_the_run_and_it_did_not_finish() {
    let Some(machine) = Machine::new(true, [command("sh run.sh"), Step::Say("Done.")]) else {
        return;
    };
    let stop = machine.stop(&["--no-sandbox"]);
    assert_eq!(stop["reason"], "permission_refused", "{stop}");
    machine.is_clean();
}

#[test]
fn full_what_the_vendor_refuses_is_told_by_its_name() {
    let turns = [command("git status"), command("git status"), command("git status")];
    for (steps, more, reason) in [
        (vec![Step::Refuse(401, "Invalid API key provided.", &[])], None, "not_logged_in"),
        (vec![Step::Refuse(402, "out of credits", &[])], None, "quota"),
        (vec![Step::Refuse(429, "Too many requests", &[])], None, "quota"),
        (turns.to_vec(), Some("2"), "max_turns"),
    ] {
        let Some(machine) = Machine::new(true, steps) else { return };
        if let Some(turns) = more {
            machine.house.relay(&["prefer", "run.max_turns", turns]).ok();
        }
        let stop = machine.stop(&[]);
        assert_eq!(stop["reason"], reason, "{stop}");
        machine.is_clean();
    }
}

/// Some seconds of trying, instead of for ever.
#[test]
fn full_a_vendor_that_is_down_is_given_up_soon() {
    let Some(machine) = Machine::new(true, [Step::Refuse(500, "boom", &[])]) else { return };
    let begun = relay::model::Clock::now(&relay::system::SystemClock);
    let stop = machine.stop(&[]);
    assert_eq!(stop["reason"], "vendor_unreachable", "{stop}");
    let took = relay::model::Clock::now(&relay::system::SystemClock).0 - begun.0;
    assert!(u128::try_from(took).unwrap() < PATIENCE.as_millis(), "{took} ms");
    machine.is_clean();
}

#[test]
fn full_a_cancel_leaves_nothing_running() {
    let script = "setsid sleep 86123 &\nnohup sleep 86124 &\nsleep 86125\n";
    let script = Step::Call("write", json!({ "file_path": "spawn.sh", "content": script }));
    let steps = [script, command("sh spawn.sh"), Step::Say("Done.")];
    let Some(machine) = Machine::new(true, steps) else { return };
    let task = machine.task();
    let mut worker = machine.house.work(&["--name", "w", "--lanes", "grok"]);
    let sleeping = || ["86123", "86124", "86125"].map(|n| processes_with(&format!("sleep\0{n}")));
    worker.until("the command", || sleeping().iter().all(|found| !found.is_empty()));
    machine.house.relay(&["task", "cancel", &task]).ok();
    worker.until("its end", || {
        sleeping().iter().all(Vec::is_empty)
            && only_has(&machine.house.home.join("work"), &[]).is_empty()
    });
    assert_eq!(machine.house.state(&task), "cancelled");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    machine.is_clean();
}
