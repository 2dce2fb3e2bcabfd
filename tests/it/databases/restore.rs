//! `relay db restore`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::house::House;

fn house() -> (House, String) {
    let house = House::new();
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "a wish");
    (house, task)
}

fn backup(house: &House) -> PathBuf {
    let file = house.dir.path().join("backup.db");
    house.relay(&["db", "backup", file.to_str().expect("a path")]).ok();
    file
}

fn run_once(house: &House) {
    house.relay(&["work", "--once", "--lanes", "process:edit"]).ok();
}

fn epoch(house: &House, task: &str) -> u64 {
    house.json(&["task", "get", task, "--json"])["task"]["epoch"].as_u64().expect("an epoch")
}

#[test]
fn a_restored_queue_gives_no_epoch_a_second_time() {
    let (house, task) = house();
    let file = backup(&house);
    // The hidden ref hears of the second claim, of which the backup knows nothing.
    run_once(&house);
    house.relay(&["task", "retry", &task]).ok();
    run_once(&house);
    assert_eq!((epoch(&house, &task), house.state(&task).as_str()), (2, "review"));

    let file = file.to_str().expect("a path");
    let done = house.json(&["db", "restore", file, "--json"]);
    assert_eq!((&done["tasks"], &done["leases"]), (&Value::from(1), &Value::from(0)));
    let before = PathBuf::from(done["before"].as_str().expect("what stood there"));
    assert!(before.exists());
    assert_eq!((house.state(&task).as_str(), epoch(&house, &task)), ("queued", 1_000_000));
    run_once(&house);
    assert_eq!((house.state(&task).as_str(), epoch(&house, &task)), ("review", 1_000_001));
    // And what stood there can be put back.
    house.relay(&["db", "restore", before.to_str().expect("a path")]).ok();
    assert_eq!(epoch(&house, &task), 1_000_002);
}

#[test]
fn a_lease_that_a_backup_remembers_is_over() {
    let (mut house, task) = house();
    let gate = house.dir.path().join("gate");
    house.process_lane(
        "edit",
        &format!(
            "while [ ! -e {} ]; do read -t 1 x < /dev/null || sleep 0.05; done",
            gate.display()
        ),
        "{\"reply\":\"done\"}",
    );
    house.set("RELAY_WORK_MAX_INTERVAL", "5");
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("the run", || house.state(&task) == "running");
    let file = backup(&house);
    // A home with an owner is not touched.
    let ran = house.relay(&["db", "restore", file.to_str().expect("a path")]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("is in use by a running `relay work`"), "{}", ran.err);
    drop(worker);
    fs::write(&gate, "").expect("the gate");

    let done = house.json(&["db", "restore", file.to_str().expect("a path"), "--json"]);
    assert_eq!(done["leases"], 1);
    assert_eq!(house.state(&task), "queued");
    let events = house.relay(&["events", "--json"]).ok();
    assert!(events.contains("\"restored\""), "{events}");
}

#[test]
fn a_token_that_was_revoked_since_the_backup_stays_revoked_or_is_warned_of() {
    let house = House::new();
    let token = |name: &str| {
        house.relay(&["token", "create", "--name", name, "--scope", "feed:read"]).ok();
    };
    let valid = || {
        let listed = house.json(&["token", "ls", "--json"]);
        let tokens = listed["tokens"].as_array().expect("tokens").clone();
        let valid = tokens.iter().filter(|token| token["revoked_at"].is_null());
        valid.map(|token| token["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    for name in ["lost", "kept", "early"] {
        token(name);
    }
    house.relay(&["token", "revoke", "early"]).ok();
    let file = backup(&house);
    let file = file.to_str().expect("a path");
    house.relay(&["token", "revoke", "lost"]).ok();
    token("late");

    let ran = house.relay(&["db", "restore", file]);
    assert!(ran.err.contains("revoked since the backup, and still revoked: lost\n"), "{}", ran.err);
    assert_eq!((ran.code, ran.err.contains("warning: ")), (0, false), "{}", ran.err);
    assert_eq!(valid(), ["kept"]);
    let again = house.json(&["db", "restore", file, "--json"]);
    assert_eq!(again["revoked"], serde_json::json!(["lost"]));

    // Nobody knows any more.
    for gone in ["damaged", "missing"] {
        let own = house.home.join("relay.db");
        match gone {
            "damaged" => fs::write(&own, b"no database ".repeat(1000)).expect("damage"),
            _ => fs::remove_file(&own).expect("it was there"),
        }
        let ran = house.relay(&["db", "restore", file]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let warning = "warning: what stood there could not be asked, so a token that was revoked";
        assert!(ran.err.contains(warning) && ran.err.contains("relay token ls"), "{}", ran.err);
        assert_eq!(valid(), ["lost", "kept"], "{gone}");
    }
    fs::remove_file(house.home.join("relay.db")).expect("it was there");
    assert_eq!(house.json(&["db", "restore", file, "--json"])["revoked"], Value::Null);
}

#[test]
fn a_backup_that_is_none_changes_nothing() {
    let (house, task) = house();
    let file = backup(&house);
    let whole = fs::read(&file).expect("the backup");
    for damaged in [whole[..whole.len() / 2].to_vec(), b"no database ".repeat(1000)] {
        fs::write(&file, damaged).expect("damage");
        let ran = house.relay(&["db", "restore", file.to_str().expect("a path")]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("backup.db is not a backup of relay: "), "{}", ran.err);
        assert!(ran.err.contains("hint: name a file that `relay db backup` wrote"), "{}", ran.err);
        assert!(!ran.err.contains("mv "), "{}", ran.err);
        assert_eq!(house.state(&task), "queued");
    }
    let ran = house.relay(&["db", "restore", "/no/such/file"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let said = "error: there is no backup /no/such/file\nhint: check the path of the backup\n";
    assert_eq!(ran.err, said);
    assert_eq!(epoch(&house, &task), 0);
}
