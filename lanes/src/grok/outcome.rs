//! What a run came to. An exit code of 0 means little: a run that was given up because a question
//! could not be asked has it too. The last row, its stop reason and the code decide together.

use std::collections::BTreeMap;

use serde_json::Value;

use super::usage;
use crate::{Exit, LaneUsage, Reason, SUMMARY_BYTES, Verdict, text};

/// The most characters of an error shown.
const ERROR_CHARS: usize = 600;

/// Where credit is bought.
const NO_CREDIT: &str = "the account has no credit left: add some on the billing page of xAI's \
                         console, then `relay probe grok`";

/// What the events said that the end depends on.
#[derive(Default)]
pub struct Seen {
    /// The row that ends a run.
    pub end: Option<Value>,
    /// Whether the vendor gave any answer.
    pub answered: bool,
    /// Whether the program said that the turns are used up.
    pub out_of_turns: bool,
    error: Option<String>,
    /// Whether an error came after the row that ends a run.
    error_at_last: bool,
    /// The words since the last tool call.
    last_words: String,
    /// The call that the run was given up for.
    given_up: Option<String>,
    refused: BTreeMap<String, u32>,
    /// The first line that was no row.
    rubbish: Option<String>,
    usage: LaneUsage,
}

impl Seen {
    /// Takes a line that was no row.
    pub fn rubbish(&mut self, line: &[u8]) {
        if self.rubbish.is_none() {
            let start = &line[..line.len().min(400)];
            self.rubbish = Some(text::one_line(&String::from_utf8_lossy(start), 100));
        }
    }

    /// Takes a piece of the agent's words.
    pub fn words(&mut self, piece: &str) {
        if self.last_words.len() <= SUMMARY_BYTES {
            self.last_words.push_str(piece);
        }
    }

    /// Takes that a tool is called: what was said before is not the end.
    pub fn calls(&mut self) {
        self.last_words.clear();
    }

    /// Takes the counts of one answer.
    pub fn answer(&mut self, counts: &Value) {
        self.answered = true;
        usage::add(&mut self.usage, counts);
    }

    /// Takes a tool call that failed.
    pub fn failed(&mut self, tool: &str, detail: &str, words: &str) {
        if words.starts_with("User cancelled the execution") {
            self.given_up = Some(format!("{tool} {detail}"));
        } else if words.contains("was not executed:") {
            *self.refused.entry(tool.to_owned()).or_default() += 1;
        }
    }

    /// Takes an error, and gives its words. The first one counts.
    pub fn error(&mut self, message: &Value) -> String {
        let words = message.as_str().map(plain).unwrap_or_default();
        let words = if words.is_empty() { "an error without a text".to_owned() } else { words };
        self.error.get_or_insert_with(|| words.clone());
        self.error_at_last = self.end.is_some();
        words
    }
}

/// An error's own words: the program quotes some, and wraps others into an object of their own.
fn plain(message: &str) -> String {
    let inner = message.strip_prefix("Internal error: ").unwrap_or(message).trim();
    match serde_json::from_str::<Value>(inner) {
        Ok(Value::String(words)) => words,
        Ok(object) => object["message"].as_str().unwrap_or(inner).to_owned(),
        Err(_) => inner.to_owned(),
    }
}

/// The run's end, from everything seen and the exit.
pub fn verdict(seen: &Seen, exit: &Exit<'_>) -> Verdict {
    let verdict = match &seen.end {
        _ if exit.over_limit => over_limit(),
        // It went on after an error, to an end that both the row and the code call good.
        Some(end) if is_good(end, exit) && !seen.error_at_last => ended_with(seen, end, exit),
        _ if seen.error.is_some() => failure(seen.error.as_deref().unwrap_or_default(), exit),
        Some(end) => ended_with(seen, end, exit),
        None => without_end(seen, exit),
    };
    let usage = seen.end.as_ref().map(usage::usage).filter(|usage| *usage != LaneUsage::default());
    Verdict { usage: usage.unwrap_or_else(|| seen.usage.clone()), ..verdict }
}

fn is_good(end: &Value, exit: &Exit<'_>) -> bool {
    end["stopReason"] == "end_turn" && exit.code == Some(0)
}

fn ended_with(seen: &Seen, end: &Value, exit: &Exit<'_>) -> Verdict {
    let stop = end["stopReason"].as_str().unwrap_or_default();
    if seen.out_of_turns || stop == "max_turn_requests" || says_turns(exit) {
        return failed(Reason::MaxTurns, "grok used up its turns");
    }
    match stop {
        _ if is_good(end, exit) => done(seen),
        "end_turn" => {
            failed(Reason::Crashed, &format!("grok reported success and then {}", exit.ended()))
        }
        "cancelled" if exit.killed_by().is_some() => {
            failed(Reason::Crashed, &format!("grok {} before its end", exit.ended()))
        }
        "cancelled" => given_up(seen),
        "refusal" => failed(Reason::PermissionRefused, "the model refused the work"),
        "max_tokens" => {
            failed(Reason::VendorError, "an answer of the model was cut at its longest length")
        }
        "" => failed(Reason::ProtocolViolation, "grok's last event has no stop reason"),
        other => failed(Reason::VendorError, &format!("grok stopped: {other}")),
    }
}

fn done(seen: &Seen) -> Verdict {
    let words = seen.last_words.trim();
    let refused: Vec<String> =
        seen.refused.iter().map(|(tool, n)| format!("{tool} ({n})")).collect();
    let hint = || format!("refused tool calls: {}", refused.join(", "));
    Verdict {
        summary: (!words.is_empty()).then(|| text::cut(words, SUMMARY_BYTES)),
        hint: (!refused.is_empty()).then(hint),
        ..Verdict::new(Reason::Done)
    }
}

/// A call would have asked a person, and nobody is there.
fn given_up(seen: &Seen) -> Verdict {
    let error = match &seen.given_up {
        Some(call) => format!("grok gave up the run: it may not do this without asking: {call}"),
        None => "grok gave up the run".to_owned(),
    };
    failed(Reason::PermissionRefused, &error)
}

/// Of a model that it does not know.
const UNKNOWN_MODEL: &str = "unknown model id";
/// Of the vendor's list of models, on its standard error ([`super::ENV`] asks for it).
const NO_LIST: &str = "Failed to fetch models";

/// Which failure an error's text tells. Without a list of models each one is unknown, and what kept
/// the list away is the failure.
fn failure(said: &str, exit: &Exit<'_>) -> Verdict {
    let no_list = exit.stderr.lines().rfind(|line| line.contains(NO_LIST));
    match no_list.filter(|_| said.contains(UNKNOWN_MODEL)) {
        Some(line) => told_by(&without_list(line)),
        None => told_by(said),
    }
}

/// What kept the list away, in words that [`told_by`] knows.
fn without_list(line: &str) -> String {
    let status = line.split_once("status: ").map(|(_, rest)| rest);
    let status = status.and_then(|rest| rest.get(..3)).filter(|word| word.parse::<u16>().is_ok());
    match status {
        Some(status) => format!("grok got no list of models (status {status})"),
        None => "grok got no list of models: transport error".to_owned(),
    }
}

/// There is no field for it.
fn told_by(said: &str) -> Verdict {
    let status = said.split_once("(status ").or_else(|| said.split_once("Unauthorized ("));
    let status = status.map(|(_, rest)| rest.get(..3).unwrap_or_default()).unwrap_or_default();
    let low = said.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| low.contains(word));
    // The vendor answers so to each request, as of a quota.
    let is_unpaid = status == "402" || any(&["out of credits", "used all available credits"]);
    let reason = match status {
        "401" => Reason::NotLoggedIn,
        "429" => Reason::Quota { until_ms: None },
        _ if is_unpaid => Reason::Quota { until_ms: None },
        _ if status.starts_with('5') => Reason::VendorUnreachable,
        "" if any(&["not signed in", "not authenticated"]) => Reason::NotLoggedIn,
        "" if any(&["resource-exhausted", "rate limit", "usage limit", "too many requests"]) => {
            Reason::Quota { until_ms: None }
        }
        "" if any(&[
            "error sending request",
            "transport error",
            "connection refused",
            "timed out",
            "dns error",
        ]) =>
        {
            Reason::VendorUnreachable
        }
        "" if any(&["max turns reached"]) => Reason::MaxTurns,
        "" if any(&["sandbox could not", "refusing to start"]) => Reason::SandboxUnavailable,
        _ => Reason::VendorError,
    };
    let unknown_model = any(&[UNKNOWN_MODEL]);
    let verdict = failed(reason.clone(), said);
    let hint = "`grok models` lists the models of this login; RELAY_MODEL_GROK and the preference \
                lane.model choose one";
    let hint = match reason {
        Reason::Quota { .. } if is_unpaid => Some(NO_CREDIT.to_owned()),
        _ if unknown_model => Some(hint.to_owned()),
        _ => return verdict,
    };
    Verdict { hint, ..verdict }
}

fn without_end(seen: &Seen, exit: &Exit<'_>) -> Verdict {
    if exit.killed_by().is_some() {
        return failed(Reason::Crashed, &format!("grok {} before its end", exit.ended()));
    }
    if let Some(line) = &seen.rubbish {
        let error = format!("grok wrote something else than events: {line}");
        return failed(Reason::ProtocolViolation, &error);
    }
    if says_turns(exit) {
        return failed(Reason::MaxTurns, "grok used up its turns");
    }
    if exit.code == Some(0) {
        return failed(Reason::ProtocolViolation, "grok ended without a last event");
    }
    let lines: Vec<&str> = exit.stderr.lines().filter(|line| !line.contains(NO_LIST)).collect();
    let said = lines.join("\n");
    let said = said.trim().trim_start_matches("Error: ").trim_start_matches("error: ");
    if exit.code == Some(1) && !said.is_empty() {
        return failure(&plain(said), exit);
    }
    let error = format!("grok {} without a last event: {said}", exit.ended());
    failed(Reason::VendorError, &error)
}

fn says_turns(exit: &Exit<'_>) -> bool {
    exit.code == Some(1) && exit.stderr.contains("max turns reached")
}

fn over_limit() -> Verdict {
    failed(Reason::ProtocolViolation, "grok wrote more than a run may")
}

fn failed(reason: Reason, error: &str) -> Verdict {
    let error = Some(text::one_line(error, ERROR_CHARS));
    Verdict { hint: hint(&reason), error, ..Verdict::new(reason) }
}

fn hint(reason: &Reason) -> Option<String> {
    let words = match reason {
        Reason::NotLoggedIn => "log in on this machine with `grok login`",
        Reason::MaxTurns => "split the issue, or say in it more exactly what to change",
        Reason::VendorUnreachable => {
            "look at this machine's network and at the vendor's status page"
        }
        _ => return None,
    };
    Some(words.to_owned())
}
