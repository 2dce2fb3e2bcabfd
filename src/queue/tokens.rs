//! Tokens: made, revoked, listed. Whoever shows one is found in memory by the site, not here.

use super::tasks::missing;
use super::{KnownToken, Queue, QueueError};
use crate::model::{
    Actor, LeaseRef, Passage, Secret, Token, TokenHash, TokenId, TokenName, TokenScope, WorkerId,
    WorkerName, token_text,
};

/// What `relay setup` gets for a machine (seed 002).
pub const WORKER_SCOPES: [TokenScope; 3] =
    [TokenScope::WorkClaim, TokenScope::MemoryRead, TokenScope::FeedRead];

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// What people call it.
    pub name: TokenName,
    /// What it may.
    pub scopes: Vec<TokenScope>,
    /// The worker it speaks for: needed for [`TokenScope::WorkClaim`], refused without.
    pub worker: Option<WorkerName>,
}

impl NewToken {
    /// A worker's token names its worker from the beginning: one that took the first name it said
    /// could take the name of a worker that works, and end its leases.
    fn check(&self) -> Result<(), QueueError> {
        let has = |scope| self.scopes.contains(&scope);
        let why = match &self.worker {
            _ if self.scopes.is_empty() => "a token needs a scope",
            None if has(TokenScope::WorkClaim) && !has(TokenScope::Admin) => {
                "a token with work:claim is one worker's: name it"
            }
            Some(_) if has(TokenScope::Admin) => {
                "an admin's token speaks for every worker, so it names none"
            }
            Some(_) if !has(TokenScope::WorkClaim) => {
                "only a token with work:claim speaks for a worker"
            }
            _ => return Ok(()),
        };
        Err(QueueError::Invalid(why.to_owned()))
    }
}

impl Queue {
    /// Makes a token and gives it, this once. Of its text only the hash is kept.
    pub async fn create_token(
        &self,
        new: NewToken,
        by: Actor,
    ) -> Result<(KnownToken, Secret), QueueError> {
        new.check()?;
        let (known, secret) = self.draft(new, by)?;
        let create = self.inner.store.create_token(&known, false);
        self.write(Passage::QueueToken, create).await?;
        Ok((known, secret))
    }

    /// The admin's token of a site that never had any; `None` where it had.
    pub async fn first_token(&self) -> Result<Option<(KnownToken, Secret)>, QueueError> {
        let name = "first".parse().map_err(|e| QueueError::Invalid(format!("{e}")))?;
        let new = NewToken { name, scopes: vec![TokenScope::Admin], worker: None };
        let (known, secret) = self.draft(new, Actor::site())?;
        let create = self.inner.store.create_token(&known, true);
        let made = self.write(Passage::QueueToken, create).await?;
        Ok(made.then_some((known, secret)))
    }

    /// Every token, also the revoked ones, the oldest first.
    pub async fn tokens(&self) -> Result<Vec<KnownToken>, QueueError> {
        Ok(self.inner.store.tokens().await?)
    }

    /// Revokes a token. The leases of the worker that registered with it end, their tasks are
    /// queued again, and no heartbeat brings them back: whoever had the token may not deliver.
    /// Repeated, it ends what was claimed meanwhile.
    pub async fn revoke_token(
        &self,
        id: &TokenId,
        by: &Actor,
    ) -> Result<(Token, Vec<(WorkerId, LeaseRef)>), QueueError> {
        let revoke = self.inner.store.revoke_token(id, by, self.inner.clock.now());
        let revoked = self.write(Passage::QueueRevoke, revoke).await?;
        let revoked = revoked.ok_or_else(|| missing("token", id))?;
        Ok((revoked.token, revoked.ended))
    }

    /// Notes which token the worker's present instance registered with; `None` is the site's own
    /// user.
    pub async fn bind_worker(
        &self,
        worker: &WorkerId,
        token: Option<&TokenId>,
    ) -> Result<(), QueueError> {
        Ok(self.inner.store.bind_worker(worker, token).await?)
    }

    /// The id of each worker that ever registered; ids are stable for a name.
    pub async fn worker_ids(&self) -> Result<Vec<(WorkerName, WorkerId)>, QueueError> {
        Ok(self.inner.store.worker_ids().await?)
    }

    /// Notes when a token was shown last.
    pub async fn used_token(
        &self,
        id: &TokenId,
        at: crate::model::Timestamp,
    ) -> Result<(), QueueError> {
        Ok(self.inner.store.used_token(id, at).await?)
    }

    /// 256 bits that nobody can guess.
    pub fn random(&self) -> Result<[u8; 32], QueueError> {
        let random = self.inner.ids.random();
        random.ok_or_else(|| QueueError::Invalid("the system gives no random bytes".to_owned()))
    }

    /// A token that is kept nowhere yet.
    pub(super) fn draft(
        &self,
        new: NewToken,
        by: Actor,
    ) -> Result<(KnownToken, Secret), QueueError> {
        let NewToken { name, mut scopes, worker } = new;
        scopes.sort();
        scopes.dedup();
        let secret = token_text(&self.random()?);
        let token = Token {
            id: self.new_id()?,
            name,
            scopes,
            worker,
            created_by: by,
            created_at: self.inner.clock.now(),
            last_used: None,
            revoked_at: None,
            revoked_by: None,
        };
        Ok((KnownToken { hash: TokenHash::of(secret.expose()), token }, secret))
    }
}
