//! No claim, no sweep and no reading of what is queued reads a table from end to end.

use std::time::Duration;

use sqlx::{AnyPool, AssertSqlSafe, Row as _};

use super::claims::together::claim_text_together;
use super::claims::{claim_text, claim_text_postgres};
use super::finish::together::finish_text_together;
use super::sql::Arg;
use super::tasks::{NEEDS_POSTGRES, NEEDS_SQLITE, needs_text};
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
    assert_eq!(scans(&claim_text(3, 2, true)).await, Vec::<String>::new());
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
async fn what_is_queued_is_read_by_its_index_and_no_further_than_it_is_asked_for() {
    let found = scans(&needs_text(NEEDS_SQLITE)).await;
    // The lanes of projects, which are what was found in the index.
    let found: Vec<&String> = found.iter().filter(|step| !step.starts_with("SCAN q in:")).collect();
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
    let plan_of = async |text: String, args: &[Arg]| -> Vec<String> {
        let sql = Sql::made(format!("explain {text}"));
        let sql = args.iter().fold(sql, |sql, arg| sql.bind(arg.clone()));
        let plan = store.read(sql).await.expect("a plan");
        plan.iter().map(|row| row.get(0)).collect()
    };
    let words = |words: &[&str]| words.iter().map(|word| Arg::from(*word)).collect::<Vec<_>>();
    let times = [Arg::from(1_i64), Arg::from(2_i64)];
    let one = [&words(&["w", "i", "c", "r"])[..], &times, &words(&["claude", "codex", "gpu"])];
    let all = words(&["[]", "claude", "codex", "gpu"]);
    let claims = [
        plan_of(claim_text_postgres(2, 1, false, "skip locked"), &one.concat()).await,
        plan_of(claim_text_postgres(2, 1, false, ""), &one.concat()).await,
        plan_of(claim_text_together(2, 1), &all).await,
    ];
    for plan in &claims {
        let oldest =
            plan.iter().any(|step| step.contains("Index Scan using tasks_queued on tasks q"));
        assert!(oldest, "{plan:#?}");
    }
    let ends = plan_of(finish_text_together(), &words(&["[]"])).await;
    let needs = plan_of(needs_text(NEEDS_POSTGRES), &[Arg::from(1_i64), Arg::from(2_i64)]).await;
    let needed = needs.iter().any(|step| step.contains("Index Scan using tasks_needs on tasks t"));
    assert!(needed, "{needs:#?}");
    for plan in claims.iter().chain([&ends, &needs]) {
        let whole = plan.iter().filter(|step| {
            // There are few projects, and some statements need to know all of them.
            (step.contains("Seq Scan") && !step.contains("on projects"))
                || step.contains("Hash Join")
                || step.contains("Merge Join")
        });
        assert_eq!(whole.collect::<Vec<_>>(), Vec::<&String>::new(), "{plan:#?}");
    }
    store.close().await;
    run(format!("drop database {name} with (force)")).await;
}
