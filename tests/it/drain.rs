//! A queue that three workers drain while they and the site are killed at random. The same script
//! does it with a thousand tasks.

use std::process::Command;

use crate::support::full::full;
use crate::support::postgres::Database;

/// Runs `scripts/drain`, which ends well only where each task was finished exactly once, and where
/// its checker saw every harm that was done to the evidence.
#[expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and waits for their real end"
)]
fn drain(database: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/drain");
    let output = Command::new("python3")
        .args([script, "--relay", env!("CARGO_BIN_EXE_relay"), "--database", database])
        .args(["--tasks", "40", "--kill-every", "0.8", "--within", "300"])
        .output()
        .unwrap();
    let [said, complained] = [&output.stdout, &output.stderr].map(|s| String::from_utf8_lossy(s));
    assert!(output.status.success(), "{said}{complained}");
    println!("{said}");
}

#[test]
fn full_each_task_is_finished_once_however_site_and_workers_are_killed() {
    if full() {
        drain("sqlite");
    } else {
        println!("skipped: takes half a minute");
    }
}

#[tokio::test]
async fn pg_each_task_is_finished_once_however_site_and_workers_are_killed() {
    let Some(database) = Database::new().await else { return };
    drain(&database.url);
}
