//! What of the environment and the options is written into a service. Never a secret.

use std::ffi::OsStr;

use super::WorkOptions;
use crate::cli::config::Config;
use crate::cli::error::Failure;
use crate::cli::exit::Exit;

/// Settings that decide what a worker does: without one of them the service would be another
/// worker than the one that was tried by hand.
const NAMES: [&str; 18] = [
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
    "RELAY_WORK_MAX_INTERVAL",
    // Where the vendors' programs and gh keep their logins.
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GROK_HOME",
    "GH_CONFIG_DIR",
    "LANG",
];

/// Settings that may hold a password in their address.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"];

/// Logins that a service cannot have, and what helps instead.
const LOGINS: [(&str, &str); 2] =
    [("RELAY_GITHUB_TOKEN", "gh auth login"), ("RELAY_TOKEN", "relay setup")];

/// Whether the environment has it, with something in it.
pub(super) fn is_set(config: &Config, name: &str) -> bool {
    config.environment.get(OsStr::new(name)).is_some_and(|value| !value.is_empty())
}

/// The names and values that are written.
///
/// # Errors
/// Where one is not UTF-8, or holds a login.
pub(super) fn environment(config: &Config) -> anyhow::Result<Vec<(String, String)>> {
    let mut baked = Vec::new();
    for name in NAMES.iter().chain(&PROXIES).filter(|name| is_set(config, name)) {
        let value = config.environment.get(OsStr::new(name)).map(|value| value.to_str());
        let Some(Some(value)) = value else {
            return Err(Failure::new(Exit::Usage, format!("{name} is not UTF-8")).into());
        };
        if has_login(value) && PROXIES.contains(name) {
            continue;
        }
        let secrets = config.site_secrets.iter().chain(&config.github_token);
        if has_login(value) || secrets.map(|s| s.expose()).any(|s| value.contains(s)) {
            let text = format!("{name} holds a login, which is never written into a service");
            return Err(Failure::new(Exit::Usage, text).into());
        }
        baked.push(((*name).to_owned(), value.to_owned()));
    }
    Ok(baked)
}

/// What the service does not get although it is set here, for a person.
pub(super) fn remarks(config: &Config) -> Vec<String> {
    let logins = LOGINS.iter().filter(|(name, _)| is_set(config, name));
    let mut remarks: Vec<String> = logins
        .map(|(name, mend)| format!("note: {name} is never written into a service (hint: {mend})"))
        .collect();
    let value = |name: &str| config.environment.get(OsStr::new(name))?.to_str();
    for name in PROXIES.iter().filter(|name| value(name).is_some_and(has_login)) {
        remarks.push(format!("note: {name} holds a login, so it is not written into the service"));
    }
    for name in config.lane_env.iter().filter(|name| is_set(config, name)) {
        remarks.push(format!(
            "note: the value of {name} (RELAY_LANE_ENV) may be a key, so it is not written into the \
             service"
        ));
    }
    remarks
}

/// `scheme://user:password@host`.
fn has_login(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else { return false };
    rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
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
            ("RELAY_LANE_ENV", "MY_KEY"),
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
        ];
        assert_eq!(names, expected);
        assert!(!format!("{baked:?}").contains("hush"), "{baked:?}");
        let said = remarks(&config).join("\n");
        for name in ["RELAY_TOKEN", "RELAY_GITHUB_TOKEN", "HTTPS_PROXY", "MY_KEY"] {
            assert!(said.contains(name), "{name}: {said}");
        }
        assert!(!said.contains("hush"), "{said}");
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
