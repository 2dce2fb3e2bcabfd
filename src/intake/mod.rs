//! Turns what a forge says into queue calls: one reconcile, brought forward by a poll.
//!
//! A reconcile compares a project's issues and pull requests with its tasks and does what is
//! missing. It may be done twice or be cut short at any point: what was done is found done. It
//! never takes a hole in an answer for something taken away: a task is only called off after its
//! own issue was read.

mod github;
mod local;
mod memo;
mod poll;
mod recall;
mod wishes;

use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::forge::ForgeError;
use crate::forge::github::Accounts;
use crate::model::{Clock, ForgeKind, ForgeProblem, LaneName, Project, RepoName, Task, Timestamp};
use crate::queue::{Changed, Queue, QueueError};

use self::memo::{Known, Memo, Wish};
pub use self::poll::INTERVAL;
use self::recall::Recall;

/// What an intake needs.
#[derive(Clone, Debug)]
pub struct IntakeConfig {
    /// Where tasks are.
    pub queue: Queue,
    /// The logins of this process.
    pub accounts: Arc<Accounts>,
    /// When is now.
    pub clock: Arc<dyn Clock>,
    /// This machine: local projects of another one are not looked at.
    pub host: String,
    /// Logins that may ask (RELAY_ALLOWED_SENDERS). Empty: whoever can write to the repository.
    pub allowed_senders: Vec<String>,
}

/// Watches the linked repositories for one owner.
pub struct Intake {
    queue: Queue,
    accounts: Arc<Accounts>,
    clock: Arc<dyn Clock>,
    host: String,
    allowed_senders: Vec<String>,
    /// Held for a whole reconcile, so that two never work on one project at once.
    memo: Mutex<Memo>,
    recall: Recall,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("host", &self.host).finish_non_exhaustive()
    }
}

/// What one reconcile of one project did.
#[derive(Debug)]
pub struct Reconciled {
    /// The project.
    pub slug: RepoName,
    /// Tasks that are queued now and were not before.
    pub added: Vec<Task>,
    /// Tasks called off, each with the lease that this ended.
    pub cancelled: Vec<Changed>,
    /// Tasks whose work was merged, each with the lease that this ended.
    pub done: Vec<Changed>,
    /// Labels that became no task. Each is told once, when it is first met.
    pub refused: Vec<Refusal>,
    /// What kept the reconcile from its end.
    pub problem: Option<IntakeError>,
    /// When it is worth doing again.
    pub next: Timestamp,
}

impl Reconciled {
    /// Tells a refusal, unless this one was told before.
    fn refuse_once(
        &mut self,
        wish: Wish,
        set_at: Option<Timestamp>,
        why: String,
        known: &mut Known,
    ) {
        let (number, lane) = wish.clone();
        if known.refuse(wish, set_at) {
            self.refused.push(Refusal { number, lane, why });
        }
    }

    /// Whether a task changed.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !(self.added.is_empty() && self.cancelled.is_empty() && self.done.is_empty())
    }
}

/// A label that became no task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The issue's number.
    pub number: u64,
    /// The lane asked for.
    pub lane: LaneName,
    /// Why, for a person.
    pub why: String,
}

/// What kept a reconcile from its end.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The forge.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// The queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// git2's work could not be done on its thread.
    #[error("reading {0} was cut short")]
    CutShort(String),
}

impl IntakeError {
    /// Whether it says something about one issue only, so that the rest of its project is looked
    /// at all the same: an answer about it that cannot be read or makes no sense, or a task that
    /// changed meanwhile.
    fn is_of_one_issue(&self) -> bool {
        match self {
            Self::Forge(ForgeError::BadAnswer(_)) => true,
            Self::Forge(error) => {
                use ForgeProblem::{Invalid, Moved, NotFound};
                matches!(error.problem(), NotFound | Moved | Invalid)
            }
            Self::Queue(error) => !matches!(error, QueueError::Store(_)),
            Self::CutShort(_) => false,
        }
    }
}

impl Intake {
    /// Nothing is asked before the first reconcile.
    #[must_use]
    pub fn new(config: IntakeConfig) -> Self {
        let IntakeConfig { queue, accounts, clock, host, allowed_senders } = config;
        let (memo, recall) = (Mutex::default(), Recall::default());
        Self { queue, accounts, clock, host, allowed_senders, memo, recall }
    }

    /// Compares one project with its forge and does what is missing.
    pub async fn reconcile(&self, project: &Project) -> Reconciled {
        let mut memo = self.memo.lock().await;
        let mut out = Reconciled {
            slug: project.slug.clone(),
            added: Vec::new(),
            cancelled: Vec::new(),
            done: Vec::new(),
            refused: Vec::new(),
            problem: None,
            next: Timestamp(0),
        };
        let mut known = memo.take(&project.slug);
        let result = match project.forge {
            ForgeKind::Github => self.reconcile_github(project, &mut known, &mut out).await,
            ForgeKind::Local => self.reconcile_local(project, &mut out).await,
        };
        out.problem = result.err();
        out.next = self.next_look(project, &mut known, out.problem.as_ref()).await;
        memo.put(&project.slug, known);
        out
    }
}
