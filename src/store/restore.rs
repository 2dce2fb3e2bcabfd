//! A backup in the place of a SQLite file.
//!
//! What is older than the world has to be set right before it is used: a task that was claimed
//! again after the backup would get an epoch that some worker holds already, or that the hidden ref
//! on its forge has seen. So each task's epoch goes on by more than any task is ever claimed, and
//! the leases that the backup remembers are over. And a token that was revoked since stays revoked, as
//! far as the file that stood there can tell.

use std::path::{Path, PathBuf};

use super::backup::{BackupError, Part, check, folder, revoked, snapshot, sync};
use super::{Sql, Store, StoreError};
use crate::model::{Actor, Timestamp, TokenName};

/// How far each task's epoch goes on: a claim takes milliseconds at least, and a row of failures
/// ends at six, so no task is claimed so often within the age of a backup.
pub const EPOCHS_ON: i64 = 1_000_000;

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Tasks that are there now.
    pub tasks: u64,
    /// Leases of the backup that are over.
    pub leases: u64,
    /// The tokens that are good in the backup and were revoked in the file that stood there: they are
    /// revoked. `None` where no such file could be read, so that nobody knows.
    pub revoked: Option<Vec<TokenName>>,
    /// Where the file is that stood there before.
    pub before: Option<PathBuf>,
}

/// Puts the backup `from` in the place of `to`, whose owner must not be there; a file that is there
/// is kept beside it, with `now` in its name.
///
/// # Errors
/// See [`BackupError`]; the file that was there then stays where it is.
pub async fn restore(from: &Path, to: &Path, now: Timestamp) -> Result<Restored, BackupError> {
    if !from.exists() {
        return Err(BackupError::NoBackup { path: from.to_owned() });
    }
    let part = Part::beside(to)?;
    let taken = async {
        snapshot(from, &part.path).await?;
        check(&part.path).await
    };
    taken.await.map_err(|error| match error {
        BackupError::Store(cause @ StoreError::Corrupt { .. }) => {
            BackupError::NotABackup { path: from.to_owned(), cause }
        }
        error => error,
    })?;
    let known = if to.exists() { revoked(to).await.ok() } else { None };
    let store = Store::open(&format!("sqlite://{}", part.path.display())).await?;
    let done = async {
        let counts = store.begin_again(now).await?;
        let revoked = match known {
            Some(known) => Some(store.revoke_again(&known).await?),
            None => None,
        };
        Ok::<_, BackupError>((counts, revoked))
    };
    let done = done.await;
    store.close().await;
    let ((tasks, leases), revoked) = done?;
    if part.has_log() {
        let cause = std::io::Error::other("its write-ahead log was not taken in");
        return Err(BackupError::File { path: part.path.clone(), what: "closed", cause });
    }
    sync(&part.path)?;
    let before = put_aside(to, now)?;
    std::fs::rename(&part.path, to).map_err(|cause| BackupError::File {
        path: to.to_owned(),
        what: "named",
        cause,
    })?;
    sync(folder(to))?;
    Ok(Restored { tasks, leases, revoked, before })
}

impl Store {
    /// Ends every lease and moves every epoch on; how many tasks and leases there are.
    async fn begin_again(&self, now: Timestamp) -> Result<(u64, u64), BackupError> {
        let counts = Sql::new(
            "select count(*) as tasks,
                count(case when worker_id is not null then 1 end) as leases from tasks",
        );
        let rows = self.read(counts).await?;
        let count = |column| match rows.first() {
            Some(row) => Ok(self.fields(row).count(column)?.unwrap_or_default()),
            None => Ok::<_, BackupError>(0),
        };
        let counted = (count("tasks")?, count("leases")?);
        let sql = Sql::new(
            "insert into events (at, kind, actor, task_id, data)
                select $1, 'lease.expired', 'site', id,
                    '{\"epoch\":' || epoch || ',\"worker\":\"' || worker_id
                        || '\",\"why\":\"restored\"}'
                from tasks where worker_id is not null order by id;
            update runs set finished_at = $1, ended_by = 'expiry', outcome = 'released',
                stop_reason = '{\"reason\":\"lease_lost\"}'
                where finished_at is null;
            update tasks set state = 'queued', worker_id = null, claim_id = null,
                expires_at = null, updated_at = $1
                where worker_id is not null;
            update tasks set epoch = epoch + $2",
        )
        .bind(now.0)
        .bind(EPOCHS_ON);
        self.write(sql).await?;
        Ok(counted)
    }
}

impl Store {
    /// Revokes what was revoked elsewhere, by when and by whom it was there; the names of those that
    /// were good here.
    async fn revoke_again(
        &self,
        known: &[(String, i64, String)],
    ) -> Result<Vec<TokenName>, BackupError> {
        let mut names = Vec::new();
        for token in self.tokens().await?.into_iter().map(|known| known.token) {
            let id = token.id.to_string();
            let Some((_, at, by)) = known.iter().find(|(other, ..)| *other == id) else { continue };
            if token.revoked_at.is_none() {
                self.revoke_token(&token.id, &Actor(by.clone()), Timestamp(*at)).await?;
                names.push(token.name);
            }
        }
        Ok(names)
    }
}

/// Moves the file with what belongs to it out of the way: its new name.
fn put_aside(path: &Path, now: Timestamp) -> Result<Option<PathBuf>, BackupError> {
    let with = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let aside = with(path, &format!(".before-{}", now.0));
    let mut moved = None;
    for end in ["", "-wal", "-shm"] {
        let (from, to) = (with(path, end), with(&aside, end));
        match std::fs::rename(&from, &to) {
            Ok(()) if end.is_empty() => moved = Some(aside.clone()),
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                return Err(BackupError::File { path: from, what: "put aside", cause });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(moved)
}
