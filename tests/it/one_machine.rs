//! A person with one machine: the real program, real git, a local repository, lanes of their own.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::house::{House, Working, only_has, processes_with};

const EDIT: &str = "echo change >> README.md";
const DONE: &str =
    r#"{"reply":"Added a line.","usage":{"modelCalls":1,"inputTokens":12,"outputTokens":3}}"#;

fn get(house: &House, task: &str) -> Value {
    house.json(&["task", "get", task, "--json"])
}

/// Runs the whole queue in the foreground.
fn drain(house: &House, lanes: &str) -> crate::support::house::Ran {
    house.relay(&["work", "--once", "--name", "w", "--lanes", lanes])
}

#[test]
fn a_task_becomes_a_branch_and_a_pull_request() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    assert_eq!(slug, "local/shop");
    let task = house.task(&slug, "process:edit", "Say more");
    assert_eq!(task, "local/shop#1");
    drain(&house, "process:edit").ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}");
    assert_eq!(detail["local_pull"]["title"], "process:edit: Say more");
    assert!(detail["local_pull"]["body"].as_str().unwrap().contains("Closes #1"));
    assert!(detail["local_pull"]["diff"].as_str().unwrap().contains("+change"));
    let comment = detail["local_pull"]["comment"].as_str().unwrap();
    assert!(comment.contains("Added a line.") && comment.contains("\"source\": \"relay-work\""));
    assert_eq!(detail["runs"][0]["usage"]["input_tokens"], 12);
    assert_eq!(detail["runs"][0]["usage"]["cost_usd"], Value::Null);
    assert_eq!(
        house.in_repo(&["log", "-1", "--format=%an", "relay/process-edit-1"]),
        "relay-agent"
    );
    assert_eq!(
        house.in_repo(&["diff", "--name-only", "main", "relay/process-edit-1"]),
        "README.md"
    );
    assert_eq!(only_has(&house.home.join("work"), &[]), Vec::<String>::new());
}

#[test]
fn a_folder_of_an_editor_s_is_work_like_any_other() {
    let house = House::new();
    let edit = "mkdir .vscode .claude; echo '{}' > .vscode/settings.json; echo x > .claude/rules.md; : > .bashrc";
    house.process_lane("edit", edit, DONE);
    house.claude(&format!("{edit}\n{}", r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":1}'"#), 0);
    let slug = house.link();
    house.task(&slug, "process:edit", "One");
    house.task(&slug, "claude", "Two");
    let ran = house.relay(&[
        "work",
        "--once",
        "--no-sandbox",
        "--name",
        "w",
        "--lanes",
        "process:edit,claude",
    ]);
    ran.ok();
    let made = |branch| house.in_repo(&["diff", "--name-only", "main", branch]);
    let said = [".claude/rules.md", ".vscode/settings.json"].join("\n");
    assert_eq!(made("relay/process-edit-1"), format!(".bashrc\n{said}"));
    // Claude's sandbox leaves empty files where it covered something.
    assert_eq!(made("relay/claude-2"), said);
}

/// A lane's tunnels are sockets of the worker's, and a shell gives it few.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a shell around relay, which lowers its limit")]
#[test]
fn a_worker_raises_its_limit_of_open_files() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let inner = house.command(&["work", "--name", "w", "--lanes", "process:edit", "--jobs", "2"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -Sn 300; exec \"$@\"", "sh"]).arg(inner.get_program());
    shell.args(inner.get_args()).env_clear();
    shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let log = house.dir.path().join("raised.log");
    let file = std::fs::File::create(&log).unwrap();
    let child = shell.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let worker = Working { child, log };
    worker.until("that it serves", || worker.said().contains("serving process:edit"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", worker.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let of = |n: usize| files.split_whitespace().nth(n).unwrap().parse::<u64>().unwrap();
    assert_eq!(of(3), of(4).min(2 * 768 + 256), "{files}");
}

#[test]
fn work_starts_from_the_linked_branch_whatever_the_person_looks_at() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    house.task(&slug, "process:edit", "One");
    drain(&house, "process:edit").ok();
    house.in_repo(&["checkout", "-q", "relay/process-edit-1"]);
    let second = house.task(&slug, "process:edit", "Two");
    drain(&house, "process:edit").ok();
    house.in_repo(&["checkout", "-q", "--detach"]);
    let third = house.task(&slug, "process:edit", "Three");
    drain(&house, "process:edit").ok();
    for (task, branch) in [(second, "relay/process-edit-2"), (third, "relay/process-edit-3")] {
        assert_eq!(get(&house, &task)["local_pull"]["base"], "main");
        assert_eq!(house.in_repo(&["rev-list", "--count", &format!("main..{branch}")]), "1");
    }
}

#[test]
fn a_merged_branch_ends_its_task_and_so_does_a_person() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let merged = house.task(&slug, "process:edit", "One");
    let by_hand = house.task(&slug, "process:edit", "Two");
    drain(&house, "process:edit").ok();
    house.in_repo(&["merge", "-q", "--ff-only", "relay/process-edit-1"]);
    let mut worker = house.work(&["--name", "w", "--lanes", "process:edit"]);
    worker.until("the merged task's end", || house.state(&merged) == "done");
    house.relay(&["task", "done", &by_hand]).ok();
    assert_eq!(house.state(&by_hand), "done");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
}

#[test]
fn a_lane_that_changes_nothing_is_a_failed_run_with_its_summary() {
    let house = House::new();
    house.process_lane("idle", ":", r#"{"reply":"All is well already."}"#);
    let slug = house.link();
    let task = house.task(&slug, "process:idle", "Look");
    let worker = drain(&house, "process:idle");
    assert!(worker.code == 0 && worker.err.contains("failed no_changes: "), "{worker:?}");
    let why = format!("told no_changes: the task is failed; `relay task get '{task}'` says why");
    assert!(worker.err.contains(&why), "{worker:?}");
    let page = house.relay(&["task", "get", &task]).ok();
    assert!(!page.contains("relay/process-idle"), "nothing was pushed:\n{page}");
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["state"], "failed");
    assert_eq!(detail["task"]["stop_reason"]["reason"], "no_changes");
    assert_eq!(detail["runs"][0]["summary"], "All is well already.");
}

/// The token is not the lane's to know. One that has it all the same, and writes it so that no
/// line shows it, tells it to nobody.
#[test]
fn a_token_in_escapes_is_in_no_answer_and_no_file() {
    let mut house = House::new();
    house.set("RELAY_GITHUB_TOKEN", "ghp_canary0123456789").set("RELAY_DEBUG", "1");
    house.process_lane("tell", EDIT, r#"{"reply":"It is \u0067hp_canary0123456789."}"#);
    let slug = house.link();
    let task = house.task(&slug, "process:tell", "Tell");
    let worker = drain(&house, "process:tell");
    let detail = get(&house, &task);
    assert_eq!(detail["runs"][0]["summary"], "It is [redacted].");
    let log = house.relay(&["task", "log", &task]);
    let told = format!("{detail} {} {} {}", worker.out, worker.err, log.out);
    assert!(!told.contains("canary"), "{told}");
    let mut folders = vec![house.home.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                let found = bytes.windows(6).any(|word| word == b"canary");
                assert!(!found, "{}", entry.path().display());
            }
        }
    }
}

#[test]
fn a_lane_may_skip() {
    let house = House::new();
    house.process_lane("skip", ":", r#"{"skip":true}"#);
    let slug = house.link();
    let task = house.task(&slug, "process:skip", "Look");
    drain(&house, "process:skip").ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["state"], "done");
    assert_eq!(detail["task"]["stop_reason"]["reason"], "skipped");
}

#[test]
fn what_is_not_there_is_named_with_a_hint() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    house.link();
    for args in [
        &["task", "create", "--repo", "local/nope", "--lane", "process:edit", "--title", "x"][..],
        &["task", "get", "local/shop#99"],
        &["task", "cancel", "local/shop#99"],
        &["link", "/nowhere/at/all"],
    ] {
        let ran = house.relay(args);
        assert_ne!(ran.code, 0, "{args:?}");
        assert!(ran.err.contains("error: "), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("hint: "), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }
}

#[test]
fn the_first_task_of_an_issue_is_found_by_its_lane_as_well() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "x");
    let named = format!("{task}:process:edit");
    assert_eq!(get(&house, &named)["task"]["id"], task.as_str());
    assert_eq!(house.relay(&["task", "log", &named]).code, 0);
    assert_eq!(house.relay(&["task", "cancel", &named]).ok(), format!("{task} is cancelled"));
    for other in [format!("{task}:claude"), format!("{slug}#99:process:edit")] {
        assert_eq!(house.relay(&["task", "get", &other]).code, 3, "{other}");
    }
}

#[test]
fn a_word_that_is_no_lane_is_refused_before_anything_happens() {
    let house = House::new();
    let slug = house.link();
    let made = ["task", "create", "--repo", &slug, "--lane", "nonsense lane", "--title", "x"];
    let ran = house.relay(&made);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("is not a lane"), "{}", ran.err);
    assert_eq!(house.json(&["task", "ls", "--json"])["tasks"], serde_json::json!([]));
}

#[test]
fn a_broken_lane_file_fails_its_task_by_name() {
    let house = House::new();
    house.process_lane("bad", EDIT, DONE);
    let slug = house.link();
    let task = house.task(&slug, "process:bad", "x");
    std::fs::write(house.home.join("lanes/bad.json"), r#"{"command":"/bin/true","extra":1}"#)
        .unwrap();
    let made = ["task", "create", "--repo", &slug, "--lane", "process:bad", "--title", "x"];
    let refused = house.relay(&made);
    assert!(refused.err.contains("extra") && refused.err.contains("hint: "), "{}", refused.err);
    drain(&house, "process:bad").ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["stop_reason"]["reason"], "protocol_violation");
    assert!(detail["task"]["message"].as_str().unwrap().contains("bad.json"), "{detail:#}");
}

#[test]
fn a_crashed_program_of_ones_own_is_not_looked_for_in_a_log_that_has_nothing_of_it() {
    let house = House::new();
    house.process_lane("dies", "echo the-cause >&2; kill -SEGV $$", DONE);
    let slug = house.link();
    let task = house.task(&slug, "process:dies", "x");
    drain(&house, "process:dies").ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["stop_reason"]["reason"], "crashed", "{detail:#}");
    let message = detail["task"]["message"].as_str().unwrap();
    assert!(message.contains("signal 11") && message.contains("by hand"), "{message}");
    assert!(!message.contains("relay task log"), "{message}");
    assert!(!house.relay(&["task", "log", &task]).ok().contains("the-cause"));
}

#[test]
fn a_lane_whose_program_is_gone_is_told_by_name_and_its_tasks_wait() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let program = house.bin.join("edit-lane");
    let aside = program.with_extension("aside");
    std::fs::rename(&program, &aside).unwrap();
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "x");
    let worker = house.work(&["--lanes", "process:edit"]);
    let word = format!("process:edit: its program is not at {}", program.display());
    worker.until("the word", || worker.said().contains(&word));
    assert_eq!(house.state(&task), "queued");
    std::fs::rename(&aside, &program).unwrap();
    worker.until("its result", || house.state(&task) == "review");
}

#[test]
fn a_machine_without_lanes_says_so() {
    let house = House::new();
    house.program("claude", "#!/bin/sh\necho '{\"loggedIn\":false}'\nexit 1\n");
    let ran = house.relay(&["work", "--once"]);
    assert_ne!(ran.code, 0);
    assert!(
        ran.err.contains("no lanes to serve") && ran.err.contains("relay lane ls"),
        "{}",
        ran.err
    );
}

#[test]
fn a_second_worker_on_one_home_is_told_who_has_it() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let worker = house.work(&["--name", "first", "--lanes", "process:edit"]);
    let second = house.relay(&["work", "--once", "--name", "second", "--lanes", "process:edit"]);
    assert_ne!(second.code, 0);
    assert!(second.err.contains(&worker.child.id().to_string()), "{}", second.err);
}

#[test]
fn a_newer_worker_of_the_same_name_takes_over() {
    let mut house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let _owner = house.work(&["--name", "owner", "--lanes", "process:edit"]);
    let site = format!("unix:{}", house.home.join("relay.sock").display());
    house.set("RELAY_SITE", &site);
    let mut old = house.work(&["--name", "same", "--lanes", "process:edit"]);
    old.until("the old worker's registration", || {
        house.relay(&["work", "status"]).out.contains("same")
    });
    let _new = house.work(&["--name", "same", "--lanes", "process:edit"]);
    assert_ne!(old.ended(), 0);
    assert!(old.said().contains("took over"), "{}", old.said());
}

#[test]
fn a_cancel_reaches_the_run_and_nothing_of_it_stays() {
    let house = House::new();
    let mark = format!("relay-it-mark-{}", std::process::id());
    let body = format!(
        "(setsid sh -c 'exec -a x sleep 3000' {mark} &) ; export MARK={mark}; setsid sleep 3000 & sleep 3000"
    );
    house.process_lane("slow", &body, DONE);
    let slug = house.link();
    let worker = house.work(&["--name", "w", "--lanes", "process:slow"]);
    let task = house.task(&slug, "process:slow", "x");
    worker.until("the lane's processes", || processes_with(&mark).len() >= 2);
    house.relay(&["task", "cancel", &task]).ok();
    worker.until("the end of the lane", || processes_with(&mark).is_empty());
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["state"], "cancelled");
    assert_eq!(detail["task"]["stop_reason"]["reason"], "cancelled");
    worker.until("the copy's end", || only_has(&house.home.join("work"), &[]).is_empty());
    assert_eq!(house.in_repo(&["branch", "--list", "relay/*"]), "");
}

#[test]
fn a_run_past_its_time_is_stopped_by_name() {
    let house = House::new();
    house.process_lane("slow", "sleep 3000", DONE);
    let slug = house.link();
    let task = house.task(&slug, "process:slow", "x");
    house
        .relay(&[
            "work",
            "--once",
            "--name",
            "w",
            "--lanes",
            "process:slow",
            "--max-minutes",
            "0.02",
        ])
        .ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["stop_reason"]["reason"], "timed_out");
    assert!(detail["task"]["message"].as_str().unwrap().contains("--max-minutes"));
}

#[test]
fn the_first_signal_drains_and_the_second_stops_and_says_so() {
    let house = House::new();
    let go = house.dir.path().join("go");
    let begun = house.dir.path().join("begun");
    let body = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.05; done; {EDIT}",
        begun.display(),
        go.display()
    );
    house.process_lane("wait", &body, DONE);
    let slug = house.link();
    let task = house.task(&slug, "process:wait", "drained");
    let mut worker = house.work(&["--name", "w", "--lanes", "process:wait"]);
    worker.until("the lane", || begun.exists());
    worker.signal(Signal::TERM);
    worker.until("the drain", || worker.said().contains("running jobs finish"));
    std::fs::write(&go, "").unwrap();
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    assert_eq!(house.state(&task), "review");

    std::fs::remove_file(&go).unwrap();
    std::fs::remove_file(&begun).unwrap();
    let task = house.task(&slug, "process:wait", "stopped");
    let mut worker = house.work(&["--name", "w", "--lanes", "process:wait"]);
    worker.until("the lane", || begun.exists());
    worker.signal(Signal::TERM);
    worker.until("the drain", || worker.said().contains("running jobs finish"));
    worker.signal(Signal::TERM);
    worker.ended();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["state"], "queued", "{detail:#}");
    assert_eq!(detail["runs"][0]["stop_reason"]["reason"], "worker_stopped");
    assert_eq!(only_has(&house.home.join("work"), &[]), Vec::<String>::new());
}

#[test]
fn a_closed_terminal_stops_a_worker_that_says_so_unless_it_was_started_to_outlive_it() {
    for (through, state) in [(vec![], "queued"), (vec!["env", "--ignore-signal=HUP"], "review")] {
        let mut house = House::new();
        let (begun, go) = (house.dir.path().join("begun"), house.dir.path().join("go"));
        let body = format!(
            "touch {}; while [ ! -e {} ]; do sleep 0.02; done; echo x > new",
            begun.display(),
            go.display()
        );
        house.process_lane("wait", &body, DONE);
        let slug = house.link();
        let task = house.task(&slug, "process:wait", "x");
        house.through = through.into_iter().map(str::to_owned).collect();
        let mut worker = house.work(&["--name", "w", "--lanes", "process:wait"]);
        worker.until("the lane", || begun.exists());
        worker.signal(Signal::HUP);
        if state == "queued" {
            assert_eq!(worker.ended(), 0, "{}", worker.said());
        } else {
            std::fs::write(&go, "").unwrap();
            worker.until("the end of the run", || house.state(&task) == state);
        }
        let detail = get(&house, &task);
        assert_eq!(detail["task"]["state"], state, "{detail:#}");
        let reason = if state == "queued" { "worker_stopped" } else { "finished" };
        assert_eq!(detail["runs"][0]["stop_reason"]["reason"], reason);
    }
}

#[test]
fn a_worker_whose_site_is_gone_for_good_still_ends_at_the_second_signal() {
    let mut house = House::new();
    let begun = house.dir.path().join("begun");
    house.process_lane("wait", &format!("touch {}; sleep 3000", begun.display()), DONE);
    house.process_lane("other", ":", DONE);
    let slug = house.link();
    let mut owner = house.work(&["--name", "owner", "--lanes", "process:other"]);
    house.set("RELAY_SITE", &format!("unix:{}", house.home.join("relay.sock").display()));
    let name = format!("guest-{}", std::process::id());
    let guest = house.work(&["--name", &name, "--lanes", "process:wait"]);
    house.task(&slug, "process:wait", "x");
    guest.until("the lane", || begun.exists());
    owner.signal(Signal::KILL);
    owner.ended();
    guest.signal(Signal::TERM);
    guest.until("the drain", || guest.said().contains("running jobs finish"));
    guest.signal(Signal::TERM);
    guest.until("its end", || processes_with(&name).is_empty());
}

#[test]
fn a_command_that_meets_a_closing_owner_finds_the_next_way_in() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    house.process_lane("other", ":", DONE);
    let slug = house.link();
    let made = ["task", "create", "--repo", &slug, "--lane", "process:edit", "--title", "x"];
    std::thread::scope(|scope| {
        let making: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..8).for_each(|_| drop(house.relay(&made).ok()))))
            .collect();
        // Workers that find nothing come and go, each the owner of the home for a blink.
        while making.iter().any(|making| !making.is_finished()) {
            drain(&house, "process:other").ok();
        }
    });
    let all = house.json(&["task", "ls", "--json"]);
    assert_eq!(all["tasks"].as_array().unwrap().len(), 32);
}

#[test]
fn a_killed_worker_leaves_nothing_behind_once_it_is_back() {
    let house = House::new();
    let mark = format!("relay-it-killed-{}", std::process::id());
    let begun = house.dir.path().join("begun");
    let body = format!(
        "if [ ! -e {0} ]; then touch {0}; MARK={mark} sleep 3000; fi; {EDIT}",
        begun.display()
    );
    house.process_lane("once", &body, DONE);
    let slug = house.link();
    let task = house.task(&slug, "process:once", "x");
    let mut worker = house.work(&["--name", "w", "--lanes", "process:once"]);
    worker.until("the lane", || !processes_with(&mark).is_empty());
    worker.signal(Signal::KILL);
    worker.ended();
    worker.until("the end of the lane", || processes_with(&mark).is_empty());
    drain(&house, "process:once").ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}");
    assert_eq!(detail["task"]["epoch"], 2);
    assert_eq!(only_has(&house.home.join("work"), &[]), Vec::<String>::new());
}

#[test]
fn work_whose_push_is_refused_is_kept_and_a_retry_pushes_it_without_a_new_run() {
    use std::os::unix::fs::PermissionsExt;
    let house = House::new();
    let runs = house.dir.path().join("runs");
    house.process_lane("edit", &format!("echo run >> {}; {EDIT}", runs.display()), DONE);
    let hook = house.repo.join(".git/hooks/update");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(
        &hook,
        "#!/bin/sh\necho 'error: GH006: Protected branch update failed' >&2\nexit 1\n",
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "x");
    drain(&house, "process:edit").ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["state"], "failed", "{detail:#}");
    let reason = &detail["task"]["stop_reason"];
    assert_eq!((&reason["reason"], &reason["why"]), (&"push_refused".into(), &"protected".into()));
    assert_eq!(detail["runs"][0]["summary"], "Added a line.");
    let bundle = detail["runs"][0]["kept"].as_str().expect("a bundle");
    assert!(bundle.contains("kept/local_shop/relay-process-edit-1-"), "{bundle}");
    assert!(detail["task"]["message"].as_str().unwrap().contains(bundle));
    house.in_repo(&["fetch", "-q", bundle, "relay/process-edit-1:from-the-bundle"]);
    assert_eq!(house.in_repo(&["diff", "--name-only", "main", "from-the-bundle"]), "README.md");

    std::fs::remove_file(&hook).unwrap();
    house.relay(&["task", "retry", &task]).ok();
    drain(&house, "process:edit").ok();
    assert_eq!(house.state(&task), "review");
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
    let comment = get(&house, &task)["local_pull"]["comment"].clone();
    assert!(comment.as_str().unwrap().contains("Added a line."), "{comment}");
}

#[test]
fn a_vendor_that_prints_rubbish_or_nothing_is_told_by_name() {
    for (stream, code, reason) in [
        ("echo 'not json at all'; echo '{\"half\":'", 0, "protocol_violation"),
        (":", 0, "protocol_violation"),
        ("kill -9 $$", 0, "crashed"),
        ("head -c 100000000 /dev/zero | tr '\\0' 'x'", 0, "protocol_violation"),
    ] {
        let house = House::new();
        house.claude(stream, code);
        let slug = house.link();
        let task = house.task(&slug, "claude", "x");
        drain(&house, "claude").ok();
        let detail = get(&house, &task);
        let run = &detail["runs"][0]["stop_reason"]["reason"];
        assert_eq!(run, reason, "{stream}: {detail:#}");
    }
}

#[test]
fn the_log_can_be_read_and_followed() {
    let house = House::new();
    house.process_lane("edit", EDIT, DONE);
    let slug = house.link();
    let worker = house.work(&["--name", "w", "--lanes", "process:edit"]);
    let task = house.task(&slug, "process:edit", "x");
    let followed = house.relay(&["task", "log", &task, "--follow"]).ok();
    worker.until("the task's end", || house.state(&task) == "review");
    for step in ["== checkout", "== run", "== commit", "== push", "== pull request"] {
        assert!(followed.contains(step), "{step} is missing in:\n{followed}");
    }
    assert_eq!(house.relay(&["task", "log", &task]).ok(), followed);
}
