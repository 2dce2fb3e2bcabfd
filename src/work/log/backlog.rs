//! What of a run's log the site does not have yet: in memory while it keeps up, in files of this
//! user's while it is away.

use std::collections::VecDeque;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// At most so much waits in memory.
const MEMORY: usize = 1024 * 1024;
/// So many files of that size wait on disk: what the site keeps of a run.
const PARTS: usize = 8;
/// A chunk's size; the site takes 256 KiB.
pub(super) const CHUNK: usize = 64 * 1024;

/// The end of a log from the first byte that is not known to be at the site.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The run's place in the outbox; its files stand beside it.
    place: Option<PathBuf>,
    /// On disk, oldest first; the first one may be in `front` as well.
    parts: VecDeque<Part>,
    /// Is being sent.
    front: Piece,
    /// Collects.
    tail: Piece,
    /// Lines that found no room.
    left_out: usize,
}

#[derive(Debug)]
struct Part {
    start: u64,
    path: PathBuf,
}

#[derive(Debug, Default)]
struct Piece {
    start: u64,
    text: String,
}

impl Backlog {
    /// An empty one, whose files would stand beside `place`.
    pub(super) fn new(place: Option<PathBuf>) -> Self {
        Self { place, ..Self::default() }
    }

    /// What a worker that ended left beside `place`.
    pub(super) fn left(place: &Path) -> Self {
        let mut backlog = Self::new(Some(place.to_owned()));
        let (folder, run) = (place.parent(), place.file_stem().and_then(|name| name.to_str()));
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let start = name.to_str().and_then(|name| {
                name.strip_suffix(".part")?.strip_prefix(run?)?.strip_prefix('.')?.parse().ok()
            });
            if let Some(start) = start {
                backlog.parts.push_back(Part { start, path: entry.path() });
            }
        }
        backlog.parts.make_contiguous().sort_by_key(|part| part.start);
        backlog
    }

    /// Adds one line. Where memory is full it goes to disk, and where that is full as well the line
    /// is left out.
    pub(super) fn line(&mut self, text: &str) {
        if self.tail.text.len() + text.len() > MEMORY && self.spill().is_err() {
            self.left_out += 1;
            return;
        }
        if self.left_out > 0 {
            let lines = self.left_out;
            let note =
                format!("({lines} lines left out: they came faster than they could be sent)\n");
            self.tail.text.push_str(&note);
            self.left_out = 0;
        }
        self.tail.text.push_str(text);
        self.tail.text.push('\n');
    }

    /// The next chunk and where it starts. Given again until [`Backlog::sent`].
    pub(super) fn next(&mut self) -> Option<(u64, String)> {
        while self.front.text.is_empty() {
            match self.parts.front() {
                // A part that cannot be read is skipped; the site shows that bytes are missing.
                Some(part) => match std::fs::read_to_string(&part.path) {
                    Ok(text) if !text.is_empty() => self.front = Piece { start: part.start, text },
                    _ => self.drop_part(),
                },
                None if self.tail.text.is_empty() => return None,
                None => {
                    let next = self.tail.start + self.tail.text.len() as u64;
                    let tail = Piece { start: next, text: String::new() };
                    self.front = std::mem::replace(&mut self.tail, tail);
                }
            }
        }
        let end = chunk_end(&self.front.text);
        Some((self.front.start, self.front.text[..end].to_owned()))
    }

    /// The chunk that [`Backlog::next`] gave is at the site, whose log ends at `end`.
    pub(super) fn sent(&mut self, end: u64) {
        let least = chunk_end(&self.front.text);
        let known = usize::try_from(end.saturating_sub(self.front.start)).unwrap_or(usize::MAX);
        let mut known = known.clamp(least, self.front.text.len());
        while !self.front.text.is_char_boundary(known) {
            known -= 1;
        }
        self.front.text.drain(..known);
        self.front.start += known as u64;
        let read_from_disk = self.parts.front().is_some_and(|part| part.start < self.front.start);
        if self.front.text.is_empty() && read_from_disk {
            self.drop_part();
        }
    }

    /// Brings all of it to disk, where a later start of the worker finds it.
    ///
    /// # Errors
    /// The disk's; what could not be written stays in memory.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        // A part that is being sent stays whole: the site takes of it what is new.
        let on_disk = self
            .parts
            .front()
            .is_some_and(|part| part.start <= self.front.start && !self.front.text.is_empty());
        if !on_disk && !self.front.text.is_empty() {
            let path = self.write(&self.front)?;
            self.parts.push_front(Part { start: self.front.start, path });
        }
        if !self.tail.text.is_empty() {
            self.spill()?;
        }
        Ok(())
    }

    /// Removes the files.
    pub(super) fn discard(&mut self) {
        while !self.parts.is_empty() {
            self.drop_part();
        }
    }

    /// The tail becomes a file. Of too many the oldest goes, so that the end of the log is kept.
    fn spill(&mut self) -> io::Result<()> {
        let path = self.write(&self.tail)?;
        let start = self.tail.start;
        self.parts.push_back(Part { start, path });
        self.tail = Piece { start: start + self.tail.text.len() as u64, text: String::new() };
        if self.parts.len() > PARTS {
            self.front.text.clear();
            self.drop_part();
        }
        Ok(())
    }

    fn write(&self, piece: &Piece) -> io::Result<PathBuf> {
        let place = self.place.as_deref().ok_or(io::ErrorKind::NotFound)?;
        if let Some(folder) = place.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let path = place.with_extension(format!("{}.part", piece.start));
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        if let Err(error) = file.and_then(|mut file| file.write_all(piece.text.as_bytes())) {
            let _not_there = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(path)
    }

    fn drop_part(&mut self) {
        if let Some(part) = self.parts.pop_front() {
            let _gone_already = std::fs::remove_file(part.path);
        }
    }
}

/// Up to [`CHUNK`] of whole lines.
fn chunk_end(text: &str) -> usize {
    if text.len() <= CHUNK {
        return text.len();
    }
    let line = text.as_bytes()[..CHUNK].iter().rposition(|byte| *byte == b'\n');
    line.map_or_else(|| text.floor_char_boundary(CHUNK), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends all of it to a site that takes everything; what it then has, and from where.
    fn sent(backlog: &mut Backlog) -> (Option<u64>, String) {
        let (mut first, mut text) = (None, String::new());
        while let Some((start, chunk)) = backlog.next() {
            assert!(chunk.len() <= CHUNK);
            first.get_or_insert(start);
            assert_eq!(start, first.unwrap() + text.len() as u64);
            text.push_str(&chunk);
            backlog.sent(start + chunk.len() as u64);
        }
        (first, text)
    }

    #[test]
    fn chunks_are_whole_lines_and_lose_nothing() {
        let mut backlog = Backlog::new(None);
        let line = "é".repeat(700);
        for _ in 0..100 {
            backlog.line(&line);
        }
        let (start, chunk) = backlog.next().unwrap();
        assert!(chunk.ends_with('\n'));
        assert_eq!(backlog.next(), Some((start, chunk)), "it is given until it was sent");
        assert_eq!(sent(&mut backlog).1, format!("{line}\n").repeat(100));
        backlog.line(&"é".repeat(CHUNK));
        assert!(backlog.next().unwrap().1.len() <= CHUNK);
    }

    #[test]
    fn without_a_disk_lines_are_left_out_and_that_is_said() {
        let mut backlog = Backlog::new(None);
        for _ in 0..(2 * MEMORY / 1000) {
            backlog.line(&"x".repeat(999));
        }
        let (_, text) = sent(&mut backlog);
        assert!(text.len() <= MEMORY + 1000);
        backlog.line("after");
        assert!(sent(&mut backlog).1.contains("lines left out"));
    }

    #[test]
    fn what_does_not_fit_into_memory_waits_on_disk_and_a_later_start_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("box/run.json");
        let mut backlog = Backlog::new(Some(place.clone()));
        let mut whole = String::new();
        for n in 0..3000 {
            let line = format!("{n:0999}");
            backlog.line(&line);
            whole.push_str(&line);
            whole.push('\n');
        }
        let (start, chunk) = backlog.next().unwrap();
        backlog.sent(start + chunk.len() as u64);
        backlog.keep().unwrap();
        backlog.keep().unwrap();
        drop(backlog);
        let (first, text) = sent(&mut Backlog::left(&place));
        let first = usize::try_from(first.unwrap()).unwrap();
        assert!(first <= chunk.len(), "{first} bytes are missing");
        assert!(text == whole[first..], "it is not the same text");
        assert_eq!(std::fs::read_dir(dir.path().join("box")).unwrap().count(), 0);
    }

    #[test]
    fn of_a_very_long_log_the_end_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("run.json");
        let mut backlog = Backlog::new(Some(place));
        assert_eq!(backlog.next(), None);
        for n in 0..20_000 {
            backlog.line(&format!("{n:0999}"));
        }
        assert!(std::fs::read_dir(dir.path()).unwrap().count() <= PARTS);
        let (first, text) = sent(&mut backlog);
        assert_eq!(first.unwrap() + text.len() as u64, 20_000_000);
        assert!(text.len() > (PARTS - 1) * MEMORY - 10_000, "{}", text.len());
    }

    #[test]
    fn a_site_that_has_more_is_believed() {
        let mut backlog = Backlog::new(None);
        for _ in 0..200 {
            backlog.line(&"x".repeat(999));
        }
        backlog.next().unwrap();
        backlog.sent(150_000);
        assert_eq!(backlog.next().unwrap().0, 150_000);
    }

    #[test]
    fn what_is_discarded_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut backlog = Backlog::new(Some(dir.path().join("run.json")));
        backlog.line("x");
        backlog.keep().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        backlog.discard();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
