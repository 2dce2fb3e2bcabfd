//! fx: a program that has logins of other vendors, and does the work of their lanes where only it
//! has one: `fx ask`, with the prompt on standard input and one JSON object as its answer.
//!
//! It asks no proxy, so that a run of it has a door for each of [`Vendor::doors`]. Its home is `.fx`
//! in the person's home, whatever is set; which of its logins it uses, and its model, stand in its
//! settings there ([`settings`]).
//!
//! What is here was seen with a program built from its public source of 2026-08-22, which calls
//! itself 0.0.5, and read in that source. Neither a released one nor a login of a person's was ever
//! used. `usage` and `final_output` are of a later version's description.

mod argv;
mod outcome;

use serde_json::{Value, json};

use crate::{Home, Login, Reader, Vendor};

pub use argv::{Brief, MOST_STEPS, invocation};

/// Its name on `PATH`. A viewer of JSON has the same.
pub const PROGRAM: &str = "fx";

/// The file of its settings, in its home.
pub const SETTINGS: &str = "settings.json";

/// Codex's lane through it.
pub const CODEX: Vendor = Vendor {
    lane: "codex",
    login: codex_login,
    log_in: "fx login codex",
    doors: &["chatgpt.com", "auth.openai.com"],
    home: Home { file: "chatgpt-auth.json", ..HOME },
    ..FX
};

/// Grok's lane through it.
pub const GROK: Vendor = Vendor {
    lane: "grok",
    login: grok_login,
    log_in: "fx login grok",
    doors: &["cli-chat-proxy.grok.com", "api.x.ai", "auth.x.ai"],
    home: Home { file: "grok-auth.json", ..HOME },
    ..FX
};

/// The lanes whose vendors it can have a login of.
pub const VENDORS: &[&Vendor] = &[&CODEX, &GROK];

const FX: Vendor = Vendor {
    program: PROGRAM,
    lane: "",
    version_args: &["--version"],
    version,
    measured: "0.0.5",
    known: &[],
    login_args: &["status", "--json"],
    login: codex_login,
    install: "see https://github.com/vercel-labs/fx",
    log_in: "",
    // It refuses to choose.
    default_model: None,
    env: &[
        ("FX_AUTO_UPGRADE", "0"),
        ("FX_DISABLE_KEYCHAIN", "1"),
        ("FX_NO_OPEN_BROWSER", "1"),
        ("FX_SKIP_ONBOARDING", "1"),
        ("FX_SOUND", "0"),
        // The person's own file is hidden, and git stops at a file it cannot read.
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("NPM_CONFIG_USERCONFIG", "/dev/null"),
    ],
    // Of a gateway of its own, which is no login of these vendors.
    keys: &[],
    parts: &[".fx/bin"],
    doors: &[],
    home: HOME,
};

const HOME: Home = Home {
    variable: None,
    folder: ".fx",
    file: "",
    each: false,
    fields: &["version", "access_token", "refresh_token", "expires_at_ms", "account_id"],
    tokens: &["/access_token", "/refresh_token"],
    account: &["/account_id"],
    refresh: "/refresh_token",
    refreshed: &["/access_token", "/refresh_token", "/expires_at_ms"],
    later: "/expires_at_ms",
    lock: None,
    beside: None,
    keychain: false,
};

/// A reader of one run's output.
#[must_use]
pub fn reader() -> Box<dyn Reader> {
    Box::new(outcome::Output::default())
}

/// The model that the person chose for a lane in their own settings of it.
#[must_use]
pub fn chosen_model(lane: &str, settings: &Value) -> Option<String> {
    settings[model_key(lane)].as_str().filter(|model| !model.is_empty()).map(str::to_owned)
}

/// The settings of a run: which login, and which model. It takes no other of them from there.
#[must_use]
pub fn settings(lane: &str, model: &str) -> Value {
    json!({ "provider": lane, model_key(lane): model, "auto_upgrade": false })
}

fn model_key(lane: &str) -> String {
    format!("{lane}_model")
}

fn codex_login(code: Option<i32>, stdout: &str, stderr: &str) -> Login {
    login("a ChatGPT login, through fx", code, stdout, stderr)
}

fn grok_login(code: Option<i32>, stdout: &str, stderr: &str) -> Login {
    login("a Grok login, through fx", code, stdout, stderr)
}

/// Reads the answer to `fx status --json`: exit 0 with or without a login. It lists its logins only
/// where it uses one of these vendors itself, so that the file of the login tells more: it is asked
/// nothing but whether it is the agent. It cannot say so where its own vendor has no model.
fn login(detail: &str, code: Option<i32>, stdout: &str, stderr: &str) -> Login {
    let answer: Value = serde_json::from_str(stdout.trim()).unwrap_or_default();
    if code == Some(0) && answer["kind"] == "status" {
        return Login::Ready { detail: detail.to_owned() };
    }
    let said = if stderr.trim().is_empty() { stdout } else { stderr };
    Login::unclear("fx status", code, said)
}

/// The version in what `fx --version` prints: `fx 0.0.5`, or the number alone.
fn version(stdout: &str) -> Option<String> {
    let words = stdout.lines().next()?.split_whitespace();
    let number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let word = words.map(|word| word.trim_start_matches('v')).find(|word| number(word))?;
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_it_is_the_agent() {
        let missing = r#"{"kind":"status","model":"moonshotai/kimi-k3","update_channel":"stable","auth":"missing","auth_refreshable":false,"auth_help":"Fx needs access to Vercel AI Gateway.","permission_mode":"auto","workspace":"/w","history_turns":0}"#;
        let used = r#"{"kind":"status","model":"gpt-5.4-mini","auth":"Codex subscription","connected_providers":["codex"]}"#;
        for stdout in [missing, used] {
            let detail = "a ChatGPT login, through fx".to_owned();
            assert_eq!((CODEX.login)(Some(0), stdout, ""), Login::Ready { detail });
            let detail = "a Grok login, through fx".to_owned();
            assert_eq!((GROK.login)(Some(0), stdout, ""), Login::Ready { detail });
        }
        let unclear = |code, stdout: &str, stderr: &str| match (CODEX.login)(code, stdout, stderr) {
            Login::Unclear { detail } => detail,
            other => panic!("{other:?}"),
        };
        // The viewer of JSON that npm has under this name.
        let viewer = "open status: no such file or directory";
        assert_eq!(unclear(Some(1), "", viewer), format!("`fx status` said (code 1): {viewer}"));
        assert_eq!(unclear(Some(0), "{}", ""), "`fx status` said (code 0): {}");
        assert!(unclear(Some(1), missing, "").contains("code 1"));
        assert_eq!(unclear(None, "", ""), "`fx status` said nothing (no code)");
    }

    #[test]
    fn versions() {
        for (said, number) in
            [("fx 0.0.5\n", "0.0.5"), ("0.0.12", "0.0.12"), ("fx v1.2.3", "1.2.3")]
        {
            assert_eq!(version(said).as_deref(), Some(number));
        }
        assert_eq!(version("fx"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn a_run_is_told_which_login_and_which_model() {
        let persons = json!({"provider":"gateway","model":"a/b","codex_model":"gpt-5.4-mini"});
        assert_eq!(chosen_model("codex", &persons).as_deref(), Some("gpt-5.4-mini"));
        assert_eq!(chosen_model("grok", &persons), None);
        assert_eq!(chosen_model("codex", &json!({"codex_model": ""})), None);
        assert_eq!(chosen_model("codex", &Value::Null), None);
        let settings = settings("grok", "grok-4.6");
        assert_eq!(settings["provider"], "grok");
        assert_eq!(settings["grok_model"], "grok-4.6");
    }
}
