//! The lane of Claude Code: `claude -p`, with the prompt on standard input and its events as JSON
//! lines.
//!
//! The program runs under the login it has in its own home. Pointed elsewhere by
//! `ANTHROPIC_BASE_URL` (a gateway, or a scripted model in a test) it needs that variable and its
//! key in its environment; both are among [`KEY_NAMES`], so they pass only where the operator
//! names them for this lane. Its own network traffic is outside its sandbox, so nothing else has
//! to allow that address.

mod argv;
mod login;
mod outcome;
#[cfg(test)]
mod recorded;
mod stream;
mod usage;
mod when;

pub use argv::{ALLOWED_TOOLS, REFUSED_TOOLS, TOOLS, invocation};
pub use login::{login, version};

use crate::{Beside, Home, Reader, Vendor, known};

/// The model used where the operator names none.
pub const DEFAULT_MODEL: &str = "opus";

/// The program.
pub const VENDOR: Vendor = Vendor {
    lane: "claude",
    program: "claude",
    version_args: &["--version"],
    version,
    measured: "2.1.332",
    known: known::CLAUDE,
    login_args: &["auth", "status", "--json"],
    login,
    install: "npm install -g @anthropic-ai/claude-code",
    log_in: "claude auth login",
    default_model: Some(DEFAULT_MODEL),
    env: ENV,
    keys: KEY_NAMES,
    // One way to install it puts the program into its own home.
    parts: &[".claude/local"],
    doors: &[],
    home: Home {
        variable: Some("CLAUDE_CONFIG_DIR"),
        folder: ".claude",
        file: ".credentials.json",
        each: false,
        // The rest are logins of a person's MCP servers.
        fields: &["claudeAiOauth"],
        account: &[],
        refresh: "/claudeAiOauth/refreshToken",
        tokens: &["/claudeAiOauth/accessToken", "/claudeAiOauth/refreshToken"],
        refreshed: &[
            "/claudeAiOauth/accessToken",
            "/claudeAiOauth/refreshToken",
            "/claudeAiOauth/expiresAt",
        ],
        later: "/claudeAiOauth/expiresAt",
        lock: Some(".oauth_refresh.lock"),
        beside: Some(Beside {
            file: ".claude.json",
            // An account, an API key of the console.
            fields: &[
                "oauthAccount",
                "primaryApiKey",
                "customApiKeyResponses",
                "userID",
                "hasCompletedOnboarding",
            ],
            keys: &["/primaryApiKey"],
            account: &[
                "/oauthAccount/accountUuid",
                "/oauthAccount/organizationUuid",
                "/primaryApiKey",
            ],
        }),
        keychain: true,
    },
};

/// Switches of the program's own that every run has in its environment.
pub const ENV: &[(&str, &str)] = &[
    // No update check, no telemetry, no look-ups: only the model server is contacted.
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    // By default a dead model server takes three minutes to give up.
    ("CLAUDE_CODE_MAX_RETRIES", "6"),
    // The person's own file is hidden, and git stops at a file it cannot read. The names under
    // which the agent commits come from its environment.
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("NPM_CONFIG_USERCONFIG", "/dev/null"),
];

/// Names an operator may allow to pass into this lane's environment. Without that they are left
/// out, so that a run cannot slip onto a key instead of the subscription.
pub const KEY_NAMES: &[&str] =
    &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"];

/// A reader of one run's output.
#[must_use]
pub fn reader() -> Box<dyn Reader> {
    Box::new(stream::Stream::default())
}
