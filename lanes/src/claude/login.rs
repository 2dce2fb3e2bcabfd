//! Whether the program is there and logged in.

use serde_json::Value;

use crate::Login;

/// Reads the answer to `claude auth status --json`: exit 0 with a login, 1 without. It needs no
/// network, and only says that a login is stored: an expired one counts too.
#[must_use]
pub fn login(code: Option<i32>, stdout: &str, stderr: &str) -> Login {
    let answer: Value = serde_json::from_str(stdout.trim()).unwrap_or_default();
    let word = |key: &str| answer[key].as_str().unwrap_or_default();
    match (code, answer["loggedIn"].as_bool()) {
        (Some(0), Some(true)) => {
            let how = match word("authMethod") {
                "claude.ai" => match word("subscriptionType") {
                    "" => "a claude.ai login".to_owned(),
                    plan => format!("a claude.ai login ({plan})"),
                },
                "api_key" => "an API key".to_owned(),
                "oauth_token" => "a token from its environment".to_owned(),
                "third_party" => format!("another provider ({})", word("apiProvider")),
                "" => "a login of unknown kind".to_owned(),
                other => other.to_owned(),
            };
            Login::Ready { detail: how }
        }
        (Some(_), Some(false)) => {
            Login::NotLoggedIn { detail: "run `claude auth login` as this user".to_owned() }
        }
        _ => {
            let said = if stderr.trim().is_empty() { stdout } else { stderr };
            Login::unclear("claude auth status", code, said)
        }
    }
}

/// The version in what `claude --version` prints: `2.1.332 (Claude Code)`.
#[must_use]
pub fn version(stdout: &str) -> Option<String> {
    let word = stdout.split_whitespace().next()?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_LOGGED_IN: &str = r#"{"loggedIn":false,"authMethod":"none","apiProvider":"firstParty","analyticsDisabled":false,"loginExpiresAt":null,"consoleProfileSignInOffered":true}"#;

    #[test]
    fn both_the_code_and_the_answer_must_say_so() {
        let ready = r#"{"loggedIn":true,"authMethod":"claude.ai","subscriptionType":"max"}"#;
        assert_eq!(
            login(Some(0), ready, ""),
            Login::Ready { detail: "a claude.ai login (max)".to_owned() }
        );
        assert!(matches!(login(Some(1), NOT_LOGGED_IN, ""), Login::NotLoggedIn { .. }));
        assert!(matches!(login(Some(0), NOT_LOGGED_IN, ""), Login::NotLoggedIn { .. }));
        for (code, stdout) in [
            (Some(1), ready),
            (None, ready),
            (None, NOT_LOGGED_IN),
            (Some(0), "true"),
            (Some(0), ""),
        ] {
            assert!(matches!(login(code, stdout, ""), Login::Unclear { .. }), "{code:?} {stdout}");
        }
    }

    #[test]
    fn each_kind_of_login_is_named() {
        for (fields, kind) in [
            (r#""authMethod":"claude.ai""#, "a claude.ai login"),
            (r#""authMethod":"api_key","apiKeySource":"ANTHROPIC_API_KEY""#, "an API key"),
            (r#""authMethod":"oauth_token""#, "a token from its environment"),
            (r#""authMethod":"third_party","apiProvider":"bedrock""#, "another provider (bedrock)"),
            (r#""authMethod":"later""#, "later"),
            (r#""email":"ann@host.example""#, "a login of unknown kind"),
        ] {
            let answer = format!(r#"{{"loggedIn":true,{fields}}}"#);
            let ready = Login::Ready { detail: kind.to_owned() };
            assert_eq!(login(Some(0), &answer, ""), ready, "{fields}");
        }
    }

    #[test]
    fn an_unclear_answer_is_shown() {
        assert_eq!(
            login(Some(1), "", "error: unknown command 'auth'\n"),
            Login::Unclear {
                detail: "`claude auth status` said (code 1): error: unknown command 'auth'"
                    .to_owned()
            }
        );
    }

    #[test]
    fn versions() {
        assert_eq!(version("2.1.332 (Claude Code)\n").as_deref(), Some("2.1.332"));
        assert_eq!(version("Welcome"), None);
        assert_eq!(version(""), None);
    }
}
