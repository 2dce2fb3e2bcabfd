//! The schema's history, forward only. A new step is a file and a line here.

use sqlx::AnyPool;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::StoreError;
use super::error::explain;

/// Number, name and text of each step.
const STEPS: [(i64, &str, &str); 3] = [
    (1, "queue", include_str!("migrations/0001_queue.sql")),
    (2, "deaths", include_str!("migrations/0002_deaths.sql")),
    (3, "refusals", include_str!("migrations/0003_refusals.sql")),
];

/// Applies the steps that are missing.
pub(super) async fn migrate(pool: &AnyPool, path: &str) -> Result<(), StoreError> {
    let steps = STEPS
        .iter()
        .map(|(number, name, text)| {
            let sql = AssertSqlSafe(*text).into_sql_str();
            Migration::new(*number, (*name).into(), MigrationType::Simple, sql, false)
        })
        .collect();
    Migrator::with_migrations(steps).run(pool).await.map_err(|error| match error {
        MigrateError::VersionMissing(found) => StoreError::Newer {
            path: path.to_owned(),
            found,
            known: STEPS.last().map_or(0, |(number, _, _)| *number),
        },
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            explain(path, error)
        }
        other => StoreError::Migration { path: path.to_owned(), detail: other.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use sqlx::{AnyPool, AssertSqlSafe, Row, raw_sql};

    use super::STEPS;
    use crate::model::{EventKind, Outcome, TaskState};
    use crate::store::Store;

    /// A store on a new file, and a plain pool on the same file.
    async fn fresh() -> (tempfile::TempDir, Store, AnyPool) {
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/relay.db", dir.path().display());
        let store = Store::open(&url).await.expect("a store");
        let pool = AnyPool::connect(&url).await.expect("a pool");
        (dir, store, pool)
    }

    async fn tables(pool: &AnyPool) -> BTreeSet<String> {
        sqlx::query("select name from sqlite_master where type = 'table' and name not like '\\_%' escape '\\'")
            .fetch_all(pool)
            .await
            .expect("the schema")
            .iter()
            .map(|row| row.get("name"))
            .collect()
    }

    #[tokio::test]
    async fn each_step_runs_over_the_data_of_the_one_before() {
        sqlx::any::install_default_drivers();
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/relay.db?mode=rwc", dir.path().display());
        let pool = AnyPool::connect(&url).await.expect("a pool");
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/migrations");
        for (number, name, text) in STEPS {
            raw_sql(text).execute(&pool).await.expect("a step");
            let rows = data.join(format!("{number:04}_{name}.sql"));
            let rows = std::fs::read_to_string(&rows).expect("each step has rows to run over");
            raw_sql(AssertSqlSafe(rows)).execute(&pool).await.expect("its rows");
            for table in tables(&pool).await {
                let found = sqlx::query(AssertSqlSafe(format!("select 1 from {table} limit 1")))
                    .fetch_optional(&pool)
                    .await
                    .expect("a table");
                assert!(found.is_some(), "no row in `{table}` after step {number}");
            }
        }
        let broken =
            sqlx::query("pragma foreign_key_check").fetch_all(&pool).await.expect("a check");
        assert_eq!(broken.len(), 0);
    }

    #[tokio::test]
    async fn check_constraints_say_the_words_of_the_model() {
        let (_dir, store, pool) = fresh().await;
        let schema: String = sqlx::query("select sql from sqlite_master where name = 'tasks'")
            .fetch_one(&pool)
            .await
            .expect("the schema")
            .get("sql");
        let list = schema.split_once("state in (").expect("a list of states").1;
        let list = list.split_once(')').expect("its end").0;
        let words: Vec<&str> = list.split(',').map(|w| w.trim().trim_matches('\'')).collect();
        assert_eq!(words, TaskState::ALL.map(TaskState::as_str));

        let runs: String = sqlx::query("select sql from sqlite_master where name = 'runs'")
            .fetch_one(&pool)
            .await
            .expect("the schema")
            .get("sql");
        for outcome in [Outcome::Finished, Outcome::Failed, Outcome::Released] {
            let word = serde_json::to_string(&outcome).expect("a word").replace('"', "'");
            assert!(runs.contains(&word), "runs.outcome lacks {word}");
        }
        assert_eq!(EventKind::TaskQueued.as_str(), "task.queued");
        store.close().await;
    }

    #[tokio::test]
    async fn a_database_of_a_newer_relay_is_left_alone() {
        let (dir, store, pool) = fresh().await;
        store.close().await;
        raw_sql(
            "insert into _sqlx_migrations
                (version, description, success, checksum, execution_time)
            values (9999, 'later', true, x'00', 0)",
        )
        .execute(&pool)
        .await
        .expect("a later step");
        pool.close().await;
        let url = format!("sqlite://{}/relay.db", dir.path().display());
        let error = Store::open(&url).await.expect_err("it was opened");
        let text = error.to_string();
        assert!(matches!(error, crate::store::StoreError::Newer { found: 9999, known, .. }
            if known == STEPS[STEPS.len() - 1].0));
        assert!(text.contains("relay.db"), "{text}");
    }
}
