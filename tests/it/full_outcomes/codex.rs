//! The real Codex.

use relay::model::Clock as _;
use relay::system::SystemClock;
use rustix::process::Signal;
use serde_json::json;

use super::{NOBODY, Row, Run, called, row, run, send, with};
use crate::full_codex::log_in;
use crate::support::house::House;
use crate::support::model::{Model, Step};

/// One try of each request, where the number of tries is not what is looked at.
const ONE_TRY: &str = "set -- \"$@\" -c model_providers.relay.request_max_retries=0 \
                       -c model_providers.relay.stream_max_retries=0";

/// The same without the box: its own sandbox cannot be where its home is below the folder of
/// temporary files.
const ELSEWHERE: &str = "mkdir \"$HOME/temporary\"; export TMPDIR=\"$HOME/temporary\"; \
                         set -- \"$@\" -c model_providers.relay.request_max_retries=0 \
                         -c model_providers.relay.stream_max_retries=0";

/// The same, with the switch on that relay turns off.
const WAITS: &str = "mkdir \"$HOME/temporary\"; export TMPDIR=\"$HOME/temporary\"; \
                     set -- \"$@\" -c model_providers.relay.request_max_retries=0 \
                     -c model_providers.relay.stream_max_retries=0 \
                     -c features.unbounded_connection_retries=true";

fn machine(row: &Row) -> Option<(House, Model)> {
    let model = Model::start(row.steps.clone());
    let mut house = House::new();
    let named = log_in(&mut house, &model)?;
    let mut house = with(house, "codex", row, &named, model.port)?;
    if row.down {
        house.set("OPENAI_BASE_URL", &format!("{NOBODY}/v1"));
    }
    Some((house, model))
}

fn command(line: &str) -> Step {
    Step::Call("exec_command", json!({ "cmd": line }))
}

#[test]
fn full_its_vendor_is_away() {
    let error = |status| vec![Step::Answer(status, json!({ "error": { "message": "boom" } }))];
    let gone = || Row { down: true, ..row("", [], "vendor_unreachable") };
    let once = |row: Row| Row { first: ONE_TRY, reason: "vendor_unreachable", ..row };
    run(
        "codex",
        machine,
        [
            // By itself it would wait for ever, however many tries it has.
            Row {
                named: "connections are refused",
                worker: &["--no-sandbox"],
                first: ELSEWHERE,
                // Its own end: one that relay made of it would say that it still waits.
                says: "Connection failed: error sending request (hint",
                ..gone()
            },
            once(Row { named: "connections are refused, which the proxy tells", ..gone() }),
            once(row("500", error(500), "")),
            once(row("502", error(502), "")),
            once(row("cut in the middle", [Step::Cut], "")),
            once(row("half an answer", [Step::Half], "")),
        ],
    );
}

#[test]
fn full_its_model_and_its_settings() {
    let first =
        |more| Row { first: more, reason: "vendor_error", ..row("", [Step::Say("no")], "") };
    run(
        "codex",
        machine,
        [
            Row {
                says: "content_filter",
                first: ONE_TRY,
                ..row("a refusal", [Step::Stop("content_filter")], "permission_refused")
            },
            Row {
                says: "max_output_tokens",
                ..row(
                    "an answer that is too long",
                    [Step::Stop("max_output_tokens")],
                    "vendor_error",
                )
            },
            row("an empty answer", [Step::Say("")], "no_changes"),
            Row {
                named: "a bad flag",
                says: "--no-such-flag",
                ..first("set -- \"$@\" --no-such-flag")
            },
            Row {
                named: "a bad setting",
                says: "approval_policy",
                ..first("set -- \"$@\" -c approval_policy=7")
            },
            Row {
                named: "no sandbox where its home is a temporary one",
                worker: &["--no-sandbox"],
                first: "export TMPDIR=\"$HOME\"",
                reason: "sandbox_unavailable",
                says: "codex's sandbox failed at its start",
                ..first("")
            },
        ],
    );
}

#[test]
fn full_it_is_ended_from_outside() {
    let crashed = |named| row(named, [Step::Hang], "crashed");
    for (row, name, signal) in [
        (crashed("a kill of the program"), "codex", Signal::KILL),
        (crashed("a kill of its launcher"), "node", Signal::KILL),
        (crashed("SIGTERM"), "codex", Signal::TERM),
        (crashed("SIGINT"), "codex", Signal::INT),
    ] {
        let Some((house, model)) = machine(&row) else { return };
        let run = Run::new(house, "codex");
        let begun = || !model.requests().is_empty();
        run.disturbed(&row, begun, || {
            // A newer node is the program itself from then on.
            let gone = called(&run.house, name).is_empty();
            send(&run.house, if gone { "codex" } else { name }, signal);
        });
    }
}

#[test]
fn full_it_is_called_off() {
    let row = row("a cancel", [Step::Hang], "cancelled");
    let Some((house, model)) = machine(&row) else { return };
    let run = Run::new(house, "codex");
    let begun = || !model.requests().is_empty();
    run.disturbed(&row, begun, || {
        run.house.relay(&["task", "cancel", &run.task]).ok();
    });
}

#[test]
fn full_its_login_ends_in_the_middle() {
    let limit = json!({ "error": {
        "type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_at": SystemClock.now().0 / 1000 + 7200,
    }});
    let refused = json!({ "error": { "message": "Your login has ended" } });
    let once = |row: Row| Row { first: ONE_TRY, ..row };
    run(
        "codex",
        machine,
        [
            once(row("then 401", [command("ls"), Step::Answer(401, refused)], "not_logged_in")),
            Row {
                until: true,
                ..once(row("then 429", [command("ls"), Step::Answer(429, limit)], "quota"))
            },
        ],
    );
}

/// What relay keeps it from: it would wait for ever. The run that says so and is ended was away.
#[test]
fn full_a_network_that_it_waits_for_is_away() {
    let row = Row {
        down: true,
        first: WAITS,
        worker: &["--no-sandbox"],
        says: "waiting for network",
        ..row("a network that is waited for", [], "vendor_unreachable")
    };
    let Some((house, _model)) = machine(&row) else { return };
    let run = Run::new(house, "codex");
    let log = || run.house.relay(&["task", "log", &run.task]).out;
    let begun = || log().contains(row.says);
    run.disturbed(&row, begun, || send(&run.house, "codex", Signal::KILL));
}
