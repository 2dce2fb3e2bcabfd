//! Keeping little of what may be much: the end of a stream, and whole lines up to a length.

/// The last bytes of a stream, in bounded memory.
#[derive(Debug)]
pub(super) struct Tail {
    kept: Vec<u8>,
    limit: usize,
}

impl Tail {
    /// Keeps the last `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit }
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.kept.extend_from_slice(&piece[piece.len().saturating_sub(self.limit)..]);
        // Twice the limit before anything is moved, so that a byte is moved once at most.
        if self.kept.len() > self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    /// The end of the stream.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.cut();
        self.kept
    }

    fn cut(&mut self) {
        let over = self.kept.len().saturating_sub(self.limit);
        self.kept.drain(..over);
    }
}

/// Stands at the end of a line that was cut.
pub const CUT: &str = " …[line cut]";

/// Cuts a stream into lines, and lines to a length. What is over is not even buffered.
#[derive(Debug)]
pub(super) struct Lines {
    line: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl Lines {
    /// Lines of at most `limit` bytes, and [`CUT`] where there were more.
    pub(super) fn new(limit: usize) -> Self {
        Self { line: Vec::new(), limit, cut: false }
    }

    /// Takes the next piece and hands out each line that it completes, without its `\n`.
    pub(super) fn push(&mut self, piece: &[u8], on_line: &mut (dyn FnMut(&[u8]) + Send)) {
        let mut parts = piece.split(|byte| *byte == b'\n');
        if let Some(first) = parts.next() {
            self.add(first);
        }
        for part in parts {
            self.give(on_line);
            self.add(part);
        }
    }

    /// Hands out a last line that has no `\n`.
    pub(super) fn end(mut self, on_line: &mut (dyn FnMut(&[u8]) + Send)) {
        if !self.line.is_empty() || self.cut {
            self.give(on_line);
        }
    }

    fn add(&mut self, part: &[u8]) {
        let room = self.limit - self.line.len();
        if part.len() <= room {
            self.line.extend_from_slice(part);
        } else if !self.cut {
            self.line.extend_from_slice(&part[..room]);
            self.cut = true;
        }
    }

    fn give(&mut self, on_line: &mut (dyn FnMut(&[u8]) + Send)) {
        if self.cut {
            // Not in the middle of a character.
            if let Err(error) = std::str::from_utf8(&self.line)
                && error.error_len().is_none()
            {
                self.line.truncate(error.valid_up_to());
            }
            self.line.extend_from_slice(CUT.as_bytes());
        }
        on_line(&self.line);
        self.line.clear();
        self.cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(limit: usize, text: &str, size: usize) -> Vec<String> {
        let mut got = Vec::new();
        let mut on_line = |line: &[u8]| got.push(String::from_utf8_lossy(line).into_owned());
        let mut lines = Lines::new(limit);
        for piece in text.as_bytes().chunks(size) {
            lines.push(piece, &mut on_line);
            assert!(lines.line.capacity() <= 64);
        }
        lines.end(&mut on_line);
        got
    }

    #[test]
    fn lines_are_whole_or_cut_however_they_came_in() {
        let text = "one\n\n12345\n123456\nxxxxü\r\nlast";
        for size in 1..40 {
            assert_eq!(
                lines(5, text, size),
                ["one", "", "12345", "12345 …[line cut]", "xxxx …[line cut]", "last"]
            );
        }
        let long = "x".repeat(100_000);
        assert_eq!(lines(3, &long, 1000), ["xxx …[line cut]"]);
        assert_eq!(lines(3, "", 1), [""; 0]);
        assert_eq!(lines(0, "ab\n", 1), [" …[line cut]"]);
    }

    #[test]
    fn a_tail_is_the_end_however_it_came_in() {
        for size in 1..20 {
            let text: Vec<u8> = (0..100).collect();
            let mut tail = Tail::new(7);
            for piece in text.chunks(size) {
                tail.push(piece);
                assert!(tail.kept.len() <= 14);
            }
            assert_eq!(tail.into_bytes(), &text[93..]);
        }
        assert!(Tail::new(0).into_bytes().is_empty());
    }
}
