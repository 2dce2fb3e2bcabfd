//! A running GitHub-like bench (scripts/bench-github) of the test's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use relay::forge::github::{GitHub, GitHubConfig, TIME_OUT};
use relay::model::Secret;
use relay::system::SystemClock;
use serde_json::Value;

use super::full::skip;

/// Ends with the test.
pub struct Bench {
    dir: PathBuf,
    run: tempfile::TempDir,
    /// Base of REST and of git.
    pub url: String,
}

impl Bench {
    /// Starts one from the folder that RELAY_TEST_BENCH names, or skips the test.
    #[expect(clippy::disallowed_methods, reason = "where the bench lies is the caller's to say")]
    pub fn start() -> Option<Self> {
        let Some(dir) = std::env::var_os("RELAY_TEST_BENCH").map(PathBuf::from) else {
            skip("RELAY_TEST_BENCH names no folder made by scripts/bench-github/setup");
            return None;
        };
        let run = tempfile::tempdir().unwrap();
        let state = run.path().join("bench");
        let output = Command::new(dir.join("start"))
            .arg(&state)
            .env("WATCH", std::process::id().to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let url = said.lines().find_map(|line| line.strip_prefix("RELAY_BENCH_URL="));
        Some(Self { dir, url: url.unwrap().to_owned(), run })
    }

    /// The bare repository of acme/shop.
    pub fn repository(&self) -> PathBuf {
        self.state().join("git/acme/shop.git")
    }

    /// What relay uses, logged in with `token` (`ghp_acme`, `ghp_relay_bot`, `ghp_stranger`).
    pub fn as_seen_with(&self, token: &str) -> GitHub {
        GitHub::new(GitHubConfig {
            // As an Enterprise server is reached.
            api_base: format!("{}/api/v3", self.url),
            token: Secret::new(token),
            clock: Arc::new(SystemClock),
            time_out: TIME_OUT,
            gate: Arc::default(),
        })
        .unwrap()
    }

    /// A person's own request; the answer has to be a success.
    pub async fn rest(&self, token: &str, method: &str, path: &str, body: Value) -> Value {
        // The first to need it in this process installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client
            .request(method.parse().unwrap(), format!("{}/repos/acme/shop/{path}", self.url))
            .bearer_auth(token)
            .json(&body);
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Runs git in `folder` as the person with `token`; whether it went well, and what it said.
    #[expect(clippy::disallowed_methods, reason = "a person's git, not relay's")]
    pub fn git(&self, token: &str, folder: &Path, args: &[&str]) -> (bool, String) {
        let host = self.url.strip_prefix("http://").unwrap();
        let rewrite = format!("url.http://x-access-token:{token}@{host}/.insteadOf=bench:");
        let output = Command::new("git")
            .args(["-c", &rewrite, "-c", "user.name=P", "-c", "user.email=p@example.com"])
            .args(["-c", "credential.helper="])
            .args(args)
            .current_dir(folder)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("TZ", "UTC")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn state(&self) -> PathBuf {
        self.run.path().join("bench")
    }
}

impl Drop for Bench {
    #[expect(clippy::disallowed_methods, reason = "what was started is ended")]
    fn drop(&mut self) {
        let _ = Command::new(self.dir.join("stop")).arg(self.state()).status();
    }
}
