//! Invites: made by an admin, traded once for a worker's token.

use std::time::Duration;

use super::tokens::{NewToken, WORKER_SCOPES};
use super::{KnownToken, Queue, QueueError, Redeemed};
use crate::model::{Actor, Passage, Secret, Timestamp, TokenHash, TokenId, WorkerName};

/// The shortest and the longest time that an invite may be good for.
const LIVES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(7 * 86_400)];

impl Queue {
    /// Makes an invite of `code`, good for `lives`; gives until when.
    pub async fn invite(
        &self,
        code: &Secret,
        worker: Option<&WorkerName>,
        lives: Duration,
        by: &Actor,
    ) -> Result<Timestamp, QueueError> {
        if !(LIVES[0]..=LIVES[1]).contains(&lives) {
            return Err(QueueError::Invalid("an invite is good for 1 minute to 7 days".to_owned()));
        }
        let now = self.inner.clock.now();
        let until = now + lives;
        let hash = TokenHash::of(code.expose());
        let invite = self.inner.store.invite(&hash, worker, by, now, until);
        self.write(Passage::QueueInvite, invite).await?;
        Ok(until)
    }

    /// Trades an invite for a worker's token; `named` is a name that a person chose, else the
    /// machine's own `host` is proposed. The error inside says why not.
    pub async fn redeem(
        &self,
        code: &Secret,
        named: Option<&WorkerName>,
        host: &WorkerName,
    ) -> Result<Result<Installed, Redeemed>, QueueError> {
        let proposed = named.unwrap_or(host);
        let new = NewToken::of_worker(proposed)?;
        let (mut known, secret) = self.draft(new, Actor::site())?;
        let (hash, now) = (TokenHash::of(code.expose()), self.inner.clock.now());
        let redeem = self.inner.store.redeem(&hash, &known, proposed, named.is_some(), now);
        match self.write(Passage::QueueRedeem, redeem).await? {
            Redeemed::Token { worker, by, replaced } => {
                known.token.name = NewToken::of_worker(&worker)?.name;
                known.token.worker = Some(worker);
                known.token.created_by = by;
                Ok(Ok(Installed { known, secret, replaced }))
            }
            why => Ok(Err(why)),
        }
    }
}

/// A machine's token, and what it takes the place of.
#[derive(Debug)]
pub struct Installed {
    /// The token.
    pub known: KnownToken,
    /// Its text, told this once.
    pub secret: Secret,
    /// The tokens that the worker had before; they are none any more, and its leases are to end.
    pub replaced: Vec<TokenId>,
}

impl Queue {
    /// Makes the token of a machine that is set up: it takes the place of those its worker has.
    pub async fn install(&self, worker: &WorkerName, by: Actor) -> Result<Installed, QueueError> {
        let (known, secret) = self.draft(NewToken::of_worker(worker)?, by)?;
        let replace = self.inner.store.replace_token(&known);
        let replaced = self.write(Passage::QueueToken, replace).await?;
        Ok(Installed { known, secret, replaced })
    }
}

impl NewToken {
    /// What a machine is given at its setup.
    pub fn of_worker(worker: &WorkerName) -> Result<Self, QueueError> {
        let name = worker.as_str().parse();
        let name = name.map_err(|e| QueueError::Invalid(format!("{e}")))?;
        Ok(Self { name, scopes: WORKER_SCOPES.to_vec(), worker: Some(worker.clone()) })
    }
}
