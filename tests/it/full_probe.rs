//! `relay probe` with the real claude, codex and grok on scripted models: each answers in relay's box,
//! with its login, its tokens and its cost; and a limit of each keeps a worker off the login.

use std::fs;

use relay::model::Clock as _;
use relay::system::SystemClock;
use serde_json::{Value, json};

use crate::support::chat::{self, Chat, TICKS};
use crate::support::full::skip;
use crate::support::house::{House, Ran, only_has};
use crate::support::model::{Model, RESPONSE_TOKENS, Step};

/// A machine whose program of `lane` is the real one.
#[expect(clippy::disallowed_methods, reason = "scripts/test says where the real programs are")]
fn house(lane: &str, port: u16) -> Option<House> {
    let named = format!("RELAY_TEST_{}", lane.to_uppercase());
    let Some(program) = std::env::var_os(&named) else {
        skip(&format!("the real {lane}, named by {named}"));
        return None;
    };
    let mut house = House::new();
    house.program(lane, &format!("#!/bin/sh\nexec '{}' \"$@\"\n", program.display()));
    house.set("RELAY_LANE_ALLOWED_DOMAINS", &format!("127.0.0.1:{port}"));
    fs::create_dir(house.dir.path().join(format!(".{lane}"))).unwrap();
    Some(house)
}

/// Gives a machine a person's login of claude.ai.
pub fn log_in_to_claude_ai(house: &House) {
    let login = json!({ "claudeAiOauth": {
        "accessToken": "access-token-of-ada", "refreshToken": "refresh-token-of-ada",
        "expiresAt": 4_000_000_000_000_u64, "scopes": ["user:inference"],
    }});
    let folder = house.dir.path().join(".claude");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(".credentials.json"), login.to_string()).unwrap();
}

fn claude(model: &Model) -> Option<House> {
    let mut house = house("claude", model.port)?;
    log_in_to_claude_ai(&house);
    house.set("ANTHROPIC_BASE_URL", &model.url()).set("RELAY_LANE_ENV", "ANTHROPIC_BASE_URL");
    Some(house)
}

fn codex(model: &Model) -> Option<House> {
    let mut house = house("codex", model.port)?;
    let login = json!({ "auth_mode": "apikey", "OPENAI_API_KEY": "dummy-key" });
    fs::write(house.dir.path().join(".codex/auth.json"), login.to_string()).unwrap();
    house.set("OPENAI_BASE_URL", &format!("{}/v1", model.url()));
    house.set("RELAY_LANE_ENV", "OPENAI_BASE_URL");
    Some(house)
}

fn grok(chat: &Chat) -> Option<House> {
    let mut house = house("grok", chat.port)?;
    let login = json!({ format!("{}::client", chat.url()): {
        "key": "access-token-of-ada", "auth_mode": "oidc", "create_time": "2026-11-30T00:00:00Z",
        "user_id": "ada", "refresh_token": "refresh-token-of-ada",
        "expires_at": "2099-01-01T00:00:00Z",
        "oidc_issuer": chat.url(), "oidc_client_id": "client",
    }});
    fs::write(house.dir.path().join(".grok/auth.json"), login.to_string()).unwrap();
    let base = format!("{}/v1", chat.url());
    let mut names = vec!["GROK_OAUTH2_ISSUER", "GROK_OAUTH2_CLIENT_ID"];
    house.set("GROK_OAUTH2_ISSUER", &chat.url()).set("GROK_OAUTH2_CLIENT_ID", "client");
    for name in [
        "GROK_XAI_API_BASE_URL",
        "XAI_API_BASE_URL",
        "GROK_MODELS_BASE_URL",
        "GROK_CLI_CHAT_PROXY_BASE_URL",
    ] {
        house.set(name, &base);
        names.push(name);
    }
    house.set("RELAY_LANE_ENV", &names.join(","));
    Some(house)
}

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// Probes, and looks that nothing but the answer is left.
fn probe(house: &House, what: &str) -> Value {
    let told = house.relay(&["probe", what, "--json"]);
    let probed = json_of(&told);
    println!("{probed:#}");
    assert_eq!((told.code, &probed["answered"]), (0, &json!(true)), "{told:?}");
    assert_eq!(probed["said"], "ready", "{probed:#}");
    assert!(probed["version"].is_string() && probed["took_ms"].is_u64(), "{probed:#}");
    for folder in ["work", "vendor", "quota"] {
        assert_eq!(only_has(&house.home.join(folder), &[]), Vec::<String>::new(), "{folder}");
    }
    let vendors = house.dir.path().join(format!(".{}", what.split(':').next().unwrap()));
    let locks: Vec<String> =
        only_has(&vendors, &[]).into_iter().filter(|name| name.contains("relay")).collect();
    assert_eq!(locks, Vec::<String>::new());
    assert!(!told.out.contains("token-of-ada") && !told.out.contains("dummy-key"));
    probed
}

/// A limit that the vendor told marks the login, and a worker then takes nothing for it.
fn limited(house: &House, lane: &str) -> Value {
    let told = house.relay(&["probe", lane, "--json"]);
    let probed = json_of(&told);
    assert_eq!(told.code, 8, "{probed:#}");
    assert_eq!(probed["stop_reason"]["reason"], "quota", "{probed:#}");
    let slug = house.link();
    let task = house.task(&slug, lane, "x");
    let worked = house.relay(&["work", "--once", "--name", "w", "--lanes", lane]);
    assert!(worked.err.contains(&format!("{lane}: out of quota until ")), "{worked:?}");
    assert_eq!(house.state(&task), "queued");
    probed["out_of_quota_until"].clone()
}

#[test]
fn full_claude_answers_a_probe() {
    let model = Model::start([Step::Say("ready")]);
    let Some(house) = claude(&model) else { return };
    let probed = probe(&house, "claude:sonnet");
    assert!(probed["model"].as_str().unwrap().contains("sonnet"), "{probed:#}");
    assert_eq!(probed["usage"]["output_tokens"], 5, "{probed:#}");
    assert!(probed["usage"]["cost_usd"].as_f64().is_some(), "{probed:#}");
    let asked = model.requests();
    assert!(asked.iter().any(|body| body.to_string().contains("single word ready")), "{asked:?}");
}

#[test]
fn full_codex_answers_a_probe() {
    let model = Model::start([Step::Say("ready")]);
    let Some(house) = codex(&model) else { return };
    let probed = probe(&house, "codex:scripted");
    assert_eq!(probed["model"], "scripted");
    assert_eq!(probed["usage"]["output_tokens"], RESPONSE_TOKENS[2], "{probed:#}");
    assert_eq!(probed["usage"]["cost_usd"], Value::Null, "it tells no price");
    let told = house.relay(&["probe", "codex"]).ok();
    assert!(told.contains("  cost     not reported"), "{told}");
}

#[test]
fn full_grok_answers_a_probe() {
    for tells_cost in [true, false] {
        let chat = Chat::start(tells_cost, [Step::Say("ready")]);
        let Some(house) = grok(&chat) else { return };
        let probed = probe(&house, &format!("grok:{}", chat::MODEL));
        assert!(probed["usage"]["output_tokens"].is_u64(), "{probed:#}");
        let cost = probed["usage"]["cost_usd"].as_f64();
        assert_eq!(cost.is_some(), tells_cost, "{probed:#}");
        if let Some(cost) = cost {
            // A price for each call of the model, and it was asked at least once.
            assert!(cost * 1e10 >= f64::from(u32::try_from(TICKS).unwrap()) - 1.0, "{cost}");
        }
    }
}

#[test]
fn full_a_limit_of_each_vendor_keeps_a_worker_off_the_login() {
    let in_two_hours = SystemClock.now().0 / 1000 + 7200;
    let reset: &'static str = in_two_hours.to_string().leak();
    let headers: &'static [(&'static str, &'static str)] = Vec::leak(vec![
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-reset", reset),
    ]);
    let model = Model::start([Step::Refuse(429, "rate_limit_error", headers)]);
    let Some(house) = claude(&model) else { return };
    assert_eq!(limited(&house, "claude"), in_two_hours * 1000, "by the header");

    let limit = json!({ "error": {
        "type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_at": in_two_hours,
    }});
    let model = Model::start([Step::Answer(429, limit)]);
    let Some(house) = codex(&model) else { return };
    let until = limited(&house, "codex").as_i64().unwrap() / 1000;
    assert!((in_two_hours - 60..=in_two_hours).contains(&until), "by its words, to the minute");

    let chat = Chat::start(false, [Step::Refuse(429, "Too many requests", &[])]);
    let Some(house) = grok(&chat) else { return };
    let before = SystemClock.now().0;
    let until = limited(&house, "grok").as_i64().unwrap();
    let an_hour = before + 3_600_000..=SystemClock.now().0 + 3_600_000;
    assert!(an_hour.contains(&until), "an hour where it tells none: {until} in {an_hour:?}");
}
