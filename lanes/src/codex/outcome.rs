//! What a run came to. The events tell a failure by its message alone, so the messages are read:
//! what is not known in them is an error of the vendor's.

use serde_json::Value;

use super::usage::usage;
use super::when::quota_until;
use crate::{Exit, LaneUsage, Reason, SUMMARY_BYTES, Verdict, text};

/// The most characters of an error shown.
const ERROR_CHARS: usize = 600;

/// Where credit is bought.
const NO_CREDIT: &str = "the account has no credit left, or is at its spend cap: see OpenAI's billing \
                         page (of ChatGPT the usage page of its settings), then `relay probe codex`";

/// What the events said that the end depends on.
#[derive(Default)]
pub struct Seen {
    /// The usage of the turn, where it was completed.
    pub completed: Option<Value>,
    /// The message of the turn, where it failed.
    pub failed: Option<String>,
    /// The agent's last message.
    pub last_words: Option<String>,
    /// Whether a turn was begun.
    pub began: bool,
    /// Whether the model asked for something or said something.
    pub answered: bool,
    /// The vendor is being waited for, in the program's words.
    pub waiting: Option<String>,
    /// The first line that was no row.
    rubbish: Option<String>,
    box_worked: bool,
    box_failure: Option<String>,
}

impl Seen {
    /// Takes a line that was no row.
    pub fn rubbish(&mut self, line: &[u8]) {
        if self.rubbish.is_none() {
            let start = &line[..line.len().min(400)];
            self.rubbish = Some(text::one_line(&String::from_utf8_lossy(start), 100));
        }
    }

    /// Takes an error that may pass.
    pub fn error(&mut self, said: &str) {
        self.waiting = said.starts_with("Reconnecting...").then(|| said.to_owned());
    }

    /// Takes the result of one command. Where the box cannot be set up every command ends with
    /// the box's own words, while the program carries on and exits with 0.
    pub fn command(&mut self, code: Option<i64>, output: &str) {
        match code {
            Some(1..) if is_box_failure(output) => {
                self.box_failure = output.lines().next().map(str::to_owned);
            }
            Some(_) => self.box_worked = true,
            None => {}
        }
    }

    fn is_unboxed(&self) -> Option<&str> {
        self.box_failure.as_deref().filter(|_| !self.box_worked)
    }
}

/// Whether a command's whole output is the sandbox saying that it could not be built.
fn is_box_failure(output: &str) -> bool {
    let of_box =
        |line: &str| line.starts_with("bwrap: ") || line.starts_with("codex-linux-sandbox");
    !output.is_empty() && output.lines().all(of_box)
}

/// The run's end, from everything seen and the exit.
pub fn verdict(seen: &Seen, model: Option<&str>, exit: &Exit<'_>) -> Verdict {
    if exit.over_limit {
        return failed(Reason::ProtocolViolation, "codex wrote more than a run may");
    }
    let Some(counts) = seen.completed.as_ref().filter(|_| seen.failed.is_none()) else {
        let said = seen.failed.as_deref();
        let verdict = said.map_or_else(|| without_end(seen, exit), |said| failure(said, exit));
        let usage = match verdict.reason {
            Reason::VendorUnreachable => before_it_went(seen, model),
            _ => LaneUsage::default(),
        };
        return Verdict { usage, ..verdict };
    };
    let verdict = match exit.code {
        Some(0) => seen.is_unboxed().map_or_else(|| done(seen), unboxed),
        _ => {
            let error = format!("codex completed its turn and then {}", exit.ended());
            failed(Reason::Crashed, &error)
        }
    };
    Verdict { usage: usage(counts, model), ..verdict }
}

/// Of a turn that was not completed no usage is told: what is known is whether the model had a part
/// in it before its vendor was away.
fn before_it_went(seen: &Seen, model: Option<&str>) -> LaneUsage {
    if !seen.answered {
        return LaneUsage::default();
    }
    LaneUsage { model: model.map(str::to_owned), turns: Some(1), ..LaneUsage::default() }
}

fn done(seen: &Seen) -> Verdict {
    let words = seen.last_words.as_deref().unwrap_or_default();
    Verdict {
        summary: (!words.is_empty()).then(|| text::cut(words, SUMMARY_BYTES)),
        ..Verdict::new(Reason::Done)
    }
}

fn failure(said: &str, exit: &Exit<'_>) -> Verdict {
    let said = &inner(said);
    if is_out_of_credit(said) {
        let unpaid = failed(Reason::Quota { until_ms: None }, said);
        return Verdict { hint: Some(NO_CREDIT.to_owned()), ..unpaid };
    }
    match reason(said, exit.now_ms) {
        _ if said.is_empty() => failed(Reason::VendorError, "codex failed without a word"),
        reason => failed(reason, said),
    }
}

/// Whether the account has to be paid for: the vendor answers so to each request, as of a quota. The
/// first was seen, the others are from the program's own text.
fn is_out_of_credit(said: &str) -> bool {
    let said = said.to_lowercase();
    let words = ["quota exceeded. check your plan", "out of credits", "hit your spend cap"];
    status(&said) == Some(402) || words.iter().any(|words| said.contains(words))
}

/// Some messages are the server's whole answer.
fn inner(said: &str) -> String {
    let answer: Value = serde_json::from_str(said).unwrap_or_default();
    let message = answer["error"]["message"].as_str().or(answer["detail"].as_str());
    message.unwrap_or(said).trim().to_owned()
}

/// The reason in a message. Each of these was seen but the words of a login that ended, which are
/// from the program's own text.
fn reason(said: &str, now_ms: i64) -> Reason {
    // An apostrophe comes in two forms.
    let said = said.to_lowercase().replace('’', "'");
    let any = |parts: &[&str]| parts.iter().any(|part| said.contains(part));
    let status = status(&said);
    if status == Some(401)
        || any(&["not logged in", "log in again", "sign in again", "access token could not be"])
    {
        return Reason::NotLoggedIn;
    }
    if status == Some(429) || any(&["hit your usage limit", "rate limit"]) {
        return Reason::Quota { until_ms: quota_until(&said, now_ms) };
    }
    if any(&["content_filter", "was flagged", "violating our usage policy", "content policy"]) {
        return Reason::PermissionRefused;
    }
    let is_away = [
        "connection failed",
        "stream disconnected",
        "experiencing high demand",
        "at capacity",
        "reconnecting...",
        "timed out",
        "timeout waiting",
    ];
    if status.is_some_and(|status| status >= 500) || any(&is_away) {
        return Reason::VendorUnreachable;
    }
    Reason::VendorError
}

/// The number in `unexpected status 401 Unauthorized` and `last status: 429 Too Many Requests`.
fn status(said: &str) -> Option<u16> {
    let (_, rest) = said.split_once("status")?;
    rest.trim_start_matches([':', ' ']).split(' ').next()?.parse().ok()
}

fn without_end(seen: &Seen, exit: &Exit<'_>) -> Verdict {
    if let Some(waiting) = &seen.waiting {
        return failed(Reason::VendorUnreachable, waiting);
    }
    if exit.killed_by().is_some() {
        return failed(Reason::Crashed, &format!("codex {} before its end", exit.ended()));
    }
    if let Some(line) = &seen.rubbish {
        let error = format!("codex wrote something else than events: {line}");
        return failed(Reason::ProtocolViolation, &error);
    }
    if exit.code == Some(0) {
        return failed(Reason::ProtocolViolation, "codex ended without completing its turn");
    }
    // Before any command: it reads its instructions in its sandbox.
    if let Some(line) = exit.stderr.lines().find(|line| line.contains("fs sandbox helper failed")) {
        let (_, why) = line.split_once("fs sandbox helper failed").unwrap_or_default();
        let error = format!("codex's sandbox failed at its start{why}");
        return failed(Reason::SandboxUnavailable, &error);
    }
    if seen.began {
        // SIGINT ends it with 1 and no word.
        let said = exit.stderr.replace("Reading additional input from stdin...", "");
        let error = format!("codex {} in the middle of its turn: {}", exit.ended(), said.trim());
        return failed(Reason::Crashed, error.trim_end_matches(": "));
    }
    let error = format!("codex {} without a turn: {}", exit.ended(), exit.stderr);
    failed(Reason::VendorError, &error)
}

fn unboxed(line: &str) -> Verdict {
    failed(Reason::SandboxUnavailable, &format!("codex's sandbox failed on every command: {line}"))
}

fn failed(reason: Reason, error: &str) -> Verdict {
    let error = Some(text::one_line(error, ERROR_CHARS));
    Verdict { hint: hint(&reason), error, ..Verdict::new(reason) }
}

fn hint(reason: &Reason) -> Option<String> {
    let words = match reason {
        Reason::NotLoggedIn => "log in on this machine with `codex login`",
        Reason::SandboxUnavailable => {
            "this machine cannot build codex's sandbox inside relay's box; `relay doctor` tries it \
             and says what to do"
        }
        Reason::VendorUnreachable => {
            "look at this machine's network and at the vendor's status page"
        }
        _ => return None,
    };
    Some(words.to_owned())
}
