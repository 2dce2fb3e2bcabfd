//! A run's log on its way to the site: collected without waiting, sent in chunks.

mod backlog;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::backlog::Backlog;
use super::backoff::{Backoff, jitter};
use crate::api::{Code, LogChunk};
use crate::client::{Client, ClientError};
use crate::model::{Ids, LeaseRef, WorkerId};

/// How long the last lines may take to reach the site when the run has ended.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// The bound of the first pause after a chunk the site did not take.
const RETRY: Duration = Duration::from_secs(2);

/// Where a job writes its log's lines.
#[derive(Clone, Debug)]
pub struct RunLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backlog: Mutex<Backlog>,
    news: Notify,
}

impl Shared {
    fn new(backlog: Backlog) -> Arc<Self> {
        Arc::new(Self { backlog: Mutex::new(backlog), news: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For whom a log is sent.
#[derive(Clone, Debug)]
pub struct Speaker {
    /// The site.
    pub client: Client,
    /// The holder of the lease.
    pub worker: WorkerId,
    /// The run's lease.
    pub lease: LeaseRef,
}

impl RunLog {
    /// Starts the log of one run and the task that sends it. `place` is the run's in the outbox.
    #[must_use]
    pub fn start(speaker: Speaker, place: PathBuf, ids: Arc<dyn Ids>) -> (Self, Sender) {
        let shared = Shared::new(Backlog::new(Some(place)));
        let task = tokio::spawn(send(Arc::clone(&shared), speaker.clone(), ids));
        (Self { shared: Arc::clone(&shared) }, Sender { rest: Rest { shared, speaker }, task })
    }

    /// Adds one line. Never waits for the site: a lane must not be slowed down by it.
    pub fn line(&self, text: &str) {
        self.shared.lock().line(text);
        self.shared.news.notify_one();
    }
}

/// The sending half, ended when the run has.
#[derive(Debug)]
pub struct Sender {
    rest: Rest,
    task: JoinHandle<()>,
}

impl Sender {
    /// Sends what is left, for a short while, and ends. What did not reach the site is given back.
    pub async fn finish(self) -> Rest {
        self.task.abort();
        let _aborted = self.task.await;
        if let Ok(Err(error)) = tokio::time::timeout(LAST_WORDS, self.rest.send()).await {
            tracing::debug!(task = %self.rest.speaker.lease.task, %error, "the log waits");
        }
        self.rest
    }
}

/// What is left of a log whose run has ended.
#[derive(Debug)]
pub struct Rest {
    shared: Arc<Shared>,
    speaker: Speaker,
}

impl Rest {
    /// What an earlier start of the worker left beside `place`.
    #[must_use]
    pub fn left(place: &Path, speaker: Speaker) -> Self {
        Self { shared: Shared::new(Backlog::left(place)), speaker }
    }

    /// Sends all of it. What the site refuses, or cannot keep, is not sent again.
    ///
    /// # Errors
    /// When the site is away: what it did not take is still there.
    pub async fn send(&self) -> Result<(), ClientError> {
        loop {
            let next = self.shared.lock().next();
            let Some((offset, text)) = next else { return Ok(()) };
            match self.speaker.say(offset, text).await {
                Ok(end) => self.shared.lock().sent(end),
                Err(error) if error.is_away() && error.code() != Some(Code::Disk) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(task = %self.speaker.lease.task, %error, "the end of a log is lost");
                    return Ok(());
                }
            }
        }
    }

    /// Brings it to disk for a later start of the worker.
    pub fn keep(&self) {
        if let Err(error) = self.shared.lock().keep() {
            tracing::warn!(task = %self.speaker.lease.task, %error, "the end of a log is not kept");
        }
    }

    /// Nobody wants it any more.
    pub fn discard(&self) {
        self.shared.lock().discard();
    }
}

impl Speaker {
    async fn say(&self, offset: u64, text: String) -> Result<u64, ClientError> {
        let chunk =
            LogChunk { worker_id: self.worker.clone(), epoch: self.lease.epoch, offset, text };
        self.client.log(&self.lease.task, &chunk).await.map(|taken| taken.next)
    }
}

/// Sends what comes until it is dropped. A lease that is lost may be had back, so a refusal is no
/// end; only what the site says of the lease matters less and less often.
async fn send(shared: Arc<Shared>, speaker: Speaker, ids: Arc<dyn Ids>) {
    let mut backoff = Backoff::new(RETRY);
    loop {
        let next = shared.lock().next();
        let Some((offset, text)) = next else {
            shared.news.notified().await;
            continue;
        };
        match speaker.say(offset, text).await {
            Ok(end) => {
                backoff.reset();
                shared.lock().sent(end);
            }
            Err(error) => {
                tracing::debug!(task = %speaker.lease.task, %error, "the run's log waits");
                let wait = backoff.wait(jitter(&ids.uuid()), error.retry_after());
                tokio::time::sleep(wait).await;
            }
        }
    }
}
