//! Tokens as functions of the client.

use super::{Client, ClientError, NOTHING, plain};
use crate::api::route;
use crate::api::{
    AskDevice, CreateInvite, CreateSignIn, CreateToken, CreatedToken, DeviceCode, Invite,
    PollDevice, RedeemInvite, RevokeToken, RevokedToken, SignIn, Tokens, WhoAmI,
};
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

    /// Makes an invite. It is told this once.
    pub async fn invite(&self, request: &CreateInvite) -> Result<Invite, ClientError> {
        self.transport.post(&plain(route::INVITES), request).await
    }

    /// Trades an invite for a token.
    pub async fn redeem(&self, request: &RedeemInvite) -> Result<CreatedToken, ClientError> {
        self.transport.post(&plain(route::INVITE_REDEEM), request).await
    }

    /// Asks a person on the site for a token.
    pub async fn ask_device(&self, request: &AskDevice) -> Result<DeviceCode, ClientError> {
        self.transport.post(&plain(route::DEVICE_CODE), request).await
    }

    /// Whether the person answered.
    pub async fn poll_device(&self, request: &PollDevice) -> Result<CreatedToken, ClientError> {
        self.transport.post(&plain(route::DEVICE_TOKEN), request).await
    }

    /// A link that signs a person in to the site's pages.
    pub async fn sign_in(&self, request: &CreateSignIn) -> Result<SignIn, ClientError> {
        self.transport.post(&plain(route::SIGN_INS), request).await
    }
}
