//! The record of one run of a lane: what its program printed, as the lane's reader saw it, and how
//! it ended. By it a run is read again without its program: `relay lane replay`.
//!
//! One file a run, `$RELAY_HOME/runs/<run>/transcript`, for its owner alone:
//!
//! ```text
//! {…,"lane":"claude",…,"transcript":1}   the header
//! > {"type":"system",…}                  a line of standard output, redacted like the run's log
//! = gIEK                                 one that is no text, or holds a NUL, in base64
//! ! {"lines":3,"bytes":512}              so much was left out here
//! {"code":0,…,"stop":{…}}                the end
//! ```
//!
//! It has an end: of a long run the beginning and the last lines are kept. A worker that is killed
//! leaves one without its last line.

mod read;
mod replay;
mod write;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use read::{LeftOut, Line, Transcript, TranscriptError};
pub use replay::{Replayed, replay};
pub use write::Recorder;

use crate::model::{RunId, StopReason, TaskId, Timestamp};
use crate::process::{EndedBy, LaneEnd};

/// The version of the format. A greater one is another relay's.
pub const FORMAT: u32 = 1;
/// The most bytes of a file: header, beginning, last lines and end have room in it.
pub const MOST_BYTES: u64 = 20 << 20;

/// The file of a run in the folder of runs.
#[must_use]
pub fn file_of(runs: &Path, run: &RunId) -> PathBuf {
    runs.join(run.as_str()).join("transcript")
}

/// Whose run it is, and what its reader is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT`].
    pub transcript: u32,
    /// The version of relay that wrote it.
    pub relay: String,
    /// The lane.
    pub lane: String,
    /// The program, where it is not the vendor's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The version of the vendor's program, where that was known.
    pub version: Option<String>,
    /// The model that the program was asked for.
    pub model: Option<String>,
    /// The task, whose id is also the key of a process lane's answer.
    pub task: TaskId,
    /// The run.
    pub run: RunId,
    /// When it began, by the worker's clock.
    pub at: Timestamp,
}

/// How it ended, with all that its reader was told of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Its exit code, where it exited.
    pub code: Option<i32>,
    /// The signal that ended it, where one did.
    pub signal: Option<i32>,
    /// Whose doing the end was.
    pub ended_by: EndedBy,
    /// Why it was called off, where it was.
    pub called_off: Option<StopReason>,
    /// The end of its standard error; never a process lane's.
    pub stderr: Option<String>,
    /// How much it wrote on standard output, as it wrote it.
    pub stdout_bytes: u64,
    /// How long it ran, in milliseconds.
    pub elapsed_ms: u64,
    /// When it ended, by the worker's clock: a quota's end is counted from it.
    pub at: Timestamp,
    /// What the run came to: [`StopReason::Finished`] where the job went on with what it left.
    pub stop: StopReason,
}

impl End {
    /// Of a run that came to `stop`. `tells` is false where standard error is not to be kept.
    #[must_use]
    pub fn of(
        end: &LaneEnd,
        called_off: Option<StopReason>,
        at: Timestamp,
        stop: StopReason,
        tells: bool,
    ) -> Self {
        Self {
            code: end.code,
            signal: end.signal,
            ended_by: end.ended_by,
            called_off,
            stderr: tells.then(|| String::from_utf8_lossy(&end.stderr).into_owned()),
            stdout_bytes: end.stdout_bytes,
            elapsed_ms: u64::try_from(end.elapsed.as_millis()).unwrap_or(u64::MAX),
            at,
            stop,
        }
    }
}
