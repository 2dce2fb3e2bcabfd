//! Databases of a throwaway Postgres, and a Postgres of a test's own that it may stop and start.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AnyConnection, AssertSqlSafe, Connection};

/// A database that is dropped with this.
#[derive(Debug)]
pub struct Database {
    /// For `Store::open`.
    pub url: String,
    server: String,
    name: String,
}

/// Why a test is skipped, or the URL of a superuser on a throwaway server of this machine.
#[expect(clippy::disallowed_methods, reason = "the test's own setting, not the program's")]
fn server() -> Option<String> {
    let url = std::env::var("RELAY_TEST_POSTGRES").ok().filter(|url| !url.is_empty());
    if url.is_none() {
        println!("skipped: RELAY_TEST_POSTGRES names no server (scripts/test starts one)");
    }
    url
}

impl Database {
    /// A new, empty database; `None` where there is no server.
    pub async fn new() -> Option<Self> {
        Some(Self::on(&server()?).await)
    }

    /// The same on a server that the test has started.
    pub async fn on(server: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("relay_test_{}_{count}", std::process::id());
        // The language of a real server; relay must not depend on it.
        run(server, &format!("create database {name} template template0")).await;
        let (before, _) = server.rsplit_once('/').expect("a URL with a database");
        Self { url: format!("{before}/{name}"), server: server.to_owned(), name }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let text = format!("drop database if exists {} with (force)", self.name);
        let server = self.server.clone();
        // A runtime inside a runtime is refused; a thread of its own has none.
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                if let Ok(mut connection) = AnyConnection::connect(&server).await {
                    let _ = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await;
                }
            });
        })
        .join();
    }
}

/// Runs a text as the superuser.
pub async fn run(url: &str, text: &str) {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.expect("the server");
    let done = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut connection).await;
    done.unwrap_or_else(|error| panic!("{error}: {text}"));
    connection.close().await.expect("an end");
}
