//! Databases of a throwaway Postgres, and a Postgres of a test's own that it may stop and start.

use std::io::{Read, Seek};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AnyConnection, AssertSqlSafe, Connection, Row};

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

/// A number that one statement gives.
pub async fn number(url: &str, text: &'static str) -> i64 {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.expect("the server");
    let row = sqlx::query(text).fetch_one(&mut connection).await.expect("a row");
    connection.close().await.expect("an end");
    row.get(0)
}

/// A server of the test's own, on a port of loopback that was free. It ends with this.
#[derive(Debug)]
pub struct Cluster {
    /// A superuser's, on the database `postgres`.
    pub url: String,
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
}

impl Cluster {
    /// `None` where no server's URL is set: the tests that need Postgres are not asked for.
    pub fn start() -> Option<Self> {
        server()?;
        let programs = programs();
        // Neither the path nor the socket's name may be long, and `postgres` must get there.
        let folder = tempfile::Builder::new().prefix("relay-pg-").tempdir_in("/tmp").expect("one");
        let port =
            TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
        let cluster = Self {
            url: format!("postgres://relay@127.0.0.1:{port}/postgres"),
            folder,
            programs,
            port,
        };
        if rustix::process::geteuid().is_root() {
            let id = |flag| String::from_utf8(output("id", &[flag, "postgres"])).expect("a number");
            let (user, group) = (id("-u"), id("-g"));
            let number = |text: &str| Some(text.trim().parse().expect("a number"));
            std::os::unix::fs::chown(cluster.folder.path(), number(&user), number(&group))
                .expect("the folder for `postgres`");
        }
        let data = cluster.data();
        cluster.run("initdb", &["-D", &data, "-U", "relay", "-A", "trust", "--no-sync"]);
        cluster.up();
        Some(cluster)
    }

    /// Starts it, and waits until it answers.
    pub fn up(&self) {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c fsync=off",
            self.port,
            self.folder.path().display()
        );
        let log = self.folder.path().join("log").display().to_string();
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-l", &log, "-o", &options, "start"]);
    }

    /// Stops it as a crash does, and waits until it is gone.
    pub fn down(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-m", "immediate", "stop"]);
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    /// Runs one of the server's programs, which refuse to run as root.
    fn run(&self, program: &str, args: &[&str]) {
        let program = self.programs.join(program).display().to_string();
        if rustix::process::geteuid().is_root() {
            let as_postgres =
                ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--", &program];
            output("setpriv", &[&as_postgres, args].concat());
        } else {
            output(&program, args);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if Path::new(&self.data()).join("postmaster.pid").exists() {
            self.down();
        }
    }
}

/// The newest server on this machine.
fn programs() -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("Postgres is installed: `apt-get install postgresql`")
        .map(|entry| entry.expect("an entry").path().join("bin"))
        .filter(|programs| programs.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().expect("a version with `initdb`")
}

/// The server goes on in the background, so its output is no pipe.
#[expect(clippy::disallowed_methods, reason = "the test's own server; no product code spawns it")]
fn output(program: &str, args: &[&str]) -> Vec<u8> {
    let said = tempfile::tempfile().expect("a file");
    let done = std::process::Command::new(program)
        .args(args)
        .current_dir("/")
        .stdin(std::process::Stdio::null())
        .stdout(said.try_clone().expect("the file"))
        .stderr(said.try_clone().expect("the file"))
        .status()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut text = Vec::new();
    (&said).rewind().expect("the file");
    (&said).read_to_end(&mut text).expect("the file");
    assert!(done.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&text));
    text
}
