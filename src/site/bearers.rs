//! The tokens that are good now, in memory: a request costs a look-up by hash and no statement.
//!
//! They are read when the owner starts and changed with each token that is made or revoked here.
//! Where several sites share one database, what another one changed is read by [`Site::reread`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::caller::Caller;
use super::sites::Notice;
use super::state::Site;
use crate::api::{CreatedToken, Plaintext};
use crate::model::{
    Actor, LeaseRef, Secret, Timestamp, Token, TokenHash, TokenId, TokenScope, WorkerId, WorkerName,
};
use crate::queue::{Installed, KnownToken, NewToken, QueueError};

/// What is known of a token that was shown.
#[derive(Debug)]
pub struct Bearer {
    /// The token's id, which is no secret.
    pub id: TokenId,
    /// What it may.
    pub scopes: Vec<TokenScope>,
    /// The worker it speaks for.
    pub worker: Option<WorkerName>,
    revoked: CancellationToken,
    used: AtomicI64,
}

impl Bearer {
    /// Whether it was revoked since the request that showed it came in.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }

    /// Completes when it is revoked.
    pub fn until_revoked(&self) -> WaitForCancellationFutureOwned {
        self.revoked.clone().cancelled_owned()
    }
}

/// Before the tokens are read again because of one that is not known.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Bearers {
    inner: RwLock<Inner>,
    /// One change at a time: what was read before a token was revoked must not bring it back.
    turn: tokio::sync::Mutex<()>,
    /// When the tokens were last read because of one that was not known, in uptime.
    asked: tokio::sync::Mutex<Asked>,
    /// How many such readings were begun.
    readings: AtomicU64,
}

/// The last such reading.
#[derive(Debug, Default)]
struct Asked {
    /// When it was begun, on the site's uptime.
    at: Option<Duration>,
    failed: bool,
}

#[derive(Debug, Default)]
struct Inner {
    by_hash: HashMap<TokenHash, Arc<Bearer>>,
    workers: HashMap<WorkerName, WorkerId>,
}

impl Bearers {
    /// Who bears this token.
    pub fn find(&self, token: &str, now: Timestamp) -> Option<Arc<Bearer>> {
        let hash = TokenHash::of_token(token)?;
        let bearer = self.read().by_hash.get(&hash).cloned()?;
        bearer.used.store(now.0, Ordering::Relaxed);
        Some(bearer)
    }

    /// The id of a worker of that name, where it ever registered.
    pub fn worker(&self, name: &WorkerName) -> Option<WorkerId> {
        self.read().workers.get(name).cloned()
    }

    /// Whether a good token speaks for a worker of that name.
    pub fn speaks(&self, name: &WorkerName) -> bool {
        self.read().by_hash.values().any(|bearer| bearer.worker.as_ref() == Some(name))
    }

    /// A worker registered.
    pub fn met(&self, name: &WorkerName, id: &WorkerId) {
        self.write().workers.insert(name.clone(), id.clone());
    }

    /// When each token was shown last, of those that were shown since this process began.
    pub fn used(&self) -> HashMap<TokenId, Timestamp> {
        let used = |bearer: &Arc<Bearer>| match bearer.used.load(Ordering::Relaxed) {
            0 => None,
            at => Some((bearer.id.clone(), Timestamp(at))),
        };
        self.read().by_hash.values().filter_map(used).collect()
    }

    /// One change at a time of what the database and this memory know.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A token is good from now on.
    pub(super) fn add(&self, KnownToken { hash, token }: KnownToken) {
        let bearer = Bearer {
            id: token.id,
            scopes: token.scopes,
            worker: token.worker,
            revoked: CancellationToken::new(),
            used: AtomicI64::new(0),
        };
        self.write().by_hash.entry(hash).or_insert_with(|| Arc::new(bearer));
    }

    /// A token is none from now on; whatever is held with it hears of it.
    pub(super) fn remove(&self, id: &TokenId) {
        let mut inner = self.write();
        inner.by_hash.retain(|_, bearer| {
            if bearer.id == *id {
                bearer.revoked.cancel();
            }
            bearer.id != *id
        });
    }

    fn ids(&self) -> Vec<TokenId> {
        self.read().by_hash.values().map(|bearer| bearer.id.clone()).collect()
    }

    /// A panic elsewhere leaves the maps as whole as they were: each change is one call.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Site {
    /// Who bears this token. One that is not known may have been made at another site a moment
    /// ago: a worker that was refused would give up, so the database is asked first. Strangers that
    /// make tokens up cause one reading in [`ASK_AGAIN`] between them, and wait for it.
    ///
    /// # Errors
    /// The database's, where it could not be asked: whether the token is good is not known.
    pub async fn bearer(&self, token: &str) -> Result<Option<Arc<Bearer>>, QueueError> {
        let find = || self.bearers.find(token, self.clock.now());
        if let Some(bearer) = find() {
            return Ok(Some(bearer));
        }
        if TokenHash::of_token(token).is_none() || !self.sites.is_many() {
            return Ok(None);
        }
        // On the heap: else every request would carry room for it.
        Box::pin(self.look_up(token)).await
    }

    async fn look_up(&self, token: &str) -> Result<Option<Arc<Bearer>>, QueueError> {
        let find = || self.bearers.find(token, self.clock.now());
        let before = self.bearers.readings.load(Ordering::Acquire);
        let mut asked = self.bearers.asked.lock().await;
        // Else one was begun for somebody else since this request came, which serves it as well.
        let served = self.bearers.readings.load(Ordering::Acquire) != before && !asked.failed;
        if !served {
            if let Some(at) = asked.at {
                let passed = self.clock.uptime().saturating_sub(at);
                tokio::time::sleep(ASK_AGAIN.saturating_sub(passed)).await;
            }
            *asked = Asked { at: Some(self.clock.uptime()), failed: true };
            self.bearers.readings.fetch_add(1, Ordering::AcqRel);
            self.reread().await?;
            asked.failed = false;
        }
        Ok(find())
    }

    /// Makes a token, which is good here at once.
    ///
    /// # Errors
    /// Where it would be none, or the database fails.
    pub(super) async fn mint(
        &self,
        new: NewToken,
        by: Actor,
    ) -> Result<(Token, Secret), QueueError> {
        let turn = self.bearers.turn().await;
        let (known, secret) = self.queue.create_token(new, by).await?;
        let token = known.token.clone();
        self.bearers.add(known);
        drop(turn);
        self.sites.tell(Notice::Tokens);
        Ok((token, secret))
    }

    /// A machine's token is good here at once, and what it took the place of is none: what is held
    /// with that is let go, and the leases of the machine that had it end. `turn` was taken before
    /// it was written: of two machines of one name the later one is known here as well.
    pub(super) async fn install(
        &self,
        installed: Installed,
        turn: tokio::sync::MutexGuard<'_, ()>,
    ) -> CreatedToken {
        let Installed { known, secret, replaced: before } = installed;
        let token = known.token.clone();
        self.bearers.add(known);
        drop(turn);
        self.sites.tell(Notice::Tokens);
        let mut replaced = Vec::new();
        for id in before {
            // It is revoked already; a lease that does not end now runs out.
            match self.revoke(&id, &token.created_by).await {
                Ok((revoked, _)) => replaced.push(revoked),
                Err(error) => {
                    tracing::warn!(%id, %error, "the leases of a machine that was replaced run on");
                }
            }
        }
        CreatedToken { token, secret: Plaintext::of(&secret), replaced }
    }

    /// The admin's token of a site that never had any; `None` where it had.
    ///
    /// # Errors
    /// The database's.
    pub async fn first_token(&self) -> Result<Option<Secret>, QueueError> {
        let _turn = self.bearers.turn().await;
        let Some((known, secret)) = self.queue.first_token().await? else { return Ok(None) };
        self.bearers.add(known);
        self.sites.tell(Notice::Tokens);
        Ok(Some(secret))
    }

    /// Reads the tokens anew: at the start, and where another site on the same database may have
    /// changed them. One that was revoked there is none here from then on, and what was claimed
    /// with it meanwhile ends.
    ///
    /// # Errors
    /// The database's; what is known stays.
    pub async fn reread(&self) -> Result<(), QueueError> {
        let _turn = self.bearers.turn.lock().await;
        let before = self.bearers.ids();
        for (name, id) in self.queue.worker_ids().await? {
            self.bearers.met(&name, &id);
        }
        for known in self.queue.tokens().await? {
            let here = before.contains(&known.token.id);
            match &known.token.revoked_by {
                Some(by) if here => {
                    let (_, ended) = self.end_token(&known.token.id, by).await?;
                    self.call_off(&ended);
                }
                None if !here => self.bearers.add(known),
                _ => {}
            }
        }
        Ok(())
    }

    /// The worker of that name, where it registered at another site on the same database.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn find_worker(
        &self,
        name: &WorkerName,
    ) -> Result<Option<WorkerId>, QueueError> {
        for (name, id) in self.queue.worker_ids().await? {
            self.bearers.met(&name, &id);
        }
        Ok(self.bearers.worker(name))
    }

    /// Revokes a token: nothing is answered with it any more, what is held with it is let go, and
    /// the leases of its worker end.
    ///
    /// First it is forgotten here, then the leases end; a claim that was under way meanwhile looks
    /// at [`Bearer::is_revoked`] once it is through. So no lease outlives its token.
    ///
    /// # Errors
    /// Where there is no such token, or the database fails: then it is none here all the same.
    pub(super) async fn revoke(
        &self,
        id: &TokenId,
        by: &Actor,
    ) -> Result<(Token, Vec<LeaseRef>), QueueError> {
        let _turn = self.bearers.turn.lock().await;
        let ended = self.end_token(id, by).await;
        // Also where it failed: it may have been done. The others let its held requests go before
        // they hear of its leases, as this one does.
        self.sites.tell(Notice::Tokens);
        let (token, ended) = ended?;
        self.call_off(&ended);
        Ok((token, ended.into_iter().map(|(_, lease)| lease).collect()))
    }

    async fn end_token(
        &self,
        id: &TokenId,
        by: &Actor,
    ) -> Result<(Token, Vec<(WorkerId, LeaseRef)>), QueueError> {
        self.bearers.remove(id);
        self.queue.revoke_token(id, by).await
    }

    /// Tells whoever holds what ended with a token.
    fn call_off(&self, ended: &[(WorkerId, LeaseRef)]) {
        for (worker, lease) in ended {
            self.logs.ended(lease);
            self.bell.revoke(worker, lease.clone());
            self.sites.tell(Notice::revoked(worker, lease));
        }
        if !ended.is_empty() {
            self.timers.changed();
        }
    }

    /// A claim came through whose token was revoked meanwhile: its lease ends as well.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn end_claimed(&self, caller: &Caller) -> Result<(), QueueError> {
        let Some(id) = caller.token() else { return Ok(()) };
        self.revoke(id, &Actor::site()).await.map(|_| ())
    }

    /// Writes down when the tokens were shown last, so that a list after a restart knows.
    pub(super) async fn keep_used(&self) {
        for (id, at) in self.bearers.used() {
            if let Err(error) = self.queue.used_token(&id, at).await {
                tracing::warn!(%error, "when a token was used last was not written down");
                return;
            }
        }
    }
}
