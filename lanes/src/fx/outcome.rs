//! What a run came to: one JSON object, printed at its end, its exit code, and what it said on
//! standard error.

use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{Exit, LaneUsage, Reader, Reason, SUMMARY_BYTES, Said, Verdict, text};

/// The most characters of an error shown.
const ERROR_CHARS: usize = 600;
/// The most tool calls told in the log.
const TOLD: usize = 200;

/// How it ends on SIGINT.
const INTERRUPTED: i32 = 130;

const OUT_OF_STEPS: &str = "fx used up its steps";

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
pub struct Output {
    answer: Option<Answer>,
    /// The first line that was none.
    rubbish: Option<String>,
}

/// The answer, with nothing in memory but what is used of it: it may be as long as a line may be.
#[derive(Deserialize)]
struct Answer {
    output: String,
    exit_code: u8,
    final_output: Option<String>,
    model: Option<String>,
    steps: Option<u64>,
    #[serde(default)]
    tool_calls: Calls,
    usage: Option<Counts>,
    error: Option<String>,
    auth_failure: Option<IgnoredAny>,
    recovery: Option<Recovery>,
}

/// A count that is not there, or null, was not reported.
#[derive(Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Recovery {
    kind: Option<String>,
    state: Option<String>,
    cause: Option<String>,
    message: Option<String>,
}

/// The first tool calls, and how many came behind them.
#[derive(Default)]
struct Calls(Vec<Call>, usize);

#[derive(Deserialize)]
struct Call {
    name: Option<String>,
    status: Option<String>,
    command_result: Option<Command>,
}

#[derive(Deserialize)]
struct Command {
    command: Option<String>,
}

impl<'de> Deserialize<'de> for Calls {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct First;
        impl<'de> Visitor<'de> for First {
            type Value = Calls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tool calls")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut calls: A) -> Result<Calls, A::Error> {
                let mut first = Vec::new();
                while first.len() < TOLD {
                    let Some(call) = calls.next_element()? else { return Ok(Calls(first, 0)) };
                    first.push(call);
                }
                let mut more = 0;
                while calls.next_element::<IgnoredAny>()?.is_some() {
                    more += 1;
                }
                Ok(Calls(first, more))
            }
        }
        from.deserialize_seq(First)
    }
}

impl Reader for Output {
    fn line(&mut self, line: &[u8]) -> Vec<Said> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        match serde_json::from_slice::<Answer>(line) {
            Ok(answer) if self.answer.is_none() => self.answer.insert(answer).told(),
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
        // Before its answer is believed: what it runs can write one in its place and end it.
        if exit.killed_by().is_some() || exit.code == Some(INTERRUPTED) {
            return failed(Reason::Crashed, &format!("fx {} before its end", exit.ended()));
        }
        if let Some(line) = &self.rubbish {
            let error = format!("fx wrote something else than one answer: {line}");
            return failed(Reason::ProtocolViolation, &error);
        }
        match &self.answer {
            Some(answer) => Verdict { usage: answer.usage(), ..answer.verdict(exit) },
            None => without_answer(exit),
        }
    }
}

impl Answer {
    /// What it did, and its words, for the run's log.
    fn told(&self) -> Vec<Said> {
        let Calls(first, more) = &self.tool_calls;
        let mut said: Vec<Said> = first.iter().map(Call::told).collect();
        if *more > 0 {
            said.push(Said::Note(format!("{more} more tool calls")));
        }
        let words = self.output.trim();
        if !words.is_empty() {
            said.push(Said::Text(text::cut(words, SUMMARY_BYTES)));
        }
        said
    }

    fn usage(&self) -> LaneUsage {
        LaneUsage {
            model: self.model.clone().filter(|model| !model.is_empty()),
            input_tokens: self.usage.as_ref().and_then(|counts| counts.input_tokens),
            output_tokens: self.usage.as_ref().and_then(|counts| counts.output_tokens),
            turns: self.steps.filter(|steps| *steps > 0),
            ..LaneUsage::default()
        }
    }

    fn verdict(&self, exit: &Exit<'_>) -> Verdict {
        if exit.code == Some(0) && self.exit_code == 0 && self.error.is_none() {
            let stopped = self.recovery.as_ref().and_then(Recovery::stopped);
            return stopped.unwrap_or_else(|| self.done(exit));
        }
        let name = self.error.as_deref().unwrap_or_default();
        let refusal = self.refusal(exit.stderr);
        let last = exit.stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
        let said = refusal.or(Some(name).filter(|name| !name.is_empty())).or(last);
        let told = |reason| failed(reason, said.unwrap_or("fx failed without a word"));
        if exit.code != Some(1) || self.exit_code != 1 {
            let error = format!("fx {} and answered {}", exit.ended(), self.exit_code);
            return failed(Reason::VendorError, &error);
        }
        if self.auth_failure.is_some() || name == "MissingCredentials" {
            return told(Reason::NotLoggedIn);
        }
        if name == "NonInteractivePermissionRequired" {
            return told(Reason::PermissionRefused);
        }
        if let Some(stopped) = self.recovery.as_ref().and_then(Recovery::stopped) {
            return stopped;
        }
        // Of each vendor one of its own.
        let is_cut = name.ends_with("StreamIncomplete") || name.ends_with("ReadStalled");
        if AWAY.contains(&name) || is_cut {
            return told(Reason::VendorUnreachable);
        }
        if is_out_of_steps(exit) {
            return failed(Reason::MaxTurns, OUT_OF_STEPS);
        }
        told(refusal.map_or(Reason::VendorError, of_status))
    }

    fn done(&self, exit: &Exit<'_>) -> Verdict {
        if is_out_of_steps(exit) {
            return failed(Reason::MaxTurns, OUT_OF_STEPS);
        }
        let last = self.final_output.as_deref().map(str::trim).filter(|last| !last.is_empty());
        let words = self.output.trim();
        let summary = last.or(Some(words).filter(|words| !words.is_empty()));
        Verdict {
            summary: summary.map(|words| text::cut(words, SUMMARY_BYTES)),
            ..Verdict::new(Reason::Done)
        }
    }

    /// What a server refused with. It stands at the end of what is else its model's own words, and by
    /// itself on standard error, where else stand the words of its commands.
    fn refusal<'a>(&self, stderr: &'a str) -> Option<&'a str> {
        let said = stderr.lines().filter_map(|line| line.strip_prefix("fx ask: ")).next_back()?;
        let said = said.trim();
        (!said.is_empty() && self.output.trim_end().ends_with(said)).then_some(said)
    }
}

impl Call {
    fn told(&self) -> Said {
        let name = self.name.clone().unwrap_or_else(|| "a tool".to_owned());
        let status = self.status.as_deref().unwrap_or_default();
        let command = self.command_result.as_ref().and_then(|ran| ran.command.as_deref());
        let detail = format!("{status} {}", command.unwrap_or_default());
        Said::Tool { name, detail: text::one_line(&detail, 200) }
    }
}

impl Recovery {
    /// Why it gave its model up, where it did. What it recovered from, and what it works at, is no
    /// end.
    fn stopped(&self) -> Option<Verdict> {
        let kind = self.kind.as_deref().unwrap_or_default();
        let is_over = kind.starts_with("unsafe_") || self.state.as_deref() == Some("paused");
        let reason = match self.cause.as_deref().unwrap_or_default() {
            _ if kind == "content_filter" => Reason::PermissionRefused,
            _ if !is_over => return None,
            "rate_limited" => Reason::Quota { until_ms: None },
            "authentication" => Reason::NotLoggedIn,
            "request_limit_reached" => Reason::VendorError,
            _ => Reason::VendorUnreachable,
        };
        Some(failed(reason, self.message.as_deref().unwrap_or("fx gave its model up")))
    }
}

/// Its last words to a person, and not those of a command of its.
fn is_out_of_steps(exit: &Exit<'_>) -> bool {
    let last = exit.stderr.lines().rfind(|line| !line.trim().is_empty());
    last.is_some_and(|line| line.starts_with("[notice] Agent step limit reached"))
}

/// By the server's status in a refusal: `API request failed · HTTP 429 · …`, `HTTP 500`.
fn of_status(said: &str) -> Reason {
    let rest = ["API request failed · ", "API access denied · "].iter();
    let rest = rest.filter_map(|title| said.strip_prefix(title)).next().unwrap_or(said);
    let status = rest.strip_prefix("HTTP ").and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
    match status {
        Some(401) => Reason::NotLoggedIn,
        Some(402 | 429) => Reason::Quota { until_ms: None },
        Some(408 | 500..) => Reason::VendorUnreachable,
        _ => Reason::VendorError,
    }
}

fn without_answer(exit: &Exit<'_>) -> Verdict {
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
    use serde_json::{Value, json};

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
            (paused("provider_unavailable"), 0, Reason::VendorUnreachable),
            (paused("rate_limited"), 0, quota),
            (paused("authentication"), 0, Reason::NotLoggedIn),
            (paused("request_limit_reached"), 0, Reason::VendorError),
            (recovery("content_filter", "active", ""), 0, Reason::PermissionRefused),
            (
                recovery("unsafe_assistant_output", "active", "response_interrupted"),
                0,
                Reason::VendorUnreachable,
            ),
            (recovery("auto_recovered", "recovered", "rate_limited"), 0, Reason::Done),
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
            (json!({"output": "Done."}), 2, Reason::VendorError),
        ] {
            let verdict = of(&fields, code, "");
            assert_eq!(verdict.reason, reason, "{fields}");
            assert_eq!(verdict.error.is_some(), reason != Reason::Done, "{fields}");
        }
        for (code, stderr, reason) in [
            (
                0,
                "of a command\n[notice] Agent step limit reached; continue with …\n",
                Reason::MaxTurns,
            ),
            (0, "[notice] Agent step limit reached\nof a command\n", Reason::Done),
            (0, "it said: Agent step limit reached\n", Reason::Done),
        ] {
            assert_eq!(of(&json!({"exit_code": code}), code, stderr).reason, reason, "{stderr}");
        }
    }

    /// Its model's own words, and those of its commands, are no refusal of a server's.
    #[test]
    fn what_a_server_refused_with_is_what_fx_says_of_it() {
        let quota = Reason::Quota { until_ms: None };
        let refused = |words: &str, stderr: &str| {
            of(&json!({"output": words, "exit_code": 1}), 1, stderr).reason
        };
        for (said, reason) in [
            ("API request failed · HTTP 429 · usage_limit_reached", quota.clone()),
            ("API request failed · HTTP 402 · payment", quota),
            ("API request failed · HTTP 503", Reason::VendorUnreachable),
            ("HTTP 500", Reason::VendorUnreachable),
            ("API access denied · HTTP 403 · no such plan: HTTP 401", Reason::VendorError),
            ("API access denied · HTTP 401", Reason::NotLoggedIn),
            ("some other words of HTTP 401", Reason::VendorError),
        ] {
            // Glued to what the model said before.
            let words = format!("The page says HTTP 401, HTTP 429.{said}\n");
            assert_eq!(
                refused(&words, &format!("of a command\nfx ask: {said}\n")),
                reason,
                "{said}"
            );
            assert_eq!(refused(&words, "fx ask: HTTP 402"), Reason::VendorError, "{said}");
            assert_eq!(refused(&words, ""), Reason::VendorError, "{said}");
        }
        let glued = "API request failed · HTTP 401\nAPI request failed · HTTP 503\n";
        let stderr =
            "fx ask: API request failed · HTTP 401\nfx ask: API request failed · HTTP 503\n";
        assert_eq!(refused(glued, stderr), Reason::VendorUnreachable);
    }

    /// A command can write to fx's output, and end it.
    #[test]
    fn an_answer_of_a_run_that_was_killed_is_not_believed() {
        let auth = json!({"exit_code": 1, "auth_failure": {"reason": "http_unauthorized"}});
        for code in [130, 137, 143] {
            assert_eq!(of(&auth, code, "").reason, Reason::Crashed);
        }
        let killed = Exit { code: None, signal: Some(9), ..exit(1, "") };
        assert_eq!(read(&[&answer(&auth)], &killed).reason, Reason::Crashed);
        assert_eq!(of(&auth, 0, "").reason, Reason::VendorError);
    }

    #[test]
    fn of_very_many_calls_the_first_are_kept_and_the_others_counted() {
        let calls: Vec<Value> =
            (0..TOLD + 5).map(|_| json!({"name": "t", "x": [[], []]})).collect();
        let mut reader = super::super::reader();
        let said = reader.line(answer(&json!({"tool_calls": calls})).as_bytes());
        assert_eq!(said.len(), TOLD + 1);
        assert_eq!(said.last(), Some(&Said::Note("5 more tool calls".into())));
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
