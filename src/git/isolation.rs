//! What every git command of the worker is given: an environment written out whole, and a list
//! of settings. Nothing of the machine's or a person's configuration reaches it.
//!
//! The list alone is no protection from a configuration a lane could write (a filter's name is
//! free): relay protects itself by never reading one. The list closes what is left: hooks, the
//! file system monitor, other protocols, redirections, automatic repacking.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Git, GitError, Remote, error};
use crate::model::{Secret, host_name, is_this_machine};
use crate::process::{self, Limits, Output, Program, WORKS_FOR, own_mark};

/// Names of the environment that a machine behind a proxy or with an own certificate authority
/// needs; whoever makes a [`Git`] may hand in these and no others.
pub const NETWORK_ENV: &[&str] = &[
    "HTTPS_PROXY",
    "https_proxy",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
];

/// A command that only reads or writes this disk.
pub(super) const LOCAL: Duration = Duration::from_secs(10 * 60);
/// A question to the remote that has a short answer.
pub(super) const ASK: Duration = Duration::from_secs(60);
/// A transfer; one that stands still ends earlier, by `http.lowSpeedTime`.
pub(super) const TRANSFER: Duration = Duration::from_secs(30 * 60);

/// Bytes of standard output kept. Commands that print a list of paths stay far below it.
const STDOUT: usize = 64 * 1024 * 1024;
const STDERR: usize = 16 * 1024;

const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.askPass=",
    "core.autocrlf=false",
    "core.protectNTFS=true",
    "core.protectHFS=true",
    "credential.helper=",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=false",
    // Bytes a second, and for how many seconds, below which a transfer counts as broken.
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=no",
    "push.recurseSubmodules=no",
    "push.followTags=false",
    "push.gpgSign=false",
    // One pack a fetch: loose objects make the lane's copy slow.
    "fetch.unpackLimit=1",
    "transfer.fsckObjects=true",
    // Old, honest repositories have these flaws in their history, and none of them is a way in:
    // who and when somebody wrote, a mode that git reads as the one it means, a message that goes
    // on behind a zero byte. Refused stay names that lead elsewhere (`.git`, `..`, a slash), trees
    // in which one name is two things, and what runs or misleads a git that reads it
    // (`.gitmodules`, `.gitattributes`).
    "fetch.fsck.badDate=warn",
    "fetch.fsck.badDateOverflow=warn",
    "fetch.fsck.badEmail=warn",
    // A git before 2.38 refuses the mode 100664.
    "fetch.fsck.badFilemode=warn",
    "fetch.fsck.badName=warn",
    "fetch.fsck.badTimezone=warn",
    "fetch.fsck.missingEmail=warn",
    "fetch.fsck.missingNameBeforeEmail=warn",
    "fetch.fsck.missingSpaceBeforeDate=warn",
    "fetch.fsck.missingSpaceBeforeEmail=warn",
    "fetch.fsck.missingTaggerEntry=warn",
    "fetch.fsck.multipleAuthors=warn",
    "fetch.fsck.nulInCommit=warn",
    "fetch.fsck.zeroPaddedDate=warn",
    "fetch.fsck.zeroPaddedFilemode=warn",
];

/// The oldest git that takes settings from its environment (`GIT_CONFIG_COUNT`, 2.31), which is
/// how it is given a token.
pub const OLDEST_GIT: (u32, u32) = (2, 31);

/// One git command of the worker.
pub(super) struct Command<'a> {
    /// git's subcommand, for errors.
    pub name: &'static str,
    /// Everything after the settings: `--git-dir=…`, the subcommand, its arguments.
    pub args: Vec<OsString>,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// Further environment: the index file of a snapshot.
    pub env: Vec<(&'static str, OsString)>,
    /// The remote it talks to, if it does.
    pub remote: Option<&'a Address>,
    /// How long it may run.
    pub time: Duration,
}

impl<'a> Command<'a> {
    /// `git --git-dir=<folder> <name> <args>`, on this disk only.
    pub fn in_repo<S: AsRef<OsStr>>(
        folder: &Path,
        name: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut command = Self::anywhere(name, args);
        command.args.insert(0, joined("--git-dir=", folder));
        command
    }

    /// `git <name> <args>`, in no repository and on this disk only.
    pub fn anywhere<S: AsRef<OsStr>>(
        name: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut all = vec![name.into()];
        all.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        Self { name, args: all, stdin: Vec::new(), env: Vec::new(), remote: None, time: LOCAL }
    }

    /// `git <name> <args>`, where no repository is meant: none is looked for in the working folder
    /// and above it either. A person's home can be a repository, and its settings would have a
    /// say in where the command connects to.
    pub fn nowhere<S: AsRef<OsStr>>(name: &'static str, args: impl IntoIterator<Item = S>) -> Self {
        Self::in_repo(Path::new("/dev/null"), name, args)
    }

    /// The same, talking to `remote` for at most `time`.
    pub fn talking_to(mut self, remote: &'a Address, time: Duration) -> Self {
        self.remote = Some(remote);
        self.time = time;
        self
    }
}

/// Whether both are one server. On this machine a forge's API and its git may have two ports.
fn is_same_host(scheme: &str, host: &str, own: &str) -> bool {
    let port = |authority: &str| {
        let after_v6 = authority.rsplit(']').next().unwrap_or_default();
        let port = after_v6.split_once(':').map(|(_, port)| port.to_owned());
        port.unwrap_or_else(|| if scheme == "http" { "80" } else { "443" }.to_owned())
    };
    host_name(host) == host_name(own) && (is_this_machine(host) || port(host) == port(own))
}

/// A remote that was looked at: what git is told about it.
pub(super) struct Address {
    /// The URL or the canonical path.
    pub url: OsString,
    scheme: &'static str,
    token: Option<Secret>,
    /// A home with a configuration that calls this path safe; only for a path.
    home: Option<PathBuf>,
}

impl Address {
    /// Checks `remote`. `home` is the folder that may be written for a path's configuration.
    pub fn of(remote: &Remote, home: &Path) -> Result<Self, GitError> {
        let bad = |why| GitError::BadRemote { url: without_login(&remote.url), why };
        if remote.url.chars().any(char::is_control) {
            return Err(bad("it holds a control character"));
        }
        if let Some(path) = Path::new(&remote.url).is_absolute().then(|| Path::new(&remote.url)) {
            let path = std::fs::canonicalize(path).map_err(|source| GitError::Repo {
                why: crate::model::RepoProblem::NotFound,
                text: format!("{}: {source}", path.display()),
            })?;
            declare_safe(&path, home)?;
            let home = Some(home.to_owned());
            return Ok(Self { url: path.into(), scheme: "file", token: None, home });
        }
        let (scheme, rest) = if let Some(rest) = remote.url.strip_prefix("https://") {
            ("https", rest)
        } else if let Some(rest) = remote.url.strip_prefix("http://") {
            ("http", rest)
        } else {
            return Err(bad(
                "relay fetches from https:// and http:// addresses and absolute paths",
            ));
        };
        // A `?`, `#` or `\` ends a host for some readers of URLs and not for others.
        let host = rest.split('/').next().unwrap_or_default();
        if host.contains(['?', '#', '\\']) {
            return Err(bad("its host is none"));
        }
        if host.is_empty() {
            return Err(bad("it names no host"));
        }
        if host.contains('@') {
            return Err(bad("a login does not belong in the address"));
        }
        if scheme == "http" && remote.token.is_some() && !is_this_machine(host) {
            return Err(bad("a token is sent over plain http to this machine only"));
        }
        let token = match &remote.token {
            // The URL came from a site or from a repository's settings; whose token it is did not.
            Some(token) if !is_same_host(scheme, host, &token.host) => {
                return Err(bad("the login is for another host"));
            }
            Some(token) => Some(token.token.clone()),
            None => None,
        };
        Ok(Self { url: remote.url.clone().into(), scheme, token, home: None })
    }
}

impl Git {
    /// Runs a command and hands back its output whatever its exit code.
    pub(super) async fn try_run(&self, command: Command<'_>) -> Result<Output, GitError> {
        let settings = &self.settings;
        let home = self.cache().join(".home");
        std::fs::create_dir_all(&home).map_err(GitError::disk(&home))?;
        let mut env = self.environment(&home, command.remote).await?;
        env.extend(command.env.into_iter().map(|(name, value)| (name.into(), value)));
        let mut args: Vec<OsString> = Vec::with_capacity(SETTINGS.len() * 2 + command.args.len());
        for setting in SETTINGS {
            args.extend(["-c".into(), setting.into()]);
        }
        args.extend(command.args);
        let program =
            Program { path: settings.program.clone(), args, env, cwd: home, stdin: command.stdin };
        let limits = Limits { time: command.time, stdout: STDOUT, stderr: STDERR };
        process::run(&program, &limits)
            .await
            .map_err(|source| GitError::Process { command: command.name, source })
    }

    /// Runs a command that has to succeed, and hands back what it printed.
    pub(super) async fn run(&self, command: Command<'_>) -> Result<Vec<u8>, GitError> {
        let name = command.name;
        let output = self.try_run(command).await?;
        if output.code == Some(0) { Ok(output.stdout) } else { Err(GitError::told(name, &output)) }
    }

    /// git's version, such as `2.47.3`.
    ///
    /// # Errors
    /// Where git cannot be run or does not say its version.
    pub async fn version(&self) -> Result<String, GitError> {
        let ask = || async {
            let program = Program {
                path: self.settings.program.clone(),
                args: vec!["version".into()],
                env: vec![
                    ("PATH".into(), self.settings.path_env.clone()),
                    ("LC_ALL".into(), "C".into()),
                ],
                cwd: PathBuf::from("/"),
                stdin: Vec::new(),
            };
            let limits = Limits { time: ASK, stdout: 4096, stderr: 4096 };
            let output = process::run(&program, &limits)
                .await
                .map_err(|source| GitError::Process { command: "version", source })?;
            let text = String::from_utf8_lossy(&output.stdout);
            let version =
                text.strip_prefix("git version ").and_then(|t| t.split_whitespace().next());
            version.map(str::to_owned).ok_or_else(|| GitError::Failed {
                command: "version",
                text: error::text_of(&output),
            })
        };
        self.settings.version.get_or_try_init(ask).await.cloned()
    }

    /// The whole environment of a command.
    async fn environment(
        &self,
        empty_home: &Path,
        remote: Option<&Address>,
    ) -> Result<Vec<(OsString, OsString)>, GitError> {
        let mut env: Vec<(OsString, OsString)> = [
            ("LC_ALL", "C"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", ""),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_PROTOCOL_FROM_USER", "0"),
            // Stands above every protocol setting: what is not listed here is refused.
            ("GIT_ALLOW_PROTOCOL", remote.map_or("none", |remote| remote.scheme)),
        ]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
        env.push(("PATH".into(), self.settings.path_env.clone()));
        // A git before 2.32 does not know GIT_CONFIG_GLOBAL and reads HOME: both say the same.
        let home = remote.and_then(|remote| remote.home.as_deref());
        let global = home.map_or_else(|| "/dev/null".into(), |home| home.join(".gitconfig"));
        env.push(("HOME".into(), home.unwrap_or(empty_home).into()));
        env.push(("GIT_CONFIG_GLOBAL".into(), global.into()));
        // Where this process is killed, a later one ends what it left talking.
        env.extend(own_mark().map(|mark| (WORKS_FOR.into(), mark)));
        if let Some(remote) = remote.filter(|remote| remote.scheme != "file") {
            env.extend(self.settings.network.iter().cloned());
            if let Some(token) = &remote.token {
                let old = is_before_2_31(&self.version().await?);
                env.extend(credential(&remote.url, token, old));
            }
        }
        Ok(env)
    }
}

/// Keeps the names of [`NETWORK_ENV`].
pub(super) fn network(env: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    env.into_iter().filter(|(name, _)| NETWORK_ENV.iter().any(|n| OsStr::new(n) == name)).collect()
}

/// `prefix` and a path as one argument.
pub(super) fn joined(prefix: &str, path: &Path) -> OsString {
    let mut arg = OsString::from(prefix);
    arg.push(path);
    arg
}

/// The token as a header for this one URL, by the environment: it stands in no argument, file or
/// address.
fn credential(url: &OsStr, token: &Secret, before_2_31: bool) -> Vec<(OsString, OsString)> {
    let basic = STANDARD.encode(format!("x-access-token:{}", token.expose()));
    let (mut key, value) = (OsString::from("http."), format!("Authorization: Basic {basic}"));
    key.push(url);
    key.push(".extraHeader");
    if before_2_31 {
        // The variable behind `git -c`, in the quoting that every version reads.
        let setting = format!("{}={value}", key.to_string_lossy()).replace('\'', r"'\''");
        return vec![("GIT_CONFIG_PARAMETERS".into(), format!("'{setting}'").into())];
    }
    vec![
        ("GIT_CONFIG_COUNT".into(), "1".into()),
        ("GIT_CONFIG_KEY_0".into(), key),
        ("GIT_CONFIG_VALUE_0".into(), value.into()),
    ]
}

/// The programs on the other side of a path look at its owner, and take an exception from a
/// configuration file only, not from the environment.
fn declare_safe(path: &Path, home: &Path) -> Result<(), GitError> {
    std::fs::create_dir_all(home).map_err(GitError::disk(home))?;
    let quoted = |path: &Path| {
        let text = path.to_string_lossy().replace('\\', r"\\").replace('"', "\\\"");
        format!("\tdirectory = \"{text}\"\n")
    };
    let text = format!("[safe]\n{}{}", quoted(path), quoted(&path.join(".git")));
    let file = home.join(".gitconfig");
    if std::fs::read(&file).ok().as_deref() != Some(text.as_bytes()) {
        std::fs::write(&file, text).map_err(GitError::disk(&file))?;
    }
    Ok(())
}

pub(super) fn without_login(url: &str) -> String {
    match (url.split_once("://"), url.rfind('@')) {
        (Some((scheme, _)), Some(at)) => format!("{scheme}://{}", &url[at + 1..]),
        _ => url.to_owned(),
    }
}

fn is_before_2_31(version: &str) -> bool {
    numbers(version) < (2, 31)
}

/// `2.47.3 (Apple Git-154)` is (2, 47).
fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split(['.', ' ']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Whether relay works with a git of this version, as [`Git::version`] says it.
#[must_use]
pub fn is_new_enough(version: &str) -> bool {
    numbers(version) >= OLDEST_GIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::HostToken;

    /// With a token for the URL's own host, where there is one.
    fn address(url: &str, token: Option<&str>) -> Result<Address, GitError> {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        address_for(url, token, rest.split('/').next().unwrap_or_default())
    }

    fn address_for(url: &str, token: Option<&str>, host: &str) -> Result<Address, GitError> {
        let token =
            token.map(|token| HostToken { host: host.to_owned(), token: Secret::new(token) });
        Address::of(&Remote { url: url.to_owned(), token }, Path::new("/nonexistent/home"))
    }

    #[test]
    fn only_addresses_that_are_safe_to_talk_to_are_taken() {
        for url in ["https://h/a/b.git", "http://127.0.0.1:8080/a", "http://[::1]:1/a"] {
            assert!(address(url, Some("t")).is_ok(), "{url}");
        }
        for url in [
            "ssh://h/a",
            "git@h:a/b",
            "ext::sh -c id",
            "file:///a",
            "relative",
            "-o",
            "https://",
            "https://user:pw@h/a",
            "https://h/a\nb",
            "http://example.com/a",
            "http://127.0.0.1.example.com/a",
        ] {
            let error = address(url, Some("t")).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.starts_with("cannot use the remote"), "{url}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
        assert!(address("http://example.com/a", None).is_ok());
    }

    #[test]
    fn a_token_goes_to_its_own_host_alone() {
        for (url, own) in [
            ("https://h/a", "h:443"),
            ("https://H:443/a", "h"),
            ("https://h:8443/a", "h:8443"),
            ("https://[2001:db8::1]/a", "[2001:db8::1]:443"),
            ("http://127.0.0.1:81/a", "127.0.0.1:80"),
        ] {
            assert!(address_for(url, Some("t"), own).is_ok(), "{url}");
        }
        for url in [
            "https://evil/a",
            "https://h:444/a",
            "https://h.evil/a",
            "https://evil?h/a",
            "https://evil#h/a",
            "https://evil\\h/a",
            "https://h?.evil/a",
            "http://127.0.0.1/a",
        ] {
            assert!(address_for(url, Some("t"), "h").is_err(), "{url}");
        }
        assert!(address_for("https://evil/a", None, "h").is_ok(), "what is public needs none");
    }

    #[test]
    fn the_token_stands_in_the_environment_alone_and_for_one_url() {
        let token = Secret::new("tok'en");
        let new = credential(OsStr::new("https://h/a.git"), &token, false);
        assert_eq!(new[1].1, "http.https://h/a.git.extraHeader");
        let basic = STANDARD.encode("x-access-token:tok'en");
        assert_eq!(new[2].1.to_string_lossy(), format!("Authorization: Basic {basic}"));
        let old = credential(OsStr::new("https://h/a'b.git"), &token, true);
        assert_eq!(
            old[0].1.to_string_lossy(),
            format!(r"'http.https://h/a'\''b.git.extraHeader=Authorization: Basic {basic}'")
        );
        assert!(is_before_2_31("2.30.2") && !is_before_2_31("2.31.0") && !is_before_2_31("3.0"));
    }

    #[test]
    fn versions_of_git_are_read() {
        assert_eq!(numbers("2.47.3"), (2, 47));
        assert_eq!(numbers("2.39.5 (Apple Git-154)"), (2, 39));
        assert_eq!(numbers("3.0.rc1"), (3, 0));
        assert!(is_new_enough("2.31.0") && is_new_enough("3.0.rc1") && !is_new_enough("2.30.9"));
        assert!(!is_new_enough("unknown"));
    }

    #[test]
    fn of_the_machine_s_environment_only_the_network_s_names_pass() {
        let given = [("HTTPS_PROXY", "p"), ("GIT_SSH_COMMAND", "evil"), ("GIT_CONFIG_COUNT", "1")];
        let kept = network(given.into_iter().map(|(n, v)| (n.into(), v.into())).collect());
        assert_eq!(kept, [(OsString::from("HTTPS_PROXY"), OsString::from("p"))]);
    }
}
