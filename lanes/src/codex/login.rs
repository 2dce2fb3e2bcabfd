//! Whether the program is there and logged in.

use crate::Login;

/// Reads the answer to `codex login status`: words on standard error, exit 0 with a login, 1
/// without. It needs no network, and only says that a login is stored.
#[must_use]
pub fn login(code: Option<i32>, stdout: &str, stderr: &str) -> Login {
    let mut lines = stderr.lines().chain(stdout.lines()).map(str::trim);
    let said = lines.find(|line| line.contains("ogged in") || line.starts_with("API key"));
    match (code, said) {
        (Some(0), Some(line)) if line.starts_with("Logged in using ") => {
            let kind = line.trim_start_matches("Logged in using ").trim_end_matches('.');
            // An older version shows the end of the key behind a dash.
            let kind = kind.split(" - ").next().unwrap_or(kind);
            Login::Ready { detail: format!("a login by {kind}") }
        }
        // The line goes on with a part of the key.
        (Some(0), Some(line)) if line.starts_with("API key") => {
            Login::Ready { detail: "an API key".to_owned() }
        }
        (Some(1), Some(line)) if line.starts_with("Not logged in") => {
            Login::NotLoggedIn { detail: "run `codex login` as this user".to_owned() }
        }
        _ => {
            let said = if stderr.trim().is_empty() { stdout } else { stderr };
            let said: Vec<&str> =
                said.lines().filter(|line| !line.starts_with("WARNING:")).collect();
            Login::unclear("codex login status", code, &said.join(" "))
        }
    }
}

/// The version in what `codex --version` prints: `codex-cli 0.171.0`.
#[must_use]
pub fn version(stdout: &str) -> Option<String> {
    let word = stdout.lines().next()?.strip_prefix("codex-cli ")?.trim();
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(detail: &str) -> Login {
        Login::Ready { detail: detail.to_owned() }
    }

    #[test]
    fn the_words_are_on_standard_error() {
        assert_eq!(login(Some(0), "", "Logged in using ChatGPT\n"), ready("a login by ChatGPT"));
        let key = "API key configured - dummy-op***67890\n\
                   Authentication is checked when you send a request.\n";
        assert_eq!(login(Some(0), "", key), ready("an API key"), "no part of the key is shown");
        let warned = "WARNING: proceeding, even though we could not create PATH aliases: x\n\
                      Logged in using ChatGPT";
        assert_eq!(login(Some(0), "", warned), ready("a login by ChatGPT"));
        assert!(matches!(login(Some(1), "", "Not logged in\n"), Login::NotLoggedIn { .. }));
    }

    #[test]
    fn both_the_code_and_the_words_must_say_so() {
        for (code, stderr) in [
            (Some(1), "Logged in using ChatGPT"),
            (Some(0), "Not logged in"),
            (None, "Not logged in"),
            (Some(0), ""),
            (Some(2), "error: unrecognized subcommand 'status'"),
        ] {
            assert!(matches!(login(code, "", stderr), Login::Unclear { .. }), "{code:?} {stderr}");
        }
        let Login::Unclear { detail } = login(Some(2), "", "WARNING: x\nerror: no\n") else {
            panic!()
        };
        assert_eq!(detail, "`codex login status` said (code 2): error: no");
    }

    #[test]
    fn versions() {
        assert_eq!(version("codex-cli 0.171.0\n").as_deref(), Some("0.171.0"));
        assert_eq!(version("0.171.0"), None);
        assert_eq!(version(""), None);
    }
}
