//! Claude Code's settings document: the only settings a run sees, given by `--settings` beside an
//! empty `--setting-sources`.
//!
//! Its sandbox wraps the commands of the agent, not its own file tools, so each hidden path is
//! denied twice. What the numbers and switches do was measured with the program, 2.1.332.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::domains;

/// What the document depends on.
#[derive(Clone, Copy, Debug)]
pub struct ClaudeSettings<'a> {
    /// The home of the user the lane runs as.
    pub home: &'a Path,
    /// relay's own folder. All of it is hidden but the lane's copy, wherever it is.
    pub relay_home: &'a Path,
    /// The lane's copy of the repository.
    pub workdir: &'a Path,
    /// Hosts beside the usual ones, as [`crate::parse_domains`] read them.
    pub extra_domains: &'a [String],
    /// Whether commands run in the sandbox. `false` leaves the rules for the file tools.
    pub sandbox: bool,
}

/// Names with which the sandbox covers the top of the copy while a command runs: character
/// devices where there is no such file, so that a command cannot plant one. Git sees them and
/// `git add --all` fails on them, so they belong on the copy's exclude list.
pub const STUBS: &[&str] = &[
    "/.bash_profile",
    "/.bashrc",
    "/.claude",
    "/.gitconfig",
    "/.gitmodules",
    "/.idea",
    "/.mcp.json",
    "/.profile",
    "/.ripgreprc",
    "/.vscode",
    "/.zprofile",
    "/.zshrc",
];

/// Folders in the home that commands may write: the stores and caches of pnpm and npm. One that
/// is not there cannot be made from inside the sandbox.
pub const STORES: &[&str] = &[
    ".npm",
    ".local/share/pnpm",
    ".local/state/pnpm",
    ".cache/pnpm",
    "Library/pnpm",
    "Library/Caches/pnpm",
];

/// What is hidden in the home: logins, keys, and what the vendors' programs read at their start.
const HIDDEN: &[&str] = &[
    ".harness",
    ".claude",
    ".claude.json",
    ".codex",
    ".grok",
    ".fx",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".gitconfig",
    ".git-credentials",
    ".password-store",
    ".bash_history",
    ".zsh_history",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".terraform.d",
    ".config/containers",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/op",
    ".config/rclone",
    ".config/relay",
    ".config/systemd",
    ".local/share/keyrings",
    "Library/Keychains",
    "Library/LaunchAgents",
];

/// What stands in relay's own folder. The file tools are kept off each by name, because a rule
/// for the folder would cover the lane's copy inside it too.
const IN_RELAY_HOME: &[&str] = &[
    "cache",
    "config.json",
    "credentials.json",
    "kept",
    "lanes",
    "logs",
    "relay.db",
    "relay.db-shm",
    "relay.db-wal",
    "relay.lock",
    "relay.sock",
    "runs",
    "work.log",
];

/// Variables that commands never see, even where the program itself was given them.
const HIDDEN_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "XAI_API_KEY",
    "AI_GATEWAY_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GITHUB_APP_TOKEN",
    "RELAY_TOKEN",
    "RELAY_GITHUB_TOKEN",
    "DATABASE_URL",
    "S3_ACCESS_KEY_ID",
    "S3_SECRET_ACCESS_KEY",
];

/// The settings document of one run.
#[must_use]
pub fn claude_settings(settings: &ClaudeSettings<'_>) -> Value {
    let mut document = json!({ "permissions": permissions(settings) });
    if settings.sandbox {
        document["sandbox"] = sandbox(settings);
    }
    document
}

fn permissions(settings: &ClaudeSettings<'_>) -> Value {
    let deny: Vec<String> = tool_denied(settings)
        .iter()
        .flat_map(|path| {
            let path = path.display();
            // Two slashes: from the root of the file system.
            ["Read", "Edit"].map(|tool| [format!("{tool}(/{path})"), format!("{tool}(/{path}/**)")])
        })
        .flatten()
        .collect();
    json!({
        "deny": deny,
        "disableBypassPermissionsMode": "disable",
        // Keeps the reading tools, and commands that name a path, inside the copy. By itself it
        // also hides the whole home from every command's children, toolchains included:
        // `allowRead` gives that back.
        "blockReadsOutsideWorkingDirectories": true,
        "blockWritesOutsideWorkingDirectories": true,
    })
}

fn sandbox(settings: &ClaudeSettings<'_>) -> Value {
    let stores: Vec<PathBuf> = STORES.iter().map(|store| settings.home.join(store)).collect();
    let variables: Vec<Value> =
        HIDDEN_VARIABLES.iter().map(|name| json!({ "name": name, "mode": "deny" })).collect();
    json!({
        "enabled": true,
        // Without a sandbox the program exits before it does anything.
        "failIfUnavailable": true,
        "allowUnsandboxedCommands": false,
        // With `true` every command that runs boxed is allowed, named or not.
        "autoAllowBashIfSandboxed": false,
        "excludedCommands": [],
        "network": {
            "allowedDomains": domains(settings.extra_domains),
            "strictAllowlist": true,
            "allowLocalBinding": true,
            "allowAllUnixSockets": false,
        },
        "filesystem": {
            "allowWrite": stores,
            "denyRead": hidden(settings),
            "allowRead": [settings.home, settings.workdir],
        },
        "credentials": { "envVars": variables },
    })
}

/// What commands cannot read; the copy inside it is given back by `allowRead`.
fn hidden(settings: &ClaudeSettings<'_>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = HIDDEN.iter().map(|path| settings.home.join(path)).collect();
    if !paths.contains(&settings.relay_home.to_owned()) {
        paths.push(settings.relay_home.to_owned());
    }
    paths
}

/// What the file tools cannot touch: the same, but never a folder that holds the copy.
fn tool_denied(settings: &ClaudeSettings<'_>) -> Vec<PathBuf> {
    let mut paths = hidden(settings);
    paths.retain(|path| !settings.workdir.starts_with(path));
    if settings.workdir.starts_with(settings.relay_home) {
        paths.extend(IN_RELAY_HOME.iter().map(|name| settings.relay_home.join(name)));
    }
    paths
}
