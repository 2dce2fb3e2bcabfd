//! The lane of Codex: `codex exec`, with the prompt on standard input and its events as JSON lines.
//!
//! The person's own settings are not read, so what a run is allowed stands on its command line.
//! Commands run in Codex's own sandbox: they write the copy and temporary files, reach what relay's
//! proxy leads to and nothing where there is none, and see neither the login's file nor a key of the environment.

mod argv;
mod login;
mod outcome;
#[cfg(test)]
mod recorded;
mod stream;
mod usage;
mod when;

pub use argv::{Brief, Sandbox, invocation};
pub use login::{login, version};

use crate::{Home, Reader, Vendor, known};

/// The program.
pub const VENDOR: Vendor = Vendor {
    lane: "codex",
    program: "codex",
    version_args: &["--version"],
    version,
    measured: "0.171.0",
    known: known::CODEX,
    login_args: &["login", "status"],
    login,
    install: "npm install -g @openai/codex",
    log_in: "codex login",
    // Its own choice follows the login: a plan may have no other.
    default_model: None,
    env: ENV,
    keys: KEY_NAMES,
    // Its installer puts the program into its own home.
    parts: &[".codex/packages", ".codex/bin"],
    doors: &[],
    home: Home {
        variable: Some("CODEX_HOME"),
        folder: ".codex",
        file: "auth.json",
        each: false,
        fields: &["auth_mode", "OPENAI_API_KEY", "tokens", "last_refresh"],
        account: &["/tokens/account_id", "/OPENAI_API_KEY"],
        refresh: "/tokens/refresh_token",
        tokens: &[
            "/OPENAI_API_KEY",
            "/tokens/id_token",
            "/tokens/access_token",
            "/tokens/refresh_token",
        ],
        refreshed: &[
            "/tokens/id_token",
            "/tokens/access_token",
            "/tokens/refresh_token",
            "/last_refresh",
        ],
        later: "/last_refresh",
        lock: None,
        beside: None,
        keychain: false,
    },
};

/// What every run and probe has in its environment.
pub const ENV: &[(&str, &str)] = &[
    // It tells the end of a usage limit as a time of day without a zone: this makes it a known one.
    ("TZ", "UTC"),
    // The person's own file is hidden, and git stops at a file it cannot read.
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("NPM_CONFIG_USERCONFIG", "/dev/null"),
];

/// The name of a gateway's address, used where the operator lets it through to vendors' lanes:
/// the person's own settings, which could name one, are not read.
pub const BASE_URL: &str = "OPENAI_BASE_URL";

/// Names an operator may allow to pass into this lane's environment.
pub const KEY_NAMES: &[&str] = &["OPENAI_API_KEY", "CODEX_API_KEY", BASE_URL];

/// A reader of one run's output. The events do not tell the model, so it is told here.
#[must_use]
pub fn reader(model: Option<&str>) -> Box<dyn Reader> {
    Box::new(stream::Stream::new(model))
}
