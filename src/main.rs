//! The program.

use std::process::ExitCode;

use relay::process;

fn main() -> ExitCode {
    // Before anything else, so that a supervisor stays a small process with one thread.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == process::SUPERVISE) {
        return process::supervisor_main();
    }
    ExitCode::SUCCESS
}
