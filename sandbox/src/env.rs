//! The environment of a lane: a short list of what passes, and never the rest.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// For whom an environment is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvRequest<'a> {
    /// A vendor's coding agent, working on a repository.
    Vendor {
        /// Further names that the operator lets through, such as a model key's.
        names: &'a [String],
        /// Name and e-mail under which the agent's own commits are made. An empty name sets
        /// none.
        agent: (&'a str, &'a str),
    },
    /// A program of the operator's, by the process ABI: it gets [`PROCESS`] and what is named.
    Process {
        /// The names in its configuration.
        names: &'a [String],
    },
}

/// What a process lane is given without being named (the ABI's POSIX list).
pub const PROCESS: &[&str] = &["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// What a vendor's program is given on top of [`PROCESS`]: who the user is, where the vendor
/// keeps its login, and how the network is reached.
pub const VENDOR: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LC_CTYPE",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GROK_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

/// Passed to a vendor's program unless the address holds a user or a password.
pub const PROXIES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// Set for a vendor's program: no colours, no update and no telemetry in the middle of a run,
/// and no agents beside the one that is watched.
pub const SWITCHES: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("GROK_SUBAGENTS", "0"),
    ("GROK_DISABLE_AUTOUPDATER", "1"),
    ("GROK_TELEMETRY_ENABLED", "0"),
];

/// What never passes, even where the operator names it: relay's own settings, logins of a
/// forge and of git, databases, and the object store's keys. In capitals.
const REFUSED: &[(&str, Refused)] = &[
    ("GH_TOKEN", Refused::Forge),
    ("GITHUB_TOKEN", Refused::Forge),
    ("GITHUB_PAT", Refused::Forge),
    ("GITHUB_APP_TOKEN", Refused::Forge),
    ("GITHUB_APP_PRIVATE_KEY", Refused::Forge),
    ("GITHUB_API_TOKEN", Refused::Forge),
    ("GH_PAT", Refused::Forge),
    ("GH_ENTERPRISE_TOKEN", Refused::Forge),
    ("GITHUB_ENTERPRISE_TOKEN", Refused::Forge),
    ("GITLAB_TOKEN", Refused::Forge),
    ("GITEA_TOKEN", Refused::Forge),
    ("FORGEJO_TOKEN", Refused::Forge),
    ("BITBUCKET_TOKEN", Refused::Forge),
    ("CI_JOB_TOKEN", Refused::Forge),
    ("GIT_ASKPASS", Refused::Forge),
    ("SSH_ASKPASS", Refused::Forge),
    ("SSH_AUTH_SOCK", Refused::Forge),
    ("PGPASSWORD", Refused::Database),
    ("PGPASSFILE", Refused::Database),
    ("MYSQL_PWD", Refused::Database),
];

const REFUSED_BEGINNINGS: &[(&str, Refused)] = &[
    ("RELAY_", Refused::Relay),
    ("RELAYGER_", Refused::Relay),
    ("ACTIONS_", Refused::Forge),
    // A header with a token can stand in git's configuration.
    ("GIT_CONFIG", Refused::Forge),
    ("S3_", Refused::ObjectStore),
    // Hosts of Postgres set several: POSTGRES_URL, POSTGRES_PRISMA_URL, POSTGRES_PASSWORD.
    ("POSTGRES_", Refused::Database),
];

/// Anywhere in the name: TEST_DATABASE_URL, DATABASE_URL_UNPOOLED.
const REFUSED_PARTS: &[(&str, Refused)] = &[("DATABASE_URL", Refused::Database)];

/// Why a name never passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No name at all: empty, or with `=` or NUL in it.
    NoName,
    /// relay's own.
    Relay,
    /// A login of a forge or of git.
    Forge,
    /// A database's address or password.
    Database,
    /// A key of the object store.
    ObjectStore,
}

impl Refused {
    /// For a message that names the variable before it.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::NoName => "is not the name of an environment variable",
            Self::Relay => "belongs to relay and is never handed to a lane",
            Self::Forge => "is a login of a forge and is never handed to a lane",
            Self::Database => "leads to a database and is never handed to a lane",
            Self::ObjectStore => "is a key of the object store and is never handed to a lane",
        }
    }
}

/// Whether a name is refused even where an operator names it, in whatever case it is spelled.
#[must_use]
pub fn refused(name: &str) -> Option<Refused> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Some(Refused::NoName);
    }
    let name = name.to_ascii_uppercase();
    let exact = REFUSED.iter().find(|(refused, _)| name == *refused);
    let beginning = || REFUSED_BEGINNINGS.iter().find(|(start, _)| name.starts_with(start));
    let part = || REFUSED_PARTS.iter().find(|(part, _)| name.contains(part));
    exact.or_else(beginning).or_else(part).map(|(_, why)| *why)
}

/// Those names that are [`refused`] as a regular expression, in capitals alone.
#[must_use]
pub fn refused_pattern() -> String {
    let exact = REFUSED.iter().map(|(name, _)| format!("^{name}$"));
    let beginnings = REFUSED_BEGINNINGS.iter().map(|(start, _)| format!("^{start}"));
    let parts = REFUSED_PARTS.iter().map(|(part, _)| (*part).to_owned());
    exact.chain(beginnings).chain(parts).collect::<Vec<_>>().join("|")
}

/// The environment of a lane, made from the worker's own. Names that are [`refused`] are left
/// out in silence; whoever takes the operator's list tells them. Sorted by name.
#[must_use]
pub fn clean_env(
    parent: &BTreeMap<OsString, OsString>,
    request: &EnvRequest<'_>,
) -> Vec<(OsString, OsString)> {
    let mut env = BTreeMap::new();
    let mut pass = |name: &str| {
        if let (None, Some(value)) = (refused(name), parent.get(OsStr::new(name))) {
            env.insert(OsString::from(name), value.clone());
        }
    };
    PROCESS.iter().for_each(|name| pass(name));
    let (names, agent) = match *request {
        EnvRequest::Process { names } => (names, None),
        EnvRequest::Vendor { names, agent } => {
            VENDOR.iter().for_each(|name| pass(name));
            let open = |name: &&&str| {
                parent.get(OsStr::new(name)).is_some_and(|v| !v.as_encoded_bytes().contains(&b'@'))
            };
            PROXIES.iter().filter(open).for_each(|name| pass(name));
            for (name, value) in SWITCHES {
                env.insert(name.into(), value.into());
            }
            (names, Some(agent).filter(|(name, _)| !name.is_empty()))
        }
    };
    for name in names {
        if let (None, Some(value)) = (refused(name), parent.get(OsStr::new(name))) {
            env.insert(name.into(), value.clone());
        }
    }
    if let Some((name, email)) = agent {
        for role in ["AUTHOR", "COMMITTER"] {
            env.insert(format!("GIT_{role}_NAME").into(), name.into());
            env.insert(format!("GIT_{role}_EMAIL").into(), email.into());
        }
    }
    env.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name of the lists, and some that stand for all others; the value is the name.
    fn parent() -> BTreeMap<OsString, OsString> {
        let others = [
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "XAI_API_KEY",
            "NODE_OPTIONS",
            "LD_PRELOAD",
            "XDG_RUNTIME_DIR",
            "DBUS_SESSION_BUS_ADDRESS",
            "RELAY_TOKEN",
            "RELAY_SITE",
            "RELAY_HOME",
            "RELAYGER_TOKEN",
            "DATABASE_URL",
            "TEST_DATABASE_URL",
            "S3_ACCESS_KEY_ID",
            "S3_SECRET_ACCESS_KEY",
            "ACTIONS_RUNTIME_TOKEN",
            "GIT_CONFIG_VALUE_0",
            "TERM",
        ];
        let lists = PROCESS.iter().chain(VENDOR).chain(PROXIES).chain(&others).copied();
        lists.chain(REFUSED.iter().map(|(name, _)| *name)).map(|n| (n.into(), n.into())).collect()
    }

    fn text(env: &[(OsString, OsString)]) -> String {
        let line = |(k, v): &(OsString, OsString)| format!("{}={}", k.display(), v.display());
        env.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_vendor_gets_this_and_no_more() {
        let request = EnvRequest::Vendor { names: &[], agent: ("relay-agent", "agent@localhost") };
        let expected = "\
ALL_PROXY=ALL_PROXY
CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
CLAUDE_CONFIG_DIR=CLAUDE_CONFIG_DIR
CODEX_HOME=CODEX_HOME
GIT_AUTHOR_EMAIL=agent@localhost
GIT_AUTHOR_NAME=relay-agent
GIT_COMMITTER_EMAIL=agent@localhost
GIT_COMMITTER_NAME=relay-agent
GROK_DISABLE_AUTOUPDATER=1
GROK_HOME=GROK_HOME
GROK_SUBAGENTS=0
GROK_TELEMETRY_ENABLED=0
HOME=HOME
HTTPS_PROXY=HTTPS_PROXY
HTTP_PROXY=HTTP_PROXY
LANG=LANG
LC_ALL=LC_ALL
LC_CTYPE=LC_CTYPE
LOGNAME=LOGNAME
NODE_EXTRA_CA_CERTS=NODE_EXTRA_CA_CERTS
NO_PROXY=NO_PROXY
PATH=PATH
SHELL=SHELL
SSL_CERT_DIR=SSL_CERT_DIR
SSL_CERT_FILE=SSL_CERT_FILE
TERM=dumb
TMPDIR=TMPDIR
TZ=TZ
USER=USER
all_proxy=all_proxy
http_proxy=http_proxy
https_proxy=https_proxy
no_proxy=no_proxy";
        assert_eq!(text(&clean_env(&parent(), &request)), expected);
    }

    #[test]
    fn a_process_gets_the_abi_list_and_what_is_named() {
        let names = ["XAI_API_KEY".to_owned(), "NOT_SET".to_owned()];
        assert_eq!(
            text(&clean_env(&parent(), &EnvRequest::Process { names: &names })),
            "LANG=LANG\nLC_ALL=LC_ALL\nPATH=PATH\nTMPDIR=TMPDIR\nTZ=TZ\nXAI_API_KEY=XAI_API_KEY"
        );
    }

    #[test]
    fn a_named_key_passes_and_a_refused_name_does_not() {
        let all: Vec<String> =
            parent().keys().filter_map(|n| n.to_str()).map(String::from).collect();
        for request in [
            EnvRequest::Process { names: &all },
            EnvRequest::Vendor { names: &all, agent: ("", "") },
        ] {
            let env = text(&clean_env(&parent(), &request));
            assert!(env.contains("ANTHROPIC_API_KEY=ANTHROPIC_API_KEY"), "{env}");
            assert!(env.contains("TERM=TERM"), "a named switch is the operator's: {env}");
            let listed = REFUSED.iter().map(|(name, _)| *name);
            for name in listed.chain([
                "RELAY_TOKEN",
                "RELAY_SITE",
                "RELAY_HOME",
                "RELAYGER_TOKEN",
                "DATABASE_URL",
                "TEST_DATABASE_URL",
                "S3_ACCESS_KEY_ID",
                "S3_SECRET_ACCESS_KEY",
                "ACTIONS_RUNTIME_TOKEN",
                "GIT_CONFIG_VALUE_0",
            ]) {
                assert!(!env.contains(&format!("{name}=")), "{name} passed");
            }
            assert!(!env.contains("GIT_AUTHOR_NAME"), "{env}");
        }
    }

    #[test]
    fn a_refusal_names_its_reason_in_any_case() {
        assert_eq!(refused("gh_token"), Some(Refused::Forge));
        assert_eq!(refused("Relay_Token"), Some(Refused::Relay));
        assert_eq!(refused("MY_DATABASE_URL"), Some(Refused::Database));
        assert_eq!(refused("DATABASE_URL_UNPOOLED"), Some(Refused::Database));
        assert_eq!(refused("POSTGRES_PRISMA_URL"), Some(Refused::Database));
        assert_eq!(refused("GITHUB_APP_TOKEN"), Some(Refused::Forge));
        assert_eq!(refused("S3_ACCESS_KEY_ID"), Some(Refused::ObjectStore));
        assert_eq!(refused("A=B"), Some(Refused::NoName));
        assert_eq!(refused(""), Some(Refused::NoName));
        for name in ["ANTHROPIC_API_KEY", "PATH", "AWS_SECRET_ACCESS_KEY", "RELAYS"] {
            assert_eq!(refused(name), None, "{name}");
        }
        assert!(Refused::Forge.why().contains("forge"));
    }

    #[test]
    fn a_proxy_with_a_password_passes_only_by_name() {
        let mut parent = parent();
        parent.insert("HTTPS_PROXY".into(), "http://user:password@proxy.example".into());
        let names = ["HTTPS_PROXY".to_owned()];
        let with =
            |names| text(&clean_env(&parent, &EnvRequest::Vendor { names, agent: ("", "") }));
        assert!(!with(&[]).contains("password"));
        assert!(with(&names).contains("password"));
    }
}
