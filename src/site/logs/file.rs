//! One run's log on disk: a folder of parts, each named by the offset it starts at. A part is only
//! appended to, so a log needs no index, survives a crash at any byte, and loses its beginning
//! part by part.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A new part begins where a chunk would make one longer than this.
const PART: u64 = 2 * 1024 * 1024;

/// So many parts are kept: at most 8 MiB a run.
const PARTS: usize = 4;

/// The longest chunk, and the longest piece that is read at once.
pub const CHUNK_MAX: usize = 256 * 1024;

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts; later than asked where that part of the log is gone.
    pub offset: u64,
    /// The text; empty at the log's end.
    pub text: String,
    /// Where the next piece starts.
    pub next: u64,
}

struct Part {
    start: u64,
    length: u64,
    path: PathBuf,
}

impl Part {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// Takes `bytes`, which start at `offset`, as far as they are new; returns the log's end.
pub(super) fn append(folder: &Path, offset: u64, bytes: &[u8]) -> Result<u64> {
    std::fs::create_dir_all(folder)?;
    let parts = parts(folder)?;
    let end = parts.last().map_or(0, Part::end);
    // Past the end something was lost; a part that starts later says so by its name.
    let start = offset.max(end);
    let known = usize::try_from(start - offset).unwrap_or(usize::MAX);
    let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) else {
        return Ok(end);
    };
    let length = fresh.len() as u64;
    let current = parts.last().filter(|p| p.end() == start && p.length + length <= PART);
    let path = current.map_or_else(|| folder.join(format!("{start}.log")), |p| p.path.clone());
    OpenOptions::new().create(true).append(true).open(path)?.write_all(fresh)?;
    if current.is_none() {
        let surplus = (parts.len() + 1).saturating_sub(PARTS);
        for old in parts.iter().take(surplus) {
            std::fs::remove_file(&old.path)?;
        }
    }
    Ok(start + length)
}

/// At most [`CHUNK_MAX`] bytes from `offset`.
pub(super) fn read(folder: &Path, offset: u64) -> Result<Piece> {
    let parts = match parts(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let Some(part) = parts.iter().find(|p| p.end() > offset) else {
        let end = parts.last().map_or(0, Part::end);
        return Ok(Piece { offset: end, text: String::new(), next: end });
    };
    let offset = offset.max(part.start);
    let mut file = File::open(&part.path)?;
    file.seek(SeekFrom::Start(offset - part.start))?;
    let mut bytes = Vec::new();
    file.take(CHUNK_MAX as u64).read_to_end(&mut bytes)?;
    let whole = whole_characters(&bytes);
    let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or(&bytes)).into_owned();
    Ok(Piece { offset, text, next: offset + whole as u64 })
}

/// The parts in their order.
fn parts(folder: &Path) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let start = name.to_str().and_then(|n| n.strip_suffix(".log")).and_then(|n| n.parse().ok());
        if let Some(start) = start {
            parts.push(Part { start, length: entry.metadata()?.len(), path: entry.path() });
        }
    }
    parts.sort_by_key(|part| part.start);
    Ok(parts)
}

/// How many bytes to give, so that a character at the end is not cut in two.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(e) if e.error_len().is_none() && e.valid_up_to() > 0 => e.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(folder: &Path, mut offset: u64) -> (u64, String) {
        let first = read(folder, offset).expect("a disk").offset;
        let mut all = String::new();
        loop {
            let piece = read(folder, offset).expect("a disk");
            if piece.text.is_empty() {
                return (first, all);
            }
            all.push_str(&piece.text);
            offset = piece.next;
        }
    }

    #[test]
    fn a_chunk_sent_twice_is_written_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        assert_eq!(append(at, 0, b"one\n").expect("a disk"), 4);
        assert_eq!(append(at, 0, b"one\n").expect("a disk"), 4);
        assert_eq!(append(at, 0, b"one\ntwo\n").expect("a disk"), 8);
        assert_eq!(append(at, 2, b"e\n").expect("a disk"), 8);
        assert_eq!(whole(at, 0), (0, "one\ntwo\n".to_owned()));
        assert_eq!(whole(at, 4), (4, "two\n".to_owned()));
        assert_eq!(whole(at, 99), (8, String::new()), "past the end is the end");
    }

    #[test]
    fn a_lost_piece_is_skipped_and_its_place_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        append(at, 0, b"one\n").expect("a disk");
        assert_eq!(append(at, 100, b"after\n").expect("a disk"), 106);
        assert_eq!(whole(at, 0), (0, "one\nafter\n".to_owned()));
        assert_eq!(read(at, 50).expect("a disk").offset, 100);
    }

    #[test]
    fn a_long_log_loses_its_beginning_and_stays_under_its_cap() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let line = "0123456789abcde\n".repeat(CHUNK_MAX / 16);
        let mut offset = 0;
        for _ in 0..80 {
            offset = append(at, offset, line.as_bytes()).expect("a disk");
        }
        assert_eq!(offset, 80 * CHUNK_MAX as u64);
        let kept: u64 = parts(at).expect("a disk").iter().map(|p| p.length).sum();
        assert!((6 * 1024 * 1024..=8 * 1024 * 1024).contains(&kept), "{kept} bytes are kept");
        let (first, text) = whole(at, 0);
        assert_eq!(first, offset - kept);
        assert_eq!(text.len() as u64, kept);
        assert_eq!(append(at, 0, line.as_bytes()).expect("a disk"), offset, "long known");
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let text = format!("{}é", "x".repeat(CHUNK_MAX - 1));
        append(at, 0, text.as_bytes()).expect("a disk");
        let piece = read(at, 0).expect("a disk");
        assert_eq!(piece.next, CHUNK_MAX as u64 - 1);
        assert_eq!(whole(at, 0), (0, text));
    }
}
