//! Puts lines together: blank lines between blocks, quotation and list marks before each line.

use super::LIMIT;
use crate::model::text::is_hidden;

/// Quotations and lists deeper than this add nothing before a line: a text may nest as deep as it
/// is long.
const DEEPEST: usize = 12;

/// What stands before the lines of a quotation or a list's item.
struct Prefix {
    /// Before its first line, until that is written.
    first: Option<String>,
    rest: String,
}

/// The text so far.
#[derive(Default)]
pub(super) struct Writer {
    out: String,
    chars: usize,
    prefixes: Vec<Prefix>,
    /// Line ends to write before the next character.
    pending: usize,
    begun: bool,
}

impl Writer {
    /// The next character begins a line.
    pub(super) fn line(&mut self) {
        self.pending = self.pending.max(1);
    }

    /// The next character begins a line after a blank one.
    pub(super) fn block(&mut self) {
        self.pending = 2;
    }

    /// Whether the next character begins a line.
    pub(super) fn at_line_start(&self) -> bool {
        !self.begun || self.pending > 0
    }

    pub(super) fn push_prefix(&mut self, first: Option<String>, rest: &str) {
        let deep = self.prefixes.len() >= DEEPEST;
        let rest = if deep { String::new() } else { rest.to_owned() };
        self.prefixes.push(Prefix { first: first.filter(|_| !deep), rest });
    }

    pub(super) fn pop_prefix(&mut self) {
        self.prefixes.pop();
    }

    /// A stranger's words, without the characters that do not show.
    pub(super) fn text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\n' | '\u{85}' | '\u{2028}' | '\u{2029}' => self.line_break(),
                '\r' => {}
                // A page shows no blank at the beginning of a line.
                ' ' | '\t' if self.at_line_start() => {}
                c if is_hidden(c) || (c.is_control() && c != '\t') => {}
                c => self.put(c),
            }
        }
    }

    /// Relay's own words.
    pub(super) fn mark(&mut self, text: &str) {
        for c in text.chars() {
            self.put(c);
        }
    }

    /// Lines as they stand, blanks and blank lines too: code.
    pub(super) fn verbatim(&mut self, text: &str) {
        for (n, line) in text.split('\n').enumerate() {
            if n > 0 {
                self.pending += 1;
            }
            for c in line.chars().filter(|c| !is_hidden(*c) && (!c.is_control() || *c == '\t')) {
                self.put(c);
            }
        }
    }

    /// Where the text is now, for [`Writer::since`].
    pub(super) fn position(&self) -> usize {
        self.out.len()
    }

    /// What was written since a position.
    pub(super) fn since(&self, position: usize) -> &str {
        self.out.get(position..).unwrap_or_default()
    }

    pub(super) fn is_full(&self) -> bool {
        self.chars > LIMIT
    }

    /// The text, and whether it was cut.
    pub(super) fn finish(self) -> (String, bool) {
        let mut out = self.out.trim_end().to_owned();
        let end = out.char_indices().nth(LIMIT).map(|(at, _)| at);
        out.truncate(end.unwrap_or(out.len()));
        (out, end.is_some())
    }

    fn line_break(&mut self) {
        if self.begun && self.pending == 0 {
            self.pending = 1;
        }
    }

    fn put(&mut self, c: char) {
        if self.is_full() {
            return;
        }
        if self.begun {
            for n in 0..std::mem::take(&mut self.pending) {
                if n > 0 {
                    self.prefix(false);
                    let bare = self.out.trim_end_matches(' ').len();
                    self.out.truncate(bare);
                }
                self.out.push('\n');
                self.chars += 1;
            }
        }
        if !self.begun || self.out.ends_with('\n') {
            self.pending = 0;
            self.begun = true;
            self.prefix(true);
        }
        self.out.push(c);
        self.chars += 1;
    }

    fn prefix(&mut self, with_first: bool) {
        for prefix in &mut self.prefixes {
            let first = if with_first { prefix.first.take() } else { None };
            let text = first.unwrap_or_else(|| prefix.rest.clone());
            self.chars += text.len();
            self.out.push_str(&text);
        }
    }
}
