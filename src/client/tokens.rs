//! Tokens as functions of the client.

use super::{Client, ClientError, NOTHING, plain};
use crate::api::route;
use crate::api::{CreateToken, CreatedToken, RevokeToken, RevokedToken, Tokens, WhoAmI};
use crate::model::{Token, TokenId};

impl Client {
    /// Makes a token. It is told this once.
    pub async fn create_token(&self, request: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.transport.post(&plain(route::TOKENS), request).await
    }

    /// Every token, the oldest first.
    pub async fn tokens(&self) -> Result<Vec<Token>, ClientError> {
        Ok(self.read::<_, Tokens>(route::TOKENS, &NOTHING).await?.tokens)
    }

    /// Revokes a token. May be repeated.
    pub async fn revoke_token(&self, id: &TokenId, by: &str) -> Result<RevokedToken, ClientError> {
        let path = plain(route::TOKEN_REVOKE).replace("{id}", id.as_str());
        self.transport.post(&path, &RevokeToken { by: by.to_owned() }).await
    }

    /// What this client's token may.
    pub async fn who_am_i(&self) -> Result<WhoAmI, ClientError> {
        self.read(route::WHO_AM_I, &NOTHING).await
    }
}
