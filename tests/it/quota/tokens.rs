//! A login whose tokens change in the middle of a run: the new ones are kept from everybody like
//! the old ones, and what the vendor says then it says of the new ones.

use std::fs;

use serde_json::{Value, json};

use super::person::{Person, now};

/// The program refreshes the login of its home, and knows the new access token from then on.
const REFRESH: &str = r#"
login=$CLAUDE_CONFIG_DIR/.credentials.json
sed 's/-1"/-2"/g; s/00001,/00002,/' "$login" > "$login.new"; mv "$login.new" "$login"
token=$(sed 's/.*"accessToken":"\([^"]*\)".*/\1/' "$login")
"#;

/// Says `$token` in each way that a run can say something, and ends.
const TELL: &str = r#"
say() { printf '%s\n' "$1" | sed "s|TOKEN|$token|"; }
say '{"type":"assistant","message":{"content":[{"type":"text","text":"I have TOKEN"}]}}'
echo "error: $token" >&2
echo change >> README.md
say '{"type":"result","subtype":"success","is_error":false,"result":"It was TOKEN."}'
exit 0
"#;

/// Everything that is told of a task, and its transcript.
fn told(person: &Person, task: &str) -> String {
    let detail = person.house.json(&["task", "get", task, "--json"]);
    let (transcript, _) = person.house.transcript(&detail);
    let log = person.house.relay(&["task", "log", task]).ok();
    let events = person.house.relay(&["events", "--json"]).ok();
    let pulled = person.house.relay(&["task", "get", task]).ok();
    [detail.to_string(), transcript, log, events, pulled].join("\n")
}

#[test]
fn a_token_that_is_refreshed_in_a_run_is_told_to_nobody() {
    let person = Person::new();
    person.vendor_does(&[REFRESH, TELL].concat());
    let task = person.task("claude");
    person.drain();
    let told = told(&person, &task);
    assert!(person.is(&task, "review"), "{told}");
    assert_eq!(person.login()["claudeAiOauth"]["accessToken"], "access-ada-2");
    assert!(!told.contains("access-ada"), "{told}");
    for part in ["I have [redacted]", "It was [redacted].", "error: [redacted]"] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
}

#[test]
fn keys_of_the_settings_and_of_the_environment_are_told_to_nobody() {
    let mut person = Person::new();
    let settings = json!({ "primaryApiKey": "sk-canary-settings", "userID": "user-of-ada" });
    fs::write(person.dir().join(".claude.json"), settings.to_string()).unwrap();
    person
        .house
        .set("ANTHROPIC_API_KEY", "sk-canary-environment")
        .set("ANTHROPIC_BASE_URL", "http://gateway.example")
        .set("RELAY_LANE_ENV", "ANTHROPIC_API_KEY,ANTHROPIC_BASE_URL");
    let keys = "settings=$(cat \"$CLAUDE_CONFIG_DIR/.claude.json\" | tr -d '\"')\n\
                token=\"$settings $ANTHROPIC_API_KEY $ANTHROPIC_BASE_URL\"\n";
    person.vendor_does(&[keys, TELL].concat());
    let task = person.task("claude");
    person.drain();
    let told = told(&person, &task);
    assert!(person.is(&task, "review"), "{told}");
    assert!(!told.contains("sk-canary"), "{told}");
    let whole = "It was {primaryApiKey:[redacted],userID:user-of-ada} [redacted] http://gateway";
    assert!(told.contains(whole), "an address is no secret: {told}");
}

#[test]
fn tokens_and_keys_of_the_login_are_not_committed() {
    let mut person = Person::new();
    person.house.set("ANTHROPIC_API_KEY", "sk-canary-environment");
    person.house.set("RELAY_LANE_ENV", "ANTHROPIC_API_KEY");
    for (leaves, path) in [
        (format!("{REFRESH}echo \"x $token y\" > notes\n"), "notes"),
        ("cp \"$CLAUDE_CONFIG_DIR/.credentials.json\" login\n".to_owned(), "login"),
        ("printf %s \"$ANTHROPIC_API_KEY\" | base64 > hidden\n".to_owned(), "hidden"),
    ] {
        person.logs_in("ada", 1);
        person.vendor_does(&leaves);
        let task = person.task("claude");
        person.drain();
        let stop = person.stop(&task);
        assert_eq!(stop["why"], "secret_in_tree", "{leaves}: {stop:#}");
        let detail = person.house.json(&["task", "get", &task, "--json"]);
        assert!(detail["task"]["message"].as_str().unwrap().contains(path), "{detail:#}");
        let branches = person.house.in_repo(&["branch", "--list", "relay/*"]);
        assert_eq!(branches, "", "it was pushed");
    }
}

#[test]
fn a_login_that_is_refused_after_its_refresh_fails_one_task_and_keeps_the_others() {
    let person = Person::new();
    person.vendor_refuses(401, "Failed to authenticate. API Error: 401 token revoked");
    let answer = person.dir().join("answer");
    let refused = format!("{REFRESH}cat '{}'; exit 1\n", answer.display());
    person.vendor_does(&refused);
    let tasks = [(); 3].map(|()| person.task("claude"));
    person.drain();
    person.drain();
    assert_eq!(person.login()["claudeAiOauth"]["refreshToken"], "refresh-ada-2");
    assert_eq!(person.stop(&tasks[0])["reason"], "not_logged_in");
    assert!(person.is(&tasks[1], "queued") && person.is(&tasks[2], "queued"));
    assert_eq!(person.calls(), 1, "the next was tried under the same login");
    assert!(person.lane()["refused_until"].as_i64().unwrap() > now());

    person.vendor_says("");
    person.logs_in("ada", 3);
    person.drain();
    assert!(person.is(&tasks[1], "review") && person.is(&tasks[2], "review"));
    assert_eq!(person.lane()["refused_until"], Value::Null);

    // The same of a probe.
    person.logs_in("ada", 1);
    person.vendor_does(&refused);
    assert_eq!(person.probe("claude", &[]).code, 6);
    assert!(person.lane()["refused_until"].as_i64().is_some_and(|until| until > now()));
}
