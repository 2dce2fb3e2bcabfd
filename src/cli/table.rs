//! Columns that line up.

use unicode_width::UnicodeWidthStr;

use super::output::{Output, Tone, one_line};

/// A cell wider than this is cut, but for the last one of a row.
const WIDEST: usize = 48;

/// Rows under a head. Cells are made safe for a terminal as they come in.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A word with a meaning.
    pub fn toned(tone: Tone, text: impl AsRef<str>) -> Self {
        Self { text: one_line(text.as_ref()), tone }
    }

    /// At most `width` columns of a text, also in the last cell of a row.
    pub fn short(text: impl AsRef<str>, width: usize) -> Self {
        let cell = Self::from(text);
        Self { text: cut(&cell.text, width), ..cell }
    }

    /// Names with commas between them: all, or the first ones and how many there are besides
    /// (`claude,codex,+2`).
    pub fn names(names: &[impl ToString]) -> Self {
        let mut shown: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut text = shown.join(",");
        while text.width() > WIDEST && shown.pop().is_some() {
            let rest = format!("+{}", names.len() - shown.len());
            text = shown.iter().chain([&rest]).cloned().collect::<Vec<_>>().join(",");
        }
        text.into()
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(Tone::Plain, text)
    }
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new<const N: usize>(head: [&'static str; N]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; it has as many cells as the head.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, one line a row, nothing behind the last column.
    #[must_use]
    pub fn show(&self, output: Output) -> String {
        let head: Vec<Cell> = self.head.iter().map(|h| Cell::toned(Tone::Faint, h)).collect();
        let rows: Vec<&Vec<Cell>> = std::iter::once(&head).chain(&self.rows).collect();
        let last = self.head.len().saturating_sub(1);
        let widths: Vec<usize> = (0..last)
            .map(|i| rows.iter().filter_map(|r| r.get(i)).map(|c| c.text.width()).max())
            .map(|widest| widest.unwrap_or(0).min(WIDEST))
            .collect();
        let mut text = String::new();
        for row in rows {
            let mut line = String::new();
            let mut owed = 0;
            for (i, cell) in row.iter().enumerate() {
                let shown =
                    widths.get(i).map_or_else(|| cell.text.clone(), |w| cut(&cell.text, *w));
                if !shown.is_empty() {
                    line.push_str(&" ".repeat(owed));
                    line.push_str(&output.paint(cell.tone, &shown));
                    owed = 0;
                }
                owed += widths.get(i).map_or(0, |w| w + 2 - shown.width());
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// At most `width` columns, with `…` where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if kept.width() > width.saturating_sub(1) {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_width_on_the_screen() {
        let mut table = Table::new(["STATE", "TASK", "TITLE"]);
        table.row(["queued".into(), "a/b#1".into(), "日本 and\nmore".into()]);
        table.row(["日本".into(), "".into(), "x".into()]);
        table.row(["done".into(), "a/b#2".into(), "".into()]);
        insta::assert_snapshot!(table.show(Output::new(true)), @"
        STATE   TASK   TITLE
        queued  a/b#1  日本 and more
        日本           x
        done    a/b#2
        ");
    }

    #[test]
    fn of_many_names_it_is_said_how_many_are_not_shown() {
        let few = ["claude", "codex", "process:edit"];
        assert_eq!(Cell::names(&few).text, "claude,codex,process:edit");
        let many =
            ["claude", "codex", "grok", "process:edit", "process:nightly-report", "process:x"];
        assert_eq!(Cell::names(&many).text, "claude,codex,grok,process:edit,+2");
        assert_eq!(Cell::names(&["x".repeat(60)]).text, "+1");
        assert_eq!(Cell::names(&[""; 0]).text, "");
    }

    #[test]
    fn a_wide_cell_is_cut_but_not_the_last() {
        let mut table = Table::new(["A", "B"]);
        table.row(["x".repeat(60).into(), "y".repeat(60).into()]);
        let text = table.show(Output::new(true));
        assert!(text.contains(&format!("{}…  {}", "x".repeat(47), "y".repeat(60))), "{text}");
        assert_eq!(cut("日本日本", 4), "日…");
    }
}
