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

#[cfg(test)]
mod tests {
    use super::*;

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
