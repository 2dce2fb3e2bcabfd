//! What a run came to: one JSON object, printed at its end, its exit code, and what it said on
//! standard error.

use serde_json::Value;

use crate::{Exit, LaneUsage, Reader, Reason, SUMMARY_BYTES, Said, Verdict, text};

/// The most characters of an error shown.
const ERROR_CHARS: usize = 600;
/// The most tool calls told in the log.
const TOLD: usize = 200;

/// Names of what went wrong with the network, as its language has them.
const AWAY: &[&str] = &[
    "ConnectionRefused",
    "ConnectionResetByPeer",
    "ConnectionTimedOut",
    "EndOfStream",
    "HostUnreachable",
    "HttpConnectionClosing",
    "NameServerFailure",
    "NetworkDown",
    "NetworkUnreachable",
    "ReadFailed",
    "TemporaryNameServerFailure",
    "Timeout",
    "TlsInitializationFailed",
    "UnknownHostName",
    "WriteFailed",
];

/// What was read of the output.
#[derive(Default)]
pub struct Answer {
    answer: Option<Value>,
    /// The first line that was none.
    rubbish: Option<String>,
}

impl Reader for Answer {
    fn line(&mut self, line: &[u8]) -> Vec<Said> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(answer) if is_answer(&answer) && self.answer.is_none() => {
                let said = told(&answer);
                self.answer = Some(answer);
                said
            }
            _ => {
                let start = &line[..line.len().min(400)];
                let start = || text::one_line(&String::from_utf8_lossy(start), 100);
                self.rubbish.get_or_insert_with(start);
                Vec::new()
            }
        }
    }

    fn end(self: Box<Self>, exit: &Exit<'_>) -> Verdict {
        if exit.over_limit {
            return failed(Reason::ProtocolViolation, "fx wrote more than a run may");
        }
        if let Some(line) = &self.rubbish {
            let error = format!("fx wrote something else than one answer: {line}");
            return failed(Reason::ProtocolViolation, &error);
        }
        match &self.answer {
            Some(answer) => Verdict { usage: usage(answer), ..verdict(answer, exit) },
            None => without_answer(exit),
        }
    }
}

fn is_answer(answer: &Value) -> bool {
    answer["output"].is_string() && answer["exit_code"].is_u64()
}

/// What it did, and its words, for the run's log.
fn told(answer: &Value) -> Vec<Said> {
    let calls = answer["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    let mut said: Vec<Said> = calls.iter().take(TOLD).map(call).collect();
    if calls.len() > TOLD {
        said.push(Said::Note(format!("{} more tool calls", calls.len() - TOLD)));
    }
    let words = answer["output"].as_str().unwrap_or_default().trim();
    if !words.is_empty() {
        said.push(Said::Text(text::cut(words, SUMMARY_BYTES)));
    }
    said
}

fn call(call: &Value) -> Said {
    let name = call["name"].as_str().unwrap_or("a tool").to_owned();
    let status = call["status"].as_str().unwrap_or_default();
    let command = call["command_result"]["command"].as_str().unwrap_or_default();
    Said::Tool { name, detail: text::one_line(&format!("{status} {command}"), 200) }
}

/// What it counted; a count that is not there, or null, was not reported.
fn usage(answer: &Value) -> LaneUsage {
    let counts = &answer["usage"];
    let steps = answer["steps"].as_u64().filter(|steps| *steps > 0);
    LaneUsage {
        model: answer["model"].as_str().filter(|model| !model.is_empty()).map(str::to_owned),
        input_tokens: counts["input_tokens"].as_u64(),
        output_tokens: counts["output_tokens"].as_u64(),
        turns: steps,
        ..LaneUsage::default()
    }
}

fn verdict(answer: &Value, exit: &Exit<'_>) -> Verdict {
    let words = answer["output"].as_str().unwrap_or_default().trim();
    let name = answer["error"].as_str().unwrap_or_default();
    let said = [words, exit.stderr.trim(), name].into_iter().find(|said| !said.is_empty());
    let said = said.unwrap_or("fx failed without a word");
    let told = |reason| failed(reason, said);
    if answer["auth_failure"].is_object() || name == "MissingCredentials" {
        return told(Reason::NotLoggedIn);
    }
    if name == "NonInteractivePermissionRequired" {
        return told(Reason::PermissionRefused);
    }
    if let Some(reason) = stopped(&answer["recovery"]) {
        let message = answer["recovery"]["message"].as_str().unwrap_or(said);
        return failed(reason, message);
    }
    if exit.killed_by().is_some() || exit.code == Some(130) {
        let error = format!("fx {} at its end", exit.ended());
        return failed(Reason::Crashed, &error);
    }
    if exit.stderr.contains("Agent step limit reached") {
        return failed(Reason::MaxTurns, "fx used up its steps");
    }
    if exit.code == Some(0) && answer["exit_code"] == 0 && name.is_empty() {
        let last = answer["final_output"].as_str().map(str::trim).filter(|last| !last.is_empty());
        let summary = last.or(Some(words).filter(|words| !words.is_empty()));
        return Verdict {
            summary: summary.map(|words| text::cut(words, SUMMARY_BYTES)),
            ..Verdict::new(Reason::Done)
        };
    }
    // Of each vendor one of its own.
    let is_cut = name.ends_with("StreamIncomplete") || name.ends_with("ReadStalled");
    if AWAY.contains(&name) || is_cut {
        return told(Reason::VendorUnreachable);
    }
    if name.ends_with("ModelNotSelected") {
        return told(Reason::VendorError);
    }
    told(of_status(said))
}

/// Why it gave its model up, where it did. What it recovered from, and what it works at, is no end.
fn stopped(recovery: &Value) -> Option<Reason> {
    let kind = recovery["kind"].as_str().unwrap_or_default();
    if kind == "content_filter" {
        return Some(Reason::PermissionRefused);
    }
    if !kind.starts_with("unsafe_") && recovery["state"] != "paused" {
        return None;
    }
    Some(match recovery["cause"].as_str().unwrap_or_default() {
        "rate_limited" => Reason::Quota { until_ms: None },
        "authentication" => Reason::NotLoggedIn,
        "request_limit_reached" => Reason::VendorError,
        _ => Reason::VendorUnreachable,
    })
}

/// By the status of the server's in its words: `API request failed · HTTP 429 · …`.
fn of_status(said: &str) -> Reason {
    let status = said.split_once("HTTP ").and_then(|(_, rest)| rest.get(..3)?.parse::<u16>().ok());
    match status {
        Some(401) => Reason::NotLoggedIn,
        Some(402 | 429) => Reason::Quota { until_ms: None },
        Some(408 | 500..) => Reason::VendorUnreachable,
        _ => Reason::VendorError,
    }
}

fn without_answer(exit: &Exit<'_>) -> Verdict {
    if exit.killed_by().is_some() || exit.code == Some(130) {
        return failed(Reason::Crashed, &format!("fx {} before its answer", exit.ended()));
    }
    if exit.code == Some(0) {
        return failed(Reason::ProtocolViolation, "fx ended without an answer");
    }
    let error = format!("fx {} without an answer: {}", exit.ended(), exit.stderr.trim());
    failed(Reason::VendorError, &error)
}

fn failed(reason: Reason, error: &str) -> Verdict {
    let hint = match reason {
        Reason::NotLoggedIn => Some("log in on this machine with `fx login`"),
        Reason::MaxTurns => Some("split the issue, or say in it more exactly what to change"),
        Reason::VendorUnreachable => {
            Some("look at this machine's network and at the vendor's status page")
        }
        _ => None,
    };
    let (error, hint) = (Some(text::one_line(error, ERROR_CHARS)), hint.map(str::to_owned));
    Verdict { error, hint, ..Verdict::new(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn exit(code: i32, stderr: &str) -> Exit<'_> {
        Exit {
            code: Some(code),
            signal: None,
            stderr,
            now_ms: 0,
            over_limit: false,
            stdout_bytes: 1,
        }
    }

    fn read(lines: &[&str], exit: &Exit<'_>) -> Verdict {
        let mut reader = super::super::reader();
        for line in lines {
            reader.line(line.as_bytes());
        }
        reader.end(exit)
    }

    /// An answer with these fields on top of those that each has.
    fn answer(fields: &Value) -> String {
        let mut answer = json!({
            "output": "", "exit_code": 0, "model": "gpt-5.4-mini", "session_id": "", "steps": 1,
            "tool_calls": [],
        });
        answer.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        answer.to_string()
    }

    fn of(fields: &Value, code: i32, stderr: &str) -> Verdict {
        read(&[&answer(fields)], &exit(code, stderr))
    }

    #[test]
    fn a_run_that_is_done_says_what_it_used() {
        let fields = json!({
            "output": "Looking.\nDone.", "final_output": "Done.", "steps": 3,
            "usage": {"input_tokens": 1200, "output_tokens": 80},
        });
        let verdict = of(&fields, 0, "[notice] something");
        assert_eq!((&verdict.reason, verdict.summary.as_deref()), (&Reason::Done, Some("Done.")));
        let usage = verdict.usage;
        assert_eq!(usage.model.as_deref(), Some("gpt-5.4-mini"));
        assert_eq!((usage.input_tokens, usage.output_tokens), (Some(1200), Some(80)));
        assert_eq!((usage.turns, usage.cost_usd, usage.model_calls), (Some(3), None, None));
    }

    #[test]
    fn null_is_not_reported_and_nothing_said_is_no_summary() {
        let fields = json!({
            "final_output": null, "steps": 0, "model": "",
            "usage": {"input_tokens": null, "output_tokens": null},
        });
        let verdict = of(&fields, 0, "");
        assert_eq!((verdict.reason, verdict.summary), (Reason::Done, None));
        assert_eq!(verdict.usage, LaneUsage::default());
        assert_eq!(of(&json!({"usage": null}), 0, "").usage.input_tokens, None);
        // The version that was read tells no usage.
        let verdict = of(&json!({"output": " Done. \n"}), 0, "");
        assert_eq!(verdict.summary.as_deref(), Some("Done."));
    }

    #[test]
    fn what_went_wrong() {
        let unauthorized = json!({
            "source": "Codex subscription", "reason": "http_unauthorized", "http_status": 401,
        });
        let recovery = |kind: &str, state: &str, cause: &str| {
            json!({"recovery": {
                "kind": kind, "state": state, "cause": cause, "attempt": 10, "attempt_limit": 10,
                "message": "it paused",
            }})
        };
        let paused = |cause| recovery("terminal_provider_error", "paused", cause);
        let said = |words: &str| json!({"output": words, "exit_code": 1});
        let quota = Reason::Quota { until_ms: None };
        for (fields, code, reason) in [
            (json!({"exit_code": 1, "auth_failure": unauthorized}), 1, Reason::NotLoggedIn),
            (json!({"exit_code": 1, "error": "MissingCredentials"}), 1, Reason::NotLoggedIn),
            (
                json!({"exit_code": 1, "error": "NonInteractivePermissionRequired"}),
                1,
                Reason::PermissionRefused,
            ),
            (paused("network_interrupted"), 0, Reason::VendorUnreachable),
            (paused("provider_unavailable"), 1, Reason::VendorUnreachable),
            (paused("rate_limited"), 0, quota.clone()),
            (paused("authentication"), 0, Reason::NotLoggedIn),
            (paused("request_limit_reached"), 0, Reason::VendorError),
            (recovery("content_filter", "active", ""), 0, Reason::PermissionRefused),
            (
                recovery("unsafe_assistant_output", "active", "response_interrupted"),
                0,
                Reason::VendorUnreachable,
            ),
            (recovery("auto_recovered", "recovered", "rate_limited"), 0, Reason::Done),
            (said("API request failed · HTTP 429 · usage_limit_reached"), 1, quota.clone()),
            (said("API request failed · HTTP 402 · payment"), 1, quota),
            (said("API request failed · HTTP 503"), 1, Reason::VendorUnreachable),
            (said("API access denied · HTTP 403 · no such plan"), 1, Reason::VendorError),
            (said("API access denied · HTTP 401"), 1, Reason::NotLoggedIn),
            (json!({"exit_code": 1, "error": "UnknownHostName"}), 1, Reason::VendorUnreachable),
            (
                json!({"exit_code": 1, "error": "OpenAICodexStreamIncomplete"}),
                1,
                Reason::VendorUnreachable,
            ),
            (json!({"exit_code": 1, "error": "CodexModelNotSelected"}), 1, Reason::VendorError),
            (json!({"exit_code": 1, "error": "InvalidAskArgs"}), 1, Reason::VendorError),
            (json!({"exit_code": 1}), 1, Reason::VendorError),
            // The code and the answer have to say the same.
            (json!({"exit_code": 0}), 1, Reason::VendorError),
            (json!({"exit_code": 1}), 0, Reason::VendorError),
            (json!({"output": "Done."}), 143, Reason::Crashed),
        ] {
            let verdict = of(&fields, code, "");
            assert_eq!(verdict.reason, reason, "{fields}");
            assert_eq!(verdict.error.is_some(), reason != Reason::Done, "{fields}");
        }
        let verdict = of(&json!({}), 0, "[notice] Agent step limit reached; continue with …\n");
        assert_eq!(verdict.reason, Reason::MaxTurns);
    }

    #[test]
    fn without_an_answer() {
        let reason = |lines: &[&str], exit: &Exit<'_>| read(lines, exit).reason;
        assert_eq!(reason(&[], &exit(0, "")), Reason::ProtocolViolation);
        assert_eq!(reason(&[""], &exit(0, "")), Reason::ProtocolViolation);
        for rubbish in ["Done.", "[]", "{}", r#"{"output":1,"exit_code":0}"#, r#"{"output":""}"#] {
            assert_eq!(reason(&[rubbish], &exit(0, "")), Reason::ProtocolViolation, "{rubbish}");
        }
        let whole = answer(&json!({}));
        let twice = [whole.as_str(), &whole];
        assert_eq!(reason(&twice, &exit(0, "")), Reason::ProtocolViolation);
        assert_eq!(reason(&[&whole, "more"], &exit(0, "")), Reason::ProtocolViolation);
        assert_eq!(reason(&[], &exit(1, "fx ask: it broke")), Reason::VendorError);
        for code in [130, 137, 143] {
            assert_eq!(reason(&[], &exit(code, "")), Reason::Crashed);
        }
        let signal = Exit { code: None, signal: Some(9), ..exit(0, "") };
        assert_eq!(reason(&[], &signal), Reason::Crashed);
        let over = Exit { over_limit: true, ..exit(0, "") };
        assert_eq!(reason(&[&whole], &over), Reason::ProtocolViolation);
    }

    #[test]
    fn the_log_has_its_calls_and_its_words() {
        let mut reader = super::super::reader();
        let command = json!({"command": "cargo test", "exit_code": 0});
        let calls = json!([
            {"name": "terminal", "status": "success", "command_result": command},
            {"name": "edit_file", "status": "denied"},
        ]);
        let said = reader.line(answer(&json!({"tool_calls": calls, "output": "Done."})).as_bytes());
        let tool =
            |name: &str, detail: &str| Said::Tool { name: name.into(), detail: detail.into() };
        assert_eq!(
            said,
            [
                tool("terminal", "success cargo test"),
                tool("edit_file", "denied"),
                Said::Text("Done.".into())
            ]
        );
    }
}
