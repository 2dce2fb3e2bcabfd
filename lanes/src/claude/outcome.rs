//! What a run came to. The result row's `subtype` says "success" for many failures, so it is
//! believed only where it names an error; exit code, `is_error` and the vendor's own error fields
//! decide together.

use std::collections::BTreeMap;

use serde_json::Value;

use super::usage::usage;
use super::when::resets;
use crate::calendar::believable;
use crate::{Exit, Reason, SUMMARY_BYTES, Verdict, text};

/// The most characters of an error shown.
const ERROR_CHARS: usize = 600;

/// Where credit is bought.
const NO_CREDIT: &str = "the account has no credit left: add some on the billing page of \
                         Anthropic's Console, then `relay probe claude`";

/// What the events said that the end depends on.
#[derive(Default)]
pub struct Seen {
    /// The result row; the last one counts.
    pub result: Option<Value>,
    /// The program's own word for the last request where it failed, such as `rate_limit`.
    pub api_error: Option<String>,
    /// Whether the last message says that somebody interrupted the run.
    pub interrupted: bool,
    /// The first line that was no row.
    rubbish: Option<String>,
    box_worked: bool,
    box_failure: Option<String>,
    quota_until_ms: Option<i64>,
}

impl Seen {
    /// Takes a line that was no row.
    pub fn rubbish(&mut self, line: &[u8]) {
        if self.rubbish.is_none() {
            let start = &line[..line.len().min(400)];
            self.rubbish = Some(text::one_line(&String::from_utf8_lossy(start), 100));
        }
    }

    /// Takes the result of one command. Where the box cannot be set up every command ends with
    /// the box's own words, while the program carries on and exits with 0.
    pub fn command(&mut self, failed: bool, words: &str) {
        let output = words
            .strip_prefix("Exit code ")
            .map(|rest| rest.split_once('\n').map_or("", |(_, output)| output));
        match (failed, output) {
            (true, Some(output)) if is_box_failure(output) => {
                self.box_failure = output.lines().next().map(str::to_owned);
            }
            (false, _) | (true, Some(_)) => self.box_worked = true,
            // It was refused, so nothing ran.
            (true, None) => {}
        }
    }

    /// Takes what the vendor says of the quota.
    pub fn rate_limit(&mut self, info: &Value) {
        if info["status"] == "rejected" {
            self.quota_until_ms = info["resetsAt"].as_i64().and_then(|s| s.checked_mul(1000));
        }
    }

    fn is_unboxed(&self) -> Option<&str> {
        self.box_failure.as_deref().filter(|_| !self.box_worked)
    }
}

/// Whether a command's whole output is bubblewrap saying that it could not build the box.
fn is_box_failure(output: &str) -> bool {
    !output.is_empty() && output.lines().all(|line| line.starts_with("bwrap: "))
}

/// The run's end, from everything seen and the exit.
pub fn verdict(seen: &Seen, exit: &Exit<'_>) -> Verdict {
    let Some(result) = &seen.result else { return without_result(seen, exit) };
    let verdict = match result["is_error"].as_bool() {
        _ if exit.over_limit => over_limit(),
        Some(false) if exit.code == Some(0) => match seen.is_unboxed() {
            Some(line) => unboxed(line),
            None => done(result),
        },
        Some(false) => after_success(exit),
        _ => failure(seen, result, exit),
    };
    Verdict { usage: usage(result), ..verdict }
}

fn done(result: &Value) -> Verdict {
    let words = result["result"].as_str().unwrap_or_default().trim();
    Verdict {
        summary: (!words.is_empty()).then(|| text::cut(words, SUMMARY_BYTES)),
        hint: refused_tools(result),
        ..Verdict::new(Reason::Done)
    }
}

fn failure(seen: &Seen, result: &Value, exit: &Exit<'_>) -> Verdict {
    let word = |key: &str| result[key].as_str().unwrap_or_default();
    let reason = match (word("subtype"), word("terminal_reason")) {
        ("error_max_turns", _) | (_, "max_turns") => Reason::MaxTurns,
        ("error_max_budget_usd", _) | (_, "budget_exhausted") => Reason::Budget,
        _ if word("startup_failure_reason").starts_with("sandbox") => Reason::SandboxUnavailable,
        _ if word("stop_reason") == "refusal" => Reason::PermissionRefused,
        // It exits with 0, and its own text is of no use to a person.
        (_, "aborted_tools" | "aborted_streaming") => return interrupted(),
        _ => request_failure(seen, result, exit),
    };
    let verdict = failed(reason, &first_error(result));
    let is_unpaid =
        matches!(verdict.reason, Reason::Quota { .. }) && is_out_of_credit(seen, result);
    if is_unpaid { Verdict { hint: Some(NO_CREDIT.to_owned()), ..verdict } } else { verdict }
}

/// Whether the account has to be paid for: the vendor answers so to each request, as of a quota.
fn is_out_of_credit(seen: &Seen, result: &Value) -> bool {
    let said = first_error(result).to_lowercase();
    result["api_error_status"] == 402
        || seen.api_error.as_deref() == Some("billing_error")
        || ["credit balance is too low", "credit balance too low"].iter().any(|w| said.contains(w))
}

/// Which failure of a request ended the run: the status where a server answered, else the
/// program's own word.
fn request_failure(seen: &Seen, result: &Value, exit: &Exit<'_>) -> Reason {
    let word = result["api_error"].as_str().or(seen.api_error.as_deref()).unwrap_or_default();
    match (result["api_error_status"].as_u64(), word) {
        (Some(401), _) | (_, "authentication_failed") => Reason::NotLoggedIn,
        (Some(429), _) | (_, "rate_limit" | "usage_limit_reached") => {
            Reason::Quota { until_ms: quota_until(seen, &first_error(result), exit.now_ms) }
        }
        _ if is_out_of_credit(seen, result) => {
            Reason::Quota { until_ms: quota_until(seen, &first_error(result), exit.now_ms) }
        }
        // 529 is "overloaded": the vendor is there and asks to come again later.
        (Some(500..=599), _) => Reason::VendorUnreachable,
        (None, "connection_failed" | "server_error" | "overloaded") => Reason::VendorUnreachable,
        (None, "") if first_error(result).starts_with("Not logged in") => Reason::NotLoggedIn,
        // As 2.1.197 says it; a later version names the reason in a field besides.
        (None, "") if first_error(result).starts_with("Sandbox required but unavailable") => {
            Reason::SandboxUnavailable
        }
        _ => Reason::VendorError,
    }
}

/// When the quota opens again: told in a row of its own, else in the text, where an older program
/// has it as seconds after a bar.
fn quota_until(seen: &Seen, said: &str, now_ms: i64) -> Option<i64> {
    let seconds = || said.rsplit_once('|')?.1.trim().parse::<i64>().ok()?.checked_mul(1000);
    match seen.quota_until_ms.or_else(seconds) {
        Some(until) => believable(until, now_ms),
        None => resets(said, now_ms),
    }
}

/// The program said "done" and then did not end cleanly.
fn after_success(exit: &Exit<'_>) -> Verdict {
    failed(Reason::Crashed, &format!("claude reported success and then {}", exit.ended()))
}

fn without_result(seen: &Seen, exit: &Exit<'_>) -> Verdict {
    if exit.over_limit {
        return over_limit();
    }
    if let Some(line) = exit.stderr.lines().find(|line| line.contains("sandbox required but")) {
        return failed(Reason::SandboxUnavailable, line.trim().trim_start_matches("Error: "));
    }
    if exit.killed_by().is_some() {
        let error = format!("claude {} before its result", exit.ended());
        return failed(Reason::Crashed, &error);
    }
    if seen.interrupted {
        return interrupted();
    }
    if let Some(line) = &seen.rubbish {
        let error = format!("claude wrote something else than events: {line}");
        return failed(Reason::ProtocolViolation, &error);
    }
    if exit.code == Some(0) {
        return failed(Reason::ProtocolViolation, "claude ended without a result");
    }
    let error = format!("claude {} without a result: {}", exit.ended(), exit.stderr);
    failed(Reason::VendorError, &error)
}

/// Somebody else sent it a signal: a stop of relay's own is known without this.
fn interrupted() -> Verdict {
    failed(Reason::Crashed, "claude was interrupted by a signal before its end")
}

fn over_limit() -> Verdict {
    failed(Reason::ProtocolViolation, "claude wrote more than a run may")
}

fn unboxed(line: &str) -> Verdict {
    let error = format!("claude's sandbox failed on every command: {line}");
    let hint = "this machine cannot build claude's sandbox inside relay's box; `relay doctor` \
                tries it and says what to do";
    Verdict { hint: Some(hint.to_owned()), ..failed(Reason::SandboxUnavailable, &error) }
}

fn failed(reason: Reason, error: &str) -> Verdict {
    let error = Some(text::one_line(error, ERROR_CHARS));
    Verdict { hint: hint(&reason), error, ..Verdict::new(reason) }
}

fn hint(reason: &Reason) -> Option<String> {
    let words = match reason {
        Reason::NotLoggedIn => "log in on this machine with `claude auth login`",
        Reason::SandboxUnavailable => {
            "install bubblewrap and socat (`sudo apt install bubblewrap socat`); `relay doctor` \
             shows the sandbox line"
        }
        Reason::MaxTurns => "split the issue, or say in it more exactly what to change",
        Reason::VendorUnreachable => {
            "look at this machine's network and at the vendor's status page"
        }
        _ => return None,
    };
    Some(words.to_owned())
}

fn first_error(result: &Value) -> String {
    let listed = result["errors"].as_array().and_then(|errors| errors.first()?.as_str());
    match listed.or(result["result"].as_str()).unwrap_or_default().trim() {
        "" => "claude reported an error without a text".to_owned(),
        said => said.to_owned(),
    }
}

/// Which tool calls the policy refused, as a reason why a run may have done less than asked.
fn refused_tools(result: &Value) -> Option<String> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for denial in result["permission_denials"].as_array()? {
        *counts.entry(denial["tool_name"].as_str().unwrap_or("a tool")).or_default() += 1;
    }
    let told: Vec<String> = counts.iter().map(|(tool, n)| format!("{tool} ({n})")).collect();
    (!told.is_empty()).then(|| format!("refused tool calls: {}", told.join(", ")))
}
