//! fx: a program that has logins of other vendors, and so could do the work of their lanes. relay
//! finds it and says what it has, and does not run it.
//!
//! What is here was seen with a program built from its public source of 2026-08-22, which calls
//! itself 0.0.5. A released one was never run.

use serde_json::Value;

use crate::text;

/// Its name on `PATH`. A viewer of JSON has the same.
pub const PROGRAM: &str = "fx";

/// Arguments that make it tell its logins, without asking anybody.
pub const STATUS_ARGS: &[&str] = &["status", "--json"];

/// Why relay does not run it.
pub const REFUSED: &str = "relay does not run fx: it asks no proxy, and a run has no other way out \
                           of its box";

/// The lanes whose vendors it can have a login of.
pub const LANES: &[&str] = &["codex", "grok"];

/// What its answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fx {
    /// It is the agent.
    Agent {
        /// The lanes whose vendors it has a login of.
        logins: Vec<&'static str>,
    },
    /// Something else of that name, or an answer that could not be read.
    Other {
        /// What it said.
        said: String,
    },
}

/// The lanes it could do the work of: its name of the login, its word for the one it uses, the lane.
const LOGINS: [(&str, &str, &str); 2] =
    [("codex", "Codex subscription", "codex"), ("grok", "Grok subscription", "grok")];

/// Reads the answer to `fx status --json`: exit 0 with or without a login. It lists its logins only
/// where it uses one of these vendors, so one that it does not use can be missed.
#[must_use]
pub fn status(code: Option<i32>, stdout: &str, stderr: &str) -> Fx {
    let answer: Value = serde_json::from_str(stdout.trim()).unwrap_or_default();
    if code != Some(0) || answer["kind"] != "status" {
        let said = if stderr.trim().is_empty() { stdout } else { stderr };
        return Fx::Other { said: text::one_line(said, 200) };
    }
    let listed = answer["connected_providers"].as_array();
    let has = |name: &str| listed.is_some_and(|listed| listed.iter().any(|one| one == name));
    let logins = LOGINS.iter().filter(|(name, used, _)| has(name) || answer["auth"] == *used);
    Fx::Agent { logins: logins.map(|(_, _, lane)| *lane).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins(stdout: &str) -> Vec<&'static str> {
        match status(Some(0), stdout, "") {
            Fx::Agent { logins } => logins,
            Fx::Other { said } => panic!("{said}"),
        }
    }

    #[test]
    fn what_it_says_of_its_logins() {
        let missing = r#"{"kind":"status","model":"moonshotai/kimi-k3","update_channel":"stable","auth":"missing","auth_refreshable":false,"auth_help":"Fx needs access to Vercel AI Gateway.","permission_mode":"auto","workspace":"/w","history_turns":0}"#;
        assert_eq!(logins(missing), [""; 0]);
        let codex = r#"{"kind":"status","model":"gpt-5.4-mini","model_source":"Codex subscription","auth":"Codex subscription","connected_providers":["codex"],"auth_refreshable":true}"#;
        assert_eq!(logins(codex), ["codex"]);
        let both = r#"{"kind":"status","auth":"Grok subscription","connected_providers":["codex","grok"]}"#;
        assert_eq!(logins(both), ["codex", "grok"]);
        // Without the list, the one it uses.
        assert_eq!(logins(r#"{"kind":"status","auth":"Grok subscription"}"#), ["grok"]);
        assert_eq!(logins(r#"{"kind":"status","auth":"AI_GATEWAY_API_KEY"}"#), [""; 0]);
    }

    #[test]
    fn another_program_of_that_name_is_told_apart() {
        let other = |code, stdout: &str, stderr: &str| match status(code, stdout, stderr) {
            Fx::Other { said } => said,
            Fx::Agent { logins } => panic!("{logins:?}"),
        };
        let viewer = "open status: no such file or directory";
        assert_eq!(other(Some(1), "", viewer), viewer);
        assert_eq!(other(Some(0), "{}", ""), "{}");
        assert_eq!(other(Some(1), r#"{"kind":"status"}"#, ""), r#"{"kind":"status"}"#);
        assert_eq!(other(None, "", ""), "");
    }
}
