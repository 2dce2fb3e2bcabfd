//! What a run came to. The result row's `subtype` says "success" for many failures, so it is
//! believed only where it names an error; exit code, `is_error` and the vendor's own error fields
//! decide.

use serde_json::Value;

use super::usage::usage;
use crate::{Exit, Reason, SUMMARY_BYTES, Verdict, text};

/// What the events said that the end depends on.
#[derive(Default)]
pub struct Seen {
    /// Rows that were JSON with a type.
    pub rows: u64,
    /// The result row; the last one counts.
    pub result: Option<Value>,
    /// The program's own word for the last failed request, such as `rate_limit`.
    pub api_error: Option<String>,
    /// The first line that was no row.
    rubbish: Option<String>,
    bash_worked: bool,
    bash_unboxed: Option<String>,
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

    /// Takes the result of one command. A box that cannot be set up fails every command with the
    /// box's own words, while the program carries on and exits with 0.
    pub fn bash(&mut self, failed: bool, words: &str) {
        match failed.then(|| box_failure(words)).flatten() {
            Some(line) => self.bash_unboxed = Some(line.to_owned()),
            None => self.bash_worked = true,
        }
    }

    /// Takes what the vendor says of the quota.
    pub fn rate_limit(&mut self, info: &Value) {
        if info["status"] == "rejected" {
            self.quota_until_ms = info["resetsAt"].as_i64().and_then(|s| s.checked_mul(1000));
        }
    }
}

/// The run's end, from everything seen and the exit.
pub fn verdict(seen: &Seen, exit: &Exit<'_>) -> Verdict {
    let Some(result) = &seen.result else { return without_result(seen, exit) };
    let words = result["result"].as_str().unwrap_or_default().trim();
    let failed = result["is_error"] == true || exit.code != Some(0);
    let mut verdict = if failed {
        failure(seen, result, exit)
    } else {
        Verdict {
            summary: (!words.is_empty()).then(|| text::cut(words, SUMMARY_BYTES)),
            ..Verdict::new(Reason::Done)
        }
    };
    if let (Some(line), false) = (&seen.bash_unboxed, seen.bash_worked) {
        verdict = Verdict { summary: verdict.summary, ..unboxed(line) };
    }
    verdict.usage = usage(result);
    verdict
}

fn failure(seen: &Seen, result: &Value, exit: &Exit<'_>) -> Verdict {
    let word = |key: &str| result[key].as_str().unwrap_or_default();
    let said = first_error(result);
    let (subtype, ended) = (word("subtype"), word("terminal_reason"));
    let reason = if subtype == "error_max_turns" || ended == "max_turns" {
        Reason::MaxTurns
    } else if subtype == "error_max_budget_usd" || ended == "budget_exhausted" {
        Reason::Budget
    } else if word("stop_reason") == "refusal" {
        Reason::PermissionRefused
    } else if let Some(signal) = exit.killed_by() {
        let error = Some(format!("claude was ended by signal {signal}"));
        return Verdict { error, ..Verdict::new(Reason::Crashed) };
    } else {
        api_failure(seen, result, &said, exit)
    };
    Verdict { hint: hint(&reason), error: Some(said), ..Verdict::new(reason) }
}

fn api_failure(seen: &Seen, result: &Value, said: &str, exit: &Exit<'_>) -> Reason {
    let kind = result["api_error"].as_str().or(seen.api_error.as_deref()).unwrap_or_default();
    match result["api_error_status"].as_u64() {
        Some(401 | 403) => return Reason::NotLoggedIn,
        Some(429) => return quota(seen, said, exit),
        Some(500..=599) => return Reason::VendorUnreachable,
        Some(_) => return Reason::VendorError,
        None => {}
    }
    match kind {
        "authentication_failed" => Reason::NotLoggedIn,
        "rate_limit" => quota(seen, said, exit),
        "connection_failed" | "server_error" | "overloaded" => Reason::VendorUnreachable,
        _ => Reason::VendorError,
    }
}

fn quota(seen: &Seen, _said: &str, _exit: &Exit<'_>) -> Reason {
    Reason::Quota { until_ms: seen.quota_until_ms }
}

fn without_result(seen: &Seen, exit: &Exit<'_>) -> Verdict {
    if let Some(line) = exit.stderr.lines().find(|line| line.contains("sandbox required but")) {
        let line = line.trim().trim_start_matches("Error: ");
        return Verdict {
            hint: hint(&Reason::SandboxUnavailable),
            error: Some(text::one_line(line, 600)),
            ..Verdict::new(Reason::SandboxUnavailable)
        };
    }
    let (reason, error) = if exit.over_limit {
        (Reason::ProtocolViolation, "claude wrote more than a run may".to_owned())
    } else if let Some(signal) = exit.killed_by() {
        (Reason::Crashed, format!("claude was ended by signal {signal} before its result"))
    } else if let Some(line) = &seen.rubbish {
        (Reason::ProtocolViolation, format!("claude wrote something else than events: {line}"))
    } else if exit.code == Some(0) {
        (Reason::ProtocolViolation, "claude ended without a result".to_owned())
    } else {
        let code = exit.code.map_or_else(|| "no code".to_owned(), |code| format!("code {code}"));
        let said = text::one_line(exit.stderr, 600);
        (Reason::VendorError, format!("claude exited with {code}: {said}"))
    };
    Verdict { error: Some(error), ..Verdict::new(reason) }
}

fn unboxed(line: &str) -> Verdict {
    Verdict {
        error: Some(format!("claude's sandbox failed on every command: {line}")),
        hint: hint(&Reason::SandboxUnavailable),
        ..Verdict::new(Reason::SandboxUnavailable)
    }
}

/// The line with which bubblewrap says that it could not build the box.
fn box_failure(words: &str) -> Option<&str> {
    words.lines().find(|line| line.starts_with("bwrap: "))
}

fn first_error(result: &Value) -> String {
    let listed = result["errors"].as_array().and_then(|errors| errors.first()?.as_str());
    let said = listed.or(result["result"].as_str()).unwrap_or_default();
    match text::one_line(said, 600) {
        said if said.is_empty() => "claude reported an error without a text".to_owned(),
        said => said,
    }
}

fn hint(reason: &Reason) -> Option<String> {
    let words = match reason {
        Reason::NotLoggedIn => "run `claude auth login` on this machine",
        Reason::SandboxUnavailable => {
            "install bubblewrap and socat (`sudo apt install bubblewrap socat`); `relay doctor` \
             shows the sandbox line"
        }
        _ => return None,
    };
    Some(words.to_owned())
}
