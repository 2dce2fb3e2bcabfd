//! The real Grok.

use rustix::process::Signal;
use serde_json::json;

use super::{NOBODY, Row, Run, row, run, send, with};
use crate::full_grok::log_in;
use crate::support::chat::Chat;
use crate::support::house::House;
use crate::support::model::Step;

/// One try of each request, where the number of tries is not what is looked at.
const ONE_TRY: &str = "export GROK_MAX_RETRIES=0";

fn machine(row: &Row) -> Option<(House, Chat)> {
    let chat = Chat::start(false, row.steps.clone());
    let mut house = House::new();
    let named = log_in(&mut house, &chat)?;
    let mut house = with(house, "grok", row, &named, chat.port)?;
    if row.down {
        for name in named.iter().filter(|name| name.ends_with("_BASE_URL")) {
            house.set(name, &format!("{NOBODY}/v1"));
        }
        // Its own, unless what it says of another one is looked at: it learns of those from the vendor.
        if row.says.is_empty() {
            house.set("RELAY_MODEL_GROK", "");
        }
    }
    Some((house, chat))
}

#[test]
fn full_its_vendor_is_away_or_says_no() {
    let gone =
        || Row { down: true, first: ONE_TRY, ..row("", [Step::Say("no")], "vendor_unreachable") };
    let refuse = |status, words| vec![Step::Refuse(status, words, &[])];
    let once = |row: Row| Row { first: ONE_TRY, ..row };
    run(
        "grok",
        machine,
        [
            Row { named: "connections are refused", worker: &["--no-sandbox"], ..gone() },
            Row { named: "connections are refused, which the proxy tells", ..gone() },
            Row { named: "refused, and a model is named", says: "no list of models", ..gone() },
            once(row("403", refuse(403, "no access"), "vendor_error")),
            once(row("404", refuse(404, "model gone"), "vendor_error")),
            once(row("503", refuse(503, "overloaded"), "vendor_unreachable")),
            once(row("an answer that is too long", [Step::Stop("length")], "vendor_error")),
            once(row("a refusal", [Step::Stop("content_filter")], "permission_refused")),
            once(row("an empty answer", [Step::Say("")], "vendor_error")),
            once(row("cut in the middle", [Step::Cut], "vendor_unreachable")),
            // To it an empty one.
            once(row("half an answer", [Step::Half], "vendor_error")),
        ],
    );
}

#[test]
fn full_its_login_and_its_settings() {
    let first = |more, reason| Row { first: more, reason, ..row("", [Step::Say("no")], "") };
    run(
        "grok",
        machine,
        [
            Row { named: "not signed in", ..first("GROK_HOME=$(mktemp -d)", "not_logged_in") },
            Row {
                named: "a bad flag",
                says: "--no-such-flag",
                ..first("set -- \"$@\" --no-such-flag", "vendor_error")
            },
        ],
    );
}

#[test]
fn full_it_is_ended_from_outside() {
    for (named, signal) in [("SIGTERM", Signal::TERM), ("SIGKILL", Signal::KILL)] {
        let row = row(named, [Step::Hang], "crashed");
        let Some((house, chat)) = machine(&row) else { return };
        let run = Run::new(house, "grok");
        let program = super::real("grok").unwrap();
        let name = program.rsplit('/').next().unwrap();
        let begun = || !chat.requests().is_empty();
        run.disturbed(&row, begun, || send(&run.house, name, signal));
    }
}

#[test]
fn full_its_login_ends_in_the_middle() {
    let call = || {
        let input = json!({ "command": "ls", "description": "a step" });
        Step::Call("run_terminal_command", input)
    };
    let refuse = |status, words| Step::Refuse(status, words, &[]);
    run(
        "grok",
        machine,
        [
            row("then 401", [call(), refuse(401, "Your login has ended")], "not_logged_in"),
            row(
                "then 429",
                [call(), refuse(429, "Too many requests; try again in 7200 s")],
                "quota",
            ),
        ],
    );
}
