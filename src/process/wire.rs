//! What the worker and its supervisor say to each other.
//!
//! They share a socket, the supervisor's standard input. The worker sends one message (a length
//! as four bytes, a JSON header of that length, the program's standard input) and then keeps the
//! socket open: its end is the word to stop. The supervisor answers with one [`Report`] as it
//! ends. The supervised program holds no descriptor of the socket, so it cannot forge a report.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::program::Program;

/// A header longer than this is no header: Linux allows an eighth of it as arguments and
/// environment of a program.
const LONGEST_HEADER: u32 = 64 << 20;

/// How a supervised program ended.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// It ran, and nothing of it is left but `survivors`.
    Ended { code: Option<i32>, signal: Option<i32>, survivors: usize },
    /// The system would not start it.
    NotStarted { errno: Option<i32>, text: String },
    /// The worker was gone before it had said what to run.
    Unasked,
}

#[derive(Serialize, Deserialize)]
struct Header {
    path: Text,
    args: Vec<Text>,
    env: Vec<(Text, Text)>,
    cwd: Text,
    stdin_bytes: usize,
}

/// A text of the system, which need not be UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Unicode(String),
    Bytes(Vec<u8>),
}

impl From<&std::ffi::OsStr> for Text {
    fn from(text: &std::ffi::OsStr) -> Self {
        text.to_str().map_or_else(
            || Self::Bytes(text.as_bytes().to_vec()),
            |unicode| Self::Unicode(unicode.to_owned()),
        )
    }
}

impl From<Text> for OsString {
    fn from(text: Text) -> Self {
        match text {
            Text::Unicode(unicode) => unicode.into(),
            Text::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

/// The message that starts a program.
pub(super) fn message(program: &Program) -> io::Result<Vec<u8>> {
    let header = Header {
        path: program.path.as_os_str().into(),
        args: program.args.iter().map(|arg| arg.as_os_str().into()).collect(),
        env: program
            .env
            .iter()
            .map(|(k, v)| (k.as_os_str().into(), v.as_os_str().into()))
            .collect(),
        cwd: program.cwd.as_os_str().into(),
        stdin_bytes: program.stdin.len(),
    };
    let header = serde_json::to_vec(&header)?;
    let length = u32::try_from(header.len()).map_err(io::Error::other)?;
    let mut message = Vec::with_capacity(4 + header.len() + program.stdin.len());
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(&header);
    message.extend_from_slice(&program.stdin);
    Ok(message)
}

/// Reads the message, all of it, so that afterwards nothing but the end can come.
pub(super) fn read(from: &mut impl Read) -> io::Result<Program> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > LONGEST_HEADER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let header: Header = serde_json::from_slice(&exactly(from, length as usize)?)?;
    let stdin = exactly(from, header.stdin_bytes)?;
    Ok(Program {
        path: PathBuf::from(OsString::from(header.path)),
        args: header.args.into_iter().map(OsString::from).collect(),
        env: header.env.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        cwd: PathBuf::from(OsString::from(header.cwd)),
        stdin,
    })
}

fn exactly(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program {
            path: "/bin/sh".into(),
            args: vec!["-c".into(), OsString::from_vec(vec![b'a', 0xff]), "".into()],
            env: vec![("A".into(), OsString::from_vec(vec![0xfe])), ("B".into(), "=\n".into())],
            cwd: "/tmp".into(),
            stdin: b"\0 prompt".to_vec(),
        }
    }

    #[test]
    fn a_program_comes_over_as_it_was() {
        let message = message(&program()).unwrap();
        assert_eq!(read(&mut message.as_slice()).unwrap(), program());
    }

    #[test]
    fn a_message_that_is_cut_is_no_message() {
        let message = message(&program()).unwrap();
        for length in 0..message.len() {
            let error = read(&mut &message[..length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length} bytes");
        }
        assert!(read(&mut &[0xff; 8][..]).is_err());
    }
}
