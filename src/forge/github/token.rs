//! Where a token comes from: the one given to relay, else the one `gh` keeps.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;

use super::accounts::Source;
use crate::model::Secret;
use crate::process::{self, Limits, Output, Program, WORKS_FOR, own_mark};

/// `gh` asks a keyring at most; one that waits for a person is given up.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(15), stdout: 64 * 1024, stderr: 8 * 1024 };
/// What `gh` needs of the caller's environment to find its login, and nothing else.
pub const GH_ENV: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LANG",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "GH_CONFIG_DIR",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
    "SSL_CERT_FILE",
];

/// The logins of the person who runs relay.
#[derive(Clone)]
pub struct PersonsLogin {
    /// RELAY_GITHUB_TOKEN, and the host it belongs to: it is sent to no other.
    pub given: Option<(String, Secret)>,
    /// The `gh` program, where it is installed.
    pub gh: Option<PathBuf>,
    /// The environment relay was started with; `gh` gets a few names of it.
    pub env: BTreeMap<OsString, OsString>,
}

impl fmt::Debug for PersonsLogin {
    /// Without the environment: it may hold keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersonsLogin").field("gh", &self.gh).finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for PersonsLogin {
    async fn token(&self, host: &str) -> Option<Secret> {
        match &self.given {
            Some((given_for, token)) if given_for.eq_ignore_ascii_case(host) => Some(token.clone()),
            _ => token(self.gh.as_deref(), &self.env, host).await,
        }
    }
}

/// The token that `gh` keeps for `host`. No program, no login and a program that fails are all
/// "none"; [`status`] tells them apart.
pub async fn token(
    gh: Option<&Path>,
    env: &BTreeMap<OsString, OsString>,
    host: &str,
) -> Option<Secret> {
    let output = ask(gh?, env, &["auth", "token", "--hostname", host]).await.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let token = text.trim();
    let usable =
        output.code == Some(0) && !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic());
    usable.then(|| Secret::new(token))
}

/// One login that `gh` knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GhLogin {
    /// The forge's host.
    pub host: String,
    /// The login.
    pub login: String,
    /// Whether `gh` would use it.
    pub active: bool,
    /// `None` where it works, else what is wrong in `gh`'s words.
    pub error: Option<String>,
}

/// Every login that `gh` knows, for doctor. `gh` contacts each host to try it.
///
/// # Errors
/// A text for a person: the program could not be run, or its answer not be read (`gh` older than
/// 2.81 has no `--json` here).
pub async fn status(gh: &Path, env: &BTreeMap<OsString, OsString>) -> Result<Vec<GhLogin>, String> {
    // Its exit code is 0 whatever it found.
    let output = ask(gh, env, &["auth", "status", "--json", "hosts"]).await?;
    read_status(&output.stdout).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: String = said.trim().chars().take(200).collect();
        format!("`gh auth status --json hosts` gave no answer that can be read: {said}")
    })
}

async fn ask(
    gh: &Path,
    env: &BTreeMap<OsString, OsString>,
    args: &[&str],
) -> Result<Output, String> {
    let fixed =
        [("GH_TELEMETRY", "0"), ("GH_NO_UPDATE_NOTIFIER", "1"), ("GH_PROMPT_DISABLED", "1")];
    let program = Program {
        path: gh.to_owned(),
        args: args.iter().map(OsString::from).collect(),
        env: GH_ENV
            .iter()
            .filter_map(|name| {
                Some((OsString::from(name), env.get(&OsString::from(name))?.clone()))
            })
            .chain(fixed.map(|(name, value)| (name.into(), value.into())))
            .chain(own_mark().map(|mark| (WORKS_FOR.into(), mark)))
            .collect(),
        cwd: PathBuf::from("/"),
        stdin: Vec::new(),
    };
    process::run(&program, &LIMITS).await.map_err(|e| e.to_string())
}

fn read_status(json: &[u8]) -> Option<Vec<GhLogin>> {
    #[derive(Deserialize)]
    struct Status {
        hosts: BTreeMap<String, Vec<Entry>>,
    }
    #[derive(Deserialize)]
    struct Entry {
        state: String,
        #[serde(default)]
        error: Option<String>,
        #[serde(default)]
        active: bool,
        #[serde(default)]
        login: String,
    }
    let status: Status = serde_json::from_slice(json).ok()?;
    let read = |(host, entries): (String, Vec<Entry>)| {
        entries.into_iter().map(move |entry| GhLogin {
            host: host.clone(),
            login: entry.login,
            active: entry.active,
            error: (entry.state != "success")
                .then(|| entry.error.filter(|e| !e.is_empty()).unwrap_or(entry.state)),
        })
    };
    Some(status.hosts.into_iter().flat_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_counts_and_not_the_exit_code() {
        assert_eq!(read_status(br#"{"hosts":{}}"#), Some(Vec::new()));
        let json = br#"{"hosts":{"github.com":[
            {"state":"success","active":true,"host":"github.com","login":"mona"},
            {"state":"error","error":"the token is invalid","active":false,"login":"old"}]}}"#;
        let logins = read_status(json).unwrap();
        assert_eq!((logins[0].login.as_str(), &logins[0].error), ("mona", &None));
        assert_eq!(logins[1].error.as_deref(), Some("the token is invalid"));
        assert_eq!(read_status(b"unknown flag: --json"), None);
    }

    async fn gh(dir: &Path, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.join("gh");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // A child that another test is just starting may still hold the file open for writing.
        while ask(&path, &BTreeMap::new(), &["probe"]).await.is_err_and(|e| e.contains("busy")) {}
        path
    }

    #[tokio::test]
    async fn the_token_of_gh_is_asked_by_host() {
        let dir = tempfile::tempdir().unwrap();
        let env = BTreeMap::from([
            ("HOME".into(), dir.path().into()),
            ("RELAY_SITE_TOKEN".into(), "not-for-gh".into()),
        ]);
        let gh = gh(
            dir.path(),
            r#"test "$GH_TELEMETRY" = 0 && test -z "$RELAY_SITE_TOKEN" && test -n "$HOME" || exit 3
               test "$*" = "auth token --hostname ghe.example" && echo gho_one || exit 1"#,
        )
        .await;
        let login = PersonsLogin {
            given: Some(("github.com".to_owned(), Secret::new("given"))),
            gh: Some(gh),
            env,
        };
        assert_eq!(login.token("github.com").await, Some(Secret::new("given")));
        assert_eq!(login.token("ghe.example").await, Some(Secret::new("gho_one")));
        assert_eq!(login.token("evil.example").await, None, "a given token goes to its own host");
        let without = PersonsLogin { gh: None, ..login };
        assert_eq!(without.token("ghe.example").await, None);
    }

    #[tokio::test]
    async fn a_gh_that_cannot_say_is_told_from_one_without_a_login() {
        let dir = tempfile::tempdir().unwrap();
        let old = gh(dir.path(), "echo 'unknown flag: --json' >&2; exit 1").await;
        let error = status(&old, &BTreeMap::new()).await.unwrap_err();
        assert!(error.contains("unknown flag"), "{error}");
        let none = gh(dir.path(), r#"echo '{"hosts":{}}'"#).await;
        assert_eq!(status(&none, &BTreeMap::new()).await, Ok(Vec::new()));
    }
}
