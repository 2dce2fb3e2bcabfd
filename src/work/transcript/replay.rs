//! Puts a transcript through its lane's reader once more, as the run did.

use std::time::Duration;

use relay_lanes::Said;

use super::{LeftOut, Line, Transcript, TranscriptError};
use crate::model::{LaneName, StopReason};
use crate::process::{LaneEnd, Redactor};
use crate::work::StopSignal;
use crate::work::beginning::beginning;
use crate::work::lane::reader_of;
use crate::work::verdict::{LaneResult, conclude};

/// What a transcript comes to.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// What the reader made of the output, in its order.
    pub said: Vec<Said>,
    /// What the file does not have of it.
    pub left_out: LeftOut,
    /// What the run comes to now; `None` where its end was not recorded.
    pub result: Option<LaneResult>,
}

impl Replayed {
    /// Why the run stops, by this relay's reader.
    #[must_use]
    pub fn stop(&self) -> Option<StopReason> {
        let result = self.result.as_ref()?;
        Some(result.stop.clone().unwrap_or(StopReason::Finished))
    }
}

/// Replays a run.
///
/// # Errors
/// When this relay has no such lane.
pub fn replay(transcript: &Transcript) -> Result<Replayed, TranscriptError> {
    let header = &transcript.header;
    let unknown = || TranscriptError::UnknownLane(beginning(&header.lane));
    let lane: LaneName = header.lane.parse().map_err(|_| unknown())?;
    let key = header.task.to_string();
    let mut reader = reader_of(&lane, header.through.as_deref(), header.model.as_deref(), &key)
        .ok_or_else(unknown)?;
    let (mut said, mut left_out) = (Vec::new(), LeftOut::default());
    for line in &transcript.lines {
        match line {
            Line::Said(line) => said.extend(reader.line(line)),
            Line::LeftOut(more) => {
                left_out.lines = left_out.lines.saturating_add(more.lines);
                left_out.bytes = left_out.bytes.saturating_add(more.bytes);
            }
        }
    }
    let result = transcript.end.as_ref().map(|end| {
        let called_off = StopSignal::default();
        if let Some(reason) = end.called_off.clone() {
            called_off.stop(reason);
        }
        let lane_end = LaneEnd {
            code: end.code,
            signal: end.signal,
            ended_by: end.ended_by,
            stderr: end.stderr.clone().unwrap_or_default().into_bytes(),
            stdout_bytes: end.stdout_bytes,
            elapsed: Duration::from_millis(end.elapsed_ms),
        };
        conclude(reader, lane_end, &called_off, end.at, &Redactor::default())
    });
    Ok(Replayed { said, left_out, result })
}
