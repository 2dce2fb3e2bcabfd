//! The command line of one run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Invocation;

/// The most bytes of a whole run's events, and of one: the output of a command stands in it twice.
const STDOUT_TOTAL: u64 = 64 * 1024 * 1024;
const STDOUT_LINE: usize = 16 * 1024 * 1024;
const STDERR_TOTAL: u64 = 256 * 1024;

/// What is switched off. As settings, not as `--disable`: a later version that no longer knows
/// one passes it over.
const OFF: &[&str] = &[
    // One agent is watched: no others beside it.
    "agents.enabled",
    "analytics.enabled",
    "check_for_update_on_startup",
    // Without a network it would wait for ever, and say so for ever.
    "features.unbounded_connection_retries",
    "features.apps",
    "features.plugins",
    "features.remote_plugin",
    "features.hooks",
    "features.browser_use",
    "features.computer_use",
    "features.image_generation",
    // It would start the person's shell with all that its start files do.
    "features.shell_snapshot",
    "allow_login_shell",
];

/// What is set besides.
const SET: &[&str] = &["approval_policy=\"never\"", "web_search=\"disabled\""];

/// Names that no command of the agent's sees.
const SECRET_NAMES: &[&str] =
    &["*KEY*", "*SECRET*", "*TOKEN*", "*PASSWORD*", "OPENAI_*", "CODEX_HOME"];

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'a> {
    /// The whole prompt.
    pub prompt: &'a str,
    /// The lane's copy of the repository.
    pub workdir: &'a Path,
    /// The vendor's name for the model; without one the program chooses.
    pub model: Option<&'a str>,
    /// What keeps its commands.
    pub sandbox: Sandbox<'a>,
    /// A gateway's address instead of the vendor's.
    pub base_url: Option<&'a str>,
    /// The person's time zone, which commands keep.
    pub zone: Option<&'a str>,
}

/// What keeps the agent's commands.
#[derive(Clone, Copy, Debug)]
pub enum Sandbox<'a> {
    /// The program's own: commands write the copy, temporary files and `writable`.
    Own {
        /// The file of the login, which they cannot read.
        login: &'a Path,
        /// Folders that they write besides.
        writable: &'a [PathBuf],
        /// Whether they have the network that the program has: only where that leads to relay's
        /// proxy alone.
        network: bool,
    },
    /// None: only for a run whose walls keep it from all that its own sandbox would.
    Walls,
}

/// How the program is called for one run.
///
/// The prompt goes in by standard input, so it is in no process list and may have any length.
#[must_use]
pub fn invocation(brief: &Brief<'_>) -> Invocation {
    let mut args: Vec<OsString> = Vec::new();
    let mut flags = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    flags(&["exec", "--json", "--ephemeral", "--ignore-user-config", "--ignore-rules"]);
    flags(&["--skip-git-repo-check", "--color", "never"]);
    if let Some(model) = brief.model {
        flags(&["--model", model]);
    }
    for name in OFF {
        flags(&["-c", &format!("{name}=false")]);
    }
    for setting in SET {
        flags(&["-c", setting]);
    }
    flags(&["-c", &environment(brief.zone)]);
    match brief.sandbox {
        Sandbox::Own { login, writable, network } => {
            flags(&["-c", "default_permissions=\"relay\""]);
            flags(&["-c", &permissions(login, writable, network)]);
        }
        Sandbox::Walls => flags(&["--sandbox", "danger-full-access"]),
    }
    if let Some(url) = brief.base_url {
        flags(&["-c", "model_provider=\"relay\"", "-c", &provider(url)]);
    }
    flags(&["--cd"]);
    args.push(brief.workdir.into());
    args.push("-".into());
    Invocation {
        args,
        stdin: brief.prompt.as_bytes().to_vec(),
        streams_events: true,
        stdout_total: STDOUT_TOTAL,
        stdout_line: STDOUT_LINE,
        stderr_total: STDERR_TOTAL,
        stderr_over_kills: false,
    }
}

/// What its usual sandbox allows, less the login, and with the network where it is given. A profile and the older `--sandbox` exclude each
/// other; a version that knows no profiles runs read-only.
fn permissions(login: &Path, writable: &[PathBuf], network: bool) -> String {
    let mut rules = vec![format!("{}=\"deny\"", quoted(login))];
    rules.extend(writable.iter().map(|folder| format!("{}=\"write\"", quoted(folder))));
    let network = if network { ",network={enabled=true}" } else { "" };
    let rules = rules.join(",");
    format!("permissions.relay={{extends=\":workspace\",filesystem={{{rules}}}{network}}}")
}

/// The environment of commands. The zone is the person's again (see [`super::ENV`]).
fn environment(zone: Option<&str>) -> String {
    let mut names = SECRET_NAMES.to_vec();
    let set = match zone {
        Some(zone) => format!(",set={{TZ={}}}", text(zone)),
        None => {
            names.push("TZ");
            String::new()
        }
    };
    let names: Vec<String> = names.into_iter().map(text).collect();
    format!("shell_environment_policy={{inherit=\"all\",exclude=[{}]{set}}}", names.join(","))
}

/// A gateway that takes the same login. Most speak no WebSocket, which would be tried for seconds.
fn provider(url: &str) -> String {
    format!(
        "model_providers.relay={{name=\"OpenAI\",base_url={},wire_api=\"responses\",\
         requires_openai_auth=true,supports_websockets=false}}",
        text(url)
    )
}

fn quoted(path: &Path) -> String {
    text(&path.to_string_lossy())
}

/// A string of TOML: JSON's escapes are among TOML's.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args<'a>(change: impl FnOnce(&mut Brief<'a>)) -> Vec<String> {
        let mut brief = Brief {
            prompt: "Fix it.",
            workdir: Path::new("/w"),
            model: None,
            sandbox: Sandbox::Own {
                login: Path::new("/h/auth.json"),
                writable: &[],
                network: false,
            },
            base_url: None,
            zone: None,
        };
        change(&mut brief);
        let call = invocation(&brief);
        assert_eq!(call.stdin, b"Fix it.");
        assert!(call.streams_events && !call.stderr_over_kills);
        call.args.into_iter().map(|arg| arg.into_string().unwrap()).collect()
    }

    #[test]
    fn the_command_line() {
        let args = args(|_| {});
        assert_eq!(args[..3], ["exec", "--json", "--ephemeral"]);
        assert_eq!(args[args.len() - 3..], ["--cd", "/w", "-"]);
        for word in ["--ignore-user-config", "--ignore-rules", "--skip-git-repo-check"] {
            assert!(args.iter().any(|arg| arg == word), "{word}");
        }
        for setting in [
            "agents.enabled=false",
            "features.unbounded_connection_retries=false",
            "approval_policy=\"never\"",
            "default_permissions=\"relay\"",
            "permissions.relay={extends=\":workspace\",filesystem={\"/h/auth.json\"=\"deny\"}}",
            "shell_environment_policy={inherit=\"all\",exclude=[\"*KEY*\",\"*SECRET*\",\
             \"*TOKEN*\",\"*PASSWORD*\",\"OPENAI_*\",\"CODEX_HOME\",\"TZ\"]}",
        ] {
            let at = args.iter().position(|arg| arg == setting);
            let at = at.unwrap_or_else(|| panic!("{setting} is not in {args:?}"));
            assert_eq!(args[at - 1], "-c");
        }
        for word in ["--model", "--sandbox", "model_provider=\"relay\""] {
            assert!(!args.iter().any(|arg| arg == word), "{word}");
        }
        assert!(!args.iter().any(|arg| arg.contains("Fix it.")), "the prompt is not an argument");
    }

    #[test]
    fn what_a_run_may_have_besides() {
        let folders = [PathBuf::from("/home/a\"b/.npm")];
        let own =
            Sandbox::Own { login: Path::new("/h/auth.json"), writable: &folders, network: true };
        let args = args(|brief| {
            brief.model = Some("gpt-9");
            brief.sandbox = own;
            brief.base_url = Some("http://gate.example/v1");
            brief.zone = Some("Europe/Vienna");
        });
        let line = args.join(" ");
        assert!(line.contains("--model gpt-9"), "{line}");
        let rule = r#""/home/a\"b/.npm"="write"},network={enabled=true}}"#;
        assert!(line.contains(rule), "{line}");
        assert!(line.contains(r#"base_url="http://gate.example/v1""#), "{line}");
        assert!(line.contains(r#"set={TZ="Europe/Vienna"}"#) && !line.contains(r#","TZ"]"#));
    }

    #[test]
    fn without_its_sandbox_it_has_no_profile() {
        let args = args(|brief| brief.sandbox = Sandbox::Walls);
        let at = args.iter().position(|arg| arg == "--sandbox").unwrap();
        assert_eq!(args[at + 1], "danger-full-access");
        assert!(!args.iter().any(|arg| arg.contains("permissions")), "{args:?}");
    }
}
