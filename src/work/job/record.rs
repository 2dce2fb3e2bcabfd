//! The transcript of a job's run: begun beside it, and named where its failure is told.

use super::Job;
use crate::model::{StopReason, Timestamp};
use crate::process::{LaneEnd, Redactor};
use crate::work::probe;
use crate::work::transcript::{End, FORMAT, Header, Recorder};
use crate::work::verdict::LaneResult;

impl Job {
    /// Begins the transcript of the run.
    pub(super) async fn transcript(&self, redactor: Redactor) -> Recorder {
        let (shared, lane) = (&self.shared, &self.claim.task.lane);
        let installed = shared.lanes.installed(lane);
        let version = match installed {
            Some(installed) => {
                let asking = probe::version(&shared.lanes, installed);
                self.signal.guard(Box::pin(asking)).await.ok().flatten()
            }
            None => None,
        };
        let model = installed.and_then(|installed| installed.model(&self.claim.preferences));
        let header = Header {
            transcript: FORMAT,
            relay: env!("CARGO_PKG_VERSION").to_owned(),
            lane: lane.to_string(),
            version,
            model: model.map(str::to_owned),
            task: self.claim.task.id.clone(),
            run: self.claim.run.clone(),
            at: shared.clock.now(),
        };
        Recorder::begin(&shared.runs, &header, redactor)
    }

    /// Ends it, and says where it is when the run did not finish.
    pub(super) fn keep_transcript(
        &self,
        transcript: Recorder,
        end: &LaneEnd,
        now: Timestamp,
        result: &LaneResult,
    ) {
        let stop = result.stop.clone().unwrap_or(StopReason::Finished);
        let tells = self.claim.task.lane.process_name().is_none();
        let end = End::of(end, self.signal.reason(), now, stop, tells);
        if let Some(path) = transcript.end(&end).filter(|_| result.stop.is_some()) {
            let path = path.display();
            self.log.line(&format!("   transcript: {path} (`relay lane replay` reads it again)"));
        }
    }
}
