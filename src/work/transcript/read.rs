//! Reads a transcript, which may be anybody's: each thing that is wrong with one has its name.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::{End, FORMAT, Header, MOST_BYTES};
use crate::work::beginning::beginning;

/// Why a file is no transcript that can be read.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A pipe, a device, a folder.
    #[error("is not a file")]
    NoFile,
    /// Longer than any relay writes.
    #[error("has more than 20 MiB, which no transcript has")]
    TooLong,
    /// Nothing is in it.
    #[error("is empty")]
    Empty,
    /// A byte that no transcript holds.
    #[error("line {0} holds a NUL byte")]
    Nul(usize),
    /// Bytes that are no text.
    #[error("line {0} is not UTF-8")]
    NotUtf8(usize),
    /// The first line is no header.
    #[error("is not a transcript of relay: {0}")]
    NoTranscript(String),
    /// Written by a later relay.
    #[error("is in format {format} of relay {relay}; this relay reads format 1")]
    Newer {
        /// Its format.
        format: u64,
        /// What wrote it.
        relay: String,
    },
    /// A lane that this relay does not have.
    #[error("is of the lane `{0}`, which this relay does not have")]
    UnknownLane(String),
    /// A line that is none of a transcript's.
    #[error("line {line} is none of a transcript's: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// Something stands behind the end.
    #[error("line {0} stands after the end of the run")]
    AfterTheEnd(usize),
}

/// A run that was recorded.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Whose.
    pub header: Header,
    /// What it printed.
    pub lines: Vec<Line>,
    /// How it ended; `None` where the worker was killed before.
    pub end: Option<End>,
}

/// One line of a run's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// As it was printed.
    Said(Vec<u8>),
    /// Here stood more.
    LeftOut(LeftOut),
}

/// How much was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Lines.
    pub lines: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Transcript {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is no transcript of this relay's; see [`TranscriptError`].
    pub fn read(path: &Path) -> Result<Self, TranscriptError> {
        // Nobody may be at the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File =
            rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?.into();
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(TranscriptError::NoFile);
        }
        if about.len() > MOST_BYTES {
            return Err(TranscriptError::TooLong);
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        Self::parse(&bytes)
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// As [`Transcript::read`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TranscriptError> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(TranscriptError::TooLong);
        }
        if bytes.is_empty() {
            return Err(TranscriptError::Empty);
        }
        let mut texts = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|b| *b == b'\n').zip(1..);
        let first = texts.next().map(|(line, number)| text(line, number)).transpose()?;
        let header = header(first.unwrap_or_default())?;
        let (mut lines, mut end) = (Vec::new(), None);
        for (line, number) in texts {
            let line = text(line, number)?;
            if end.is_some() {
                return Err(TranscriptError::AfterTheEnd(number));
            }
            let wrong = |why: String| TranscriptError::Line { line: number, why: beginning(&why) };
            match line.as_bytes() {
                [b'>', b' ', said @ ..] => lines.push(Line::Said(said.to_vec())),
                [b'=', b' ', coded @ ..] => {
                    let said = STANDARD.decode(coded).map_err(|error| wrong(error.to_string()))?;
                    lines.push(Line::Said(said));
                }
                [b'!', b' ', left_out @ ..] => {
                    let left_out = serde_json::from_slice(left_out);
                    lines.push(Line::LeftOut(left_out.map_err(|error| wrong(error.to_string()))?));
                }
                [b'{', ..] => {
                    end = Some(serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?);
                }
                _ => return Err(wrong("it begins with none of `> `, `= `, `! ` and `{`".into())),
            }
        }
        Ok(Self { header, lines, end })
    }
}

fn text(line: &[u8], number: usize) -> Result<&str, TranscriptError> {
    if line.contains(&0) {
        return Err(TranscriptError::Nul(number));
    }
    std::str::from_utf8(line).map_err(|_| TranscriptError::NotUtf8(number))
}

fn header(line: &str) -> Result<Header, TranscriptError> {
    /// What every version of the format has.
    #[derive(Deserialize)]
    struct AnyVersion {
        transcript: u64,
        #[serde(default)]
        relay: String,
    }
    let no =
        |error: serde_json::Error| TranscriptError::NoTranscript(beginning(&error.to_string()));
    let AnyVersion { transcript, relay } = serde_json::from_str(line).map_err(no)?;
    if transcript > u64::from(FORMAT) {
        return Err(TranscriptError::Newer { format: transcript, relay: beginning(&relay) });
    }
    let header: Header = serde_json::from_str(line).map_err(no)?;
    if header.transcript != FORMAT {
        let why = format!("there is no format {transcript}");
        return Err(TranscriptError::NoTranscript(why));
    }
    Ok(header)
}
