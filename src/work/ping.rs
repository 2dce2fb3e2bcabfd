//! One tiny real run of a vendor's lane: what a job does, in an empty folder, with a prompt that asks
//! for one word.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::copies::Copies;
use super::errand::Errand;
use super::job::Stop;
use super::lane::{Installed, Lanes, TaskBrief};
use super::login::Seat;
use super::stop::StopSignal;
use super::verdict::LaneResult;
use crate::model::{
    Clock, Epoch, IdError, Ids, LaneName, RunPreferences, StopReason, Task, TaskState, Timestamp,
};

/// What it is asked.
const PROMPT: &str = "Answer with the single word ready. Use no tool and change no file.";
/// Who would be the author of a commit; there is none.
const AGENT: (&str, &str) = ("relay-agent", "relay-agent@users.noreply.relay.invalid");
/// An answer takes one turn; what goes on is ended.
const TURNS: u32 = 2;
/// A vendor that is down is given up before, by each of the programs.
const TIME: Duration = Duration::from_secs(5 * 60);

/// What it is done with.
pub struct Ping<'a> {
    /// What this machine has.
    pub lanes: &'a Lanes,
    /// The vendor's program, asked for its model.
    pub installed: &'a Installed,
    /// Where its folder stands.
    pub copies: &'a Copies,
    /// relay's own program, which supervises it.
    pub supervisor: &'a Path,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Ids.
    pub ids: &'a dyn Ids,
    /// Calls it off.
    pub signal: &'a StopSignal,
}

/// Why it was not made; how it ended is no error.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// The source of ids gave something that is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Its folder cannot be made.
    #[error("a folder for the run: {0}")]
    Folder(#[from] io::Error),
}

impl Ping<'_> {
    /// Makes the run under the login that `_seat` is of, and keeps what it showed of it.
    ///
    /// # Errors
    /// When it could not be begun.
    pub async fn send(&self, _seat: &Seat) -> Result<Result<LaneResult, Stop>, PingError> {
        let began = self.clock.now();
        // What a killed run refreshed is the person's before this one takes a copy.
        if let Some(logins) = &self.installed.logins {
            logins.sweep();
        }
        let whose = self.lanes.whose(self.installed);
        let task = self.task(began)?;
        let copy = self.copies.take(&task.id, &self.ids.uuid().parse()?)?;
        std::fs::create_dir(&copy.path)?;
        let ended = self.run(&task, &copy.path).await;
        let removed = tokio::task::spawn_blocking(move || copy.close(false)).await;
        if let Err(error) = removed.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::warn!(%error, "the folder of the run was not removed");
        }
        let stop = match &ended {
            Ok(result) => result.stop.as_ref(),
            Err(stop) => Some(&stop.reason),
        };
        self.lanes.heard(&task.lane, &whose, began, stop, self.clock.now());
        Ok(ended)
    }

    async fn run(&self, task: &Task, folder: &Path) -> Result<LaneResult, Stop> {
        let preferences = RunPreferences { max_turns: Some(TURNS), ..RunPreferences::default() };
        let worker = self
            .ids
            .uuid()
            .parse()
            .map_err(|error: IdError| Stop::new(StopReason::Crashed, error.to_string()))?;
        let brief = TaskBrief {
            task,
            branch: &task.own_branch(),
            worker: &worker,
            epoch: Epoch(1),
            prompt: PROMPT,
            workdir: folder,
            agent: AGENT,
            max_run: TIME,
            preferences: &preferences,
            hidden: &self.lanes.redactor(),
        };
        let errand = Errand {
            lane: &task.lane,
            lanes: self.lanes,
            supervisor: self.supervisor,
            clock: self.clock,
            signal: self.signal,
            say: Arc::new(|line| tracing::debug!(line, "the lane")),
            record: None,
        };
        let prepare = || self.lanes.prepare(&brief);
        Box::pin(errand.run(prepare()?, async || prepare())).await
    }

    /// The task that a lane is prepared for; no site knows it.
    fn task(&self, now: Timestamp) -> Result<Task, IdError> {
        let lane: LaneName = self.installed.vendor.lane.parse()?;
        Ok(Task {
            id: "local/probe#1".parse()?,
            lane,
            state: TaskState::Running,
            title: "probe".to_owned(),
            body: String::new(),
            asked_by: String::new(),
            required_labels: Vec::new(),
            created_at: now,
            updated_at: now,
            epoch: Epoch(1),
            worker: None,
            expires_at: None,
            parked_until: None,
            stop_reason: None,
            message: None,
            branch: None,
            pr: None,
            pr_url: None,
        })
    }
}
