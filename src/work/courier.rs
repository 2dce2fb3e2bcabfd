//! Hands in what is in the outbox: before the worker registers anew, which would end the leases of
//! its earlier start, and beside the jobs.

use std::sync::Arc;
use std::time::Duration;

use super::heartbeat::Heartbeat;
use super::log::{Rest, Speaker};
use super::observer::{Observer, Step, StepEvent};
use super::outbox::{Entry, Outbox};
use super::persist::{Patience, persistently};
use super::renewal::Renewal;
use super::stop::StopSignal;
use crate::api::{Code, RecordRequest};
use crate::client::{Client, ClientError};
use crate::model::{Clock, Ids, Outcome, StopReason, Task, TaskState};

/// How long the rest of a log may take in front of the result.
const LOG: Duration = Duration::from_secs(10);
/// How long a worker that starts waits for a site to which it has something to hand in.
const AT_START: Patience = Patience::For(Duration::from_secs(60));
/// How long a site that is there and fails is asked, each time.
const BESIDE: Patience = Patience::WhileAway(Duration::from_secs(10 * 60));

/// What became of an entry.
#[derive(Debug)]
pub enum Handed {
    /// The site has it; where a run ended by it, its task now.
    Taken(Option<Box<Task>>),
    /// The lease is gone, for this reason: nobody waits for it any more.
    Lost(StopReason),
    /// It is still there.
    Kept(ClientError),
}

/// How a task stands whose result the site has taken.
#[must_use]
pub fn stands(task: &Task) -> String {
    match task.state {
        TaskState::Failed => {
            format!("the task is failed; `relay task get '{}'` says why", task.id)
        }
        state => format!("the task is {state}"),
    }
}

/// Says all of an entry, in order; what was said before is said again. The log goes first: the site
/// takes none for a lease that was released.
///
/// # Errors
/// The client's. What was not taken is as it was.
pub async fn say(
    client: &Client,
    entry: &Entry,
    rest: &Rest,
) -> Result<Option<Box<Task>>, ClientError> {
    let mut recorded = Ok(());
    for effect in &entry.effects {
        let request = RecordRequest {
            worker_id: entry.worker.clone(),
            epoch: entry.lease.epoch,
            effect: effect.clone(),
        };
        recorded = client.record(&entry.lease.task, &request).await;
        if recorded.is_err() {
            break;
        }
    }
    let Some(release) = &entry.release else { return recorded.map(|()| None) };
    match recorded {
        // Taken before, perhaps, and the answer was lost: then the release is taken again.
        Err(error) if error.code() != Some(Code::LeaseLost) => return Err(error),
        _ => {}
    }
    if let Ok(sent) = tokio::time::timeout(LOG, rest.send()).await {
        sent?;
    }
    let answer = client.release(&entry.lease, release).await?;
    Ok(Some(Box::new(answer.task)))
}

/// Whether the site will not take an entry, whenever it is asked.
#[must_use]
pub fn is_lost(error: &ClientError) -> bool {
    matches!(error.code(), Some(Code::LeaseLost | Code::WorkerUnknown | Code::NotFound))
}

/// What a person is told of a result that stays here.
#[must_use]
pub fn kept_words(error: &ClientError) -> String {
    let hint = error.hint().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
    format!("the site did not take the result: {error}; it is kept and handed in later{hint}")
}

/// Hands in for one worker.
pub struct Courier {
    /// The site.
    pub client: Client,
    /// What there is.
    pub outbox: Outbox,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub ids: Arc<dyn Ids>,
    /// Who is told.
    pub observer: Arc<dyn Observer>,
}

impl Courier {
    /// Hands in what an earlier start of the worker left.
    ///
    /// # Errors
    /// When the site is away. Registering would end the leases under which there is something to say.
    pub async fn at_start(&self) -> Result<(), ClientError> {
        self.outbox.sweep();
        for entry in self.outbox.read(&self.client.endpoint().to_string()) {
            if let Handed::Kept(error) = self.hand_in(&entry, AT_START).await
                && error.is_away()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Hands in what jobs leave, until it is dropped.
    pub async fn beside(self) {
        loop {
            for entry in self.outbox.take_left().await {
                if let Handed::Kept(error) = self.hand_in(&entry, BESIDE).await
                    && error.is_passing()
                {
                    self.outbox.leave(entry);
                }
            }
        }
    }

    async fn hand_in(&self, entry: &Entry, patience: Patience) -> Handed {
        let speaker = Speaker {
            client: self.client.clone(),
            worker: entry.worker.clone(),
            lease: entry.lease.clone(),
        };
        let rest = Rest::left(&self.outbox.place(&entry.run), speaker);
        let renewal = Renewal {
            heartbeat: Heartbeat {
                client: self.client.clone(),
                worker: entry.worker.clone(),
                instance: entry.instance.clone(),
                interval: Duration::ZERO,
            },
            lease: entry.lease.clone(),
            signal: StopSignal::default(),
            clock: Arc::clone(&self.clock),
            ids: Arc::clone(&self.ids),
        };
        let saying = renewal.saying(|| {
            persistently(&*self.clock, &*self.ids, patience, || say(&self.client, entry, &rest))
        });
        let handed = match saying.await {
            Ok(task) => Handed::Taken(task),
            Err(error) if is_lost(&error) => {
                Handed::Lost(renewal.signal.reason().unwrap_or(StopReason::LeaseLost))
            }
            Err(error) => Handed::Kept(error),
        };
        if !matches!(handed, Handed::Kept(_)) {
            self.outbox.remove(&entry.run);
            rest.discard();
        }
        self.tell(entry, &handed);
        handed
    }

    fn tell(&self, entry: &Entry, handed: &Handed) {
        let task = &entry.lease.task;
        let event = match handed {
            Handed::Taken(None) => StepEvent::Ended {
                note: "what an earlier run did is recorded".to_owned(),
                outcome: Outcome::Finished,
            },
            Handed::Taken(Some(now)) => StepEvent::Ended {
                note: format!("the result of an earlier run was handed in: {}", stands(now)),
                outcome: Outcome::Finished,
            },
            Handed::Lost(reason) => StepEvent::Failed {
                reason: reason.clone(),
                error: Some("the result of an earlier run is not waited for any more".to_owned()),
            },
            Handed::Kept(error) => {
                return self.observer.warning(&format!("{task}: {}", kept_words(error)));
            }
        };
        self.observer.step(task, Step::Release, &event);
    }
}
