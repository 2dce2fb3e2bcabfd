//! The command line of one run.

use std::ffi::OsString;

use crate::mention::without_mentions;
use crate::{Brief, Invocation};

/// The tools the agent has: those that read and change files and run commands. The rest of what
/// the program offers (the web, other sessions, timers, worktrees, agents beside the one that is
/// watched) is left out, and so is whatever a later version adds.
pub const TOOLS: &[&str] =
    &["Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "TodoWrite", "Write"];

/// The commands the agent may run without being asked. A question is a refusal here, so this is
/// the whole list. The file tools need no rule: the permission mode lets them read and change the
/// copy, and a bare rule such as `Write` or `Read` would reach beyond it.
pub const ALLOWED_TOOLS: &[&str] = &[
    "Bash(git status *)",
    "Bash(git diff *)",
    "Bash(git log *)",
    "Bash(git add *)",
    "Bash(git commit *)",
    "Bash(git checkout *)",
    "Bash(git restore *)",
    "Bash(pnpm install *)",
    "Bash(pnpm test *)",
    "Bash(pnpm typecheck *)",
    "Bash(pnpm build *)",
    "Bash(pnpm -r *)",
    "Bash(npm test *)",
];

/// What is refused outright, whatever else allows it.
pub const REFUSED_TOOLS: &[&str] = &[
    "Bash(git push *)",
    "Bash(git -c *)",
    "Bash(git config *)",
    "Bash(git remote *)",
    "Bash(pnpm dlx *)",
    "Bash(pnpm exec *)",
    "Bash(npm exec *)",
    "Bash(npx *)",
    "Bash(curl *)",
    "Bash(wget *)",
    "WebFetch",
    "WebSearch",
];

/// The most bytes of a whole run's events. A long run that reads pictures says some ten million.
const STDOUT_TOTAL: u64 = 64 * 1024 * 1024;
/// The most bytes of one event: a picture of 5 MB stands in it twice, in base64.
const STDOUT_LINE: usize = 16 * 1024 * 1024;
const STDERR_TOTAL: u64 = 256 * 1024;

/// How the program is called for one run.
///
/// The prompt goes in by standard input, so it is in no process list and may have any length.
/// Each list flag is followed by another flag: it would take a bare word for itself.
#[must_use]
pub fn invocation(brief: &Brief<'_>) -> Invocation {
    let mut args: Vec<OsString> = Vec::new();
    let mut flags = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    flags(&["-p", "--output-format", "stream-json", "--verbose"]);
    flags(&["--model", brief.model, "--permission-mode", "acceptEdits"]);
    flags(&["--tools"]);
    flags(TOOLS);
    flags(&["--allowedTools"]);
    flags(ALLOWED_TOOLS);
    flags(&["--disallowedTools"]);
    flags(REFUSED_TOOLS);
    if let Some(settings) = brief.settings {
        flags(&["--settings", settings]);
    }
    flags(&["--setting-sources", "", "--strict-mcp-config"]);
    flags(&["--max-turns", &brief.max_turns.to_string()]);
    Invocation {
        args,
        stdin: without_mentions(brief.prompt).into_owned().into_bytes(),
        streams_events: true,
        stdout_total: STDOUT_TOTAL,
        stdout_line: STDOUT_LINE,
        stderr_total: STDERR_TOTAL,
        stderr_over_kills: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn args(settings: Option<&str>) -> Vec<String> {
        let brief = Brief {
            prompt: "Fix it.",
            workdir: Path::new("/w"),
            model: "opus",
            settings,
            max_turns: 40,
        };
        let call = invocation(&brief);
        assert_eq!(call.stdin, b"Fix it.");
        assert!(call.streams_events && !call.stderr_over_kills);
        call.args.into_iter().map(|arg| arg.into_string().unwrap()).collect()
    }

    /// The words that follow `flag`, up to the next flag.
    fn values<'a>(args: &'a [String], flag: &str) -> Vec<&'a str> {
        let at = args.iter().position(|arg| arg == flag).unwrap();
        args[at + 1..].iter().map(String::as_str).take_while(|arg| !arg.starts_with("--")).collect()
    }

    #[test]
    fn the_command_line() {
        let args = args(Some(r#"{"sandbox":{}}"#));
        assert_eq!(args[..4], ["-p", "--output-format", "stream-json", "--verbose"]);
        assert_eq!(values(&args, "--model"), ["opus"]);
        assert_eq!(values(&args, "--permission-mode"), ["acceptEdits"]);
        assert_eq!(values(&args, "--tools"), TOOLS);
        assert_eq!(values(&args, "--allowedTools"), ALLOWED_TOOLS);
        assert_eq!(values(&args, "--disallowedTools"), REFUSED_TOOLS);
        assert_eq!(values(&args, "--settings"), [r#"{"sandbox":{}}"#]);
        assert_eq!(values(&args, "--setting-sources"), [""]);
        assert_eq!(args[args.len() - 3..], ["--strict-mcp-config", "--max-turns", "40"]);
        assert!(!args.iter().any(|arg| arg.contains("Fix it.")), "the prompt is not an argument");
    }

    #[test]
    fn without_a_sandbox_no_other_settings_come_in() {
        let args = args(None);
        assert!(!args.contains(&"--settings".to_owned()));
        assert_eq!(values(&args, "--setting-sources"), [""]);
    }

    #[test]
    fn no_bare_rule_lets_a_tool_reach_anywhere() {
        for rule in ALLOWED_TOOLS {
            assert!(rule.starts_with("Bash(") && !rule.starts_with("Bash(*"), "{rule}");
        }
    }
}
