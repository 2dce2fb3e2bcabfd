//! Writes a run's transcript while the run goes on. A disk that refuses costs the transcript, and
//! never the run.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use super::{End, Header, LeftOut, file_of};
use crate::process::Redactor;

/// So much is written as it comes.
const HEAD: usize = 12 << 20;
/// So much of what comes after that is kept, and written at the end.
const TAIL: usize = 4 << 20;

/// One run's transcript in the making.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    redactor: Redactor,
    /// `None` once something could not be written.
    file: Option<File>,
    written: usize,
    tail: VecDeque<Vec<u8>>,
    tail_bytes: usize,
    left_out: LeftOut,
}

impl Recorder {
    /// Begins the transcript of a run in the folder of runs. What `redactor` finds is not written.
    #[must_use]
    pub fn begin(runs: &Path, header: &Header, redactor: Redactor) -> Self {
        let path = file_of(runs, &header.run);
        let mut recorder = Self {
            file: None,
            path,
            redactor,
            written: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
            left_out: LeftOut::default(),
        };
        match create(&recorder.path) {
            Ok(file) => recorder.file = Some(file),
            Err(error) => recorder.lost(&error),
        }
        let header = recorder.json(header);
        recorder.write(&header);
        recorder
    }

    /// From now on leaves out what this redactor finds.
    pub fn hide(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// Takes one line of standard output as the lane's reader gets it.
    pub fn line(&mut self, line: &[u8]) {
        if self.file.is_none() {
            return;
        }
        let line = entry(&unescaped(line, &self.redactor));
        if self.tail.is_empty() && self.left_out.lines == 0 && self.written + line.len() <= HEAD {
            self.written += line.len();
            self.write(&line);
            return;
        }
        self.tail_bytes += line.len();
        self.tail.push_back(line);
        while self.tail_bytes > TAIL
            && let Some(first) = self.tail.pop_front()
        {
            self.tail_bytes -= first.len();
            self.left_out.lines += 1;
            self.left_out.bytes += first.len() as u64;
        }
    }

    /// Writes the end, and gives the file where all of it was written.
    pub fn end(mut self, end: &End) -> Option<PathBuf> {
        if self.left_out.lines > 0 {
            let left_out = [b"! ", self.json(&self.left_out).as_slice()].concat();
            self.write(&left_out);
        }
        for line in std::mem::take(&mut self.tail) {
            self.write(&line);
        }
        let end = self.json(end);
        self.write(&end);
        self.file.map(|_| self.path)
    }

    fn json(&self, value: &impl Serialize) -> Vec<u8> {
        let mut value = serde_json::to_value(value).unwrap_or_default();
        redact(&mut value, &self.redactor);
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(Err(error)) = self.file.as_mut().map(|file| file.write_all(bytes)) {
            self.lost(&error);
        }
    }

    fn lost(&mut self, error: &io::Error) {
        tracing::warn!(path = %self.path.display(), %error, "the run's transcript is not kept");
        self.file = None;
    }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match create() {
        // A worker that was killed may be given the same claim again, and so the same run.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// A line of the file. Whatever a program prints, it is one line.
fn entry(line: &[u8]) -> Vec<u8> {
    let is_text = !line.contains(&0) && std::str::from_utf8(line).is_ok();
    match is_text {
        true => [b"> ", line, b"\n"].concat(),
        false => [b"= ", STANDARD.encode(line).as_bytes(), b"\n"].concat(),
    }
}

/// What a secret is in JSON's escapes: the line does not show it, what is read out of it would.
fn unescaped(line: &[u8], redactor: &Redactor) -> Vec<u8> {
    if redactor.is_empty() || !line.contains(&b'\\') {
        return line.to_vec();
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(line) else { return line.to_vec() };
    match redact(&mut value, redactor) {
        true => value.to_string().into_bytes(),
        false => line.to_vec(),
    }
}

/// Takes secrets out of all texts of a value, and says whether there were any.
fn redact(value: &mut Value, redactor: &Redactor) -> bool {
    match value {
        Value::String(text) => {
            let found = redactor.finds(text.as_bytes());
            if found {
                *text = redactor.text(text);
            }
            found
        }
        Value::Array(items) => {
            items.iter_mut().fold(false, |found, item| redact(item, redactor) | found)
        }
        Value::Object(fields) => {
            let mut found = false;
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut value)| {
                    let in_name = redactor.finds(name.as_bytes());
                    found |= redact(&mut value, redactor) | in_name;
                    (if in_name { redactor.text(&name) } else { name }, value)
                })
                .collect();
            found
        }
        _ => false,
    }
}
