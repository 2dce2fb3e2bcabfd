//! The process lane: a trusted program of the operator's, one JSON line in and one out.
//!
//! What a request is about is its caller's: a `task` here, where the process worker ABI carries a
//! message; the rest of that ABI holds as it stands, every limit included. The program's standard
//! error is neither stored nor shown.

mod answer;
mod config;
mod reader;
mod request;
mod schema;
mod task;

pub use answer::{
    Answer, AnswerError, NOTE_BYTES, NOTE_SOURCES, Note, RESPONSE_BYTES, Reported, parse_answer,
};
pub use config::{CONFIG_BYTES, Config, ConfigError, NeverGiven, parse_config};
pub use reader::Answers;
pub use request::{Payload, REQUEST_BYTES, Request, RequestTooLong};
pub use schema::{DIALECT, SCHEMAS, schema, schemas};
pub use task::TaskDetails;

use crate::{Invocation, Reader};

/// The most bytes the program may write on standard error; more fails the run.
pub const STDERR_BYTES: u64 = 32_768;

/// How the program is called for one job. Its path, folder and environment names stand in
/// `config`.
///
/// # Errors
/// When the request does not fit.
pub fn invocation(config: &Config, request: &Request<'_>) -> Result<Invocation, RequestTooLong> {
    Ok(Invocation {
        args: config.args.iter().map(Into::into).collect(),
        stdin: request.line()?,
        streams_events: false,
        stdout_total: RESPONSE_BYTES as u64,
        stdout_line: RESPONSE_BYTES,
        stderr_total: STDERR_BYTES,
        stderr_over_kills: true,
    })
}

/// A reader of the one answer to a task's request with this `job_key`. [`Answers`] reads another
/// caller's.
#[must_use]
pub fn reader(job_key: &str) -> Box<dyn Reader> {
    Box::new(reader::TaskReader(Answers::new(job_key)))
}
