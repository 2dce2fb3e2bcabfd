//! The lane of Grok: `grok`, with the prompt on standard input and its events as JSON lines.
//!
//! Grok asks before what it was not allowed, and where nobody can answer it gives up the whole run.
//! [`POLICY`] makes each such question a refusal that the model is told, as claude's are. What the
//! commands reach is relay's box alone: Grok's own is switched off.
//!
//! Its login is a table of logins by issuer. Pointed elsewhere (a gateway, a scripted model) it
//! needs the variables of [`KEY_NAMES`], which pass only where the operator names them.

mod argv;
mod login;
mod outcome;
#[cfg(test)]
mod recorded;
mod stream;
mod usage;

pub use argv::{ALLOWED_COMMANDS, Brief, LEFT_OUT, REFUSED_COMMANDS, invocation};
pub use login::{login, version};

use crate::{Home, Reader, Vendor, known};

/// The program.
pub const VENDOR: Vendor = Vendor {
    lane: "grok",
    program: "grok",
    version_args: &["--version"],
    version,
    measured: "1.0.41",
    known: known::GROK,
    login_args: &["models"],
    login,
    install: "npm install -g @xai-official/grok",
    log_in: "grok login",
    // Its own choice follows the login.
    default_model: None,
    env: ENV,
    keys: KEY_NAMES,
    // Its installer puts the program into its own home.
    parts: &[".grok/bin"],
    doors: &[],
    home: Home {
        variable: Some("GROK_HOME"),
        folder: ".grok",
        file: "auth.json",
        each: true,
        fields: &[],
        account: &["/user_id"],
        refresh: "/refresh_token",
        tokens: &["/key", "/refresh_token"],
        refreshed: &["/key", "/refresh_token", "/expires_at"],
        later: "/expires_at",
        lock: None,
        beside: None,
        keychain: false,
    },
};

/// What every run and probe has in its environment.
pub const ENV: &[(&str, &str)] = &[
    // A server that is down or fails: some thirty seconds of trying, then an error. Without the
    // second it tries again for ever and says nothing.
    ("GROK_MAX_RETRIES", "5"),
    ("GROK_TURN_TRANSIENT_RETRY", "0"),
    // Whether it got the list of models, which it says nowhere else: without it every model that a
    // run names is unknown to it.
    (LOG, "xai_grok_shell::agent::remote_config::fetch=warn"),
    // relay's box is the one around it.
    ("GROK_SANDBOX", "off"),
    // A folder nobody trusted: no hooks, servers or skills of the repository's own.
    ("GROK_FOLDER_TRUST", "1"),
    // What it would read of other programs' settings.
    ("GROK_CLAUDE_SKILLS_ENABLED", "0"),
    ("GROK_CLAUDE_RULES_ENABLED", "0"),
    ("GROK_CLAUDE_AGENTS_ENABLED", "0"),
    ("GROK_CLAUDE_MCPS_ENABLED", "0"),
    ("GROK_CLAUDE_HOOKS_ENABLED", "0"),
    ("GROK_CURSOR_SKILLS_ENABLED", "0"),
    ("GROK_CURSOR_RULES_ENABLED", "0"),
    ("GROK_CURSOR_AGENTS_ENABLED", "0"),
    ("GROK_CURSOR_MCPS_ENABLED", "0"),
    ("GROK_CURSOR_HOOKS_ENABLED", "0"),
    ("GROK_CODEX_SKILLS_ENABLED", "0"),
    ("GROK_CODEX_HOOKS_ENABLED", "0"),
    // Tools and calls of a model that no run asked for.
    ("GROK_MANAGED_MCPS_ENABLED", "0"),
    ("GROK_WORKFLOWS", "0"),
    ("GROK_WEB_FETCH", "0"),
    ("GROK_ASK_USER_QUESTION", "0"),
    ("GROK_MEMORY", "0"),
    ("GROK_TURN_SUMMARY", "0"),
    ("GROK_TITLE_REFRESH", "0"),
    ("GROK_FEEDBACK_ENABLED", "0"),
    // The person's own file is hidden, and git stops at a file it cannot read.
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("NPM_CONFIG_USERCONFIG", "/dev/null"),
];

/// Names an operator may allow to pass into this lane's environment. Without that they are left
/// out, so that a run cannot slip onto a key instead of the subscription.
pub const KEY_NAMES: &[&str] = &[
    "XAI_API_KEY",
    "GROK_XAI_API_BASE_URL",
    "XAI_API_BASE_URL",
    "GROK_MODELS_BASE_URL",
    "GROK_CLI_CHAT_PROXY_BASE_URL",
];

/// The variable that names the shell of its commands (1.0.41; the file has to be called as a shell
/// that it knows).
pub const SHELL: &str = "GROK_SHELL";

/// The variable that says what it tells of itself; other programs know it as well.
const LOG: &str = "RUST_LOG";

/// What its commands do not need: the key among [`KEY_NAMES`], where its login is, and what it is to
/// tell of itself.
pub const KEPT_BACK: &[&str] = &["XAI_API_KEY", "GROK_HOME", LOG];

/// The place, below the person's home, of the settings that hold [`POLICY`]: Grok has the mode
/// that refuses what was not allowed beforehand only by claude's file (1.0.41: the same word for
/// `--permission-mode`, in its own settings and in its variables still gives up the run).
pub const POLICY_FOLDER: &str = ".claude";

/// The file in [`POLICY_FOLDER`].
pub const POLICY_FILE: &str = "settings.json";

/// A question is a refusal.
pub const POLICY: &str = r#"{"permissions":{"defaultMode":"dontAsk"}}"#;

/// A reader of one run's output.
#[must_use]
pub fn reader() -> Box<dyn Reader> {
    Box::new(stream::Stream::default())
}
