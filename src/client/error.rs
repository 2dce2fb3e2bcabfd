//! What may come back instead of an answer.

use std::time::Duration;

use super::Endpoint;
use crate::api::{Code, Problem};

/// Where a site's address is from.
const WHENCE: &str = "the site's address (RELAY_SITE, else what `relay setup` kept)";

/// The statuses of a client that asks too often, and of a body that a proxy does not pass on.
const TOO_MANY: u16 = 429;
const TOO_LARGE: u16 = 413;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The site answered that it will not.
    #[error("{0}")]
    Refused(Problem),
    /// No connection, or it broke. Whether the site acted is not known where it was sent.
    #[error("the site at {endpoint} could not be reached: {why}")]
    Unreachable {
        /// Where the site was looked for.
        endpoint: String,
        /// The innermost cause.
        why: String,
        /// Whether there was a connection to send it by.
        sent: bool,
    },
    /// Whatever is there answered, and not in TLS: a site without it, or another program.
    #[error("the site at {endpoint} could not be reached: what is there speaks no TLS")]
    NoTls {
        /// Where the site was looked for.
        endpoint: String,
    },
    /// Nothing came in time. Whether the site acted is not known.
    #[error("the site at {endpoint} did not answer {route} within {} s", after.as_secs())]
    TimedOut {
        /// Where the site was asked.
        endpoint: String,
        /// What it was asked.
        route: String,
        /// How long was waited.
        after: Duration,
    },
    /// Something that is not relay answered in the site's place: a proxy, a page. Whether the site
    /// acted is not known.
    #[error("{endpoint} answered {route} with {status}, and not as a relay site does")]
    Foreign {
        /// Where the site was asked.
        endpoint: String,
        /// What it was asked.
        route: String,
        /// The HTTP status.
        status: u16,
        /// In how many seconds it asks to be asked again.
        retry_after: Option<u32>,
    },
    /// The site is another version of relay.
    #[error("the site runs relay {theirs}, this is relay {ours}")]
    Version {
        /// The site's version.
        theirs: String,
        /// This program's version.
        ours: String,
    },
    /// The answer is not what the route gives.
    #[error("the answer to {route} cannot be read: {why}")]
    BadAnswer {
        /// What was asked.
        route: String,
        /// What is wrong with it.
        why: String,
    },
    /// The client itself could not be made.
    #[error("the client for {endpoint} cannot be made: {why}")]
    Setup {
        /// Where the site was to be reached.
        endpoint: String,
        /// The cause.
        why: String,
    },
}

impl ClientError {
    /// Whether the same request may succeed a little later: no connection, no answer in time, a
    /// server error, too many requests, or something in the site's place. Only a request that may
    /// be sent twice is worth repeating.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoTls { .. } | Self::TimedOut { .. } => true,
            Self::Refused(problem) => problem.status >= 500 || problem.status == TOO_MANY,
            Self::Foreign { status, .. } => *status != TOO_LARGE,
            Self::Version { .. } | Self::BadAnswer { .. } | Self::Setup { .. } => false,
        }
    }

    /// Whether the request has reached nobody, so that it may be sent again whatever it does.
    #[must_use]
    pub fn was_not_sent(&self) -> bool {
        matches!(self, Self::Unreachable { sent: false, .. } | Self::NoTls { .. })
    }

    /// Whether the site is away, or says itself that it cannot do anything now. A failure of the
    /// site at this very request is none of that.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Refused(problem) => {
                matches!(problem.status, TOO_MANY | 502..=504) || problem.code == Code::Disk
            }
            other => other.is_passing(),
        }
    }

    /// Whether the site refuses whoever asks, not what was asked.
    #[must_use]
    pub fn is_barring(&self) -> bool {
        matches!(self.code(), Some(Code::Unauthorized | Code::Forbidden))
    }

    /// How long the site, or what stands before it, asks to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = match self {
            Self::Refused(problem) => problem.retry_after,
            Self::Foreign { retry_after, .. } => *retry_after,
            _ => None,
        };
        seconds.map(|seconds| Duration::from_secs(u64::from(seconds)))
    }

    /// The site's code, where it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(problem) => Some(problem.code),
            _ => None,
        }
    }

    /// For a person: the command that helps.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused(problem) => problem.hint.clone(),
            Self::Version { theirs, ours } => Some(version_hint(theirs, ours)),
            Self::Unreachable { endpoint, .. } if endpoint.starts_with("unix:") => {
                Some("is `relay work` still running? `relay work status` shows it".to_owned())
            }
            Self::TimedOut { endpoint, .. } if endpoint.starts_with("unix:") => Some(format!(
                "its process is stopped or hangs: `fuser '{}'` names it",
                endpoint.trim_start_matches("unix:")
            )),
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                Some(format!("check the network, and {WHENCE}; then try again"))
            }
            Self::NoTls { endpoint } => Some(without_tls(endpoint)),
            Self::Foreign { .. } => {
                Some(format!("check {WHENCE}, and the proxy in front of the site"))
            }
            Self::BadAnswer { .. } | Self::Setup { .. } => None,
        }
    }
}

/// Whoever is on the way can make a site seem to have no TLS, so that the way without is named for
/// what it needs.
fn without_tls(endpoint: &str) -> String {
    let plain = endpoint.replacen("https://", "http://", 1);
    match plain.parse::<Endpoint>().is_ok_and(|site| site.is_private()) {
        true => format!("relay setup --site {plain} (or RELAY_SITE={plain})"),
        false => format!(
            "put TLS in front of the site (docs/SITE.md); only where the network itself is encrypted \
             (a VPN): relay setup --site {plain} --plain-http"
        ),
    }
}

/// What to do where two versions of relay meet: the older one is restarted from the newer program.
fn version_hint(theirs: &str, ours: &str) -> String {
    let number = |v: &str| -> Vec<u64> { v.split('.').map(|p| p.parse().unwrap_or(0)).collect() };
    if number(theirs) < number(ours) {
        format!("restart the running `relay work` with relay {ours}")
    } else {
        format!("use relay {theirs} for this command, or restart `relay work` with relay {ours}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_without_tls_is_named_for_what_it_needs() {
        let hint = |endpoint: &str| {
            let no_tls = ClientError::NoTls { endpoint: endpoint.to_owned() };
            no_tls.hint().unwrap_or_default()
        };
        let near = "relay setup --site http://127.0.0.1:7410 (or RELAY_SITE=http://127.0.0.1:7410)";
        assert_eq!(hint("https://127.0.0.1:7410"), near);
        let far = hint("https://relay.example:7410");
        assert!(far.contains("only where the network itself is encrypted"), "{far}");
        assert!(far.ends_with("--site http://relay.example:7410 --plain-http"), "{far}");
    }

    #[test]
    fn the_hint_names_the_program_to_restart() {
        let error = |theirs: &str, ours: &str| ClientError::Version {
            theirs: theirs.to_owned(),
            ours: ours.to_owned(),
        };
        let older_site = error("0.9.0", "0.10.0").hint().unwrap_or_default();
        assert_eq!(older_site, "restart the running `relay work` with relay 0.10.0");
        let newer_site = error("0.10.0", "0.9.0").hint().unwrap_or_default();
        assert!(newer_site.starts_with("use relay 0.10.0"), "{newer_site}");
    }
}
