//! One run of a lane's program, from what was prepared to its result: in its box, with its login
//! kept in step and its way out served meanwhile. A job does it, and `relay probe`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::beginning::beginning;
use super::egress;
use super::job::Stop;
use super::lane::{Lanes, Prepared, PreparedRun};
use super::stamp::Stamp;
use super::stop::StopSignal;
use super::transcript::{End, Header, Recorder};
use super::verdict::{self, LaneResult, conclude};
use crate::model::{Clock, LaneName, RepoProblem, StopReason, Timestamp};
use crate::process::{EndedBy, LaneEnd, ProcessError, is_shortage, run_lane};

/// What helps where a worker does the run once more; by hand nothing does.
pub const TRIES_AGAIN: &str = "relay tries again by itself";

/// How often a box is tried that cannot be made.
const BOX_TRIES: u32 = 5;

/// A run that says for so long that it waits for its vendor has lost it.
const VENDOR_PATIENCE: Duration = Duration::from_secs(600);

/// What a run is done with.
pub struct Errand<'a> {
    /// Of which lane.
    pub lane: &'a LaneName,
    /// What this machine has.
    pub lanes: &'a Lanes,
    /// relay's own program, which supervises it.
    pub supervisor: &'a Path,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Calls it off.
    pub signal: &'a StopSignal,
    /// Is told what the program says and what of it is refused, a line each, without secrets.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
    /// Where its transcript is kept.
    pub record: Option<Record<'a>>,
}

/// A run's transcript before it is begun.
pub struct Record<'a> {
    /// The folder of runs.
    pub runs: &'a Path,
    /// How it begins.
    pub header: Header,
}

impl Errand<'_> {
    /// Runs it to its end. Nothing of it is left then. A box that was not made is tried again, with
    /// the walls of what is on the disk then: a socket that goes away meanwhile can no longer be
    /// hidden, and the program has not begun.
    ///
    /// # Errors
    /// When it could not be begun or followed.
    pub async fn run<P: Future<Output = Result<Prepared, Stop>>>(
        &self,
        mut prepared: Prepared,
        prepare: impl Fn() -> P,
    ) -> Result<LaneResult, Stop> {
        let mut recorder = None;
        let mut tries = 1;
        loop {
            let said = match Box::pin(self.once(prepared, &mut recorder)).await? {
                Ran::Whole(result) => return Ok(*result),
                Ran::NoBox(said) => said,
            };
            if tries == BOX_TRIES {
                let text = format!("the box was not made, {BOX_TRIES} times: {said}");
                return Err(Stop::new(StopReason::SandboxUnavailable, text));
            }
            (self.say)(&format!("   the box was not made: {said}"));
            prepared = prepare().await?;
            tries += 1;
        }
    }

    async fn once(&self, prepared: Prepared, recorder: &mut Option<Recorder>) -> Result<Ran, Stop> {
        let PreparedRun { run, mut reader, mut login, door, program } =
            prepared.into_run(self.supervisor);
        let stamp = Stamp::of(&program);
        let redactor = run.redactor.clone();
        let (stop, mut patience) = (self.signal.token().child_token(), Patience::default());
        match (recorder.as_mut(), &self.record) {
            (Some(recorder), _) => recorder.hide(redactor.clone()),
            (None, Some(Record { runs, header })) => {
                *recorder = Some(Recorder::begin(runs, header, redactor.clone()));
            }
            (None, None) => {}
        }
        let mut on_line = |line: &[u8]| {
            if let Some(recorder) = recorder.as_mut() {
                recorder.line(line);
            }
            for said in reader.line(line) {
                (self.say)(&redactor.text(&verdict::said(&said)));
            }
            if patience.is_over(reader.waits_for_vendor(), self.clock.uptime()) {
                stop.cancel();
            }
        };
        let running = run_lane(run, self.clock, stop.clone(), &mut on_line);
        let (say, of_network) = (Arc::clone(&self.say), redactor.clone());
        let tell = Box::new(move |line: &str| say(&of_network.text(line)));
        let mut traffic = None;
        let running = async {
            match door {
                Some(door) => {
                    let (end, came) = Box::pin(door.beside(running, tell)).await;
                    traffic = Some(came);
                    end
                }
                None => running.await,
            }
        };
        let end = match &mut login {
            Some(login) => Box::pin(login.beside(running)).await,
            None => Box::pin(running).await,
        };
        // What a lane left in it takes its time to remove.
        let _its_end = tokio::task::spawn_blocking(move || drop(login)).await;
        let end = end.map_err(|error| self.not_run(&error))?;
        let unopened = traffic.is_some_and(|traffic| !traffic.opened);
        if unopened && end.ended_by == EndedBy::Itself && end.code != Some(0) {
            let said = String::from_utf8_lossy(&end.stderr).into_owned();
            return Ok(Ran::NoBox(redactor.text(&beginning(said.trim()))));
        }
        let now = self.clock.now();
        let mut result = conclude(reader, end.clone(), self.signal, now, &redactor);
        if let Some(recorder) = recorder.take() {
            self.keep(recorder, &end, now, &result);
        }
        if let Some(traffic) = traffic.filter(|_| self.lane.process_name().is_none())
            && egress::mind(&self.lanes.relay_home, self.lane, traffic, result.stop.as_ref())
        {
            (self.say)(&format!("   network: {}: {}", self.lane, egress::PASSED_BY));
            result.hint = Some("`relay doctor` shows its network".to_owned());
        }
        if self.lane.process_name().is_none() && stamp != Stamp::of(&program) {
            forgive_update(&mut result, self.lane);
        }
        Ok(Ran::Whole(Box::new(result)))
    }

    fn not_run(&self, error: &ProcessError) -> Stop {
        let own = match error {
            ProcessError::Start { source, .. } if is_shortage(source) => {
                StopReason::RepoUnusable { why: RepoProblem::Machine }
            }
            _ => StopReason::Crashed,
        };
        // A run that was called off keeps that reason, however it came to its end.
        Stop::new(self.signal.reason().unwrap_or(own), error.to_string())
    }

    /// Ends the transcript, and says where it is when the run did not finish.
    fn keep(&self, recorder: Recorder, end: &LaneEnd, now: Timestamp, result: &LaneResult) {
        let stop = result.stop.clone().unwrap_or(StopReason::Finished);
        let tells = self.lane.process_name().is_none();
        let end = End::of(end, self.signal.reason(), now, stop, tells);
        if let Some(path) = recorder.end(&end).filter(|_| result.stop.is_some()) {
            let path = path.display();
            (self.say)(&format!("   transcript: {path} (`relay lane replay` reads it again)"));
        }
    }
}

/// How a lane's program ended, or that it never began.
enum Ran {
    Whole(Box<LaneResult>),
    /// What was said where the box should have been made.
    NoBox(String),
}

/// Since when a run does nothing but wait for its vendor: it says so, and so never stalls.
#[derive(Default)]
struct Patience {
    since: Option<Duration>,
}

impl Patience {
    /// Whether it has waited for too long, by [`crate::model::Clock::uptime`].
    fn is_over(&mut self, waits: bool, now: Duration) -> bool {
        self.since = waits.then(|| self.since.unwrap_or(now));
        self.since.is_some_and(|since| now.saturating_sub(since) >= VENDOR_PATIENCE)
    }
}

/// A run that broke while its program was updated says nothing of the task: it is tried again. One
/// that ended well is as good as any.
fn forgive_update(result: &mut LaneResult, lane: &LaneName) {
    let broke = matches!(
        result.stop,
        Some(StopReason::Crashed | StopReason::VendorError | StopReason::ProtocolViolation)
    );
    if broke {
        result.stop = Some(StopReason::Crashed);
        let said = result.error.take().unwrap_or_else(|| "it gave no reason".to_owned());
        result.error = Some(format!("{lane} was updated while it ran: {said}"));
        result.hint = Some(TRIES_AGAIN.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_is_waited_for_so_long_and_no_longer() {
        let at = Duration::from_secs;
        let mut patience = Patience::default();
        let seen = [(true, 5), (true, 604), (false, 604), (true, 610), (true, 1209), (true, 1210)];
        let over = seen.map(|(waits, now)| patience.is_over(waits, at(now)));
        assert_eq!(over, [false, false, false, false, false, true]);
    }
}
