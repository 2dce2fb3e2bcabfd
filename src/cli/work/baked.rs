//! What of the environment and the options is written into a service. Never a secret.

use std::ffi::OsStr;

use relay_lanes::VENDORS;
use relay_sandbox::{PROCESS, PROXIES, VENDOR, moving_names};

use super::WorkOptions;
use crate::cli::config::Config;
use crate::cli::error::Failure;
use crate::cli::exit::Exit;
use crate::forge::github::token::GH_ENV;
use crate::git::NETWORK_ENV;
use crate::work::lane::{process_config, process_lanes};

/// Settings that decide what a worker does: without one of them the service would be another
/// worker than the one that was tried by hand. What gh, git, lanes and their walls go by besides
/// stands in those rooms' own lists, which are baked as well.
const SETTINGS: [&str; 15] = [
    "PATH",
    "RELAY_HOME",
    "RELAY_SITE",
    "RELAY_PLAIN_HTTP",
    "RELAY_GITHUB_API",
    "RELAY_ALLOWED_SENDERS",
    "RELAY_MODEL_CLAUDE",
    "RELAY_MODEL_CODEX",
    "RELAY_MODEL_GROK",
    "RELAY_LANE_ALLOWED_DOMAINS",
    "RELAY_LANE_ENV",
    "RELAY_LANE_PATHS",
    "RELAY_LANE_NETWORK",
    "RELAY_WORK_MAX_INTERVAL",
    "RELAY_DEBUG",
];

/// What is read and never baked, with what a person is told where it is set.
const LEFT_OUT: [(&str, Option<&str>); 22] = [
    ("RELAY_TOKEN", Some("is never written into a service (hint: relay setup)")),
    ("RELAY_GITHUB_TOKEN", GH_LOGIN),
    ("GH_TOKEN", GH_LOGIN),
    ("GITHUB_TOKEN", GH_LOGIN),
    ("GH_ENTERPRISE_TOKEN", GH_LOGIN),
    ("GITHUB_ENTERPRISE_TOKEN", GH_LOGIN),
    // The folder of a shell is often gone with that shell, and no service could start then.
    ("TMPDIR", OTHER_TMPDIR),
    // A worker has no database.
    ("DATABASE_URL", None),
    // Whoever starts the service sets them.
    ("HOME", None),
    ("USER", None),
    ("LOGNAME", None),
    ("SHELL", None),
    ("XDG_RUNTIME_DIR", None),
    ("DBUS_SESSION_BUS_ADDRESS", None),
    ("NOTIFY_SOCKET", None),
    ("WATCHDOG_PID", None),
    ("WATCHDOG_USEC", None),
    // Of one login's screen and agent: nothing that stays.
    ("TERM", None),
    ("XAUTHORITY", None),
    ("SSH_AUTH_SOCK", None),
    // A log has no colour anyhow.
    ("NO_COLOR", None),
    // For tests: the service would end at its point for ever.
    ("RELAY_FAULT", None),
];

/// macOS gives each user one, and a service the same.
const OTHER_TMPDIR: Option<&str> = if cfg!(target_os = "macos") {
    None
} else {
    Some("is not written into the service, which has the system's own")
};
const GH_LOGIN: Option<&str> = Some("is never written into a service (hint: gh auth login)");

/// Every name that is baked where it is set, each once.
fn names(config: &Config) -> Vec<&str> {
    let lists = [&SETTINGS[..], PROCESS, VENDOR, PROXIES, NETWORK_ENV, GH_ENV];
    let lists = lists.into_iter().flatten().copied().chain(moving_names());
    let mut names: Vec<&str> = Vec::new();
    for name in lists.chain(addresses(config)) {
        if !names.contains(&name) && LEFT_OUT.iter().all(|(left, _)| *left != name) {
            names.push(name);
        }
    }
    names
}

/// A gateway, where it is let through: without it a key would go elsewhere.
fn addresses(config: &Config) -> impl Iterator<Item = &'static str> {
    let let_through = |name: &&str| config.lane_env.iter().any(|given| given == name);
    VENDORS.iter().flat_map(|vendor| vendor.addresses()).filter(let_through)
}

/// What is written unless it holds a login.
fn open_addresses(config: &Config) -> Vec<&'static str> {
    PROXIES.iter().copied().chain(addresses(config)).collect()
}

/// Whether the environment has it, with something in it.
pub(super) fn is_set(config: &Config, name: &str) -> bool {
    config.environment.get(OsStr::new(name)).is_some_and(|value| !value.is_empty())
}

/// The names and values that are written.
///
/// # Errors
/// Where one is not UTF-8, or holds a login.
pub(super) fn environment(config: &Config) -> anyhow::Result<Vec<(String, String)>> {
    let (mut baked, open) = (Vec::new(), open_addresses(config));
    for name in names(config).into_iter().filter(|name| is_set(config, name)) {
        let value = config.environment.get(OsStr::new(name)).map(|value| value.to_str());
        let Some(Some(value)) = value else {
            return Err(Failure::new(Exit::Usage, format!("{name} is not UTF-8")).into());
        };
        if has_login(name, value) && open.contains(&name) {
            continue;
        }
        let secrets = config.site_secrets.iter().chain(&config.github_token);
        if has_login(name, value) || secrets.map(|s| s.expose()).any(|s| value.contains(s)) {
            let text = format!("{name} holds a login, which is never written into a service");
            return Err(Failure::new(Exit::Usage, text).into());
        }
        baked.push((name.to_owned(), value.to_owned()));
    }
    Ok(baked)
}

/// What the service does not get although it is set here, for a person.
pub(super) fn remarks(config: &Config) -> Vec<String> {
    let told = LEFT_OUT.iter().filter_map(|(name, why)| Some((name, (*why)?)));
    let told = told.filter(|(name, _)| is_set(config, name));
    let mut remarks: Vec<String> = told.map(|(name, why)| format!("note: {name} {why}")).collect();
    let value = |name: &str| config.environment.get(OsStr::new(name))?.to_str();
    let holds_login = |name: &&str| value(name).is_some_and(|value| has_login(name, value));
    for name in open_addresses(config).iter().filter(|name| holds_login(name)) {
        remarks.push(format!("note: {name} holds a login, so it is not written into the service"));
    }
    let baked = names(config);
    let mut named: Vec<(String, String)> =
        config.lane_env.iter().map(|name| (name.clone(), "RELAY_LANE_ENV".to_owned())).collect();
    for (lane, file) in process_lanes(&config.lanes_folder()) {
        // One that cannot be read has its line in `relay lane ls`.
        let names = process_config(&file).map(|lane| lane.env).unwrap_or_default();
        named.extend(names.into_iter().map(|name| (name, lane.to_string())));
    }
    let is_left = |name: &str| is_set(config, name) && !baked.contains(&name);
    let is_told = |name: &str| LEFT_OUT.iter().any(|(left, why)| *left == name && why.is_some());
    for (name, by) in named.iter().filter(|(name, _)| is_left(name) && !is_told(name)) {
        remarks.push(format!(
            "note: the value of {name} ({by}) may be a key, so it is not written into the service"
        ));
    }
    remarks
}

/// `scheme://user:password@host`. A proxy needs no scheme, and its address has no other use for the
/// sign.
fn has_login(name: &str, value: &str) -> bool {
    if PROXIES.contains(&name) {
        return value.contains('@');
    }
    let Some((_, rest)) = value.split_once("://") else { return false };
    rest.trim_start_matches('/')
        .split(['/', '?', '#'])
        .next()
        .is_some_and(|authority| authority.contains('@'))
}

impl WorkOptions {
    /// The options as words of a command line, without those that stand at their defaults.
    pub(super) fn words(&self) -> Vec<String> {
        let joined = |words: Vec<String>| (!words.is_empty()).then(|| words.join(","));
        let lanes = joined(self.lanes.iter().map(ToString::to_string).collect());
        let labels = joined(self.labels.iter().map(ToString::to_string).collect());
        let limits = self.limits.iter().map(|(lane, jobs)| format!("{lane}={jobs}")).collect();
        let minutes = self.max_minutes.map(|time| (time.as_secs_f64() / 60.0).to_string());
        let given = [
            ("--jobs", (self.jobs != 1).then(|| self.jobs.to_string())),
            ("--limit", joined(limits)),
            ("--per-repo", self.per_repo.map(|jobs| jobs.to_string())),
            ("--lanes", lanes),
            ("--labels", labels),
            ("--name", self.name.as_ref().map(ToString::to_string)),
            ("--max-minutes", minutes),
            ("--interval", (self.interval.as_secs() != 15).then(|| seconds(self.interval))),
            ("--max-interval", self.max_interval.map(seconds)),
        ];
        let mut words: Vec<String> = Vec::new();
        for (name, value) in given {
            words.extend(value.map(|value| format!("{name}={value}")));
        }
        let flags = [("--keep", self.keep), ("--no-sandbox", self.no_sandbox)];
        words.extend(flags.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()));
        words
    }
}

fn seconds(time: std::time::Duration) -> String {
    time.as_secs().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Config {
        let home = [("HOME", "/home/ada")];
        let all = home.iter().chain(vars).map(|(k, v)| (k.into(), v.into()));
        Config::from_environment(all.collect()).expect("valid")
    }

    #[test]
    fn what_a_worker_goes_by_is_baked_in_and_no_login_is() {
        let config = of(&[
            ("PATH", "/usr/bin"),
            ("RELAY_LANE_ALLOWED_DOMAINS", "a.example"),
            ("RELAY_ALLOWED_SENDERS", "ada"),
            ("RELAY_SITE", "https://relay.example"),
            ("RELAY_TOKEN", "relay_hush"),
            ("RELAY_GITHUB_TOKEN", "ghp_hush"),
            ("DATABASE_URL", "postgres://u:hush@db"),
            ("HTTPS_PROXY", "http://u:hush@proxy:3128"),
            ("ALL_PROXY", "http://proxy:3128"),
            ("RELAY_LANE_ENV", "MY_KEY,OPENAI_BASE_URL,ANTHROPIC_BASE_URL"),
            ("OPENAI_BASE_URL", "https://gateway.example"),
            ("ANTHROPIC_BASE_URL", "https://u:hush@gateway.example"),
            ("GH_TOKEN", "ghp_hush"),
            ("MY_KEY", "hush"),
            ("RELAY_HOME", ""),
            ("ANTHROPIC_API_KEY", "hush"),
        ]);
        let baked = environment(&config).expect("valid");
        let names: Vec<&str> = baked.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "PATH",
            "RELAY_SITE",
            "RELAY_ALLOWED_SENDERS",
            "RELAY_LANE_ALLOWED_DOMAINS",
            "RELAY_LANE_ENV",
            "ALL_PROXY",
            "OPENAI_BASE_URL",
        ];
        assert_eq!(names, expected);
        assert!(!format!("{baked:?}").contains("hush"), "{baked:?}");
        let said = remarks(&config).join("\n");
        for name in ["RELAY_TOKEN", "RELAY_GITHUB_TOKEN", "GH_TOKEN", "HTTPS_PROXY", "MY_KEY"] {
            assert!(said.contains(&format!(" {name} ")), "{name}: {said}");
        }
        assert!(said.contains("ANTHROPIC_BASE_URL holds a login"), "{said}");
        assert!(!said.contains("hush") && !said.contains("DATABASE_URL"), "{said}");
    }

    /// What a room reads of the environment, by its own source: whoever adds a name decides here
    /// whether a service has it.
    #[test]
    fn every_name_that_is_read_is_baked_or_left_out_by_name() {
        let sources = [
            include_str!("../config.rs"),
            include_str!("start.rs"),
            include_str!("service.rs"),
            include_str!("../doctor/programs.rs"),
            include_str!("../../work/walls.rs"),
            include_str!("../../git/isolation.rs"),
        ];
        let product = sources.map(|source| source.split("\nmod tests {").next().unwrap());
        let is_name = |word: &&str| {
            let letters = |c: char| c.is_ascii_uppercase() || c == '_';
            word.len() > 3 && (word.chars().all(letters) || word.ends_with("_proxy"))
        };
        let quoted = product.iter().flat_map(|text| text.split('"')).filter(is_name);
        // git is told the first, and the compiler the others; neither is read here.
        let others = ["GIT_", "CARGO_"];
        let is_read = |name: &&str| !others.iter().any(|start| name.starts_with(start));
        let read: Vec<&str> = quoted.filter(is_read).collect();
        assert!(read.len() > 30 && read.contains(&"RELAY_LANE_NETWORK"), "{read:?}");
        let config = of(&[]);
        let baked = names(&config);
        for name in read {
            let left = LEFT_OUT.iter().any(|(left, _)| *left == name);
            assert!(left || baked.contains(&name), "is {name} baked into a service, or not?");
        }
    }

    #[test]
    fn certificates_logins_and_places_go_with_the_service() {
        let names = [
            "RELAY_LANE_NETWORK",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "NODE_EXTRA_CA_CERTS",
            "GIT_SSL_CAINFO",
            "XDG_CONFIG_HOME",
            "GH_CONFIG_DIR",
            "CLAUDE_CONFIG_DIR",
            "CODEX_HOME",
            "GROK_HOME",
            "http_proxy",
            "LC_ALL",
            "TZ",
            // A login that stands elsewhere is hidden from the service's lanes as well.
            "KUBECONFIG",
        ];
        let values = names.map(|name| (name, if name.ends_with("WORK") { "shared" } else { "/x" }));
        let baked = environment(&of(&values)).expect("valid");
        for name in names {
            assert!(baked.iter().any(|(baked, _)| baked == name), "{name}: {baked:?}");
        }
    }

    #[test]
    fn what_a_process_lane_is_given_by_name_is_told() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("lanes")).expect("a folder");
        let lane = r#"{"command":"/bin/true","env":["TOOL_KEY","LC_ALL","TOOL_UNSET"]}"#;
        std::fs::write(home.path().join("lanes/edit.json"), lane).expect("written");
        let home = home.path().to_str().expect("a path");
        let config = of(&[("RELAY_HOME", home), ("TOOL_KEY", "hush"), ("LC_ALL", "C")]);
        let told = remarks(&config);
        let [one] = &told[..] else { panic!("{told:?}") };
        assert!(one.contains("TOOL_KEY (process:edit)"), "{one}");
    }

    #[test]
    fn a_proxys_login_is_known_however_its_address_is_written() {
        for address in [
            "http://u:hush@proxy:3128",
            "http:///u:hush@proxy:3128",
            "//u:hush@proxy:3128",
            "u:hush@proxy:3128",
            "u:hu/sh@proxy",
            "hush@proxy",
        ] {
            let config = of(&[("HTTPS_PROXY", address), ("no_proxy", "localhost,.example")]);
            let baked = environment(&config).expect("valid");
            assert_eq!(baked, [("no_proxy".to_owned(), "localhost,.example".to_owned())]);
            let said = remarks(&config).join("\n");
            assert!(said.contains("HTTPS_PROXY holds a login") && !said.contains("hush"), "{said}");
        }
        for address in ["proxy:3128", "//proxy", "http://proxy:3128/"] {
            let baked = environment(&of(&[("HTTPS_PROXY", address)])).expect("valid");
            assert_eq!(baked, [("HTTPS_PROXY".to_owned(), address.to_owned())]);
        }
    }

    #[test]
    fn a_login_in_another_setting_is_refused() {
        let smuggled = [("RELAY_TOKEN", "relay_hush"), ("RELAY_MODEL_CLAUDE", "relay_hush")];
        assert!(environment(&of(&smuggled)).is_err());
        let api = [("RELAY_GITHUB_API", "https://u:hush@ghe.example/api/v3")];
        let error = environment(&of(&api)).expect_err("it holds a password");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}
