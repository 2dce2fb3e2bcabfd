//! The command line of one run.

use std::ffi::OsString;

use crate::Invocation;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'a> {
    /// The whole prompt.
    pub prompt: &'a str,
}

/// The answer is one line; what its commands printed stands in it.
const STDOUT: usize = 16 * 1024 * 1024;
const STDERR_TOTAL: u64 = 256 * 1024;

/// The variable with the most steps of a run.
pub const MOST_STEPS: &str = "FX_MAX_AGENT_STEPS";

/// How the program is called for one run. Without a prompt among its arguments it reads it from its
/// standard input, so that it is in no process list.
#[must_use]
pub fn invocation(brief: &Brief<'_>) -> Invocation {
    // `--auto` is its mode that asks nobody: a second call of its model judges what is no reading.
    let args = ["ask", "--auto", "--json", "--no-save", "--no-color"];
    Invocation {
        args: args.iter().map(OsString::from).collect(),
        stdin: brief.prompt.as_bytes().to_vec(),
        // It says nothing before its end.
        streams_events: false,
        stdout_total: STDOUT as u64,
        stdout_line: STDOUT,
        stderr_total: STDERR_TOTAL,
        stderr_over_kills: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_and_no_prompt_in_it() {
        let call = invocation(&Brief { prompt: "--full-access Fix it." });
        assert_eq!(call.args, ["ask", "--auto", "--json", "--no-save", "--no-color"]);
        assert_eq!(call.stdin, b"--full-access Fix it.");
        assert!(!call.streams_events && !call.stderr_over_kills);
    }
}
