//! The reader against what the real program wrote, 2.1.332, with a scripted model: one transcript
//! an outcome, in `tests/claude`, with ids, paths and lists of no interest taken out.

use crate::{Exit, LaneUsage, Reason, Said, Verdict};

const NOW_MS: i64 = 1_795_969_000_000;

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
    let mut reader = super::reader();
    let said = transcript.lines().flat_map(|line| reader.line(line.as_bytes())).collect();
    (said, reader.end(exit))
}

macro_rules! recorded {
    ($name:literal, $code:literal) => {
        read(include_str!(concat!("../../tests/claude/", $name, ".jsonl")), &exit($code))
    };
}

fn error(verdict: &Verdict) -> &str {
    assert_eq!(verdict.summary, None, "a failure is no summary");
    verdict.error.as_deref().unwrap()
}

#[test]
fn a_run_that_worked() {
    let (said, verdict) = recorded!("done", 0);
    assert_eq!(
        said,
        [
            Said::Note("claude 2.1.332, model claude-opus-5-5".to_owned()),
            Said::Tool { name: "Write".to_owned(), detail: "/copy/new.txt".to_owned() },
            Said::Tool { name: "Bash".to_owned(), detail: "git status --short".to_owned() },
            Said::Tool { name: "Bash".to_owned(), detail: "git push".to_owned() },
            Said::Note(
                "Bash failed: Permission to use Bash with command git push has been denied."
                    .to_owned()
            ),
            Said::Tool { name: "Bash".to_owned(), detail: "cat missing.txt".to_owned() },
            Said::Note(
                "Bash failed: Exit code 1 cat: missing.txt: No such file or directory".to_owned()
            ),
            Said::Text("I wrote new.txt.".to_owned()),
        ]
    );
    assert_eq!(
        verdict,
        Verdict {
            summary: Some("I wrote new.txt.".to_owned()),
            hint: Some("refused tool calls: Bash (1)".to_owned()),
            usage: LaneUsage {
                model: Some("claude-opus-5-5".to_owned()),
                input_tokens: Some(5000),
                cache_read_tokens: Some(1500),
                cache_write_tokens: Some(100),
                output_tokens: Some(250),
                model_calls: None,
                turns: Some(5),
                cost_usd: Some(0.025_800_000_000_000_003),
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
fn limits_of_the_run() {
    let (_, turns) = recorded!("max_turns", 1);
    assert_eq!(turns.reason, Reason::MaxTurns);
    assert_eq!(error(&turns), "Reached maximum number of turns (2)");
    assert_eq!(turns.usage.turns, Some(3));
    let (_, budget) = recorded!("budget", 1);
    assert_eq!(budget.reason, Reason::Budget);
    assert_eq!(error(&budget), "Reached maximum budget ($0.001)");
    assert_eq!(budget.usage.output_tokens, Some(50), "the main loop's counts are zero here");
}

#[test]
fn no_login_or_a_refused_one() {
    for (_, verdict) in [recorded!("not_logged_in", 1), recorded!("bad_key", 1)] {
        assert_eq!(verdict.reason, Reason::NotLoggedIn);
        assert!(verdict.hint.as_deref().unwrap().contains("claude auth login"));
    }
    let (said, verdict) = recorded!("bad_oauth", 1);
    assert_eq!(verdict.reason, Reason::NotLoggedIn);
    assert_eq!(error(&verdict), "Failed to authenticate. API Error: 401 OAuth token has expired");
    let retry = "no answer: authentication_failed (401); try 1 failed".to_owned();
    assert!(said.contains(&Said::Note(retry)), "{said:?}");
}

#[test]
fn the_status_is_enough_where_a_program_has_no_word_for_it() {
    for (transcript, word, reason) in [
        (
            include_str!("../../tests/claude/bad_key.jsonl"),
            "authentication_failed",
            Reason::NotLoggedIn,
        ),
        (
            include_str!("../../tests/claude/rate_limited.jsonl"),
            "rate_limit\"",
            Reason::Quota { until_ms: None },
        ),
        (
            include_str!("../../tests/claude/server_error.jsonl"),
            "server_error",
            Reason::VendorUnreachable,
        ),
    ] {
        let wordless = transcript.replace(word, &word.replace('_', "-"));
        assert_ne!(wordless, transcript);
        assert_eq!(read(&wordless, &exit(1)).1.reason, reason, "{word}");
    }
}

#[test]
fn a_quota_with_and_without_its_end() {
    let (_, quota) = recorded!("quota", 1);
    assert_eq!(quota.reason, Reason::Quota { until_ms: Some(1_796_000_000_000) });
    assert_eq!(error(&quota), "You've hit your 5-hour limit · resets 12:53am (UTC)");
    // The text alone, to the minute.
    let transcript = include_str!("../../tests/claude/quota.jsonl");
    let wordless = transcript.replace("rate_limit_event", "later").replace("resetsAt", "later");
    let (_, told) = read(&wordless, &Exit { now_ms: 1_795_993_200_000, ..exit(1) });
    assert_eq!(told.reason, Reason::Quota { until_ms: Some(1_795_999_980_000) });
    let elsewhere = wordless.replace("(UTC)", "(Europe/Berlin)");
    let (_, told) = read(&elsewhere, &Exit { now_ms: 1_795_993_200_000, ..exit(1) });
    assert_eq!(told.reason, Reason::Quota { until_ms: None }, "a zone that is only a name");
    let (_, limited) = recorded!("rate_limited", 1);
    assert_eq!(limited.reason, Reason::Quota { until_ms: None });

    let later = Exit { now_ms: 1_796_000_000_001, ..exit(1) };
    let (_, past) = read(include_str!("../../tests/claude/quota.jsonl"), &later);
    assert_eq!(past.reason, Reason::Quota { until_ms: None }, "an end that is past is none");
    let early = Exit { now_ms: 0, ..exit(1) };
    let (_, far) = read(include_str!("../../tests/claude/quota.jsonl"), &early);
    assert_eq!(far.reason, Reason::Quota { until_ms: None }, "years ahead is not believed");
}

#[test]
fn an_account_without_credit_is_out_of_quota_until_it_is_paid() {
    let unpaid = |verdict: &Verdict| {
        assert_eq!(verdict.reason, Reason::Quota { until_ms: None }, "{verdict:?}");
        assert!(verdict.hint.as_deref().unwrap().contains("billing page of Anthropic"));
    };
    let (_, verdict) = recorded!("no_credit", 1);
    unpaid(&verdict);
    assert_eq!(error(&verdict), "Credit balance is too low");
    // Each sign alone.
    let rows = include_str!("../../tests/claude/no_credit.jsonl");
    let by_words = rows.replace("billing_error", "later");
    let by_field = rows.replace("Credit balance is too low", "no");
    let by_status = by_words.replace("Credit balance is too low", "no").replace("400", "402");
    for rows in [by_words.as_str(), by_field.as_str(), by_status.as_str()] {
        assert_ne!(rows, include_str!("../../tests/claude/no_credit.jsonl"));
        unpaid(&read(rows, &exit(1)).1);
    }
    let other = by_words.replace("Credit balance is too low", "no");
    assert_eq!(read(&other, &exit(1)).1.reason, Reason::VendorError);
    assert_eq!(recorded!("rate_limited", 1).1.hint, None, "a limit is not mended by money");
}

#[test]
fn a_vendor_that_does_not_answer() {
    for (_, verdict) in
        [recorded!("unreachable", 1), recorded!("overloaded", 1), recorded!("server_error", 1)]
    {
        assert_eq!(verdict.reason, Reason::VendorUnreachable, "{verdict:?}");
    }
    let (_, verdict) = recorded!("unreachable", 1);
    assert!(error(&verdict).contains("ECONNREFUSED"));
}

#[test]
fn a_vendor_that_answers_no() {
    for ((_, verdict), part) in [
        (recorded!("no_model", 1), "selected model"),
        (recorded!("max_output", 1), "output token maximum"),
    ] {
        assert_eq!(verdict.reason, Reason::VendorError, "{verdict:?}");
        assert!(error(&verdict).contains(part));
    }
    let (_, refusal) = recorded!("refusal", 1);
    assert_eq!(refusal.reason, Reason::PermissionRefused);
    assert!(error(&refusal).contains("safeguards flagged"));
}

#[test]
fn a_machine_without_a_sandbox() {
    let (_, missing) = recorded!("no_tools", 1);
    assert_eq!(missing.reason, Reason::SandboxUnavailable);
    assert!(error(&missing).contains("bubblewrap (bwrap) not installed, socat not installed"));
    assert!(missing.hint.as_deref().unwrap().contains("install bubblewrap"));

    // 2.1.197 has no field for it.
    let transcript = include_str!("../../tests/claude/no_tools.jsonl");
    let older =
        transcript.replace(r#","startup_failure_reason":"sandbox_required_unavailable""#, "");
    assert_ne!(older, transcript);
    assert_eq!(read(&older, &exit(1)).1.reason, Reason::SandboxUnavailable);

    let (_, broken) = recorded!("unboxed", 0);
    assert_eq!(broken.reason, Reason::SandboxUnavailable, "it exits with 0");
    assert!(error(&broken).contains("bwrap: Can't mount proc on /newroot/proc"));
    assert_eq!(broken.usage.turns, Some(4));
}

#[test]
fn the_same_words_beside_a_command_that_worked_are_no_broken_box() {
    let broken = include_str!("../../tests/claude/unboxed.jsonl");
    let worked = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}}"#;
    let call = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#;
    let (_, verdict) = read(&format!("{call}\n{worked}\n{broken}"), &exit(0));
    assert_eq!(verdict.reason, Reason::Done);
    let told = broken.replace("Exit code 1\\nbwrap", "Exit code 1\\nsaid: bwrap");
    assert_ne!(told, broken);
    assert_eq!(read(&told, &exit(0)).1.reason, Reason::Done);
}

#[test]
fn an_end_before_any_result() {
    let error_line = "Error: sandbox required but unavailable: the settings passed with \
                      --settings … failed validation, so none of them apply";
    for (lines, at, reason, part) in [
        ("", Exit { stderr: error_line, ..exit(1) }, Reason::SandboxUnavailable, "validation"),
        ("", exit(0), Reason::ProtocolViolation, "without a result"),
        ("hello\n", exit(0), Reason::ProtocolViolation, "something else than events: hello"),
        ("[1]\n{}\n", exit(1), Reason::ProtocolViolation, "something else than events: [1]"),
        (
            "",
            Exit { stderr: "error: unknown option '--x'", ..exit(1) },
            Reason::VendorError,
            "unknown option",
        ),
        ("", Exit { code: None, signal: Some(9), ..exit(0) }, Reason::Crashed, "signal 9"),
        ("", exit(137), Reason::Crashed, "signal 9"),
        ("x\n", Exit { over_limit: true, ..exit(137) }, Reason::ProtocolViolation, "more than"),
    ] {
        let (_, verdict) = read(lines, &at);
        assert_eq!(verdict.reason, reason, "{verdict:?}");
        assert!(error(&verdict).contains(part), "{verdict:?}");
        assert_eq!(verdict.usage, LaneUsage::default(), "nothing was reported");
    }
}

#[test]
fn a_run_that_was_interrupted_is_tried_again_though_it_exits_with_0() {
    let (_, amid_a_tool) = recorded!("interrupted", 0);
    assert_eq!(amid_a_tool.usage.turns, Some(2), "the cost is known all the same");
    let (_, amid_an_answer) = recorded!("interrupted_early", 0);
    for verdict in [amid_a_tool, amid_an_answer] {
        assert_eq!(verdict.reason, Reason::Crashed, "{verdict:?}");
        assert_eq!(error(&verdict), "claude was interrupted by a signal before its end");
    }
    // The agent went on after such words, and then said no more.
    let early = include_str!("../../tests/claude/interrupted_early.jsonl");
    let on = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"On."}]}}"#;
    let (_, verdict) = read(&format!("{early}{on}"), &exit(0));
    assert_eq!(verdict.reason, Reason::ProtocolViolation);
}

#[test]
fn neither_the_code_nor_the_row_is_trusted_alone() {
    let done = include_str!("../../tests/claude/done.jsonl");
    let (_, verdict) = read(done, &exit(1));
    assert_eq!(verdict.reason, Reason::Crashed);
    assert_eq!(error(&verdict), "claude reported success and then exited with code 1");
    assert_eq!(verdict.usage.turns, Some(5), "the cost is known all the same");
    let failed = include_str!("../../tests/claude/bad_key.jsonl");
    assert_eq!(read(failed, &exit(0)).1.reason, Reason::NotLoggedIn);
    let vague = done.replace(r#""is_error":false,"num_turns""#, r#""num_turns""#);
    assert_ne!(vague, done);
    assert_eq!(read(&vague, &exit(0)).1.reason, Reason::VendorError, "no word is no success");
}

#[test]
fn rows_and_fields_that_are_not_known_are_passed_over() {
    let done = include_str!("../../tests/claude/done.jsonl");
    let strange = [
        r#"{"type":"later_kind","message":{"content":[{"type":"text","text":"no"}]}}"#,
        r#"{"type":"system","subtype":"later"}"#,
        r#"{"type":"assistant","message":{"content":"text"}}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"},7]}}"#,
        r#"{"type":"user","message":null}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}"#,
        "",
    ];
    let (said, verdict) = read(&format!("{}\n{done}", strange.join("\n")), &exit(0));
    let (plain, expected) = read(done, &exit(0));
    assert_eq!(verdict, expected);
    assert_eq!(said, [vec![Said::Note("a tool failed: ".to_owned())], plain].concat());
}

#[test]
fn rubbish_before_a_result_does_not_hide_it() {
    let done = include_str!("../../tests/claude/done.jsonl");
    assert_eq!(read(&format!("warning: x\n{done}"), &exit(0)).1.reason, Reason::Done);
}
