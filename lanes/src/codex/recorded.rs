//! The reader against what the real program wrote, 0.171.0, with a scripted model: one transcript
//! an outcome, in `tests/codex`, with ids, paths and addresses taken out.

use crate::{Exit, LaneUsage, Reason, Said, Verdict};

/// 2026-11-29 23:00 UTC.
const NOW_MS: i64 = 1_795_993_200_000;

fn exit(code: i32) -> Exit<'static> {
    Exit {
        code: Some(code),
        signal: None,
        stderr: "",
        now_ms: NOW_MS,
        over_limit: false,
        stdout_bytes: 0,
    }
}

fn read(transcript: &str, exit: &Exit<'_>) -> (Vec<Said>, Verdict) {
    let mut reader = super::reader(Some("gpt-9"));
    let said = transcript.lines().flat_map(|line| reader.line(line.as_bytes())).collect();
    (said, reader.end(exit))
}

macro_rules! recorded {
    ($name:literal, $code:literal) => {
        read(include_str!(concat!("../../tests/codex/", $name, ".jsonl")), &exit($code))
    };
}

fn error(verdict: &Verdict) -> &str {
    assert_eq!(verdict.summary, None, "a failure is no summary");
    verdict.error.as_deref().unwrap()
}

fn tool(name: &str, detail: &str) -> Said {
    Said::Tool { name: name.to_owned(), detail: detail.to_owned() }
}

#[test]
fn a_run_that_worked() {
    let (said, verdict) = recorded!("done", 0);
    let note = |words: &str| Said::Note(words.to_owned());
    assert_eq!(
        said,
        [
            note("codex, model gpt-9"),
            note(
                "Model metadata for `m` not found. Defaulting to fallback metadata; this can \
                 degrade performance and cause issues."
            ),
            tool("command", "/bin/bash -c 'cat missing.txt'"),
            note("a command exited with 1: cat: missing.txt: No such file or directory"),
            tool("files", "add /copy/new.txt"),
            note(
                "Reconnecting... 1/5 (stream disconnected before completion: stream closed before \
                 response.completed)"
            ),
            Said::Text("I wrote new.txt.".to_owned()),
        ]
    );
    assert_eq!(
        verdict,
        Verdict {
            summary: Some("I wrote new.txt.".to_owned()),
            usage: LaneUsage {
                model: Some("gpt-9".to_owned()),
                input_tokens: Some(2100),
                cache_read_tokens: Some(900),
                cache_write_tokens: Some(0),
                output_tokens: Some(150),
                ..LaneUsage::default()
            },
            ..Verdict::new(Reason::Done)
        }
    );
}

#[test]
fn a_model_without_words_has_no_summary() {
    let (_, verdict) = recorded!("empty", 0);
    assert_eq!((verdict.reason, verdict.summary), (Reason::Done, None));
}

#[test]
fn a_refused_login() {
    let (_, verdict) = recorded!("bad_key", 1);
    assert_eq!(verdict.reason, Reason::NotLoggedIn);
    assert!(error(&verdict).starts_with("unexpected status 401 Unauthorized: Incorrect API key"));
    assert!(verdict.hint.as_deref().unwrap().contains("codex login"));
    assert_eq!(verdict.usage, LaneUsage::default(), "a turn that failed has no usage");
    let ended = "Your access token could not be refreshed because your refresh token was revoked. \
                 Please log out and sign in again.";
    let row = format!(r#"{{"type":"turn.failed","error":{{"message":"{ended}"}}}}"#);
    assert_eq!(read(&row, &exit(1)).1.reason, Reason::NotLoggedIn);
}

#[test]
fn a_quota_with_and_without_its_end() {
    let minutes = |n: i64| Reason::Quota { until_ms: Some(NOW_MS + n * 60_000) };
    assert_eq!(recorded!("quota_date", 1).1.reason, minutes(113));
    assert_eq!(recorded!("quota_time", 1).1.reason, minutes(30));
    let soon = Reason::Quota { until_ms: Some(NOW_MS + 20_000) };
    assert_eq!(recorded!("rate_limited_midway", 1).1.reason, soon);
    for (_, verdict) in [recorded!("quota", 1), recorded!("rate_limited", 1)] {
        assert_eq!(verdict.reason, Reason::Quota { until_ms: None }, "{verdict:?}");
    }
    let later = Exit { now_ms: NOW_MS + 24 * 3600 * 1000, ..exit(1) };
    let (_, past) = read(include_str!("../../tests/codex/quota_date.jsonl"), &later);
    assert_eq!(past.reason, Reason::Quota { until_ms: None }, "an end that is past is none");
}

#[test]
fn an_account_without_credit_is_out_of_quota_until_it_is_paid() {
    let row = |words: &str| format!(r#"{{"type":"turn.failed","error":{{"message":"{words}"}}}}"#);
    let (_, seen) = recorded!("no_credit", 1);
    assert!(error(&seen).starts_with("Quota exceeded"));
    let others = [
        "Your workspace is out of credits. Add credits to continue.",
        "You hit your spend cap set in your workspace. Increase your spend cap to continue.",
        "unexpected status 402 Payment Required: no",
    ];
    let others = others.map(|words| read(&row(words), &exit(1)).1);
    for verdict in others.iter().chain([&seen]) {
        assert_eq!(verdict.reason, Reason::Quota { until_ms: None }, "{verdict:?}");
        assert!(verdict.hint.as_deref().unwrap().contains("OpenAI's billing page"));
    }
    assert_eq!(recorded!("quota_date", 1).1.hint, None, "a limit that ends is not mended by money");
}

#[test]
fn a_vendor_that_does_not_answer() {
    for (_, verdict) in [
        recorded!("unreachable", 1),
        recorded!("server_error", 1),
        recorded!("overloaded", 1),
        recorded!("cut_off", 1),
    ] {
        assert_eq!(verdict.reason, Reason::VendorUnreachable, "{verdict:?}");
    }
}

#[test]
fn a_turn_that_the_model_had_a_part_in_is_one_though_it_failed() {
    let rows = include_str!("../../tests/codex/cut_off.jsonl");
    assert_eq!(read(rows, &exit(1)).1.usage.turns, None, "nobody answered");
    let (begin, end) = rows.split_at(rows.find(r#"{"type":"error""#).unwrap());
    let item = |kind: &str| {
        let row = format!(r#"{{"type":"item.completed","item":{{"type":"{kind}"}}}}"#);
        read(&format!("{begin}{row}\n{end}"), &exit(1)).1
    };
    for kind in ["agent_message", "reasoning", "command_execution", "file_change"] {
        let verdict = item(kind);
        assert_eq!(verdict.reason, Reason::VendorUnreachable);
        assert_eq!(verdict.usage.turns, Some(1), "{kind}");
    }
    assert_eq!(item("error").usage, LaneUsage::default());
}

#[test]
fn a_network_that_is_waited_for_is_told_while_it_is() {
    let mut reader = super::reader(None);
    for line in include_str!("../../tests/codex/waiting.jsonl").lines() {
        reader.line(line.as_bytes());
    }
    assert!(reader.waits_for_vendor());
    let killed = Exit { code: None, signal: Some(9), ..exit(0) };
    let verdict = reader.end(&killed);
    assert_eq!(verdict.reason, Reason::VendorUnreachable);
    assert!(error(&verdict).contains("waiting for network"));

    let mut reader = super::reader(None);
    for line in include_str!("../../tests/codex/waiting.jsonl").lines() {
        reader.line(line.as_bytes());
    }
    reader.line(br#"{"type":"item.started","item":{"type":"reasoning"}}"#);
    assert!(!reader.waits_for_vendor(), "it goes on");
}

#[test]
fn a_vendor_that_answers_no() {
    for ((_, verdict), part) in [
        (recorded!("no_model", 1), "does not exist"),
        (recorded!("bad_request", 1), "The request is not valid"),
        (recorded!("forbidden", 1), "403 Forbidden"),
        (recorded!("max_output", 1), "max_output_tokens"),
        (recorded!("no_room", 1), "context window"),
    ] {
        assert_eq!(verdict.reason, Reason::VendorError, "{verdict:?}");
        assert!(error(&verdict).contains(part) && !error(&verdict).starts_with('{'));
    }
    for (_, verdict) in [recorded!("refusal", 1), recorded!("flagged", 1)] {
        assert_eq!(verdict.reason, Reason::PermissionRefused, "{verdict:?}");
    }
}

#[test]
fn a_machine_without_a_sandbox() {
    let (_, broken) = recorded!("unboxed", 0);
    assert_eq!(broken.reason, Reason::SandboxUnavailable, "it exits with 0");
    assert!(error(&broken).contains("bwrap: execvp codex-linux-sandbox"));
    assert_eq!(broken.usage.output_tokens, Some(100));

    let broken = include_str!("../../tests/codex/unboxed.jsonl");
    let worked = r#"{"type":"item.completed","item":{"type":"command_execution","aggregated_output":"","exit_code":0}}"#;
    assert_eq!(read(&format!("{worked}\n{broken}"), &exit(0)).1.reason, Reason::Done);
    let told = broken.replace("bwrap: execvp", "said: bwrap: execvp");
    assert_eq!(read(&told, &exit(0)).1.reason, Reason::Done, "a program's own words");
}

#[test]
fn an_end_before_any_result() {
    let done = include_str!("../../tests/codex/done.jsonl");
    let half = &done[..done.len() - 60];
    let unboxed = include_str!("../../tests/codex/unboxed_start.stderr");
    let untrusted = "Not inside a trusted directory and --skip-git-repo-check was not specified.";
    for (lines, at, reason, part) in [
        ("", exit(0), Reason::ProtocolViolation, "without completing"),
        ("hello\n", exit(0), Reason::ProtocolViolation, "something else than events: hello"),
        ("[1]\n{}\n", exit(1), Reason::ProtocolViolation, "something else than events: [1]"),
        (half, exit(0), Reason::ProtocolViolation, "something else than events: {\"type\":\"turn"),
        (half, Exit { code: None, signal: Some(9), ..exit(0) }, Reason::Crashed, "signal 9"),
        (
            "",
            Exit { stderr: "error: unexpected argument '--x' found", ..exit(2) },
            Reason::VendorError,
            "unexpected argument",
        ),
        ("", Exit { stderr: untrusted, ..exit(1) }, Reason::VendorError, "trusted directory"),
        ("", Exit { code: None, signal: Some(9), ..exit(0) }, Reason::Crashed, "signal 9"),
        ("", exit(137), Reason::Crashed, "signal 9"),
        ("", exit(143), Reason::Crashed, "signal 15"),
        (
            include_str!("../../tests/codex/interrupted.jsonl"),
            exit(1),
            Reason::Crashed,
            "exited with code 1 in the middle of its turn",
        ),
        ("", Exit { stderr: unboxed, ..exit(1) }, Reason::SandboxUnavailable, "bwrap: execvp"),
        (done, Exit { over_limit: true, ..exit(137) }, Reason::ProtocolViolation, "more than"),
    ] {
        let (_, verdict) = read(lines, &at);
        assert_eq!(verdict.reason, reason, "{verdict:?}");
        assert!(error(&verdict).contains(part), "{verdict:?}");
        assert_eq!(verdict.usage, LaneUsage::default(), "nothing was reported");
    }
}

#[test]
fn a_run_that_was_interrupted_is_tried_again() {
    let stderr = "Reading additional input from stdin...";
    let rows = include_str!("../../tests/codex/interrupted.jsonl");
    let (_, verdict) = read(rows, &Exit { stderr, ..exit(1) });
    assert_eq!(verdict.reason, Reason::Crashed);
    assert_eq!(error(&verdict), "codex exited with code 1 in the middle of its turn");
    assert_eq!(recorded!("interrupted", 0).1.reason, Reason::ProtocolViolation);
}

#[test]
fn neither_the_code_nor_the_row_is_trusted_alone() {
    let done = include_str!("../../tests/codex/done.jsonl");
    let (_, verdict) = read(done, &exit(1));
    assert_eq!(verdict.reason, Reason::Crashed);
    assert_eq!(error(&verdict), "codex completed its turn and then exited with code 1");
    assert_eq!(verdict.usage.output_tokens, Some(150), "the cost is known all the same");
    let failed = include_str!("../../tests/codex/bad_key.jsonl");
    assert_eq!(read(failed, &exit(0)).1.reason, Reason::NotLoggedIn);
    let both = format!("{done}{failed}");
    assert_eq!(read(&both, &exit(0)).1.reason, Reason::NotLoggedIn);
}

#[test]
fn rows_and_fields_that_are_not_known_are_passed_over() {
    let done = include_str!("../../tests/codex/done.jsonl");
    let strange = [
        r#"{"type":"later.kind","item":{"type":"agent_message","text":"no"}}"#,
        r#"{"type":"item.completed","item":{"type":"later","text":"no"}}"#,
        r#"{"type":"item.updated","item":7}"#,
        r#"{"type":"item.started"}"#,
        "",
    ];
    let (said, verdict) = read(&format!("{}\n{done}", strange.join("\n")), &exit(0));
    let (plain, expected) = read(done, &exit(0));
    assert_eq!((said, verdict), (plain, expected.clone()));
    let rubbish = read(&format!("warning: x\n{done}"), &exit(0)).1;
    assert_eq!(rubbish, expected, "rubbish before a result does not hide it");
}
