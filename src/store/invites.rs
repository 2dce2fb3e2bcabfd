//! Invites: codes that are traded for a worker's token, once.

use super::tokens::{replaced_by, words};
use super::{KnownToken, Sql, Store, StoreError};
use crate::model::{Actor, Timestamp, TokenHash, TokenId, WorkerName};

/// What an invite was traded for, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redeemed {
    /// A token of that worker, made by whoever invited.
    Token {
        /// Whom it speaks for.
        worker: WorkerName,
        /// Who made the invite.
        by: Actor,
        /// The tokens that the worker had before, which are none from this write on.
        replaced: Vec<TokenId>,
    },
    /// There is no such invite: it never was, was used, or is over.
    Unknown,
    /// It is for that worker, and another name was asked for.
    OtherName(WorkerName),
    /// It names none, and somebody has the name.
    NameTaken,
}

impl Store {
    /// Keeps an invite. Those that are over for a day are forgotten.
    pub async fn invite(
        &self,
        hash: &TokenHash,
        worker: Option<&WorkerName>,
        by: &Actor,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let sql = Sql::new(
            "delete from invites where expires_at < $4 - 86400000;
            insert into invites (hash, worker, created_by, created_at, expires_at)
                values ($1, $2, $3, $4, $5)",
        )
        .bind(hash.to_string())
        .bind(worker.map(WorkerName::to_string))
        .bind(by.0.clone())
        .bind(now.0)
        .bind(expires_at.0);
        self.write(sql).await.map(|_| ())
    }

    /// Trades an invite for `token`, whose worker is only a proposal where the invite names one:
    /// `named` says that a person chose it. An invite that names none gives no name that a good
    /// token or a worker has.
    pub async fn redeem(
        &self,
        hash: &TokenHash,
        token: &KnownToken,
        proposed: &WorkerName,
        named: bool,
        now: Timestamp,
    ) -> Result<Redeemed, StoreError> {
        let sql = Sql::new(concat!(
            "insert into tokens (id, name, hash, scopes, worker, created_by, created_at)
                select $2, coalesce(i.worker, $3), $4, $5, coalesce(i.worker, $3), i.created_by, $6
                from invites i
                where i.hash = $1 and i.token_id is null and i.expires_at > $6
                  and (i.worker is null or $7 = 0 or i.worker = $3)
                  and (i.worker is not null
                      or not exists (select 1 from workers w where w.name = $3)
                      and not exists (select 1 from tokens t
                          where t.worker = $3 and t.revoked_at is null));
            update invites set token_id = $2 where hash = $1 and changes() = 1;",
            replaced_by!("$2", "$6"),
            "select i.worker, i.created_by, i.token_id, coalesce(t.worker, $3) as name
            from invites i left join tokens t on t.id = i.token_id
            where i.hash = $1 and i.expires_at > $6"
        ))
        .bind(hash.to_string())
        .bind(token.token.id.to_string())
        .bind(proposed.to_string())
        .bind(token.hash.to_string())
        .bind(words(&token.token.scopes))
        .bind(now.0)
        .bind(i64::from(named));
        let rows = self.write(sql).await?;
        let (mut replaced, mut invite) = (Vec::new(), None);
        for row in rows.iter().map(|row| self.fields(row)) {
            if row.has("replaced") {
                replaced.push(row.parsed("replaced")?);
            } else {
                invite = Some(row);
            }
        }
        let Some(row) = invite else { return Ok(Redeemed::Unknown) };
        let used_by = row.optional_text("token_id")?;
        if used_by.as_deref() == Some(token.token.id.as_str()) {
            let by = Actor(row.text("created_by")?);
            return Ok(Redeemed::Token { worker: row.parsed("name")?, by, replaced });
        }
        Ok(match (used_by, row.optional("worker")?) {
            (Some(_), _) => Redeemed::Unknown,
            (None, Some(worker)) => Redeemed::OtherName(worker),
            (None, None) => Redeemed::NameTaken,
        })
    }
}
