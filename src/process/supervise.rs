//! The body of `relay __supervise`.

use std::process::ExitCode;

/// The hidden subcommand that the program's `main` looks for before anything else.
pub const SUPERVISE: &str = "__supervise";

/// Supervises one program: what to run comes on standard input, so that nothing of it stands in
/// this process's own arguments or environment.
#[must_use]
pub fn supervisor_main() -> ExitCode {
    ExitCode::FAILURE
}
