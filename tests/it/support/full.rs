//! Whether the tests that use real tools run for real.

use std::path::Path;
use std::process::Command;

use super::processes::tool;

/// Whether `scripts/test` runs the full tier, in which a missing tool is a failure.
#[expect(clippy::disallowed_methods, reason = "the test's own setting, not the program's")]
pub fn full() -> bool {
    std::env::var_os("RELAY_TEST_FULL").is_some_and(|value| value == "1")
}

/// For a test that lacks something: fails in the full tier, and otherwise says why it is skipped.
pub fn skip(why: &str) {
    assert!(!full(), "the full tier needs this: {why}");
    println!("skipped: {why}");
}

/// Whether a test of the full tier that needs these programs can run; says why not.
pub fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| tool(program).is_none());
    match missing {
        Some(program) => skip(&format!("{program} is not on PATH")),
        None if !full() => skip("RELAY_TEST_FULL is not set"),
        None => return true,
    }
    false
}

/// The version that a vendor's program says itself, as its lane reads it.
#[expect(clippy::disallowed_methods, reason = "the program under test is asked, not relay")]
pub fn says_version(program: &Path, read: fn(&str) -> Option<String>) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", home.path()).env("GROK_DISABLE_AUTOUPDATER", "1").arg("--version");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    read(&said).unwrap_or_else(|| panic!("{output:?}"))
}
