//! Whether the program is there and logged in.

use crate::Login;

/// Reads the answer to `grok models`. It exits with 0 whether or not there is a login; the first
/// line tells. With a key in its environment it asks the vendor for its models, and does not wait
/// for an answer to say so.
#[must_use]
pub fn login(code: Option<i32>, stdout: &str, stderr: &str) -> Login {
    let first = stdout.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let ready = |detail: &str| Login::Ready { detail: detail.to_owned() };
    let after = |start: &str| first.strip_prefix(start).map(|rest| rest.trim_end_matches('.'));
    if code == Some(0) {
        if first.starts_with("You are not authenticated") || first.contains("deprecated") {
            return Login::NotLoggedIn { detail: "run `grok login` as this user".to_owned() };
        }
        if let Some(whose) = after("You are logged in with ") {
            return ready(&format!("a login of {whose}"));
        }
        if first.contains("XAI_API_KEY") {
            return ready("an API key from its environment");
        }
        if let Some(how) = after("You are authenticated via ") {
            return ready(how);
        }
    }
    let said = if stderr.trim().is_empty() { first } else { stderr };
    Login::unclear("grok models", code, said)
}

/// The version in what `grok --version` prints: `grok 1.0.41 (4220f3b224a6)`.
#[must_use]
pub fn version(stdout: &str) -> Option<String> {
    let word = stdout.strip_prefix("grok ")?.split_whitespace().next()?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODELS: &str =
        "\n\nDefault model: grok-4.6\n\nAvailable models:\n  * grok-4.6 (default)\n  - grok-4.5\n";

    fn read(first: &str) -> Login {
        login(Some(0), &format!("{first}{MODELS}"), "")
    }

    #[test]
    fn the_code_says_nothing_and_the_first_line_all() {
        for (first, detail) in [
            ("You are logged in with grok.com.", "a login of grok.com"),
            ("You are using XAI_API_KEY.", "an API key from its environment"),
            (
                "You are authenticated via XAI_API_KEY (environment variable).",
                "an API key from its environment",
            ),
            ("You are authenticated via deployment key.", "deployment key"),
        ] {
            assert_eq!(read(first), Login::Ready { detail: detail.to_owned() });
        }
        for first in [
            "You are not authenticated.",
            "You are using a deprecated authentication method (WebLogin).",
        ] {
            assert!(matches!(read(first), Login::NotLoggedIn { .. }), "{first}");
        }
    }

    #[test]
    fn what_is_not_known_is_no_login() {
        assert!(matches!(read("Welcome to the new grok!"), Login::Unclear { .. }));
        let ready = "You are logged in with grok.com.";
        for code in [Some(1), None] {
            assert!(matches!(login(code, ready, ""), Login::Unclear { .. }));
        }
        assert_eq!(
            login(Some(2), "", "error: unrecognized subcommand 'models'\n"),
            Login::Unclear {
                detail: "`grok models` said (code 2): error: unrecognized subcommand 'models'"
                    .to_owned()
            }
        );
        assert_eq!(
            login(Some(0), "", ""),
            Login::Unclear { detail: "`grok models` said nothing (code 0)".to_owned() }
        );
    }

    #[test]
    fn versions() {
        assert_eq!(version("grok 1.0.41 (4220f3b224a6)\n").as_deref(), Some("1.0.41"));
        assert_eq!(version("1.0.41"), None);
        assert_eq!(version("grok dev"), None);
    }
}
