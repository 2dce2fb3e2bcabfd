//! What may come back instead of an answer.

use std::time::Duration;

use crate::api::{Code, Problem};

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The site answered that it will not.
    #[error("{0}")]
    Refused(Problem),
    /// No connection, or it broke. Whether the site acted is not known.
    #[error("the site at {endpoint} could not be reached: {why}")]
    Unreachable {
        /// Where the site was looked for.
        endpoint: String,
        /// The innermost cause.
        why: String,
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
    /// Whether the same request may succeed a little later: no connection, no answer in time, or
    /// a server error. Only a request that may be sent twice is worth repeating.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Refused(problem) => problem.status >= 500,
            Self::Version { .. } | Self::BadAnswer { .. } | Self::Setup { .. } => false,
        }
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
                Some("check RELAY_SITE and the network, then try again".to_owned())
            }
            Self::BadAnswer { .. } | Self::Setup { .. } => None,
        }
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
