//! A run's log on its way to the site: collected without waiting, sent in chunks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::api::{Code, LogChunk};
use crate::client::{Client, ClientError};
use crate::model::{LeaseRef, WorkerId};

/// At most so much waits for the site; beyond it the middle of the log is left out, and says so.
const PENDING_BYTES: usize = 1024 * 1024;
/// A chunk's size; the site takes 256 KiB.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long the last lines may take to reach the site when the run has ended.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// The pause after a chunk the site did not take.
const RETRY: Duration = Duration::from_secs(2);

/// Where a job writes its log's lines.
#[derive(Clone, Debug)]
pub struct RunLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pending: Mutex<Pending>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    text: String,
    left_out: usize,
    closed: bool,
}

impl RunLog {
    /// Starts the log of one run and the task that sends it.
    #[must_use]
    pub fn start(client: Client, worker: WorkerId, lease: LeaseRef) -> (Self, Sender) {
        let shared = Arc::new(Shared { pending: Mutex::default(), news: Notify::new() });
        let task = tokio::spawn(send(Arc::clone(&shared), client, worker, lease));
        (Self { shared: Arc::clone(&shared) }, Sender { shared, task })
    }

    /// Adds one line. Never waits: a lane must not be slowed down by the site.
    pub fn line(&self, text: &str) {
        let mut pending = self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.text.len() + text.len() > PENDING_BYTES {
            pending.left_out += 1;
            return;
        }
        if pending.left_out > 0 {
            let note = format!(
                "({} lines left out: they came faster than they could be sent)\n",
                pending.left_out
            );
            pending.text.push_str(&note);
            pending.left_out = 0;
        }
        pending.text.push_str(text);
        pending.text.push('\n');
        drop(pending);
        self.shared.news.notify_one();
    }
}

/// The sending half, ended when the run has.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Sender {
    /// Sends what is left, for a short while, and ends.
    pub async fn finish(mut self) {
        self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.news.notify_one();
        if tokio::time::timeout(LAST_WORDS, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

async fn send(shared: Arc<Shared>, client: Client, worker_id: WorkerId, lease: LeaseRef) {
    let mut offset = 0u64;
    loop {
        let (text, closed) = {
            let mut pending = shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
            (take_chunk(&mut pending.text), pending.closed)
        };
        if text.is_empty() {
            if closed {
                return;
            }
            shared.news.notified().await;
            continue;
        }
        let len = text.len() as u64;
        let chunk = LogChunk { worker_id: worker_id.clone(), epoch: lease.epoch, offset, text };
        while let Err(error) = client.log(&lease.task, &chunk).await {
            match error {
                // What the site cannot keep now is left out: a run does not wait for its log.
                ClientError::Refused(problem) if problem.code == Code::Disk => {
                    tracing::debug!(task = %lease.task, %problem, "a piece of the run's log is lost");
                    tokio::time::sleep(RETRY).await;
                    break;
                }
                // The site keeps its own log of it: nothing more of this run is wanted.
                ClientError::Refused(problem) => {
                    tracing::debug!(task = %lease.task, %problem, "the run's log was refused");
                    return;
                }
                error => {
                    tracing::debug!(task = %lease.task, %error, "the run's log waits");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        offset += len;
    }
}

/// Takes up to [`CHUNK_BYTES`] of whole lines off the front.
fn take_chunk(text: &mut String) -> String {
    if text.len() <= CHUNK_BYTES {
        return std::mem::take(text);
    }
    let end = text.as_bytes()[..CHUNK_BYTES]
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or_else(|| text.floor_char_boundary(CHUNK_BYTES), |at| at + 1);
    let rest = text.split_off(end);
    std::mem::replace(text, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_whole_lines_and_lose_nothing() {
        let line = format!("{}\n", "é".repeat(700));
        let whole = line.repeat(100);
        let mut text = whole.clone();
        let mut sent = String::new();
        while !text.is_empty() {
            let chunk = take_chunk(&mut text);
            assert!(chunk.len() <= CHUNK_BYTES && chunk.ends_with('\n'));
            sent.push_str(&chunk);
        }
        assert_eq!(sent, whole);
        let mut one_long_line = "é".repeat(CHUNK_BYTES);
        assert!(take_chunk(&mut one_long_line).len() <= CHUNK_BYTES);
    }
}
