//! What goes to the terminal: plain text first, colour only where somebody sees it.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// How stdout is written to.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    colour: bool,
}

/// What a word means, for its colour. The word itself says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Ended as it should.
    Good,
    /// Under way.
    Busy,
    /// Waits, or works less well.
    Warn,
    /// Ended badly.
    Bad,
    /// Less important than what stands around it.
    Faint,
    /// As it is.
    Plain,
}

impl Output {
    /// Colour where stdout is a terminal and nobody asked for none.
    #[must_use]
    pub fn new(no_colour: bool) -> Self {
        Self { colour: !no_colour && io::stdout().is_terminal() }
    }

    /// One line on stdout.
    ///
    /// # Errors
    /// When it cannot be written; a broken pipe ends the program quietly.
    pub fn line(self, text: impl AsRef<str>) -> io::Result<()> {
        self.text(&format!("{}\n", text.as_ref()))
    }

    /// Text on stdout, as it is.
    ///
    /// # Errors
    /// As [`Output::line`].
    pub fn text(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// A value as JSON, for programs.
    ///
    /// # Errors
    /// As [`Output::line`].
    pub fn json(self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        Ok(self.text(&text)?)
    }

    /// A remark on stderr, where it is in no program's way.
    pub fn note(self, text: impl AsRef<str>) {
        // Nobody is left to be told when stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
    }

    /// `text` in its tone, where there is colour.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Busy => "36",
            Tone::Warn => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
            Tone::Plain => return text.to_owned(),
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Text of strangers made safe for a terminal: control characters, which could move the cursor or
/// hide text, and marks that turn the reading direction are shown as `�`.
#[must_use]
pub fn plain(text: &str) -> String {
    let unsafe_mark = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.replace("\r\n", "\n")
        .chars()
        .map(|c| if unsafe_mark(c) { '\u{fffd}' } else { c })
        .collect()
}

/// [`plain`] on one line, for tables and titles.
#[must_use]
pub fn one_line(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_strangers_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{202e}c\r\nd\te"), "a\u{fffd}[2Jb\u{fffd}c\nd\te");
        assert_eq!(one_line("two\n lines\r"), "two lines\u{fffd}");
    }

    #[test]
    fn colour_only_where_it_is_seen() {
        let (seen, plain) = (Output { colour: true }, Output { colour: false });
        assert_eq!(plain.paint(Tone::Bad, "failed"), "failed");
        assert_eq!(seen.paint(Tone::Bad, "failed"), "\x1b[31mfailed\x1b[0m");
        assert_eq!(seen.paint(Tone::Plain, "x"), "x");
    }
}
