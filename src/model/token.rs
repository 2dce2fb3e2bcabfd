//! What a token lets its bearer do.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Actor, Secret, Timestamp, TokenId, TokenName, WorkerName};

/// What every token begins with, so that one that was pasted somewhere is known for what it is.
const PREFIX: &str = "relay_";

/// A token as it is listed: everything but itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// Its id, which is no secret.
    pub id: TokenId,
    /// What people call it.
    pub name: TokenName,
    /// What it may.
    pub scopes: Vec<TokenScope>,
    /// The worker it speaks for.
    pub worker: Option<WorkerName>,
    /// Who made it.
    pub created_by: Actor,
    /// When.
    pub created_at: Timestamp,
    /// When it was shown last, as far as that was written down: minutes may be missing.
    pub last_used: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// By whom.
    pub revoked_by: Option<Actor>,
}

/// The text of a new token, from 256 random bits.
#[must_use]
pub fn token_text(random: &[u8; 32]) -> Secret {
    Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// What is kept of a secret: its SHA-256. A token has 256 random bits, so nothing slower is needed
/// to keep it from being found, and a look-up by hash says nothing by the time it takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Of a secret's text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let mut hash = [0; 32];
        hash.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        Self(hash)
    }

    /// Of a token; `None` where the text cannot be one.
    #[must_use]
    pub fn of_token(text: &str) -> Option<Self> {
        (text.starts_with(PREFIX) && text.len() <= 100).then(|| Self::of(text))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({self})")
    }
}

impl FromStr for TokenHash {
    type Err = TokenHashError;

    fn from_str(text: &str) -> Result<Self, TokenHashError> {
        let mut hash = [0; 32];
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(TokenHashError);
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| TokenHashError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| TokenHashError)?;
        }
        Ok(Self(hash))
    }
}

/// A text that is no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 64 digits of a SHA-256")]
pub struct TokenHashError;

/// A permission of a token (seed 002). Closed: a route names the one it needs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
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

    #[test]
    fn a_hash_is_sha_256_and_is_read_back() {
        let hash = TokenHash::of("abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.parse(), Ok(hash));
        assert!(
            text[1..].parse::<TokenHash>().is_err() && "é".repeat(32).parse::<TokenHash>().is_err()
        );
    }

    #[test]
    fn a_token_is_long_and_known_by_its_beginning() {
        let text = token_text(&[7; 32]);
        assert_eq!(text.expose().len(), PREFIX.len() + 43);
        assert_eq!(TokenHash::of_token(text.expose()), Some(TokenHash::of(text.expose())));
        assert_eq!(TokenHash::of_token("ghp_x"), None);
        assert_eq!(TokenHash::of_token(&format!("relay_{}", "x".repeat(100))), None);
    }
}
