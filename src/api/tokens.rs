//! Tokens on the wire.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{LeaseRef, Secret, Token, TokenId, TokenName, TokenScope, WorkerName};

/// `POST /tokens`. The answer is [`CreatedToken`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What people call it.
    pub name: TokenName,
    /// What it may.
    pub scopes: Vec<TokenScope>,
    /// The worker it speaks for: needed with `work:claim`.
    #[serde(default)]
    pub worker: Option<WorkerName>,
    /// Who asks for it.
    pub by: String,
}

/// A new token. This answer is the only place where it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    /// What is listed of it.
    pub token: Token,
    /// Itself.
    pub secret: Plaintext,
    /// Of a machine that is set up: the tokens that its worker had before. They are revoked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Token>,
}

/// `GET /tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Every token, the oldest first; also the revoked ones.
    pub tokens: Vec<Token>,
}

/// `POST /tokens/{id}/revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// Who revokes it.
    pub by: String,
}

/// A token that was revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokedToken {
    /// As it stands now.
    pub token: Token,
    /// The leases of its worker that ended with it; their tasks are queued again.
    pub released: Vec<LeaseRef>,
}

/// `GET /whoami`: what the token that asks may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoAmI {
    /// Its id; none for the site's own user, who asks without.
    pub token: Option<TokenId>,
    /// What it may.
    pub scopes: Vec<TokenScope>,
    /// The worker it speaks for.
    pub worker: Option<WorkerName>,
}

/// A secret on its one way over the wire: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Plaintext(String);

impl Plaintext {
    /// For the one answer, or request, that carries it.
    #[must_use]
    pub fn of(secret: &Secret) -> Self {
        Self(secret.expose().to_owned())
    }

    /// As it is used from there on.
    #[must_use]
    pub fn secret(&self) -> Secret {
        Secret::new(&self.0)
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plaintext(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let secret = Plaintext::of(&Secret::new("hush-hush"));
        assert_eq!(format!("{secret:?}"), "Plaintext(…)");
        assert_eq!(serde_json::to_string(&secret).expect("text"), "\"hush-hush\"");
        assert_eq!(secret.secret().expose(), "hush-hush");
    }
}
