//! How the transcript of a job's run begins.

use super::Job;
use crate::work::errand::Record;
use crate::work::probe;
use crate::work::transcript::{FORMAT, Header};

impl Job {
    pub(super) async fn transcript(&self) -> Record<'_> {
        let (shared, lane) = (&self.shared, &self.claim.task.lane);
        let installed = self.lanes.installed(lane);
        let version = match installed {
            Some(installed) => {
                let asking = probe::version(&self.lanes, installed);
                self.signal.guard(Box::pin(asking)).await.ok().flatten()
            }
            None => None,
        };
        let model = installed.and_then(|installed| installed.model(&self.claim.preferences));
        let header = Header {
            transcript: FORMAT,
            relay: env!("CARGO_PKG_VERSION").to_owned(),
            lane: lane.to_string(),
            through: installed.and_then(|known| known.vendor.through()).map(str::to_owned),
            version,
            model: model.map(str::to_owned),
            task: self.claim.task.id.clone(),
            run: self.claim.run.clone(),
            at: shared.clock.now(),
        };
        Record { runs: &shared.runs, header }
    }
}
