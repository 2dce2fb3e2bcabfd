//! The settings, and the only place that reads the environment. Each room is handed its own part.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay_sandbox::{DomainError, parse_domains, refused};

use super::credentials::{Kept, KeptError, KeptToken};
use crate::client::{Endpoint, EndpointError, Outward};
use crate::model::fault::FaultPlanError;
use crate::model::{FaultPlan, Secret, WorkerName};

/// GitHub's public REST base.
const GITHUB_API: &str = "https://api.github.com";

/// Every setting, from the environment alone. A flag of a command beats its setting.
#[derive(Clone)]
pub struct Config {
    /// RELAY_HOME: database, socket, caches and copies; `~/.harness` unless set.
    pub home: PathBuf,
    /// The person's own home folder.
    pub user_home: PathBuf,
    /// TMPDIR: scratch files; `/tmp` unless set to an absolute path.
    pub temp: PathBuf,
    /// The person's login on this machine, for the record of who asked.
    pub user: String,
    /// RELAY_SITE: a site elsewhere. Without it the owner of `home` is asked.
    pub site: Option<Endpoint>,
    /// Whether RELAY_SITE says so, and not what `relay setup` left.
    pub site_is_of_environment: bool,
    /// RELAY_TOKEN, or what `relay setup` got: what this machine shows to that site.
    pub token: Option<Secret>,
    /// The worker that the token of `relay setup` speaks for.
    pub worker: Option<WorkerName>,
    /// Why a token that is there is shown to nobody, for a person.
    pub token_held_back: Option<String>,
    /// RELAY_PLAIN_HTTP=1: a token may go to a site that is no loopback without TLS.
    pub plain_http: bool,
    /// Every token of a site that this machine has, used or not: none may be seen.
    pub site_secrets: Vec<Secret>,
    /// HTTPS_PROXY, else ALL_PROXY, and NO_PROXY: the way to a site with `https`, as git takes it.
    pub outward: Option<Outward>,
    /// DATABASE_URL: where `relay serve` keeps the queue.
    pub database_url: Option<Secret>,
    /// RELAY_GITHUB_TOKEN: beats what `gh auth token` says.
    pub github_token: Option<Secret>,
    /// RELAY_GITHUB_API: the REST base of a GitHub Enterprise server.
    pub github_api: String,
    /// RELAY_ALLOWED_SENDERS: the logins whose labels start jobs; people who may write where empty.
    pub allowed_senders: Vec<String>,
    /// RELAY_MODEL_CLAUDE, RELAY_MODEL_CODEX, RELAY_MODEL_GROK: the model each is asked for.
    pub models: BTreeMap<&'static str, String>,
    /// RELAY_LANE_ALLOWED_DOMAINS: hosts a lane's commands may reach besides the usual ones.
    pub lane_domains: Vec<String>,
    /// RELAY_LANE_ENV: names of the environment that are let through to vendor lanes.
    pub lane_env: Vec<String>,
    /// RELAY_LANE_PATHS: what process lanes keep of this machine behind the box's walls.
    pub lane_paths: Vec<PathBuf>,
    /// RELAY_LANE_NETWORK=shared: process lanes have this machine's own network.
    pub lane_network_shared: bool,
    /// RELAY_WORK_MAX_INTERVAL, in seconds: the longest wait of an idle worker.
    pub max_interval: Option<Duration>,
    /// RELAY_FAULT: the fault this process ends or holds itself at (docs/design/fault-points.md).
    pub fault: Option<FaultPlan>,
    /// RELAY_DEBUG=1: log what happens inside.
    pub debug: bool,
    /// NO_COLOR: no colour.
    pub no_colour: bool,
    /// The whole environment, from which a child's is made.
    pub environment: BTreeMap<OsString, OsString>,
}

impl fmt::Debug for Config {
    /// Without the environment: it may hold keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("home", &self.home).finish_non_exhaustive()
    }
}

/// A setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no home folder to keep anything in.
    #[error("HOME is not set, so there is no place for relay's files")]
    NoHome,
    /// RELAY_SITE is not a site.
    #[error("RELAY_SITE: {0}")]
    Site(#[from] EndpointError),
    /// A setting that should be a number is not one.
    #[error("{name}: `{value}` is not a number of seconds from 1 to 86400")]
    Seconds {
        /// The setting.
        name: &'static str,
        /// What it is set to.
        value: String,
    },
    /// A host that a lane's commands may not be let to.
    #[error("RELAY_LANE_ALLOWED_DOMAINS: {0}")]
    Domain(#[from] DomainError),
    /// A name of the environment that no lane is ever handed.
    #[error("RELAY_LANE_ENV: `{name}` {why}")]
    LaneEnv {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// A path that git and the database cannot be told.
    #[error("{name}: `{value}` is not UTF-8 or holds a line break or another control character")]
    PathText {
        /// The setting.
        name: &'static str,
        /// What it is set to.
        value: String,
    },
    /// RELAY_LANE_NETWORK is no kind of network.
    #[error("RELAY_LANE_NETWORK: `{0}` is neither `proxy`, the default, nor `shared`")]
    LaneNetwork(String),
    /// RELAY_FAULT is not a fault.
    #[error("RELAY_FAULT: {0}")]
    Fault(#[from] FaultPlanError),
    /// What `relay setup` left cannot be used.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// RELAY_TOKEN cannot be sent.
    #[error("RELAY_TOKEN holds a space, a line break or a letter that no token has")]
    Token,
    /// The token would go over the network for others to read.
    #[error("{site} is no https:// address: whoever is on the way would read the token")]
    Plain {
        /// The site.
        site: String,
    },
    /// A path that is not absolute.
    #[error("{name}: `{value}` is not an absolute path")]
    Path {
        /// The setting.
        name: &'static str,
        /// What it is set to.
        value: String,
    },
}

impl ConfigError {
    /// What helps.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoHome | Self::PathText { .. } => {
                Some("export RELAY_HOME=/some/folder".to_owned())
            }
            Self::Kept(error) => error.hint(),
            Self::Plain { .. } => Some(
                "use https://, or RELAY_PLAIN_HTTP=1 where the network itself is encrypted (a VPN)"
                    .to_owned(),
            ),
            Self::Token => Some(
                "it is one word, as `relay token create` printed it; unset RELAY_TOKEN to use \
                 what `relay setup` got"
                    .to_owned(),
            ),
            Self::Site(_)
            | Self::Seconds { .. }
            | Self::Domain(_)
            | Self::LaneEnv { .. }
            | Self::LaneNetwork(_)
            | Self::Fault(_)
            | Self::Path { .. } => None,
        }
    }
}

impl Config {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// When a setting is not valid.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub fn read() -> Result<Self, ConfigError> {
        let config = Self::from_environment(std::env::vars_os().collect())?;
        let kept = Kept::read(&config.home)?;
        config.with_kept(kept)
    }

    /// The same with what `relay setup` left in the home. The environment beats it, and its token
    /// is shown to the site that it was made for and to no other.
    ///
    /// # Errors
    /// Where a token would go over the network for others to read.
    pub fn with_kept(mut self, kept: Kept) -> Result<Self, ConfigError> {
        self.plain_http |= kept.plain_http && self.site.is_none();
        self.site = self.site.or(kept.site);
        if let Some(KeptToken { site, token, worker }) = kept.token {
            self.site_secrets.push(token.clone());
            let unset = self.token.is_none();
            match &self.site {
                Some(here) if unset && *here == site => {
                    (self.token, self.worker) = (Some(token), worker);
                }
                Some(here) if unset => {
                    self.token_held_back = Some(format!(
                        "the token of `relay setup` is for {site}, so it is not shown to {here}"
                    ));
                }
                _ => {}
            }
        }
        match &self.site {
            Some(site) if self.token.is_some() && !self.plain_http && !site.is_private() => {
                Err(ConfigError::Plain { site: site.to_string() })
            }
            _ => Ok(self),
        }
    }

    /// The settings of `environment`. An empty value is as good as none.
    ///
    /// # Errors
    /// When a setting is not valid.
    pub fn from_environment(
        environment: BTreeMap<OsString, OsString>,
    ) -> Result<Self, ConfigError> {
        let get = |name: &str| environment.get(OsStr::new(name)).filter(|v| !v.is_empty());
        let text = |name: &str| get(name).map(|v| v.to_string_lossy().into_owned());
        let list = |name: &str| text(name).map(|v| split(&v)).unwrap_or_default();
        let user_home = absolute("HOME", get("HOME"))?;
        let home = match absolute("RELAY_HOME", get("RELAY_HOME"))? {
            Some(home) => home,
            None => user_home.as_ref().ok_or(ConfigError::NoHome)?.join(".harness"),
        };
        if home.to_str().is_none_or(|path| path.chars().any(char::is_control)) {
            let name = if get("RELAY_HOME").is_some() { "RELAY_HOME" } else { "HOME" };
            return Err(ConfigError::PathText { name, value: home.display().to_string() });
        }
        Ok(Self {
            user_home: user_home.unwrap_or_else(|| home.clone()),
            home,
            temp: get("TMPDIR")
                .map(PathBuf::from)
                .filter(|folder| folder.is_absolute())
                .unwrap_or_else(|| PathBuf::from("/tmp")),
            user: text("USER").or_else(|| text("LOGNAME")).unwrap_or_else(|| "local".to_owned()),
            site: text("RELAY_SITE").map(|v| v.parse()).transpose()?,
            site_is_of_environment: get("RELAY_SITE").is_some(),
            token: text("RELAY_TOKEN").map(token).transpose()?,
            worker: None,
            token_held_back: None,
            plain_http: text("RELAY_PLAIN_HTTP").is_some_and(|v| v != "0"),
            site_secrets: text("RELAY_TOKEN").map(Secret::new).into_iter().collect(),
            outward: ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
                .iter()
                .find_map(|name| text(name))
                .map(|proxy| Outward {
                    proxy: Secret::new(proxy),
                    except: text("NO_PROXY").or_else(|| text("no_proxy")).unwrap_or_default(),
                }),
            database_url: text("DATABASE_URL").map(Secret::new),
            github_token: text("RELAY_GITHUB_TOKEN").map(Secret::new),
            github_api: text("RELAY_GITHUB_API").unwrap_or_else(|| GITHUB_API.to_owned()),
            allowed_senders: list("RELAY_ALLOWED_SENDERS"),
            models: [
                ("claude", "RELAY_MODEL_CLAUDE"),
                ("codex", "RELAY_MODEL_CODEX"),
                ("grok", "RELAY_MODEL_GROK"),
            ]
            .into_iter()
            .filter_map(|(lane, name)| Some((lane, text(name)?)))
            .collect(),
            lane_domains: parse_domains(&text("RELAY_LANE_ALLOWED_DOMAINS").unwrap_or_default())?,
            lane_env: lane_env(list("RELAY_LANE_ENV"))?,
            lane_paths: lane_paths(list("RELAY_LANE_PATHS"))?,
            lane_network_shared: lane_network(text("RELAY_LANE_NETWORK"))?,
            max_interval: seconds("RELAY_WORK_MAX_INTERVAL", text("RELAY_WORK_MAX_INTERVAL"))?,
            fault: text("RELAY_FAULT").map(|v| v.parse()).transpose()?,
            debug: text("RELAY_DEBUG").is_some_and(|v| v != "0"),
            no_colour: get("NO_COLOR").is_some() || text("TERM").is_some_and(|t| t == "dumb"),
            environment,
        })
    }

    /// The socket of the home's owner.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.home.join("relay.sock")
    }

    /// Where process lanes are configured, one `NAME.json` each.
    #[must_use]
    pub fn lanes_folder(&self) -> PathBuf {
        self.home.join("lanes")
    }

    /// PATH itself, for the programs relay runs.
    #[must_use]
    pub fn path_variable(&self) -> OsString {
        self.environment.get(OsStr::new("PATH")).cloned().unwrap_or_default()
    }

    /// A program of the PATH.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.environment.get(OsStr::new("PATH"))?;
        which::which_in(name, Some(path), &self.user_home).ok()
    }
}

fn absolute(name: &'static str, value: Option<&OsString>) -> Result<Option<PathBuf>, ConfigError> {
    match value.map(Path::new) {
        Some(path) if !path.is_absolute() => {
            Err(ConfigError::Path { name, value: path.display().to_string() })
        }
        path => Ok(path.map(Path::to_owned)),
    }
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|v| !v.is_empty()).map(str::to_owned).collect()
}

/// A name that would be refused at every run is refused here, where its owner still looks.
fn lane_env(names: Vec<String>) -> Result<Vec<String>, ConfigError> {
    match names.iter().find_map(|name| Some((name, refused(name)?))) {
        Some((name, why)) => Err(ConfigError::LaneEnv { name: name.clone(), why: why.why() }),
        None => Ok(names),
    }
}

/// Whether process lanes have this machine's network. A word that is not known must not open it, nor
/// be passed over: its owner believes it holds.
fn lane_network(word: Option<String>) -> Result<bool, ConfigError> {
    match word.as_deref() {
        None | Some("proxy") => Ok(false),
        Some("shared") => Ok(true),
        Some(other) => Err(ConfigError::LaneNetwork(other.chars().take(80).collect())),
    }
}

/// Each an absolute path. All of the disk is none: then there are no walls.
fn lane_paths(paths: Vec<String>) -> Result<Vec<PathBuf>, ConfigError> {
    let absolute =
        |path: &String| Path::new(path).is_absolute() && Path::new(path) != Path::new("/");
    match paths.iter().find(|path| !absolute(path)) {
        Some(value) => Err(ConfigError::Path { name: "RELAY_LANE_PATHS", value: value.clone() }),
        None => Ok(paths.into_iter().map(PathBuf::from).collect()),
    }
}

fn token(text: String) -> Result<Secret, ConfigError> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConfigError::Token);
    }
    Ok(Secret::new(text))
}

fn seconds(name: &'static str, value: Option<String>) -> Result<Option<Duration>, ConfigError> {
    let Some(value) = value else { return Ok(None) };
    match value.parse::<u64>() {
        Ok(n) if (1..=86_400).contains(&n) => Ok(Some(Duration::from_secs(n))),
        _ => Err(ConfigError::Seconds { name, value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_environment(vars.iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    #[test]
    fn debug_shows_nothing_of_the_environment() {
        let config = of(&[("HOME", "/home/ada"), ("SOME_KEY", "hush-hush")]).expect("valid");
        assert!(!format!("{config:?}").contains("hush"), "{config:?}");
    }

    #[test]
    fn a_bare_environment_is_enough() {
        let config = of(&[("HOME", "/home/ada")]).expect("HOME is all it needs");
        assert_eq!(config.home, Path::new("/home/ada/.harness"));
        assert_eq!(config.user, "local");
        assert!(config.site.is_none() && config.github_token.is_none() && !config.debug);
        assert_eq!(of(&[]).expect_err("nothing is set"), ConfigError::NoHome);
        assert!(of(&[("RELAY_HOME", "/srv/relay")]).is_ok());
        for bad in ["relay_a\nb", "relay a", "relay_ö"] {
            let refused = of(&[("HOME", "/h"), ("RELAY_TOKEN", bad)]);
            assert_eq!(refused.expect_err(bad), ConfigError::Token);
        }
    }

    #[test]
    fn settings_are_read_and_empty_ones_are_not_there() {
        let config = of(&[
            ("HOME", "/home/ada"),
            ("RELAY_HOME", ""),
            ("USER", "ada"),
            ("RELAY_SITE", "unix:/run/relay.sock"),
            ("RELAY_ALLOWED_SENDERS", "ada, grace ,"),
            ("RELAY_GITHUB_TOKEN", "ghp_secret\n"),
            ("RELAY_WORK_MAX_INTERVAL", "900"),
            ("RELAY_DEBUG", "0"),
        ])
        .expect("all valid");
        assert_eq!(config.home, Path::new("/home/ada/.harness"));
        assert_eq!(config.site, Some(Endpoint::Unix("/run/relay.sock".into())));
        assert_eq!(config.allowed_senders, ["ada", "grace"]);
        assert_eq!(config.github_token.as_ref().map(Secret::expose), Some("ghp_secret"));
        assert_eq!(config.max_interval, Some(Duration::from_secs(900)));
        assert!(!config.debug);
    }

    fn kept(site: &str) -> Kept {
        let token = KeptToken {
            site: site.parse().expect("a site"),
            token: Secret::new("relay_kept"),
            worker: Some("desk".parse().expect("a name")),
        };
        Kept { site: Some(token.site.clone()), plain_http: false, token: Some(token) }
    }

    #[test]
    fn a_token_is_shown_to_the_site_it_was_made_for_and_no_other() {
        let with = |vars: &[(&str, &str)], site: &str| {
            let config = of(&[&[("HOME", "/home/ada")], vars].concat()).expect("valid");
            config.with_kept(kept(site))
        };
        let shown = |config: &Config| config.token.as_ref().map(|t| t.expose().to_owned());
        let config = with(&[], "https://a.example").expect("valid");
        assert_eq!(shown(&config).as_deref(), Some("relay_kept"));
        assert_eq!(config.worker.as_ref().map(WorkerName::as_str), Some("desk"));
        let other = [("RELAY_SITE", "https://b.example")];
        let config = with(&other, "https://a.example").expect("valid");
        assert_eq!((shown(&config), config.worker.is_some()), (None, false));
        let why = config.token_held_back.expect("it is said");
        assert!(why.contains("https://a.example") && why.contains("https://b.example"), "{why}");
        assert_eq!(config.site_secrets.len(), 1, "it is looked for in what lanes write");
        let own = [other[0], ("RELAY_TOKEN", "relay_own")];
        let config = with(&own, "https://a.example").expect("valid");
        assert_eq!(shown(&config).as_deref(), Some("relay_own"));
        assert_eq!((config.token_held_back, config.site_secrets.len()), (None, 2));
    }

    #[test]
    fn a_token_goes_to_no_far_site_without_tls() {
        let far = ("RELAY_SITE", "http://10.0.0.7:7410");
        let with = |vars: &[(&str, &str)]| {
            let config = of(&[&[("HOME", "/home/ada"), far], vars].concat()).expect("valid");
            config.with_kept(Kept::default())
        };
        let token = ("RELAY_TOKEN", "relay_own");
        let refused = with(&[token]).expect_err("it would be read");
        assert!(refused.hint().expect("a hint").contains("RELAY_PLAIN_HTTP"));
        assert!(with(&[]).is_ok(), "without a token there is nothing to read");
        assert!(with(&[token, ("RELAY_PLAIN_HTTP", "1")]).is_ok());
        let config = of(&[("HOME", "/home/ada")]).expect("valid");
        assert!(config.clone().with_kept(kept("http://10.0.0.7")).is_err());
        assert!(config.with_kept(Kept { plain_http: true, ..kept("http://10.0.0.7") }).is_ok());
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let message = |vars: &[(&str, &str)]| of(vars).expect_err("not valid").to_string();
        let home = ("HOME", "/home/ada");
        assert_eq!(
            message(&[home, ("RELAY_WORK_MAX_INTERVAL", "soon")]),
            "RELAY_WORK_MAX_INTERVAL: `soon` is not a number of seconds from 1 to 86400"
        );
        assert_eq!(message(&[("HOME", "ada")]), "HOME: `ada` is not an absolute path");
        assert_eq!(
            message(&[home, ("RELAY_LANE_ENV", "MY_KEY,GH_TOKEN")]),
            "RELAY_LANE_ENV: `GH_TOKEN` is a login of a forge and is never handed to a lane"
        );
        assert!(message(&[home, ("RELAY_LANE_NETWORK", "open")]).contains("`open` is neither"));
        assert!(message(&[home, ("RELAY_LANE_ALLOWED_DOMAINS", "10.0.0.1")]).contains("10.0.0.1"));
        let fault = message(&[home, ("RELAY_FAULT", "job.nap.after:kill")]);
        assert!(fault.starts_with("RELAY_FAULT: no point `job.nap.after`; the points are "));
        assert!(message(&[home, ("RELAY_SITE", "example")]).starts_with("RELAY_SITE: `example`"));
    }
}
