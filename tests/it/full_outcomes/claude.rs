//! The real Claude Code.

use relay::model::Clock as _;
use relay::system::SystemClock;
use rustix::process::Signal;
use serde_json::json;

use super::{NOBODY, Row, Run, row, run, send, with};
use crate::full_label::log_in;
use crate::full_probe::log_in_to_claude_ai;
use crate::support::house::House;
use crate::support::model::{Model, Step};

/// One more try of each request, where the number of tries is not what is looked at.
const ONE_TRY: &str = "export CLAUDE_CODE_MAX_RETRIES=1";

fn machine(row: &Row) -> Option<(House, Model)> {
    let model = Model::start(row.steps.clone());
    let mut house = House::new();
    let named = log_in(&mut house, &model)?;
    let mut house = with(house, "claude", row, &named, model.port)?;
    if row.down {
        house.set("ANTHROPIC_BASE_URL", NOBODY);
    }
    Some((house, model))
}

fn bash(command: &str) -> Step {
    Step::Call("Bash", json!({ "command": command, "description": "a step" }))
}

#[test]
fn full_its_vendor_its_model_and_its_settings() {
    let first =
        |more| Row { first: more, reason: "vendor_error", ..row("", [Step::Say("no")], "") };
    let once = |row: Row| Row { first: ONE_TRY, ..row };
    run(
        "claude",
        machine,
        [
            once(Row {
                down: true,
                ..row(
                    "connections are refused, which the proxy tells",
                    [Step::Say("no")],
                    "vendor_unreachable",
                )
            }),
            once(row("cut in the middle", [Step::Cut], "vendor_unreachable")),
            row("an empty answer", [Step::Say("")], "no_changes"),
            Row {
                says: "Reached maximum budget",
                first: "set -- \"$@\" --max-budget-usd 0.000001",
                ..row("a budget", [bash("ls"), Step::Say("no")], "budget")
            },
            once(row("401", [Step::Refuse(401, "authentication_error", &[])], "not_logged_in")),
            Row {
                named: "a bad flag",
                says: "--no-such-flag",
                ..first("set -- \"$@\" --no-such-flag")
            },
            Row {
                named: "settings that are not valid",
                reason: "sandbox_unavailable",
                says: "failed validation",
                ..first(
                    "set -- \"$@\" --settings \
                 '{\"sandbox\":{\"enabled\":\"yes\",\"failIfUnavailable\":true}}'",
                )
            },
            Row {
                named: "no settings file",
                says: "Settings file not found",
                ..first("set -- \"$@\" --settings /nowhere.json")
            },
        ],
    );
}

#[test]
fn full_it_is_ended_from_outside() {
    for (signal, named) in
        [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::KILL, "SIGKILL")]
    {
        let row = row(named, [Step::Hang], "crashed");
        let Some((house, model)) = machine(&row) else { return };
        let run = Run::new(house, "claude");
        let program = super::real("claude").unwrap();
        let name = program.rsplit('/').next().unwrap();
        let begun = || model.requests().iter().any(|body| body["tools"].is_array());
        run.disturbed(&row, begun, || send(&run.house, name, signal));
    }
}

#[test]
fn full_its_login_ends_in_the_middle() {
    let in_two_hours: &'static str = (SystemClock.now().0 / 1000 + 7200).to_string().leak();
    let headers = Vec::leak(vec![
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-reset", in_two_hours),
    ]);
    let refuse = |status, kind, headers| Step::Refuse(status, kind, headers);
    let logged_in = |row: &Row| {
        let (mut house, model) = machine(row)?;
        log_in_to_claude_ai(&house);
        house.set("RELAY_LANE_ENV", "ANTHROPIC_BASE_URL");
        Some((house, model))
    };
    let once = |row: Row| Row { first: ONE_TRY, ..row };
    let rows = [
        row("then 401", [bash("ls"), refuse(401, "authentication_error", &[])], "not_logged_in"),
        Row {
            until: true,
            ..row("then 429", [bash("ls"), refuse(429, "rate_limit_error", headers)], "quota")
        },
    ];
    run("claude", logged_in, rows.map(once));
}
