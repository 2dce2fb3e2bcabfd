//! What a person sees of a failure: `error: …`, `hint: …` with the command that helps, and the
//! exit code that goes with it.

use std::fmt;
use std::io::{self, Write};

use super::ConfigError;
use super::credentials::KeptError;
use super::exit::Exit;
use crate::client::{ClientError, EndpointError};
use crate::model::IdError;
use crate::site::owner::OwnerError;
use crate::store::{BackupError, CopyError, StoreError};

/// A failure that the command itself found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    hint: Option<String>,
    exit: Exit,
}

impl Failure {
    /// A failure that ends the program with `exit`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit }
    }

    /// What the program ends with.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// The same with the command that helps.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Tells a person about `error` on stderr. A reader that went away ends the program quietly.
pub fn report(error: &anyhow::Error) -> Exit {
    if is_broken_pipe(error) {
        return Exit::Ok;
    }
    let seen = Seen::of(error);
    let mut text = format!("error: {}\n", seen.message);
    if let Some(hint) = &seen.hint {
        text.push_str(&format!("hint: {hint}\n"));
    }
    // Nobody is left to be told when stderr is gone as well.
    let _ = io::stderr().lock().write_all(super::output::plain(&text).as_bytes());
    seen.exit
}

/// What helps with `error`, where that is known.
pub fn hint_of(error: &anyhow::Error) -> Option<String> {
    Seen::of(error).hint
}

/// What is shown of a failure.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    message: String,
    hint: Option<String>,
    exit: Exit,
}

impl Seen {
    /// The outermost cause that knows its exit code decides; the message is the whole chain.
    fn of(error: &anyhow::Error) -> Self {
        let known = error.chain().find_map(known);
        let (exit, hint) = known.unwrap_or((Exit::Failed, None));
        Self { message: whole(error.chain().map(ToString::to_string)), hint, exit }
    }
}

/// The exit code and hint of the errors a person can meet.
fn known(cause: &(dyn std::error::Error + 'static)) -> Option<(Exit, Option<String>)> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some((failure.exit, failure.hint.clone()));
    }
    if let Some(error) = cause.downcast_ref::<ClientError>() {
        return Some((client_exit(error), error.hint()));
    }
    if let Some(error) = cause.downcast_ref::<OwnerError>() {
        return Some((owner_exit(error), error.hint()));
    }
    if let Some(error) = cause.downcast_ref::<CopyError>() {
        return Some((copy_exit(error), error.hint()));
    }
    if let Some(error) = cause.downcast_ref::<BackupError>() {
        return Some((backup_exit(error), error.hint()));
    }
    if let Some(error) = cause.downcast_ref::<ConfigError>() {
        return Some((Exit::Usage, error.hint()));
    }
    if let Some(error) = cause.downcast_ref::<KeptError>() {
        return Some((Exit::Failed, error.hint()));
    }
    let usage = cause.is::<IdError>() || cause.is::<EndpointError>();
    usage.then_some((Exit::Usage, None))
}

fn client_exit(error: &ClientError) -> Exit {
    match error {
        ClientError::Refused(problem) => problem.code.into(),
        ClientError::Unreachable { .. }
        | ClientError::NoTls { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Foreign { .. } => Exit::Unreachable,
        ClientError::Version { .. } => Exit::Version,
        ClientError::BadAnswer { .. } | ClientError::Setup { .. } => Exit::Failed,
    }
}

fn owner_exit(error: &OwnerError) -> Exit {
    match error {
        OwnerError::Taken { .. } | OwnerError::Silent { .. } => Exit::Conflict,
        OwnerError::Address { .. } => Exit::Usage,
        OwnerError::Elsewhere { .. } => Exit::Unreachable,
        OwnerError::Store(error) => store_exit(error),
        OwnerError::Version { .. } => Exit::Version,
        OwnerError::NotOurs { .. }
        | OwnerError::Home { .. }
        | OwnerError::Lock { .. }
        | OwnerError::Socket { .. }
        | OwnerError::Queue(_) => Exit::Failed,
    }
}

fn copy_exit(error: &CopyError) -> Exit {
    match error {
        CopyError::Missing { .. } => Exit::NotFound,
        CopyError::NotEmpty { .. } => Exit::Conflict,
        CopyError::Store(error) => store_exit(error),
        CopyError::Nul { .. }
        | CopyError::Unreadable { .. }
        | CopyError::Schema { .. }
        | CopyError::Differs { .. } => Exit::Failed,
    }
}

fn backup_exit(error: &BackupError) -> Exit {
    match error {
        BackupError::Missing { .. } | BackupError::NoBackup { .. } => Exit::NotFound,
        BackupError::Exists { .. } => Exit::Conflict,
        BackupError::Name { .. } => Exit::Usage,
        BackupError::Store(error) => store_exit(error),
        BackupError::File { .. } | BackupError::NotABackup { .. } => Exit::Failed,
    }
}

fn store_exit(error: &StoreError) -> Exit {
    match error {
        StoreError::Url { .. } => Exit::Usage,
        StoreError::InUse { .. } | StoreError::Ousted { .. } | StoreError::Deaf { .. } => {
            Exit::Conflict
        }
        StoreError::Away { .. } => Exit::Unreachable,
        _ => Exit::Failed,
    }
}

/// The chain as one sentence. Many errors show their cause in their own text; that is not
/// said twice.
fn whole(causes: impl Iterator<Item = String>) -> String {
    let mut whole = String::new();
    for cause in causes {
        if whole.is_empty() {
            whole = cause;
        } else if !whole.contains(&cause) {
            whole = format!("{whole}: {cause}");
        }
    }
    whole
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

/// For errors that are only words.
pub fn fail<T>(exit: Exit, message: impl fmt::Display) -> anyhow::Result<T> {
    Err(Failure::new(exit, message.to_string()).into())
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;
    use crate::api::{Code, Problem};

    #[test]
    fn the_chain_is_one_sentence_and_the_cause_decides_the_code() {
        let problem =
            Problem::new(Code::NotFound, "task `a/b#1` is not there").hint("relay task ls");
        let error = Err::<(), _>(ClientError::Refused(problem))
            .context("nothing was cancelled")
            .expect_err("made above");
        let expected = Seen {
            message: "nothing was cancelled: task `a/b#1` is not there".to_owned(),
            hint: Some("relay task ls".to_owned()),
            exit: Exit::NotFound,
        };
        assert_eq!(Seen::of(&error), expected);
    }

    #[test]
    fn a_cause_that_was_said_is_not_said_twice() {
        let causes = ["cannot open `x`: no such file", "no such file", "deeper"];
        let whole = whole(causes.iter().map(ToString::to_string));
        assert_eq!(whole, "cannot open `x`: no such file: deeper");
    }

    #[test]
    fn a_reader_that_went_away_is_not_an_error() {
        let gone = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&gone.context("printing")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("something else")));
    }
}
