//! `relay db backup`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sqlx::{Row, raw_sql};

use super::filled::connect;
use crate::support::house::{House, only_has};

/// A machine with a lane that does its work at once.
fn house() -> House {
    let house = House::new();
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    house
}

#[tokio::test]
async fn a_backup_is_whole_and_its_owner_works_on() {
    let house = house();
    let slug = house.link();
    let worker = house.work(&["--lanes", "process:edit"]);
    let tasks: Vec<String> =
        (0..6).map(|n| house.task(&slug, "process:edit", &format!("wish {n}"))).collect();
    let mut events = 0;
    for n in 0..6 {
        let file = house.dir.path().join(format!("backup-{n}.db"));
        let said = house.relay(&["db", "backup", file.to_str().expect("a path")]).ok();
        assert_eq!(said, file.display().to_string());
        let mode = fs::metadata(&file).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut db = connect(&file).await;
        let sound = raw_sql("pragma integrity_check").fetch_one(&mut db).await.expect("a check");
        assert_eq!(sound.get::<String, _>(0), "ok");
        let count = "select count(*) as n, count(distinct task_id) as tasks from events";
        let count = raw_sql(count).fetch_one(&mut db).await.expect("a count");
        assert!(count.get::<i64, _>("n") >= events, "it went back");
        assert!(count.get::<i64, _>("tasks") >= 6);
        events = count.get("n");
    }
    for task in &tasks {
        worker.until("each task", || house.state(task) == "review");
    }
    assert!(!worker.said().contains("ERROR"), "{}", worker.said());
    drop(worker);
    // Of a home that nobody owns as well.
    let file = house.dir.path().join("last.db");
    house.relay(&["db", "backup", file.to_str().expect("a path")]).ok();
    assert_eq!(only_has(house.dir.path(), &[".db", ".log", "relay", "shop", "bin"]), [""; 0]);
}

#[test]
fn a_backup_replaces_nothing_and_leaves_nothing_half_done() {
    let house = house();
    let backup = |file: &str| {
        let file = house.dir.path().join(file);
        house.relay(&["db", "backup", file.to_str().expect("a path")])
    };
    let ran = backup("b.db");
    assert_eq!(ran.code, 3, "{ran:?}");
    house.link();
    fs::write(house.dir.path().join("b.db"), "mine").expect("a file");
    let ran = backup("b.db");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("is there already") && ran.err.contains("hint: "), "{}", ran.err);
    assert_eq!(fs::read(house.dir.path().join("b.db")).expect("the file"), b"mine");
    let ran = backup("no/such/folder.db");
    assert_eq!(ran.code, 1, "{ran:?}");

    let path = house.home.join("relay.db");
    let whole = fs::read(&path).expect("the database");
    fs::write(&path, &whole[..whole.len() / 3]).expect("damage");
    let ran = backup("c.db");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("is damaged"), "{}", ran.err);
    assert_eq!(only_has(house.dir.path(), &["b.db", "relay", "shop", "bin"]), [""; 0]);
}

#[test]
fn a_postgres_is_left_to_its_own_programs() {
    let house = house();
    let url = "postgres://ann:hush@127.0.0.1:1/relay";
    let ran = house.relay(&["db", "backup", "/tmp/x.db", "--database", url]);
    assert_eq!(ran.code, 9, "{ran:?}");
    assert!(ran.err.contains("hint: pg_dump ") && !ran.err.contains("hush"), "{}", ran.err);
}

#[test]
fn a_home_whose_queue_is_not_its_own_says_who_backs_it_up() {
    let mut house = House::new();
    let file = house.dir.path().join("new.db");
    let backup = ["db", "backup", file.to_str().expect("a path")];
    let note = house.home.join("queue.json");
    fs::write(&note, r#"{"kept_in":"postgres://db.example/relay"}"#).expect("a note");
    let refused = house.relay(&backup);
    assert!(refused.code == 9 && refused.err.contains("hint: pg_dump "), "{refused:?}");
    fs::remove_file(note).expect("it was there");
    house.set("RELAY_SITE", "http://127.0.0.1:9");
    let refused = house.relay(&backup);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("it is a worker of http://127.0.0.1:9"), "{refused:?}");
    assert!(refused.err.contains("hint: do it on the site's machine"), "{refused:?}");
    assert!(!file.exists());
}
