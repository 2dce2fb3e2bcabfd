//! What the program says of the lanes of a machine, and what mends them.

use std::path::Path;

use insta::assert_snapshot;
use relay::api::TaskDetail;
use relay::model::{Task, TaskState};

use super::Machine;
use crate::support::full::skip;

/// The examples are lanes as they stand, in their folder and on the page.
#[test]
fn the_lanes_of_the_page_do_their_tasks() {
    let page = include_str!("../../../docs/LANES.md");
    let machine = Machine::new();
    machine.repository("shop");
    machine.run(&["link", "shop.git"]);
    std::fs::create_dir_all(machine.home().join(".harness/lanes")).unwrap();
    let work = |lane: &str, file: &str| -> Task {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/process").join(file);
        let script = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains(&script), "{file} and docs/LANES.md differ");
        let config = format!("{{\"command\": \"{}\"}}", path.display());
        std::fs::write(machine.home().join(format!(".harness/lanes/{lane}.json")), config).unwrap();
        let (lane, title) = (format!("process:{lane}"), ["--title", "A \"title\" 👋", "--json"]);
        let create = ["task", "create", "--repo", "local/shop", "--lane", &lane];
        let task: Task = machine.json(&[&create[..], &title].concat());
        machine.run(&["work", "--once"]);
        machine.json::<TaskDetail>(&["task", "get", task.id.to_string().as_str(), "--json"]).task
    };
    let clean = work("shell", "tidy.sh");
    assert_eq!((clean.state, clean.message), (TaskState::Done, None));
    std::fs::write(machine.home().join("source/README.md"), "# shop  \n").unwrap();
    let commit =
        ["-c", "user.name=Ada", "-c", "user.email=a@b.invalid", "commit", "-qam", "blanks"];
    machine.git(&[&["-C", "source"], &commit[..]].concat());
    machine.git(&["-C", "source", "push", "-q", "../shop.git", "main"]);
    let tidied = work("shell", "tidy.sh");
    assert_eq!(tidied.state, TaskState::Review, "{tidied:?}");
    assert!(tidied.message.is_some_and(|text| text.starts_with("Took the blanks off")));
    if !["/usr/bin/python3", "/bin/python3"].iter().any(|python| Path::new(python).exists()) {
        return skip("the example in Python needs python3");
    }
    let noted = work("python", "notes.py");
    assert_eq!(noted.state, TaskState::Review, "{noted:?}");
    assert_eq!(noted.message.as_deref(), Some("Wrote notes/3.md."));
}

/// The programs that doctor tries are what stands on PATH; each refusal shows what was said and
/// what mends it.
#[test]
fn doctor_tries_the_programs_and_says_what_mends_them() {
    let machine = Machine::new();
    machine.program("git", "echo git version 2.20.1");
    machine.program("gh", "echo '{\"hosts\":{}}'");
    for name in ["bwrap", "unshare", "setpriv"] {
        machine.program(name, "echo no namespaces for you >&2; exit 1");
    }
    machine.program("claude", "exit 1");
    let doctor = machine.doctor();
    assert_eq!(doctor["ok"], false);
    let check = |name: &str| -> String {
        let checks = doctor["checks"].as_array().unwrap();
        let check = checks.iter().find(|c| c["name"] == name).unwrap();
        ["state", "seen", "mend"].map(|field| check[field].as_str().unwrap_or("-")).join(" | ")
    };
    assert_eq!(check("git"), "fail | git version 2.20.1 is too old | install git 2.31 or newer");
    assert!(check("github").starts_with("warn | github.com: gh has no login | gh auth login"));
    let refused = check("box");
    let expected = "warn | none (no namespaces for you): what a lane leaves running";
    assert!(refused.starts_with(expected), "{refused}");
    assert!(refused.ends_with("kernel.apparmor_restrict_unprivileged_userns=0"), "{refused}");
    let sandbox = check("claude's sandbox");
    assert_eq!(sandbox, "fail | socat is not on PATH | sudo apt install bubblewrap socat");
    assert!(check("lanes").starts_with("fail | none can be served"), "{doctor}");
    machine.program("socat", "exit 0");
    machine.program("bwrap", "exit 0");
    machine.program("setpriv", "exit 0");
    machine.program("unshare", "exit 0");
    machine.program("git", "echo git version 2.31.0");
    machine.process_lane("edit");
    let mended = machine.doctor();
    let checks = mended["checks"].as_array().unwrap();
    for name in ["git", "box", "claude's sandbox", "lane process:edit"] {
        assert!(checks.iter().any(|c| c["name"] == name && c["state"] == "ok"), "{mended}");
    }
    assert_eq!(mended["ok"], true, "{mended}");
}

#[test]
fn the_lanes_of_a_bare_machine_and_what_claude_may_do() {
    let machine = Machine::new();
    machine.process_lane("edit");
    let lanes = machine.home().join(".harness/lanes");
    std::fs::write(lanes.join("torn.json"), "{").unwrap();
    std::fs::write(lanes.join("gone.json"), "{\"command\": \"/nowhere/lane\"}").unwrap();
    std::fs::write(lanes.join("dir.json"), "{\"command\": \"/bin\"}").unwrap();
    std::fs::write(lanes.join("text.json"), "{\"command\": \"/etc/passwd\"}").unwrap();
    std::fs::write(lanes.join("My Lane.json"), "{\"command\": \"/bin/true\"}").unwrap();
    assert_snapshot!(machine.run(&["lane", "ls"]), @"
    exit 0
    --- stdout
    LANE          STATE          VERSION  MODEL  LOGIN
    claude        not installed           opus   the program `claude` is not on PATH
                                                 → npm install -g @anthropic-ai/claude-code
    codex         not installed                  the program `codex` is not on PATH
                                                 → npm install -g @openai/codex
    grok          not installed                  the program `grok` is not on PATH
                                                 → npm install -g @xai-official/grok
    process:dir   cannot start                   /bin is not an executable program
                                                 → mend $HOME/.harness/lanes/dir.json
    process:edit  served                         $HOME/.harness/lanes/edit.json
    process:gone  cannot start                   no program at /nowhere/lane
                                                 → put it there, or mend $HOME/.harness/lanes/gone.json
    process:text  cannot start                   /etc/passwd is not an executable program
                                                 → chmod +x it, or mend $HOME/.harness/lanes/text.json
    process:torn  misconfigured                  $HOME/.harness/lanes/torn.json: not a process lane's config: EOF while parsing an object at line 1 column 1
                                                 → mend $HOME/.harness/lanes/torn.json
    My Lane.json  bad name                       $HOME/.harness/lanes/My Lane.json: no lane can be called that, so it is not served
                                                 → rename it: NAME.json, with a NAME of at most 40 of a-z, 0-9, `_` and `-`, not `_` or `-` first
    ");
    let told: serde_json::Value = machine.json(&["lane", "ls", "--json"]);
    assert!(told["misnamed"][0].as_str().unwrap().ends_with("/My Lane.json"), "{told}");
    let doctor = machine.doctor();
    let check =
        doctor["checks"].as_array().unwrap().iter().find(|c| c["name"] == "lanes/My Lane.json");
    assert_eq!(check.unwrap()["state"], "warn", "{doctor:#}");
    let settings: serde_json::Value = machine.json(&["lane", "settings"]);
    assert_eq!(machine.json::<serde_json::Value>(&["lane", "settings", "--json"]), settings);
    assert_eq!(settings["sandbox"]["failIfUnavailable"], true, "{settings}");
    let open: serde_json::Value = machine.json(&["lane", "settings", "--no-sandbox"]);
    assert_ne!(open["sandbox"]["enabled"], true, "{open}");
}
