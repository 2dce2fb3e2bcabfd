//! The reader against what the real program wrote, 1.0.41, with a scripted model: one transcript an
//! outcome, in `tests/grok`, with ids, paths and lists of no interest taken out.

use crate::{Exit, LaneUsage, Reason, Said, Verdict};

fn exit(code: i32) -> Exit<'static> {
    Exit {
        code: Some(code),
        signal: None,
        stderr: "",
        now_ms: 0,
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
        read(include_str!(concat!("../../tests/grok/", $name, ".jsonl")), &exit($code))
    };
}

fn error(verdict: &Verdict) -> &str {
    assert_eq!(verdict.summary, None, "a failure is no summary");
    verdict.error.as_deref().unwrap()
}

fn tool(name: &str, detail: &str) -> Said {
    Said::Tool { name: name.to_owned(), detail: detail.to_owned() }
}

fn note(words: &str) -> Said {
    Said::Note(words.to_owned())
}

#[test]
fn a_run_that_worked() {
    let (said, verdict) = recorded!("done", 0);
    let command = "run_terminal_command";
    assert_eq!(
        said,
        [
            tool("write", "/copy/new.txt"),
            Said::Text("I will look at the tree.".to_owned()),
            tool(command, "git status --short"),
            tool(command, "git push"),
            note(
                "run_terminal_command failed: Tool `run_terminal_command` was not executed: Denied \
                 by permission policy: deny rule on bash matching \"git push*\""
            ),
            tool(command, "echo x > y"),
            note(
                "run_terminal_command failed: Tool `run_terminal_command` was not executed: denied \
                 by prompt policy (tool not pre-approved)"
            ),
            Said::Text("I wrote new.txt.".to_owned()),
        ]
    );
    let usage = LaneUsage {
        model: Some("grok-4.6".to_owned()),
        input_tokens: Some(3500),
        cache_read_tokens: Some(1500),
        cache_write_tokens: Some(0),
        output_tokens: Some(250),
        model_calls: Some(5),
        turns: Some(5),
        cost_usd: Some(0.018_878),
    };
    let expected = Verdict {
        summary: Some("I wrote new.txt.".to_owned()),
        hint: Some("refused tool calls: run_terminal_command (2)".to_owned()),
        usage,
        ..Verdict::new(Reason::Done)
    };
    assert_eq!(verdict, expected);
}

#[test]
fn a_cost_that_the_server_does_not_tell_is_not_zero() {
    let (_, verdict) = recorded!("no_cost", 0);
    assert_eq!(verdict.reason, Reason::Done);
    assert_eq!((verdict.usage.cost_usd, verdict.usage.input_tokens), (None, Some(700)));
}

#[test]
fn a_run_that_was_given_up_did_not_finish() {
    let (_, verdict) = recorded!("cancelled", 0);
    assert_eq!(verdict.reason, Reason::PermissionRefused, "it exits with 0");
    assert_eq!(
        error(&verdict),
        "grok gave up the run: it may not do this without asking: run_terminal_command rm -rf build"
    );
    assert_eq!(verdict.usage.turns, Some(1));
}

#[test]
fn turns_that_are_used_up_look_like_a_run_that_was_given_up() {
    let (_, verdict) = recorded!("max_turns", 1);
    assert_eq!((verdict.reason.clone(), verdict.usage.turns), (Reason::MaxTurns, Some(2)));
    assert_eq!(error(&verdict), "grok used up its turns");
    // By its words alone, as the other formats have it.
    let rows = include_str!("../../tests/grok/max_turns.jsonl");
    let wordless = rows.replace("{\"type\":\"max_turns_reached\"}\n", "");
    assert_ne!(wordless, rows);
    let said = Exit { stderr: "Error: max turns reached\n", ..exit(1) };
    assert_eq!(read(&wordless, &said).1.reason, Reason::MaxTurns);
    assert_eq!(read(&wordless, &exit(0)).1.reason, Reason::PermissionRefused);
}

#[test]
fn no_login_or_a_refused_one() {
    for (_, verdict) in [recorded!("not_signed_in", 1), recorded!("bad_key", 1)] {
        assert_eq!(verdict.reason, Reason::NotLoggedIn, "{verdict:?}");
        assert!(verdict.hint.as_deref().unwrap().contains("grok login"));
        assert_eq!(verdict.usage, LaneUsage::default(), "nothing was reported");
    }
    let (_, verdict) = recorded!("bad_key", 1);
    assert!(error(&verdict).starts_with("Unauthorized (401) from http://127.0.0.1"));
}

#[test]
fn a_vendor_that_wants_to_be_left_alone_for_a_while() {
    let (_, verdict) = recorded!("rate_limited", 1);
    assert_eq!(verdict.reason, Reason::Quota { until_ms: None });
    assert_eq!(error(&verdict), "resource-exhausted: Too many requests");
    let words = r#"{"type":"error","message":"API error (status 429 Too Many Requests): slow"}"#;
    assert_eq!(read(words, &exit(1)).1.reason, Reason::Quota { until_ms: None });
}

#[test]
fn an_account_without_credit_is_out_of_quota_until_it_is_paid() {
    let words = |words| format!(r#"{{"type":"error","message":"{words}"}}"#);
    let (_, seen) = recorded!("no_credit", 1);
    assert!(error(&seen).contains("out of credits"));
    let by_status = read(&words("API error (status 402 Payment Required): no"), &exit(1)).1;
    let limit = "resource-exhausted: Your team has used all available credits";
    let by_words = read(&words(limit), &exit(1)).1;
    for verdict in [seen, by_status, by_words] {
        assert_eq!(verdict.reason, Reason::Quota { until_ms: None }, "{verdict:?}");
        assert!(verdict.hint.as_deref().unwrap().contains("billing page of xAI"), "{verdict:?}");
    }
    assert_eq!(recorded!("rate_limited", 1).1.hint, None, "a limit is not mended by money");
}

#[test]
fn a_vendor_that_does_not_answer() {
    for ((_, verdict), part) in [
        (recorded!("unreachable", 1), "error sending request for url"),
        (recorded!("server_error", 1), "API error (status 500 Internal Server Error): boom"),
        (recorded!("overloaded", 1), "status 503"),
        (recorded!("cut_off", 1), "Transport error: error decoding response body"),
    ] {
        assert_eq!(verdict.reason, Reason::VendorUnreachable, "{verdict:?}");
        assert!(error(&verdict).contains(part), "{verdict:?}");
    }
}

#[test]
fn a_vendor_that_answers_no() {
    for ((_, verdict), part, hint) in [
        (recorded!("forbidden", 1), "Your team has no access", None),
        (recorded!("gone", 1), "model gone", None),
        (recorded!("empty", 1), "empty response from model", None),
        (recorded!("no_model", 1), "unknown model id", Some("RELAY_MODEL_GROK")),
    ] {
        assert_eq!(verdict.reason, Reason::VendorError, "{verdict:?}");
        assert!(error(&verdict).contains(part), "{verdict:?}");
        let told = verdict.hint.as_deref().unwrap_or_default();
        assert!(told.contains(hint.unwrap_or_default()), "{told}");
        assert_eq!(hint.is_none(), told.is_empty());
    }
}

/// Without the vendor's list every model is unknown to it.
#[test]
fn a_model_that_is_unknown_since_the_vendor_is_away() {
    let network = "Network(reqwest::Error { kind: Request, url: \"https://api.x.ai/v1/models\", \
                   source: hyper_util::client::legacy::Error(Connect, TunnelUnsuccessful) })";
    let status = |status| format!("RequestFailed {{ status: {status}, body: \"boom\" }}");
    for (why, reason) in [
        (network.to_owned(), Reason::VendorUnreachable),
        (status(503), Reason::VendorUnreachable),
        (status(429), Reason::Quota { until_ms: None }),
        (status(401), Reason::NotLoggedIn),
        (status(404), Reason::VendorError),
    ] {
        let warning = "\u{1b}[2m2026-11-30T14:26:50Z\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m Failed to fetch \
                       models \u{1b}[3merror\u{1b}[0m\u{1b}[2m=\u{1b}[0m";
        let model = "Error: Couldn't set model 'x': Invalid params: \"unknown model id\". Run 'grok \
                     models' to see available models.";
        let stderr = format!("{warning}{why}\n{model}\n");
        let exit = Exit { stderr: &stderr, ..exit(1) };
        for rows in [include_str!("../../tests/grok/no_model.jsonl"), ""] {
            let (_, verdict) = read(rows, &exit);
            assert_eq!(verdict.reason, reason, "{verdict:?}");
            assert!(error(&verdict).contains("got no list of models"), "{verdict:?}");
            assert!(!verdict.hint.unwrap_or_default().contains("RELAY_MODEL_GROK"));
        }
        // A run that ended otherwise is not judged by it.
        let done = include_str!("../../tests/grok/done.jsonl");
        assert_eq!(read(done, &Exit { code: Some(0), ..exit }).1.reason, Reason::Done);
        let stderr = format!("{warning}{why}\nError: Not signed in.\n");
        let (_, verdict) = read("", &Exit { stderr: &stderr, ..exit });
        assert_eq!(
            (verdict.reason.clone(), error(&verdict)),
            (Reason::NotLoggedIn, "Not signed in.")
        );
    }
}

#[test]
fn only_an_answer_of_the_vendor_is_an_answer() {
    let mut silent = super::reader();
    for line in include_str!("../../tests/grok/silent.jsonl").lines() {
        assert_eq!(silent.line(line.as_bytes()), []);
    }
    assert!(silent.waits_for_vendor(), "its own lists are no answer");
    for row in ["thought", "text", "usage"] {
        let mut reader = super::reader();
        let _ = reader.line(format!(r#"{{"type":"{row}"}}"#).as_bytes());
        assert!(!reader.waits_for_vendor(), "{row}");
    }
}

#[test]
fn every_other_stop_is_no_success() {
    let done = include_str!("../../tests/grok/done.jsonl");
    for (stop, reason) in [
        ("refusal", Reason::PermissionRefused),
        ("max_turn_requests", Reason::MaxTurns),
        ("max_tokens", Reason::VendorError),
        ("later_kind", Reason::VendorError),
        ("", Reason::ProtocolViolation),
    ] {
        let rows =
            done.replace("\"stopReason\":\"end_turn\"", &format!("\"stopReason\":\"{stop}\""));
        assert_ne!(rows, done);
        let (_, verdict) = read(&rows, &exit(0));
        assert_eq!(verdict.reason, reason, "{verdict:?}");
        assert_eq!(verdict.usage.turns, Some(5), "the cost is known all the same");
    }
    let (_, verdict) = read(done, &exit(1));
    assert_eq!(verdict.reason, Reason::Crashed);
    assert_eq!(error(&verdict), "grok reported success and then exited with code 1");
}

#[test]
fn an_end_before_the_last_event() {
    let unknown = "error: unexpected argument '--no-such' found\n";
    let turns = "Error: max turns reached\n";
    for (lines, at, reason, part) in [
        ("", exit(0), Reason::ProtocolViolation, "without a last event"),
        ("hello\n", exit(0), Reason::ProtocolViolation, "something else than events: hello"),
        ("[1]\n{}\n", exit(1), Reason::ProtocolViolation, "something else than events: [1]"),
        ("", Exit { stderr: unknown, ..exit(2) }, Reason::VendorError, "unexpected argument"),
        ("", Exit { stderr: turns, ..exit(1) }, Reason::MaxTurns, "used up its turns"),
        (
            "",
            Exit { stderr: "Error: Not signed in.", ..exit(1) },
            Reason::NotLoggedIn,
            "Not signed in",
        ),
        (
            "",
            Exit { stderr: "error: this sandbox could not enforce its deny list", ..exit(1) },
            Reason::SandboxUnavailable,
            "deny list",
        ),
        ("", Exit { code: None, signal: Some(9), ..exit(0) }, Reason::Crashed, "signal 9"),
        ("", exit(143), Reason::Crashed, "signal 15"),
        ("x\n", Exit { over_limit: true, ..exit(137) }, Reason::ProtocolViolation, "more than"),
    ] {
        let (_, verdict) = read(lines, &at);
        assert_eq!(verdict.reason, reason, "{verdict:?}");
        assert!(error(&verdict).contains(part), "{verdict:?}");
        assert_eq!(verdict.usage, LaneUsage::default(), "nothing was reported");
    }
}

#[test]
fn a_run_that_was_killed_half_way_tells_what_it_had_used() {
    let done = include_str!("../../tests/grok/done.jsonl");
    let half: String = done.lines().take(12).flat_map(|line| [line, "\n"]).collect();
    let (_, verdict) = read(&half, &exit(137));
    assert_eq!(verdict.reason, Reason::Crashed);
    assert_eq!((verdict.usage.input_tokens, verdict.usage.model_calls), (Some(1400), Some(2)));
    assert_eq!(verdict.usage.cost_usd, None);
    // Ended by a signal that it lives through: the run was not given up for a question.
    let cancelled = include_str!("../../tests/grok/cancelled.jsonl");
    assert_eq!(read(cancelled, &exit(143)).1.reason, Reason::Crashed);
}

#[test]
fn rows_and_fields_that_are_not_known_are_passed_over() {
    let done = include_str!("../../tests/grok/done.jsonl");
    let strange = [
        r#"{"type":"auto_compact_started"}"#,
        r#"{"type":"plan","entries":[]}"#,
        r#"{"type":"tool_call"}"#,
        r#"{"type":"tool_call_update","status":"in_progress"}"#,
        r#"{"type":"usage","usage":null}"#,
        r#"{"type":"text"}"#,
        "",
    ];
    let (said, verdict) = read(&format!("{}\n{done}", strange.join("\n")), &exit(0));
    let (plain, expected) = read(done, &exit(0));
    assert_eq!((said, verdict), (plain, expected));
}

#[test]
fn rubbish_before_an_end_does_not_hide_it() {
    let done = include_str!("../../tests/grok/done.jsonl");
    assert_eq!(read(&format!("warning: x\n{done}"), &exit(0)).1.reason, Reason::Done);
}

#[test]
fn an_error_that_the_run_got_over_is_told_and_fails_nothing() {
    let done = include_str!("../../tests/grok/done.jsonl");
    let failed = include_str!("../../tests/grok/server_error.jsonl");
    let error = failed.lines().find(|row| row.contains(r#""type":"error""#)).unwrap();
    let (said, verdict) = read(&format!("{error}\n{done}"), &exit(0));
    assert_eq!(verdict, read(done, &exit(0)).1);
    assert!(said[0] == note("API error (status 500 Internal Server Error): boom"), "{said:?}");
    // Neither the code nor the row is trusted alone, and the last word counts.
    assert_eq!(read(&format!("{error}\n{done}"), &exit(1)).1.reason, Reason::VendorUnreachable);
    let cancelled = include_str!("../../tests/grok/cancelled.jsonl");
    let rows = format!("{error}\n{cancelled}");
    assert_eq!(read(&rows, &exit(0)).1.reason, Reason::VendorUnreachable);
    let rows = format!("{done}\n{error}");
    assert_eq!(read(&rows, &exit(0)).1.reason, Reason::VendorUnreachable);
}
