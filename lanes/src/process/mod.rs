//! The process lane: a trusted program of the operator's, one JSON line in and one out.
//!
//! The request carries a `task` where the process worker ABI carries a message; the rest of that
//! ABI holds as it stands, every limit included. The program's standard error is neither stored
//! nor shown.

mod config;
mod request;
mod response;

pub use config::{CONFIG_BYTES, Config, ConfigError, parse_config};
pub use request::{REQUEST_BYTES, TaskDetails, TaskRequest};
pub use response::{NOTE_BYTES, RESPONSE_BYTES};

use crate::{Invocation, Reader};

/// The most bytes the program may write on standard error; more fails the run.
pub const STDERR_BYTES: u64 = 32_768;

/// How the program is called for one task. Its path, folder and environment names stand in
/// `config`.
#[must_use]
pub fn invocation(config: &Config, request: &TaskRequest<'_>) -> Invocation {
    Invocation {
        args: config.args.iter().map(Into::into).collect(),
        stdin: request.line(),
        streams_events: false,
        stdout_total: RESPONSE_BYTES as u64,
        stdout_line: RESPONSE_BYTES,
        stderr_total: STDERR_BYTES,
        stderr_over_kills: true,
    }
}

/// A reader of the one answer to the request with this `job_key`.
#[must_use]
pub fn reader(job_key: &str) -> Box<dyn Reader> {
    Box::new(response::Answer::new(job_key))
}
