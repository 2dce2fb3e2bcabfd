//! What a token lets its bearer do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A permission of a token (seed 002). Closed: a route names the one it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TokenScope {
    /// Register, heartbeat, ring, claim, report: what a worker does.
    #[serde(rename = "work:claim")]
    WorkClaim,
    /// Read briefs and notes.
    #[serde(rename = "memory:read")]
    MemoryRead,
    /// Read tasks, logs, workers, events.
    #[serde(rename = "feed:read")]
    FeedRead,
    /// Make, cancel, retry and end tasks.
    #[serde(rename = "tasks:write")]
    TasksWrite,
    /// Everything, tokens and preferences included.
    #[serde(rename = "admin")]
    Admin,
}

impl TokenScope {
    /// Every scope.
    pub const ALL: [Self; 5] =
        [Self::WorkClaim, Self::MemoryRead, Self::FeedRead, Self::TasksWrite, Self::Admin];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkClaim => "work:claim",
            Self::MemoryRead => "memory:read",
            Self::FeedRead => "feed:read",
            Self::TasksWrite => "tasks:write",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope (work:claim, memory:read, feed:read, tasks:write, admin)")]
pub struct TokenScopeError(pub String);

impl FromStr for TokenScope {
    type Err = TokenScopeError;

    fn from_str(text: &str) -> Result<Self, TokenScopeError> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| TokenScopeError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_in_json_and_on_the_command_line() {
        for scope in TokenScope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
            let json = serde_json::to_string(&scope).expect("a word");
            assert_eq!(json, format!("\"{scope}\""));
        }
        assert!("work".parse::<TokenScope>().is_err());
    }
}
