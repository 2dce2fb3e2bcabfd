//! GitHub and GitHub Enterprise over REST, by octocrab with its retries off and time-outs on.
//!
//! One [`GitHub`] is one login at one API. It remembers a rate limit and makes no call before it
//! has passed, keeps ETags so that an unchanged answer costs no quota, and repeats no POST. Where
//! octocrab's own models are stricter than servers are, answers are read into small structs here.

mod accounts;
mod etag;
mod gate;
mod issues;
mod labels;
mod problem;
mod pulls;
mod request;
mod time;
pub mod token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use octocrab::Octocrab;
use octocrab::service::middleware::retry::RetryConfig;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

pub use accounts::{Accounts, Login, Source, host_of};
pub use gate::{Gate, GateState, Limit};
pub use issues::Issue;
pub use labels::{LabelHistory, LabelSet, Permission, Wording};
pub use token::PersonsLogin;

use self::etag::Etags;
use super::ForgeError;
use crate::model::{Clock, ForgeProblem, RepoName, Secret, Timestamp, is_this_machine};

/// The public GitHub's REST base URL.
pub const PUBLIC_API: &str = "https://api.github.com";
/// How long one request may take as a whole.
pub const TIME_OUT: Duration = Duration::from_secs(30);
const CONNECT_TIME_OUT: Duration = Duration::from_secs(10);

/// How to reach one API as one login.
#[derive(Clone, Debug)]
pub struct GitHubConfig {
    /// The REST base: [`PUBLIC_API`], or `https://HOST/api/v3` of an Enterprise server.
    pub api_base: String,
    /// The login's token.
    pub token: Secret,
    /// For the cool-down after a rate limit.
    pub clock: Arc<dyn Clock>,
    /// How long one request may take as a whole; [`TIME_OUT`] outside tests.
    pub time_out: Duration,
    /// Shut while a rate limit lasts.
    pub gate: Arc<Gate>,
}

/// One login at one API.
pub struct GitHub {
    base: String,
    rest: Octocrab,
    graphql: Octocrab,
    clock: Arc<dyn Clock>,
    time_out: Duration,
    etags: Etags,
    gate: Arc<Gate>,
    own_login: OnceCell<Option<String>>,
}

impl fmt::Debug for GitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHub").field("base", &self.base).finish_non_exhaustive()
    }
}

/// What linking and pushing need to know of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Its name as GitHub spells it.
    pub name: RepoName,
    /// Work starts from it.
    pub default_branch: String,
    /// Nothing can be written to an archived repository.
    pub archived: bool,
    /// Whether it is a fork.
    pub fork: bool,
    /// Whether this login may push.
    pub can_push: bool,
    /// Where git fetches from and pushes to.
    pub clone_url: String,
    /// Where a person can read it.
    pub html_url: String,
}

impl GitHub {
    /// Prepares the connection; nothing is sent. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ForgeError::BadAnswer`] where the base URL is none, or TLS cannot be set up.
    pub fn new(config: GitHubConfig) -> Result<Self, ForgeError> {
        // One provider for the whole program; a second call finds the first one and is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let GitHubConfig { api_base, token, clock, time_out, gate } = config;
        let base = api_base.trim_end_matches('/').to_owned();
        let rest = connect(&base, &token, time_out)?;
        // An Enterprise server has GraphQL beside `/api/v3`, not below it.
        let graphql = match base.strip_suffix("/api/v3") {
            Some(host) => connect(&format!("{host}/api"), &token, time_out)?,
            None => rest.clone(),
        };
        Ok(Self {
            base,
            rest,
            graphql,
            clock,
            time_out,
            etags: Etags::default(),
            gate,
            own_login: OnceCell::new(),
        })
    }

    /// The REST base URL.
    #[must_use]
    pub fn api_base(&self) -> &str {
        &self.base
    }

    /// Facts about a repository.
    ///
    /// # Errors
    /// `NotFound` also where this login may not see it.
    pub async fn repository(&self, repo: &RepoName) -> Result<Repository, ForgeError> {
        #[derive(Serialize, Deserialize)]
        struct Wire {
            full_name: String,
            default_branch: String,
            #[serde(default)]
            archived: bool,
            #[serde(default)]
            fork: bool,
            permissions: Option<Rights>,
            clone_url: String,
            html_url: String,
        }
        #[derive(Serialize, Deserialize)]
        struct Rights {
            #[serde(default)]
            push: bool,
        }
        let wire: Wire = self.get(&format!("/repos/{repo}")).await?.value;
        let name = wire.full_name.parse().map_err(|_| {
            ForgeError::BadAnswer(format!("{repo}: the forge calls it something unusable"))
        })?;
        Ok(Repository {
            name,
            default_branch: wire.default_branch,
            archived: wire.archived,
            fork: wire.fork,
            can_push: wire.permissions.is_some_and(|rights| rights.push),
            clone_url: wire.clone_url,
            html_url: wire.html_url,
        })
    }

    /// The time of this machine's clock at which the server's shows `at`: one of the two may be
    /// wrong, and what happened there is compared with what happened here.
    #[must_use]
    pub fn here(&self, at: Timestamp) -> Timestamp {
        self.gate.here(at)
    }

    /// The login the token belongs to, asked for once; `None` where the server does not say.
    ///
    /// # Errors
    /// As any request.
    pub async fn login(&self) -> Result<Option<String>, ForgeError> {
        #[derive(Serialize, Deserialize)]
        struct Wire {
            login: String,
        }
        let ask = || async {
            match self.get::<Wire>("/user").await {
                Ok(answer) => Ok(Some(answer.value.login)),
                // An App's installation is told its name by GraphQL only.
                Err(ForgeError::Refused { why: ForgeProblem::Forbidden, .. }) => {
                    self.viewer().await
                }
                Err(error) => Err(error),
            }
        };
        self.own_login.get_or_try_init(ask).await.cloned()
    }

    async fn viewer(&self) -> Result<Option<String>, ForgeError> {
        let asked = serde_json::json!({ "query": "query{viewer{login}}" });
        match self.query::<_, serde_json::Value>(&asked).await {
            Ok(answer) => Ok(answer["data"]["viewer"]["login"].as_str().map(str::to_owned)),
            Err(ForgeError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn connect(base: &str, token: &Secret, time_out: Duration) -> Result<Octocrab, ForgeError> {
    let bad = |e: octocrab::Error| {
        ForgeError::BadAnswer(format!("{base}: cannot be used as an API: {}", problem::chain(&e)))
    };
    let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
    let authority = rest.split('/').next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") && !is_this_machine(authority) {
        let text = format!("{base}: a token is sent over plain http to this machine only");
        return Err(ForgeError::BadAnswer(text));
    }
    Octocrab::builder()
        .base_uri(base)
        .and_then(|builder| builder.upload_uri(base))
        .map_err(bad)?
        // octocrab's retries repeat a POST after a lost answer: a second comment, a second issue.
        .add_retry_config(RetryConfig::None)
        .set_connect_timeout(Some(CONNECT_TIME_OUT.min(time_out)))
        .set_read_timeout(Some(time_out))
        .set_write_timeout(Some(time_out))
        .personal_token(token.expose().to_owned())
        .build()
        .map_err(bad)
}
