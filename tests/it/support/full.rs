//! Whether the tests that use real tools run for real.

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
