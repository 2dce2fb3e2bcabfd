//! `relay db copy`.

use serde_json::Value;
use sqlx::{Row, raw_sql};

use relay::queue::Store;

use super::filled::{connect, database, url};
use crate::support::house::House;
use crate::support::postgres::Database;

/// Rows of each table.
const MANY: u32 = 2_000;

/// Each table with rows and hash of both sides.
fn sums(report: &Value) -> Vec<(String, Value, Value)> {
    let tables = report["tables"].as_array().expect("tables");
    let sum = |t: &Value| {
        (t["table"].as_str().expect("a name").to_owned(), t["from"].clone(), t["to"].clone())
    };
    tables.iter().map(sum).collect()
}

#[tokio::test]
async fn everything_is_copied_and_compared() {
    let house = House::new();
    let from = database(house.dir.path(), MANY).await;
    let to = house.dir.path().join("copy.db");
    let report = house.json(&["db", "copy", &url(&from), &url(&to), "--json"]);
    let mut db = connect(&from).await;
    let tables = raw_sql(
        "select name from sqlite_master where type = 'table' and name not like '\\_%' escape '\\'",
    );
    let tables = tables.fetch_all(&mut db).await.expect("tables");
    assert_eq!(sums(&report).len(), tables.len());
    for (table, from, to) in sums(&report) {
        assert_eq!(from, to, "{table}");
        assert!(from["rows"].as_u64().expect("a count") > u64::from(MANY), "{table}: {from}");
    }
    let again = house.relay(&["db", "copy", &url(&from), &url(&to)]);
    assert_eq!(again.code, 4, "{again:?}");
    assert!(again.err.contains("is not empty: `") && again.err.contains("hint: "), "{}", again.err);
}

#[tokio::test]
async fn a_row_that_arrives_otherwise_undoes_the_whole_copy() {
    let house = House::new();
    let from = database(house.dir.path(), 10).await;
    let to = house.dir.path().join("copy.db");
    Store::open(&url(&to)).await.expect("a store").close().await;
    let mut db = connect(&to).await;
    let meddling = "create trigger meddling after insert on events when new.seq = 500001
        begin update events set at = at + 1 where seq = new.seq; end";
    raw_sql(meddling).execute(&mut db).await.expect("a trigger");
    let ran = house.relay(&["db", "copy", &url(&from), &url(&to)]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("`events` differs after the copy"), "{}", ran.err);
    for table in ["events", "projects", "tasks"] {
        let count = format!("select count(*) as n from {table}");
        let count = raw_sql(sqlx::AssertSqlSafe(count)).fetch_one(&mut db).await.expect("a count");
        assert_eq!(count.get::<i64, _>("n"), 0, "{table}");
    }
}

#[tokio::test]
async fn a_home_at_work_is_not_copied() {
    let house = House::new();
    house.process_lane("edit", "echo more >> README.md", "{\"reply\":\"done\"}");
    house.link();
    let worker = house.work(&["--lanes", "process:edit"]);
    let to = house.dir.path().join("copy.db");
    let from = url(&house.home.join("relay.db"));
    let ran = house.relay(&["db", "copy", &from, &url(&to)]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("is in use by a running `relay work`"), "{}", ran.err);
    assert!(!to.exists());
    drop(worker);
    let missing = url(&house.dir.path().join("none.db"));
    let ran = house.relay(&["db", "copy", &missing, &url(&to)]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(!house.dir.path().join("none.db").exists(), "it was made");
}

#[tokio::test]
async fn pg_everything_of_a_file_arrives_in_postgres_and_comes_back() {
    let Some(server) = Database::new().await else { return };
    let house = House::new();
    let from = database(house.dir.path(), MANY / 2).await;
    let there = house.json(&["db", "copy", &url(&from), &server.url, "--json"]);
    for (table, from, to) in sums(&there) {
        assert_eq!(from, to, "{table}");
        assert!(from["rows"].as_u64().expect("a count") > u64::from(MANY / 2), "{table}: {from}");
    }
    let back = house.dir.path().join("back.db");
    let back = house.json(&["db", "copy", &server.url, &url(&back), "--json"]);
    assert_eq!(sums(&there), sums(&back));

    // What is written next has a number of its own.
    let next = "insert into events (at, kind, actor, data) values (1, 'task.queued', 'a', '{}')";
    crate::support::postgres::run(&server.url, next).await;
    let store = Store::open(&server.url).await.expect("a store");
    let newest = store.last_events(0, None, 1).await.expect("events").pop().expect("an event");
    assert_eq!(newest.seq, 500_003);
    store.close().await;
}

#[tokio::test]
async fn pg_a_text_that_postgres_cannot_hold_is_named_and_nothing_is_written() {
    let Some(server) = Database::new().await else { return };
    let house = House::new();
    let from = database(house.dir.path(), 10).await;
    let mut db = connect(&from).await;
    let nul = "update tasks set body = 'a' || char(0) || 'b' where id = 'acme/shop#1'";
    raw_sql(nul).execute(&mut db).await.expect("a NUL");
    let ran = house.relay(&["db", "copy", &url(&from), &server.url]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let row = "row (\"acme/shop#1\"): `body` holds a NUL byte";
    assert!(ran.err.contains("`tasks`") && ran.err.contains(row), "{}", ran.err);
    let store = Store::open(&server.url).await.expect("a store");
    assert_eq!(store.events(0, None, 1).await.expect("events"), []);
    store.close().await;
    // What the page says helps.
    let page = include_str!("../../../docs/DATABASES.md");
    let (_, mend) = page.split_once("  update tasks set body").expect("a statement");
    let mend = mend.split_once("```").expect("its end").0;
    let mend = format!("update tasks set body{mend}");
    raw_sql(sqlx::AssertSqlSafe(mend)).execute(&mut db).await.expect("its mending");
    let body = raw_sql("select body from tasks where id = 'acme/shop#1'").fetch_one(&mut db).await;
    assert_eq!(body.expect("the task").get::<String, _>("body"), "ab");
    house.relay(&["db", "copy", &url(&from), &server.url]).ok();
}
