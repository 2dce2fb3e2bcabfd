//! The command line of one run.

use std::ffi::OsString;
use std::path::Path;

use crate::Invocation;
use crate::mention::without_mentions;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'a> {
    /// The whole prompt.
    pub prompt: &'a str,
    /// The lane's copy of the repository.
    pub workdir: &'a Path,
    /// The vendor's name for the model; `None` leaves the choice to the program.
    pub model: Option<&'a str>,
    /// The most turns the agent may take.
    pub max_turns: u32,
    /// Whether relay's box stands around the run, with [`super::POLICY`] in it. Then any command
    /// may run; without it, only [`ALLOWED_COMMANDS`], and another one ends the run.
    pub boxed: bool,
    /// The run's own home of Grok, with its login: none of its tools reads there.
    pub home: Option<&'a Path>,
}

/// What its file tools do not read, whoever asks: a process's folder has its environment, its
/// arguments and another way to each file.
pub const UNREAD: &[&str] = &["Read(/proc/*/**)", "Grep(/proc)", "Grep(/proc/*)", "Grep(/)"];

/// The commands that a run without a box may use. Those that only read need no rule.
pub const ALLOWED_COMMANDS: &[&str] = &[
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

/// What is refused outright, whatever else allows it. The model is told, and the run goes on.
pub const REFUSED_COMMANDS: &[&str] = &[
    "Bash(git push*)",
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

/// The tools that are taken away: agents beside the one that is watched, the web, pictures, other
/// sessions, timers, questions. `--tools`, the list of those to keep, leaves most of these in
/// (1.0.41), so a tool that a later version adds is there until it is named here.
pub const LEFT_OUT: &[&str] = &[
    "Agent",
    "workflow",
    "scheduler_create",
    "scheduler_delete",
    "scheduler_list",
    "monitor",
    "search_tool",
    "use_tool",
    "enter_plan_mode",
    "exit_plan_mode",
    "ask_user_question",
    "send_feedback",
    "web_search",
    "web_fetch",
    "image_gen",
    "image_edit",
    "image_to_video",
    "reference_to_video",
];

/// The most bytes of a whole run's events.
const STDOUT_TOTAL: u64 = 64 * 1024 * 1024;
/// The most bytes of one event: what a tool read stands in it twice.
const STDOUT_LINE: usize = 16 * 1024 * 1024;
const STDERR_TOTAL: u64 = 256 * 1024;

/// How the program is called for one run.
///
/// It takes no prompt from its standard input, but a file's name may be that of standard input: so
/// the prompt is in no process list, and as long as it likes.
#[must_use]
pub fn invocation(brief: &Brief<'_>) -> Invocation {
    let mut args: Vec<OsString> = Vec::new();
    let mut flags = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    flags(&["--prompt-file", "/dev/stdin", "--verbatim", "--output-format", "streaming-json"]);
    flags(&["--no-subagents", "--no-plan", "--disallowed-tools", &LEFT_OUT.join(",")]);
    if let Some(model) = brief.model {
        flags(&["--model", model]);
    }
    flags(&["--max-turns", &brief.max_turns.to_string()]);
    flags(&["--allow", &format!("Edit({}/**)", pattern(brief.workdir))]);
    if brief.boxed {
        flags(&["--allow", "Bash"]);
    } else {
        // The person's own settings are there to be read; a flag is stronger than they are.
        flags(&["--permission-mode", "acceptEdits"]);
        ALLOWED_COMMANDS.iter().for_each(|rule| flags(&["--allow", rule]));
    }
    REFUSED_COMMANDS.iter().for_each(|rule| flags(&["--deny", rule]));
    UNREAD.iter().for_each(|rule| flags(&["--deny", rule]));
    if let Some(home) = brief.home {
        flags(&["--deny", &format!("Read({}/**)", pattern(home))]);
        // A search begins above what it reads (1.0.41: the rules look at where it begins).
        for above in home.ancestors().filter(|above| above.parent().is_some()) {
            flags(&["--deny", &format!("Grep({})", pattern(above))]);
        }
    }
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

/// A path as a pattern that matches it: one that has signs of a pattern in it matches any sign there.
fn pattern(path: &Path) -> String {
    path.to_string_lossy().replace(['*', '?', '[', ']', '{', '}', '(', ')', '\\'], "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(boxed: bool, model: Option<&str>) -> Vec<String> {
        let workdir = Path::new("/w/a[1]");
        let brief = Brief {
            prompt: "Fix it.",
            workdir,
            model,
            max_turns: 40,
            boxed,
            home: boxed.then_some(Path::new("/v/c*.grok")),
        };
        let call = invocation(&brief);
        assert_eq!(call.stdin, b"Fix it.");
        assert!(call.streams_events && !call.stderr_over_kills);
        call.args.into_iter().map(|arg| arg.into_string().unwrap()).collect()
    }

    /// The words that follow each `flag`.
    fn values<'a>(args: &'a [String], flag: &str) -> Vec<&'a str> {
        let at = |(n, arg): (usize, &String)| (arg == flag).then(|| args[n + 1].as_str());
        args.iter().enumerate().filter_map(at).collect()
    }

    #[test]
    fn the_command_line() {
        let args = args(true, Some("grok-4.6"));
        assert_eq!(values(&args, "--prompt-file"), ["/dev/stdin"]);
        assert_eq!(values(&args, "--output-format"), ["streaming-json"]);
        assert_eq!(values(&args, "--model"), ["grok-4.6"]);
        assert_eq!(values(&args, "--max-turns"), ["40"]);
        assert_eq!(values(&args, "--allow"), ["Edit(/w/a?1?/**)", "Bash"]);
        let home = ["Read(/v/c?.grok/**)", "Grep(/v/c?.grok)", "Grep(/v)"];
        let denied = [REFUSED_COMMANDS, UNREAD, &home].concat();
        assert_eq!(values(&args, "--deny"), denied);
        assert_eq!(values(&args, "--disallowed-tools"), [LEFT_OUT.join(",")]);
        assert!(!args.contains(&"--permission-mode".to_owned()), "it would beat the policy");
        assert!(!args.iter().any(|arg| arg.contains("Fix it.")), "the prompt is not an argument");
        assert!(!args.iter().any(|arg| arg.contains("approve") || arg.contains("bypass")));
    }

    #[test]
    fn without_a_box_only_named_commands_run() {
        let args = args(false, None);
        assert!(values(&args, "--model").is_empty());
        assert_eq!(values(&args, "--permission-mode"), ["acceptEdits"]);
        let allowed = values(&args, "--allow");
        assert_eq!(allowed[0], "Edit(/w/a?1?/**)");
        assert_eq!(allowed[1..], *ALLOWED_COMMANDS);
        assert_eq!(values(&args, "--deny"), [REFUSED_COMMANDS, UNREAD].concat());
    }
}
