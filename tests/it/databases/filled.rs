//! A SQLite database with many rows in every table, odd ones among them.

use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection, raw_sql};

use relay::queue::Store;

/// Words of a closed list, which must stay what they are.
const WORDS: [&str; 4] = ["kind", "key", "lane", "state"];

/// A plain connection to a file.
pub async fn connect(path: &Path) -> SqliteConnection {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).foreign_keys(false);
    options.connect().await.expect("a connection")
}

/// A new database in `dir`: the rows of every migration's test, each of them `times` over.
pub async fn database(dir: &Path, times: u32) -> PathBuf {
    let path = dir.join("filled.db");
    Store::open(&url(&path)).await.expect("a store").close().await;
    let mut db = connect(&path).await;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/migrations");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(data).expect("rows").map(|f| f.expect("a file").path()).collect();
    files.sort();
    for file in files {
        let rows = std::fs::read_to_string(&file).expect("rows");
        raw_sql(AssertSqlSafe(rows)).execute(&mut db).await.expect("its rows");
    }
    let tables = names(&mut db, "select name from sqlite_master where type = 'table'").await;
    for table in tables.iter().filter(|t| !t.starts_with('_') && !t.starts_with("sqlite")) {
        multiply(&mut db, table, times).await;
    }
    raw_sql(ODD).execute(&mut db).await.expect("odd rows");
    let loose = raw_sql("pragma foreign_key_check").fetch_all(&mut db).await.expect("a check");
    assert_eq!(loose.len(), 0);
    db.close().await.expect("an end");
    path
}

pub fn url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

/// What may be lost on the way, or read in another way.
const ODD: &str = "
    insert into events (seq, at, kind, actor, task_id, data) values
        (500000, 9223372036854775807, 'task.queued', '', null, ''),
        (500001, -9223372036854775808, 'task.queued', 'Ünïcödé 日本 🦀', 'a', 'x''\"\\%_'
            || char(10, 13, 9, 1, 127, 65533, 1114111)),
        (500002, 0, 'plugin.mark', 'site', null, hex(randomblob(2000000)));
    update usage set cost_usd = 0.1 where run_id like '%1';
    update usage set cost_usd = -0.0 where run_id like '%2';
    update usage set cost_usd = 1e300 where run_id like '%3';
    update usage set cost_usd = 4.9e-324 where run_id like '%4';
    update usage set cost_usd = 5 where run_id like '%5';";

/// Each row `times` over, under other keys; what points at a row points at its copy.
async fn multiply(db: &mut SqliteConnection, table: &str, times: u32) {
    let columns = names(db, &format!("select name from pragma_table_info('{table}')")).await;
    let texts = format!("select name from pragma_table_info('{table}') where lower(type) = 'text'");
    let texts = names(db, &texts).await;
    let unique = format!(
        "select distinct c.name from pragma_index_list('{table}') i, pragma_index_info(i.name) c
        where i.\"unique\"
        union select \"from\" from pragma_foreign_key_list('{table}')"
    );
    let unique = names(db, &unique).await;
    let value = |column: &String| {
        if column == "seq" {
            "null".to_owned()
        } else if texts.contains(column)
            && unique.contains(column)
            && !WORDS.contains(&column.as_str())
        {
            format!("\"{column}\" || '-' || i")
        } else {
            format!("\"{column}\"")
        }
    };
    let values: Vec<String> = columns.iter().map(value).collect();
    let text = format!(
        "create temp table base as select * from \"{table}\";
        with recursive n (i) as (select 1 union all select i + 1 from n where i < {times})
            insert or ignore into \"{table}\" select {} from base, n;
        drop table base",
        values.join(", ")
    );
    raw_sql(AssertSqlSafe(text)).execute(&mut *db).await.expect("more rows");
    let count = format!("select count(*) as n from \"{table}\"");
    let count = raw_sql(AssertSqlSafe(count)).fetch_one(db).await.expect("a count");
    assert!(count.get::<i64, _>("n") > i64::from(times), "`{table}` has too few rows");
}

async fn names(db: &mut SqliteConnection, text: &str) -> Vec<String> {
    let rows = raw_sql(AssertSqlSafe(text.to_owned())).fetch_all(db).await.expect("names");
    rows.iter().map(|row| row.get(0)).collect()
}
