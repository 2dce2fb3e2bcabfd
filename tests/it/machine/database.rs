//! The database file as a machine may leave it: damaged, locked, newer, something else.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::{ConnectOptions, Connection, SqliteConnection, raw_sql};

use crate::support::house::{House, Ran};

/// A machine with a linked repository and one task, and nobody owning its home.
fn house_with_a_task() -> (House, String) {
    let house = House::new();
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "a wish");
    (house, task)
}

fn database(house: &House) -> PathBuf {
    house.home.join("relay.db")
}

/// A failure that a person can act on: one `error:` naming the file, one `hint:`, nothing else.
#[track_caller]
fn calm(ran: &Ran, error: &str, hint: &str) {
    assert_eq!(ran.code, 1, "{ran:?}");
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.err);
    assert!(lines[0].starts_with("error: ") && lines[0].contains("relay.db"), "{}", ran.err);
    assert!(lines[0].contains(error), "{}", ran.err);
    assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{}", ran.err);
}

/// What doctor says of one thing.
#[track_caller]
fn check(house: &House, name: &str) -> (String, String, String) {
    let ran = house.relay(&["doctor", "--json", "--patience", "60"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{report}"));
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("seen"), text("mend"))
}

#[test]
fn a_damaged_database_is_named_with_what_to_do_and_left_as_it_is() {
    for damage in ["garbage", "cut", "emptied header"] {
        let (house, _) = house_with_a_task();
        let path = database(&house);
        let mut bytes = fs::read(&path).unwrap();
        match damage {
            "garbage" => bytes = b"not a database at all ".repeat(1000),
            "cut" => bytes.truncate(bytes.len() / 3),
            _ => bytes[..100].fill(0),
        }
        fs::write(&path, &bytes).unwrap();
        let ran = house.relay(&["task", "ls"]);
        calm(&ran, "is damaged", "relay.db.damaged");
        assert_eq!(fs::read(&path).unwrap(), bytes, "{damage}: it was written");
        let (state, seen, mend) = check(&house, "database");
        assert_eq!(state, "fail");
        assert!(seen.contains("is damaged") && mend.contains("mv "), "{seen}: {mend}");
        // What the hint says helps.
        fs::rename(&path, path.with_extension("db.damaged")).unwrap();
        house.link();
    }
}

#[test]
fn a_page_that_rotted_is_found_by_doctor_before_work_meets_it() {
    let (house, _) = house_with_a_task();
    let path = database(&house);
    // The index by task is read by nothing but a look at one task's events.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let root: i64 = runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
        let mut connection: SqliteConnection = options.connect().await.unwrap();
        let sql = "select rootpage from sqlite_master where name = 'events_task'";
        let root = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        root
    });
    let mut bytes = fs::read(&path).unwrap();
    let page = usize::try_from(root - 1).unwrap() * 4096;
    bytes[page..page + 64].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let (state, seen, mend) = check(&house, "database");
    assert_eq!(state, "fail", "{seen}");
    assert!(seen.contains("is damaged") && mend.contains(".recover"), "{seen}: {mend}");
}

#[test]
fn rubbish_in_the_write_ahead_log_is_not_believed() {
    let (house, task) = house_with_a_task();
    let wal = house.home.join("relay.db-wal");
    fs::write(&wal, vec![0xa5; 64 * 1024]).unwrap();
    fs::write(house.home.join("relay.db-shm"), vec![0x5a; 32 * 1024]).unwrap();
    assert_eq!(house.state(&task), "queued");
    let second = house.task("local/shop", "process:edit", "another wish");
    assert_eq!(house.state(&second), "queued");
    assert_eq!(check(&house, "database").0, "ok");
}

#[test]
fn a_database_of_a_newer_relay_is_refused_by_name_and_not_written() {
    let (house, _) = house_with_a_task();
    let path = database(&house);
    let run = |sql: &'static str| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
            let mut connection: SqliteConnection = options.connect().await.unwrap();
            raw_sql(sql).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        });
    };
    run("insert into _sqlx_migrations (version, description, success, checksum, execution_time)
        values (9999, 'later', true, x'00', 0)");
    let before = fs::read(&path).unwrap();
    let ran = house.relay(&["work", "--once", "--lanes", "process:edit"]);
    calm(&ran, "is of a newer relay (schema 9999", "use the newer relay");
    assert_eq!(fs::read(&path).unwrap(), before);
    let (state, seen, mend) = check(&house, "database");
    assert!(state == "fail" && seen.contains("newer relay"), "{seen}");
    assert!(mend.contains("newer relay"), "{mend}");
}

#[test]
fn something_else_in_the_place_of_a_file_of_relays_is_named() {
    for (name, error) in [("relay.db", "relay.db"), ("relay.lock", "relay.lock")] {
        let house = House::new();
        fs::create_dir(house.home.join(name)).unwrap();
        let ran = house.relay(&["link", house.repo.to_str().unwrap()]);
        assert_eq!(ran.code, 1, "{ran:?}");
        let hint =
            format!("hint: something else stands there: mv {}", house.home.join(name).display());
        assert!(ran.err.contains(error) && ran.err.contains(&hint), "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
        fs::rename(house.home.join(name), house.home.join("aside")).unwrap();
        house.link();
    }
}

#[test]
fn a_database_that_another_program_holds_is_waited_for_and_then_named() {
    let mut house = House::new();
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    house.set("RELAY_WORK_MAX_INTERVAL", "5");
    house.link();
    let worker = house.work(&["--lanes", "process:edit"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(database(&house))
        .busy_timeout(Duration::from_secs(20));
    let mut holder: SqliteConnection = runtime.block_on(options.connect()).unwrap();
    runtime.block_on(raw_sql("begin exclusive").execute(&mut holder)).unwrap();

    let create =
        ["task", "create", "--repo", "local/shop", "--lane", "process:edit", "--title", "t"];
    let ran = house.relay(&create);
    calm(&ran, "is held by another process", "fuser");
    // It goes on by itself.
    runtime.block_on(raw_sql("rollback").execute(&mut holder)).unwrap();
    let task = house.relay(&create).ok();
    worker.until("the pull request", || house.state(&task) == "review");
    assert!(!worker.said().contains("ERROR"), "{}", worker.said());

    // Without a living owner doctor meets it itself.
    drop(worker);
    runtime.block_on(raw_sql("begin exclusive").execute(&mut holder)).unwrap();
    let (state, seen, mend) = check(&house, "database");
    assert!(state == "fail" && seen.contains("is held by another process"), "{state} {seen}");
    assert!(mend.contains("fuser"), "{mend}");
}
