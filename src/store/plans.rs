//! No claim and no sweep reads a table from end to end.

use std::time::Duration;

use sqlx::{AnyPool, AssertSqlSafe, Row as _};

use super::claims::{claim_text, claim_text_postgres};
use super::timers::sweep_text;
use super::{DeathLimits, Sql, Store, SweepRules};

/// Tables that grow with the tasks, by the names they have in the texts.
const LONG: [&str; 9] = ["tasks", "q", "t", "o", "runs", "r", "d", "k", "events"];

/// The parts of each statement's plan that read a long table without an index to look in.
async fn scans(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}/relay.db", dir.path().display());
    let store = Store::open(&url).await.expect("a store");
    let pool = AnyPool::connect(&url).await.expect("a pool");
    let mut found = Vec::new();
    let code: Vec<&str> = text.lines().filter(|line| !line.trim().starts_with("--")).collect();
    for statement in code.join("\n").split(';').map(str::trim) {
        if statement.starts_with("begin") || statement == "commit" || statement.is_empty() {
            continue;
        }
        let plan = sqlx::query(AssertSqlSafe(format!("explain query plan {statement}")));
        for row in plan.fetch_all(&pool).await.expect("a plan") {
            let step: String = row.get("detail");
            let table = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            if table.is_some_and(|table| LONG.contains(&table)) {
                found.push(format!("{step} in: {statement}"));
            }
        }
    }
    store.close().await;
    found
}

#[tokio::test]
async fn a_claim_looks_into_indexes_alone() {
    assert_eq!(scans(&claim_text(3, 2)).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_sweep_looks_into_indexes_alone() {
    let second = Duration::from_secs(1);
    let limits = DeathLimits { lease: second, quick: second, quick_most: 3, most: 6 };
    let rules = SweepRules { limits, longest_pause: second, end_leases: true };
    let found = scans(&sweep_text(&rules)).await;
    // The last words of the texts, which only read the first entry of an index.
    let found: Vec<&String> = found.iter().filter(|step| !step.contains("as expiry")).collect();
    assert_eq!(found, Vec::<&String>::new());
}

#[tokio::test]
async fn a_scan_would_be_found() {
    assert_ne!(scans("select id from tasks where title = 'x'").await, Vec::<String>::new());
}

#[tokio::test]
async fn pg_a_claim_looks_into_indexes_alone() {
    #[expect(clippy::disallowed_methods, reason = "the test's own setting, not the program's")]
    let Ok(server) = std::env::var("RELAY_TEST_POSTGRES") else {
        println!("skipped: RELAY_TEST_POSTGRES names no server (scripts/test starts one)");
        return;
    };
    sqlx::any::install_default_drivers();
    let name = format!("relay_plans_{}", std::process::id());
    let admin = AnyPool::connect(&server).await.expect("the server");
    let run = async |text: String| {
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&admin).await.expect("a database");
    };
    run(format!("create database {name} template template0")).await;
    let (before, _) = server.rsplit_once('/').expect("a URL with a database");
    let store = Store::open(&format!("{before}/{name}")).await.expect("a store");
    // Planned as the store's sessions plan, over empty tables, which stay so until they are not.
    for locked in ["skip locked", ""] {
        let text = format!("explain {}", claim_text_postgres(2, 1, locked));
        let sql = ["w", "i", "c", "r"].iter().fold(Sql::made(text), |sql, word| sql.bind(*word));
        let sql = sql.bind(1_i64).bind(2_i64).bind("claude").bind("codex").bind("gpu");
        let plan = store.read(sql).await.expect("a plan");
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let scans = plan.iter().filter(|step| step.contains("Seq Scan"));
        assert_eq!(scans.collect::<Vec<_>>(), Vec::<&String>::new(), "{plan:#?}");
        let oldest =
            plan.iter().any(|step| step.contains("Index Scan using tasks_queued on tasks q"));
        assert!(oldest, "{plan:#?}");
    }
    store.close().await;
    run(format!("drop database {name} with (force)")).await;
}
