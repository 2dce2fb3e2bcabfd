//! Preferences with the real program: what a run gets of them, and what a budget does.

use serde_json::Value;

use crate::support::house::House;

/// A vendor's program that writes down how it was called, and says what it cost.
const TELLS: &str = "printf '%s\\n' \"$*\" > called.txt; echo '{\"type\":\"result\",\
    \"subtype\":\"success\",\"is_error\":false,\"result\":\"done\",\"num_turns\":1,\
    \"total_cost_usd\":0.5}'";

fn drain(house: &House, more: &[&str]) {
    let args = [&["work", "--once", "--name", "w", "--lanes", "claude"][..], more].concat();
    house.relay(&args).ok();
}

fn get(house: &House, task: &str) -> Value {
    house.json(&["task", "get", task, "--json"])
}

/// What the task's run was called with.
fn call(house: &House, task: &str) -> String {
    let detail = get(house, task);
    detail["local_pull"]["diff"].as_str().unwrap_or_else(|| panic!("{detail:#}")).to_owned()
}

#[test]
fn a_run_gets_what_the_preferences_say_unless_its_worker_was_told_otherwise() {
    let mut house = House::new();
    house.claude(TELLS, 0);
    let slug = house.link();
    let task = house.task(&slug, "claude", "as it is");
    drain(&house, &[]);
    let called = call(&house, &task);
    assert!(called.contains("--model opus ") && called.contains("--max-turns 40"), "{called}");
    for (key, value) in [("lane.model", "sonnet"), ("run.max_turns", "7")] {
        house.relay(&["prefer", key, value, "--scope", "lane", "--scope-id", "claude"]).ok();
    }
    house.relay(&["prefer", "run.max_minutes", "90"]).ok();
    let task = house.task(&slug, "claude", "as preferred");
    drain(&house, &[]);
    let called = call(&house, &task);
    assert!(called.contains("--model sonnet ") && called.contains("--max-turns 7"), "{called}");
    let log = house.relay(&["task", "log", &task]).ok();
    assert!(log.contains("at most 90 min"), "{log}");
    // The environment and a flag of the worker win.
    house.set("RELAY_MODEL_CLAUDE", "haiku");
    let task = house.task(&slug, "claude", "as the worker says");
    drain(&house, &["--max-minutes", "5"]);
    let called = call(&house, &task);
    assert!(called.contains("--model haiku ") && called.contains("--max-turns 7"), "{called}");
    let log = house.relay(&["task", "log", &task]).ok();
    assert!(log.contains("at most 5 min"), "{log}");
}

#[test]
fn a_preference_of_a_lane_that_nobody_knows_is_kept_with_a_warning() {
    let house = House::new();
    house.process_lane("edit", "true", "{}");
    let set = |value: &[&str], lane: &str| {
        let args = [&["prefer", "run.max_turns"], value, &["--scope", "lane", "--scope-id", lane]];
        house.relay(&args.concat())
    };
    let slip = set(&["7"], "clade");
    assert_eq!(slip.code, 0, "{slip:?}");
    let warning = "warning: no lane `clade` is known, so this holds once there is one; known are \
        claude, codex, grok, process:edit\n";
    assert_eq!(slip.err, warning);
    assert!(slip.out.contains("lane clade"), "{slip:?}");
    for (value, lane) in [(&["7"][..], "codex"), (&["7"], "process:edit"), (&["--unset"], "clade")]
    {
        let said = set(value, lane);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{lane}: {said:?}");
    }
}

#[test]
fn a_model_of_a_process_lane_is_kept_with_a_warning() {
    let house = House::new();
    house.process_lane("edit", "true", "{}");
    let set = |value: &str, scope: &[&str]| {
        let ran = house.relay(&[&["prefer", "lane.model", value], scope].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.err
    };
    let of_lane = ["--scope", "lane", "--scope-id", "process:edit"];
    let both = format!("{}:process:edit", house.link());
    let of_both = ["--scope", "project-lane", "--scope-id", &both];
    let warning =
        "warning: a process lane has no model, so this changes nothing for `process:edit`\n";
    assert_eq!(
        (set("opus", &of_lane).as_str(), set("opus", &of_both).as_str()),
        (warning, warning)
    );
    assert_eq!(set("opus", &["--scope", "lane", "--scope-id", "claude"]), "");
    assert_eq!(set("--unset", &of_lane), "");
}

#[test]
fn a_budget_that_is_used_up_says_so_until_there_is_more() {
    let house = House::new();
    house.claude(TELLS, 0);
    let slug = house.link();
    let set = ["prefer", "budget.usd_day", "0.4", "--scope", "project", "--scope-id", &slug];
    house.relay(&set).ok();
    let first = house.task(&slug, "claude", "the first");
    let second = house.task(&slug, "claude", "the second");
    drain(&house, &[]);
    assert_eq!((house.state(&first), house.state(&second)), ("review".into(), "queued".into()));
    let said = house.relay(&["task", "get", &second]).ok();
    let why = "waits     local/shop has spent $0.50 of the $0.40 a day: goes on at ";
    let more =
        "`relay prefer budget.usd_day AMOUNT --scope project --scope-id local/shop` gives more";
    assert!(
        said.contains(why) && said.contains(" 00:00:00 UTC (in ") && said.contains(more),
        "{said}"
    );
    let waiting = &get(&house, &second)["waiting"][0];
    assert_eq!(waiting["why"], "budget", "{waiting:#}");
    assert_eq!((&waiting["usd_day"], &waiting["spent_usd"]), (&"0.40".into(), &"0.50".into()));
    let events = house.json(&["events", "--json"]);
    let told = events["events"].as_array().unwrap().iter();
    let told: Vec<&Value> = told.filter(|e| e["data"]["why"] == "budget").collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!((&told[0]["kind"], &told[0]["task"]), (&"task.parked".into(), &Value::Null));
    house.relay(&["prefer", "budget.usd_day", "2", "--scope", "project", "--scope-id", &slug]).ok();
    drain(&house, &[]);
    assert_eq!(house.state(&second), "review");
}

#[test]
fn a_lane_that_this_machine_cannot_run_is_not_served() {
    let house = House::new();
    house.process_lane("edit", ":", "{}");
    let refused = |lanes: &str| {
        let ran = house.relay(&["work", "--once", "--lanes", lanes]);
        assert_eq!(ran.code, 6, "{}", ran.err);
        ran.err
    };
    let said = refused("foo");
    assert!(said.contains("error: this machine has no lane `foo`"), "{said}");
    assert!(said.contains("hint: `relay lane ls`"), "{said}");
    let said = refused("process:edit,process:gone");
    let file = house.home.join("lanes/gone.json");
    assert!(said.contains(&format!("a process lane is a file, {}", file.display())), "{said}");
    // Nothing was registered.
    assert_eq!(house.json(&["work", "status", "--json"])["workers"], serde_json::json!([]));
}

#[test]
fn doctor_lists_the_linked_repositories_and_a_moved_one_says_what_to_do() {
    let house = House::new();
    house.process_lane("edit", "echo change >> README.md", "{}");
    let slug = house.link();
    let check = || {
        let said = house.relay(&["doctor", "--json", "--patience", "60"]).out;
        let report: Value = serde_json::from_str(&said).unwrap();
        let all = report["checks"].as_array().unwrap().clone();
        all.into_iter().find(|check| check["name"] == slug.as_str()).expect("a line")
    };
    assert_eq!(check()["state"], "ok", "{:#}", check());
    let task = house.task(&slug, "process:edit", "x");
    let away = house.dir.path().join("elsewhere");
    std::fs::rename(&house.repo, &away).unwrap();
    assert_eq!(check()["state"], "warn", "{:#}", check());
    house.relay(&["work", "--once", "--name", "w", "--lanes", "process:edit"]).ok();
    let detail = get(&house, &task);
    assert_eq!(detail["task"]["stop_reason"]["why"], "not_found", "{detail:#}");
    let error = detail["runs"][0]["error"].as_str().unwrap();
    assert!(error.contains("`ln -s NEW OLD`") && !error.contains("gh auth"), "{error}");
    // And that helps.
    std::os::unix::fs::symlink(&away, &house.repo).unwrap();
    assert_eq!(check()["state"], "ok", "{:#}", check());
    house.relay(&["task", "retry", &task]).ok();
    house.relay(&["work", "--once", "--name", "w", "--lanes", "process:edit"]).ok();
    assert_eq!(house.state(&task), "review");
}
