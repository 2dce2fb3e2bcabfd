//! Writes of several callers in one transaction, where they would otherwise wait for a connection:
//! one commit for all of them. Each sees what those before it did, as it would have seen it
//! committed. Where one fails, none of them is done, and each is made by itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::AnyConnection;
use sqlx::any::AnyRow;
use tokio::sync::oneshot;

use super::pool::Line;
use super::statements::Statement;
use super::{GIVE_UP, Inner, Postgres, Work};
use crate::store::{StoreError, error};

/// Writes in one transaction at most: the first waits for the last.
const MOST: usize = 16;

type Answer = Result<Vec<AnyRow>, StoreError>;

/// Writes without a connection yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<VecDeque<Write>>);

struct Write {
    statement: Statement,
    reply: oneshot::Sender<Answer>,
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.statement.fmt(f)
    }
}

impl Waiting {
    fn take(&self, most: usize) -> Vec<Write> {
        let mut waiting = self.lock();
        let count = waiting.len().min(most);
        waiting.drain(..count).collect()
    }

    /// A panic elsewhere leaves a whole queue: each change is one step.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Write>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Postgres {
    pub(super) async fn write_grouped(&self, statement: Statement) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.inner.waiting.lock().push_back(Write { statement, reply });
        // A task a write: each that gets a connection takes what waits then, so none is left over.
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.write_next().await });
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed { path: self.inner.name.clone() }))
    }
}

impl Inner {
    async fn write_next(&self) {
        let permit = self.pool.permit(&self.name).await;
        let line = match permit {
            Ok(_) if self.waiting.lock().is_empty() => return,
            Ok(permit) => self.pool.line_by(permit, &self.name).await,
            Err(error) => Err(error),
        };
        match line {
            Ok(line) => self.write_group(line, self.waiting.take(MOST)).await,
            Err(error) => {
                if let Some(write) = self.waiting.take(1).pop() {
                    let _ = write.reply.send(Err(error));
                }
            }
        }
    }

    async fn write_group(&self, mut line: Line<'_>, group: Vec<Write>) {
        let (statements, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|write| (write.statement, write.reply)).unzip();
        if statements.len() < 2 {
            return self.each_by_itself(Some(line), statements, replies).await;
        }
        let done = tokio::time::timeout(GIVE_UP, together(line.connection(), &statements)).await;
        match done {
            Ok(Ok(all)) => {
                let kept = self.pool.put_away(line);
                for (reply, rows) in replies.into_iter().zip(all) {
                    let _ = reply.send(Ok(rows));
                }
                if let Some(line) = kept {
                    self.pool.keep_the_time(line).await;
                }
            }
            Ok(Err(error)) if !error::is_line_lost(&error) => {
                let undone = sqlx::raw_sql("rollback").execute(line.connection()).await;
                match undone {
                    Ok(_) => self.pool.give_back(line),
                    Err(_) => self.pool.lost(line),
                }
                self.each_by_itself(None, statements, replies).await;
            }
            Ok(Err(error)) => {
                self.pool.lost(line);
                for reply in replies {
                    let _ = reply.send(Err(error::explain_postgres(&self.name, &error)));
                }
            }
            Err(_) => {
                self.pool.lost(line);
                for reply in replies {
                    let _ = reply.send(Err(self.no_answer()));
                }
            }
        }
    }

    /// The first on `line`, where there is one.
    pub(super) async fn each_by_itself<'a>(
        &'a self,
        mut line: Option<Line<'a>>,
        statements: Vec<Statement>,
        replies: Vec<oneshot::Sender<Answer>>,
    ) {
        for (statement, reply) in statements.into_iter().zip(replies) {
            let work = Work::Quick(statement);
            let first = match line.take() {
                Some(line) => self.run_on(line, &work, 1).await,
                None => None,
            };
            let done = match first {
                Some(done) => done,
                None => self.run(&work).await,
            };
            let (answer, kept) = match done {
                Ok((rows, line)) => (Ok(rows), self.pool.put_away(line)),
                Err(error) => (Err(error), None),
            };
            let _ = reply.send(answer);
            if let Some(line) = kept {
                self.pool.keep_the_time(line).await;
            }
        }
        // Nothing was left to write.
        if let Some(line) = line {
            self.pool.give_back(line);
        }
    }
}

/// The rows of each.
async fn together(
    connection: &mut AnyConnection,
    statements: &[Statement],
) -> Result<Vec<Vec<AnyRow>>, sqlx::Error> {
    sqlx::raw_sql("begin").execute(&mut *connection).await?;
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        all.push(statement.query(0).fetch_all(&mut *connection).await?);
    }
    sqlx::raw_sql("commit").execute(connection).await?;
    Ok(all)
}
