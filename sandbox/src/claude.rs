//! Claude Code's settings document: the only settings a run sees, given by `--settings` beside an
//! empty `--setting-sources`.
//!
//! Its sandbox wraps the commands of the agent, not its own file tools, so each hidden path is
//! denied twice. What the numbers and switches do was measured with the program, 2.1.332.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{domains, hidden_paths};

/// What the document depends on.
#[derive(Clone, Copy, Debug)]
pub struct ClaudeSettings<'a> {
    /// The home of the user the lane runs as.
    pub home: &'a Path,
    /// relay's own folder. All of it is hidden but the lane's copy, wherever it is.
    pub relay_home: &'a Path,
    /// The lane's copy of the repository.
    pub workdir: &'a Path,
    /// Where the environment says that logins are kept instead of their usual places, as
    /// [`crate::moved_logins`] found them.
    pub moved: &'a [PathBuf],
    /// Hosts beside the usual ones, as [`crate::parse_domains`] read them.
    pub extra_domains: &'a [String],
    /// Whether commands run in the sandbox. `false` leaves the rules for the file tools.
    pub sandbox: bool,
}

/// Names with which claude's sandbox covers the top of the copy while a command runs: character
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
    "vendor",
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
    hidden_paths(settings.home, settings.relay_home, settings.moved)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden::HIDDEN;
    use crate::moved_logins;

    fn document(relay_home: &str, workdir: &str) -> Value {
        claude_settings(&ClaudeSettings {
            home: Path::new("/home/ada"),
            relay_home: Path::new(relay_home),
            workdir: Path::new(workdir),
            moved: &[],
            extra_domains: &["host.example".to_owned()],
            sandbox: true,
        })
    }

    fn usual() -> Value {
        document("/home/ada/.harness", "/home/ada/.harness/work/acme_shop_12_ab")
    }

    fn list<'a>(document: &'a Value, pointer: &str) -> Vec<&'a str> {
        let items = document.pointer(pointer).and_then(Value::as_array).unwrap();
        items.iter().map(|item| item.as_str().unwrap()).collect()
    }

    #[test]
    fn a_run_without_a_working_sandbox_cannot_happen() {
        let document = usual();
        for (pointer, expected) in [
            ("/sandbox/enabled", json!(true)),
            ("/sandbox/failIfUnavailable", json!(true)),
            ("/sandbox/allowUnsandboxedCommands", json!(false)),
            ("/sandbox/autoAllowBashIfSandboxed", json!(false)),
            ("/sandbox/excludedCommands", json!([])),
            ("/sandbox/network/strictAllowlist", json!(true)),
            ("/sandbox/network/allowLocalBinding", json!(true)),
            ("/sandbox/network/allowAllUnixSockets", json!(false)),
            ("/permissions/disableBypassPermissionsMode", json!("disable")),
            ("/permissions/blockReadsOutsideWorkingDirectories", json!(true)),
            ("/permissions/blockWritesOutsideWorkingDirectories", json!(true)),
        ] {
            assert_eq!(document.pointer(pointer), Some(&expected), "{pointer}");
        }
        assert_eq!(document.pointer("/permissions/allow"), None, "nothing is allowed here");
        assert!(list(&document, "/sandbox/network/allowedDomains").contains(&"host.example"));
    }

    #[test]
    fn the_documented_paths_are_hidden_from_commands_and_from_the_file_tools() {
        let document = usual();
        let hidden = list(&document, "/sandbox/filesystem/denyRead");
        let denied = list(&document, "/permissions/deny");
        for path in [
            ".claude",
            ".claude.json",
            ".codex",
            ".grok",
            ".fx",
            ".ssh",
            ".aws",
            ".config/gh",
            ".netrc",
            ".npmrc",
            ".gitconfig",
        ] {
            let path = format!("/home/ada/{path}");
            assert!(hidden.contains(&path.as_str()), "{path}");
            for rule in ["Read(/P)", "Read(/P/**)", "Edit(/P)", "Edit(/P/**)"] {
                let rule = rule.replace('P', &path);
                assert!(denied.contains(&rule.as_str()), "{rule}");
            }
        }
        assert!(hidden.contains(&"/home/ada/.harness"));
        assert!(denied.contains(&"Read(//home/ada/.harness/credentials.json)"));
    }

    #[test]
    fn the_copy_stays_open_wherever_relays_folder_is() {
        for (relay_home, workdir) in [
            ("/home/ada/.harness", "/home/ada/.harness/work/acme_shop_12_ab"),
            ("/srv/relay", "/srv/relay/work/acme_shop_12_ab"),
            ("/srv/relay", "/elsewhere/copy"),
        ] {
            let document = document(relay_home, workdir);
            let hidden = list(&document, "/sandbox/filesystem/denyRead");
            assert!(hidden.contains(&relay_home) && hidden.contains(&"/home/ada/.harness"));
            let readable = list(&document, "/sandbox/filesystem/allowRead");
            assert_eq!(readable, ["/home/ada", workdir]);
            for rule in list(&document, "/permissions/deny") {
                let path = rule.split_once("(/").unwrap().1.trim_end_matches(')');
                let path = path.trim_end_matches("/**");
                assert!(!Path::new(workdir).starts_with(path), "{rule} covers the copy");
            }
        }
        let moved = document("/srv/relay", "/srv/relay/work/acme_shop_12_ab");
        assert!(list(&moved, "/permissions/deny").contains(&"Read(//srv/relay/relay.db)"));
        let apart = document("/srv/relay", "/elsewhere/copy");
        assert!(list(&apart, "/permissions/deny").contains(&"Read(//srv/relay/**)"));
    }

    #[test]
    fn only_the_stores_can_be_written_outside_the_copy() {
        assert_eq!(
            list(&usual(), "/sandbox/filesystem/allowWrite"),
            STORES.iter().map(|store| format!("/home/ada/{store}")).collect::<Vec<_>>()
        );
        for store in STORES {
            assert!(!HIDDEN.iter().any(|path| Path::new(store).starts_with(path)), "{store}");
        }
    }

    #[test]
    fn keys_are_taken_out_of_commands() {
        let document = usual();
        let variables = document["sandbox"]["credentials"]["envVars"].as_array().unwrap();
        for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"] {
            assert!(variables.contains(&json!({ "name": name, "mode": "deny" })), "{name}");
        }
    }

    #[test]
    fn without_a_sandbox_the_rules_for_the_file_tools_stay() {
        let document = claude_settings(&ClaudeSettings {
            home: Path::new("/home/ada"),
            relay_home: Path::new("/home/ada/.harness"),
            workdir: Path::new("/home/ada/.harness/work/x"),
            moved: &[],
            extra_domains: &[],
            sandbox: false,
        });
        assert_eq!(document["sandbox"], Value::Null);
        assert_eq!(document["permissions"], usual()["permissions"]);
    }

    #[test]
    fn a_login_is_hidden_where_the_environment_put_it() {
        let moved = [
            ("CLAUDE_CONFIG_DIR", "/srv/claude"),
            ("XDG_CONFIG_HOME", "/srv/config"),
            ("KUBECONFIG", "/srv/one:/srv/two"),
            ("CODEX_HOME", "relative"),
            ("GNUPGHOME", "/home"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ];
        let environment = moved.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let document = claude_settings(&ClaudeSettings {
            home: Path::new("/home/ada"),
            relay_home: Path::new("/home/ada/.harness"),
            workdir: Path::new("/home/ada/.harness/work/x"),
            moved: &moved_logins(&environment),
            extra_domains: &[],
            sandbox: true,
        });
        let hidden = list(&document, "/sandbox/filesystem/denyRead");
        let denied = list(&document, "/permissions/deny");
        for path in ["/srv/claude", "/srv/config/gh", "/srv/one", "/srv/two"] {
            assert!(hidden.contains(&path), "{path}");
            assert!(denied.contains(&&*format!("Read(/{path}/**)")), "{path}");
        }
        for path in ["/srv/config", "relative", "/home", "/dev/null"] {
            assert!(!hidden.contains(&path), "{path}");
        }
    }
}
