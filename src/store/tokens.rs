//! Tokens: by their hash, with what they may and whom they speak for.

use super::row::Fields;
use super::{Sql, Store, StoreError};
use crate::model::{
    Actor, LeaseRef, Timestamp, Token, TokenHash, TokenId, TokenScope, WorkerId, WorkerName,
};

/// A token and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownToken {
    /// By which it is found.
    pub hash: TokenHash,
    /// What is known of it.
    pub token: Token,
}

/// A token after it was revoked.
#[derive(Debug)]
pub struct RevokedToken {
    /// As it stands now.
    pub token: Token,
    /// The leases of its worker, which ended with it.
    pub ended: Vec<(WorkerId, LeaseRef)>,
}

/// The columns of a token in reads.
macro_rules! token_columns {
    () => {
        "id, name, hash, scopes, worker, created_by, created_at, last_used, revoked_at, revoked_by"
    };
}

/// Revokes, at `$now`, what the worker of the token `$id` has beside it, if there is such a token.
macro_rules! replaced_by {
    ($id:literal, $now:literal) => {
        concat!(
            "update tokens set revoked_at = ",
            $now,
            ", revoked_by = (select n.created_by from tokens n where n.id = ",
            $id,
            ") where worker = (select n.worker from tokens n where n.id = ",
            $id,
            ") and id <> ",
            $id,
            " and revoked_at is null returning id as replaced;"
        )
    };
}
pub(super) use replaced_by;

impl Store {
    /// Keeps a new token; with `first`, only where there is none, also no revoked one. False where
    /// there was.
    pub async fn create_token(&self, new: &KnownToken, first: bool) -> Result<bool, StoreError> {
        let KnownToken { hash, token } = new;
        let sql = Sql::new(
            "insert into tokens (id, name, hash, scopes, worker, created_by, created_at)
            select $1, $2, $3, $4, $5, $6, $7
            where $8 = 0 or not exists (select 1 from tokens)
            returning id as touched",
        )
        .bind(token.id.to_string())
        .bind(token.name.to_string())
        .bind(hash.to_string())
        .bind(words(&token.scopes))
        .bind(token.worker.as_ref().map(ToString::to_string))
        .bind(token.created_by.0.clone())
        .bind(token.created_at.0)
        .bind(i64::from(first));
        Ok(self.write(sql).await?.len() == 1)
    }

    /// Keeps a worker's new token; it takes the place of those the worker has, which are none from
    /// this write on. Gives their ids.
    pub async fn replace_token(&self, new: &KnownToken) -> Result<Vec<TokenId>, StoreError> {
        let KnownToken { hash, token } = new;
        let sql = Sql::new(concat!(
            "insert into tokens (id, name, hash, scopes, worker, created_by, created_at)
                values ($1, $2, $3, $4, $5, $6, $7);",
            replaced_by!("$1", "$7")
        ))
        .bind(token.id.to_string())
        .bind(token.name.to_string())
        .bind(hash.to_string())
        .bind(words(&token.scopes))
        .bind(token.worker.as_ref().map(ToString::to_string))
        .bind(token.created_by.0.clone())
        .bind(token.created_at.0);
        let rows = self.write(sql).await?;
        rows.iter().map(|row| self.fields(row).parsed("replaced")).collect()
    }

    /// Every token, also those that were revoked; the oldest first.
    pub async fn tokens(&self) -> Result<Vec<KnownToken>, StoreError> {
        let sql = concat!("select ", token_columns!(), " from tokens order by created_at, id");
        let rows = self.read(Sql::new(sql)).await?;
        rows.iter().map(|row| self.fields(row).token()).collect()
    }

    /// Revokes a token and ends the leases of the worker that registered with it: their tasks are
    /// queued again, and nobody but another claim brings such a lease back. Done again, it ends
    /// what was claimed meanwhile. `None` where there is no such token.
    pub async fn revoke_token(
        &self,
        id: &TokenId,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Option<RevokedToken>, StoreError> {
        let sql = Sql::new(concat!(
            "update tokens set revoked_at = $2, revoked_by = $3
            where id = $1 and revoked_at is null;
            insert into events (at, kind, actor, task_id, data)
                select $2, 'lease.expired', $3, id,
                    '{\"epoch\":' || epoch || ',\"worker\":\"' || worker_id
                        || '\",\"why\":\"token_revoked\"}'
                from tasks where worker_id in (select id from workers where token_id = $1)
                order by expires_at, id;
            update runs set finished_at = $2, ended_by = 'person', outcome = 'released',
                stop_reason = '{\"reason\":\"lease_lost\"}'
            where (task_id, epoch) in (
                select id, epoch from tasks
                where worker_id in (select id from workers where token_id = $1));
            select id as ended, epoch, worker_id from tasks
                where worker_id in (select id from workers where token_id = $1)
                order by expires_at, id;
            update tasks set state = 'queued', stop_reason = '{\"reason\":\"lease_lost\"}',
                message = 'the token of its worker was revoked',
                worker_id = null, claim_id = null, expires_at = null, updated_at = $2
            where worker_id in (select id from workers where token_id = $1);
            select ",
            token_columns!(),
            " from tokens where id = $1"
        ))
        .bind(id.to_string())
        .bind(now.0)
        .bind(by.0.clone());
        let rows = self.write(sql).await?;
        let (mut ended, mut token) = (Vec::new(), None);
        for row in rows.iter().map(|row| self.fields(row)) {
            if row.has("ended") {
                ended.push((row.parsed("worker_id")?, row.lease("ended")?));
            } else {
                token = Some(row.token()?.token);
            }
        }
        Ok(token.map(|token| RevokedToken { token, ended }))
    }

    /// Notes which token the worker's present instance registered with.
    pub async fn bind_worker(
        &self,
        worker: &WorkerId,
        token: Option<&TokenId>,
    ) -> Result<(), StoreError> {
        let sql = Sql::new("update workers set token_id = $2 where id = $1")
            .bind(worker.to_string())
            .bind(token.map(ToString::to_string));
        self.write(sql).await.map(|_| ())
    }

    /// The id of each worker that ever registered.
    pub async fn worker_ids(&self) -> Result<Vec<(WorkerName, WorkerId)>, StoreError> {
        let rows = self.read(Sql::new("select name, id from workers")).await?;
        let pair = |row| {
            let row: Fields<'_> = self.fields(row);
            Ok((row.parsed("name")?, row.parsed("id")?))
        };
        rows.iter().map(pair).collect()
    }

    /// Notes when a token was shown last.
    pub async fn used_token(&self, id: &TokenId, at: Timestamp) -> Result<(), StoreError> {
        let sql = Sql::new(
            "update tokens set last_used = $2 where id = $1 and coalesce(last_used, 0) < $2",
        )
        .bind(id.to_string())
        .bind(at.0);
        self.write(sql).await.map(|_| ())
    }
}

impl Fields<'_> {
    /// A token, from the columns of `token_columns!`.
    fn token(&self) -> Result<KnownToken, StoreError> {
        let scopes = self.text("scopes")?;
        let scopes: Result<Vec<TokenScope>, _> =
            scopes.split_whitespace().map(|word| word.parse()).collect();
        let token = Token {
            id: self.parsed("id")?,
            name: self.parsed("name")?,
            scopes: scopes.map_err(|e| self.unreadable("scopes", e))?,
            worker: self.optional("worker")?,
            created_by: Actor(self.text("created_by")?),
            created_at: self.time("created_at")?,
            last_used: self.optional_time("last_used")?,
            revoked_at: self.optional_time("revoked_at")?,
            revoked_by: self.optional_text("revoked_by")?.map(Actor),
        };
        Ok(KnownToken { hash: self.parsed("hash")?, token })
    }
}

pub(super) fn words(scopes: &[TokenScope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ")
}
