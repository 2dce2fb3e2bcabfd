//! Writes of several callers as one statement, which costs little more than that of one: it is
//! started once, committed once and answered once. What comes while one is under way is gathered
//! for the next; a write alone waits for nobody and is made as it would be without this.
//!
//! A statement that fails is undone as a whole, and each of its writes is made by itself.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::Row;
use sqlx::any::AnyRow;
use tokio::sync::{Semaphore, oneshot};

use super::pool::Line;
use super::statements::Statement;
use super::{GIVE_UP, Inner, Postgres};
use crate::store::sql::{Arg, Joint};
use crate::store::{StoreError, error};

/// Writes in one statement at most: the first waits for the last.
const MOST: usize = 64;

/// Statements under way at most. Two keep two cores busy while one of them waits for the disk; more
/// would only be smaller.
const AT_ONCE: usize = 2;

type Answer = Result<Vec<AnyRow>, StoreError>;

/// Writes that are in no statement yet, the oldest first.
#[derive(Debug)]
pub(super) struct Asking {
    waiting: Mutex<VecDeque<Write>>,
    turns: Semaphore,
}

struct Write {
    /// How it is made by itself.
    alone: Statement,
    joint: Joint,
    reply: oneshot::Sender<Answer>,
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.joint.fmt(f)
    }
}

impl Default for Asking {
    fn default() -> Self {
        Self { waiting: Mutex::default(), turns: Semaphore::new(AT_ONCE) }
    }
}

impl Asking {
    /// The oldest write and those that can be asked together with it, in their order. Of two about
    /// the same the second stays.
    fn take(&self) -> Vec<Write> {
        let mut waiting = self.lock();
        let Some(first) = waiting.pop_front() else { return Vec::new() };
        let mut about = BTreeSet::from([first.joint.about.clone()]);
        let mut taken = vec![first];
        let mut left = VecDeque::new();
        for write in waiting.drain(..) {
            let alike = taken.first().is_some_and(|first| first.joint.goes_with(&write.joint));
            if alike && taken.len() < MOST && about.insert(write.joint.about.clone()) {
                taken.push(write);
            } else {
                left.push_back(write);
            }
        }
        *waiting = left;
        taken
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// A panic elsewhere leaves a whole queue: each change is one step.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Write>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Joint {
    fn goes_with(&self, other: &Self) -> bool {
        self.text == other.text && self.shared == other.shared
    }
}

impl Postgres {
    /// Asked together with what waits then; `alone` is how it is asked where nothing does.
    pub(super) async fn write_jointly(&self, alone: Statement, joint: Joint) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.inner.asking.lock().push_back(Write { alone, joint, reply });
        // A task a write: each that has its turn takes what waits then, so none is left over.
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.ask_next().await });
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed { path: self.inner.name.clone() }))
    }
}

impl Inner {
    async fn ask_next(self: &Arc<Self>) {
        let _turn = self.asking.turns.acquire().await;
        if self.asking.is_empty() {
            return;
        }
        // What comes while a connection is waited for goes with the rest.
        let permit = self.pool.permit(&self.name).await;
        let writes = self.asking.take();
        if writes.is_empty() {
            return;
        }
        let line = match permit {
            Ok(permit) => self.pool.line_by(permit, &self.name).await,
            Err(error) => Err(error),
        };
        match line {
            Ok(line) => self.write_together(line, writes).await,
            Err(error) => refuse(writes, &error),
        }
    }

    async fn write_together(self: &Arc<Self>, mut line: Line<'_>, writes: Vec<Write>) {
        let Some(statement) = statement_of(&writes) else {
            let (alone, replies) = apart(writes);
            return self.each_by_itself(Some(line), alone, replies).await;
        };
        let asked = statement.query(0).fetch_all(line.connection());
        match tokio::time::timeout(GIVE_UP, asked).await {
            Ok(Ok(rows)) => {
                let kept = self.pool.put_away(line);
                for (write, rows) in writes.into_iter().zip(dealt(rows)) {
                    // Whoever asked may have gone; it is done all the same.
                    let _ = write.reply.send(Ok(rows));
                }
                if let Some(line) = kept {
                    self.pool.keep_the_time(line).await;
                }
            }
            Ok(Err(error)) if error::is_line_lost(&error) => {
                self.pool.lost(line);
                refuse(writes, &error::explain_postgres(&self.name, &error));
            }
            // All of it is undone. None waits for another now: what one of them waited for may not
            // be over yet.
            Ok(Err(_)) => {
                self.pool.give_back(line);
                for write in writes {
                    let inner = Arc::clone(self);
                    tokio::spawn(async move {
                        inner.each_by_itself(None, vec![write.alone], vec![write.reply]).await;
                    });
                }
            }
            Err(_) => {
                self.pool.lost(line);
                refuse(writes, &self.no_answer());
            }
        }
    }
}

/// The one statement of several writes; `None` for one alone.
fn statement_of(writes: &[Write]) -> Option<Statement> {
    let [Write { joint, .. }, _, ..] = writes else { return None };
    let mut asks = String::from("[");
    for (number, write) in writes.iter().enumerate() {
        let object = write.joint.ask.strip_prefix('{').unwrap_or_default();
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(asks, "{comma}{{\"ask\":{number},{object}");
    }
    asks.push(']');
    let args = std::iter::once(Arg::from(asks)).chain(joint.shared.iter().cloned()).collect();
    Some(Statement::whole(joint.text.clone().into_owned(), args))
}

/// The rows of each asker, in the order of their numbers.
fn dealt(rows: Vec<AnyRow>) -> impl Iterator<Item = Vec<AnyRow>> {
    let mut of: Vec<Vec<AnyRow>> = Vec::new();
    for row in rows {
        let number = row.try_get::<i64, _>("ask").ok().and_then(|n| usize::try_from(n).ok());
        let Some(number) = number.filter(|n| *n < MOST) else { continue };
        if of.len() <= number {
            of.resize_with(number + 1, Vec::new);
        }
        if let Some(rows) = of.get_mut(number) {
            rows.push(row);
        }
    }
    of.into_iter().chain(std::iter::repeat_with(Vec::new))
}

fn apart(writes: Vec<Write>) -> (Vec<Statement>, Vec<oneshot::Sender<Answer>>) {
    writes.into_iter().map(|write| (write.alone, write.reply)).unzip()
}

fn refuse(writes: Vec<Write>, error: &StoreError) {
    for write in writes {
        let _ = write.reply.send(Err(error.clone()));
    }
}
