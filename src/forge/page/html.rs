//! Reads a page's HTML as a browser's tokenizer does, and writes down what shows.

use std::collections::HashMap;

use html5gum::{Token, Tokenizer};

use super::elements::{Attributes, Element, address, element, hides_the_rest};
use super::writer::Writer;

/// Code blocks that GitHub draws as a picture: their text does not show.
const DRAWN: [&str; 5] = ["mermaid", "geojson", "topojson", "stl", "math"];
/// Longest name of a code block's language. The name does not show, so it is kept only where it
/// can be one.
const LANGUAGE: usize = 16;

/// One piece of the page.
enum Piece {
    Text(String),
    Start(String, Attributes),
    End(String),
}

/// What shows of a page, and whether that was too long and is cut.
pub(super) fn text(page: &str) -> (String, bool) {
    let pieces = pieces(page);
    let ends = ends(&pieces);
    let mut reader = Reader { pieces, ends, out: Writer::default(), links: vec![], lists: vec![] };
    reader.read();
    reader.out.finish()
}

fn pieces(page: &str) -> Vec<Piece> {
    let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Tokenizer::new(page)
        .flatten()
        .filter_map(|token| match token {
            Token::String(text) => Some(Piece::Text(word(&text))),
            Token::StartTag(tag) => {
                let attributes = Attributes::read(tag.attributes.iter().map(|(n, v)| (n, &**v)));
                Some(Piece::Start(word(&tag.name), attributes))
            }
            Token::EndTag(tag) => Some(Piece::End(word(&tag.name))),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => None,
        })
        .collect()
}

/// For each start tag where its end tag is, where it has one.
fn ends(pieces: &[Piece]) -> HashMap<usize, usize> {
    let mut open: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut ends = HashMap::new();
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Start(name, _) => open.entry(name).or_default().push(at),
            Piece::End(name) => {
                if let Some(start) = open.get_mut(name.as_str()).and_then(Vec::pop) {
                    ends.insert(start, at);
                }
            }
            Piece::Text(_) => {}
        }
    }
    ends
}

struct Reader {
    pieces: Vec<Piece>,
    ends: HashMap<usize, usize>,
    out: Writer,
    /// Open links: where they lead, and where their text begins.
    links: Vec<(Option<String>, usize)>,
    /// Open lists: the next number of a numbered one.
    lists: Vec<Option<u64>>,
}

impl Reader {
    fn read(&mut self) {
        let mut at = 0;
        while at < self.pieces.len() && !self.out.is_full() {
            at = self.piece(at);
        }
    }

    /// Writes the piece at `at` down; where to go on.
    fn piece(&mut self, at: usize) -> usize {
        match &self.pieces[at] {
            Piece::Text(text) => self.out.text(text),
            Piece::Start(name, attributes) => {
                if let Some(after) = self.hidden_until(at) {
                    return after;
                }
                if name == "pre" || name == "code" {
                    let end = self.ends.get(&at).copied();
                    // A tag that is never closed: what follows is text like any other.
                    let Some(end) = end else { return at + 1 };
                    let (code, language) = self.code(at, end);
                    if name == "pre" {
                        self.code_block(&code, language.as_deref());
                    } else {
                        self.inline_code(&code);
                    }
                    return end + 1;
                }
                let (name, attributes) = (name.clone(), attributes.clone());
                self.start(&name, &attributes);
            }
            Piece::End(name) => {
                let name = name.clone();
                self.end(&name);
            }
        }
        at + 1
    }

    /// Where what is hidden by the start tag at `at` has ended; `None` where it hides nothing.
    fn hidden_until(&self, at: usize) -> Option<usize> {
        let Piece::Start(name, attributes) = &self.pieces[at] else { return None };
        if element(name) != Element::Hidden && !attributes.hide() {
            return None;
        }
        match self.ends.get(&at) {
            Some(end) => Some(end + 1),
            None if hides_the_rest(name) => Some(self.pieces.len()),
            None => None,
        }
    }

    /// The text between two pieces as it stands, and the language it is said to be in.
    fn code(&self, from: usize, to: usize) -> (String, Option<String>) {
        let (mut code, mut language) = (String::new(), None);
        let mut at = from;
        while at < to {
            match &self.pieces[at] {
                Piece::Text(text) => code.push_str(text),
                Piece::Start(name, _) if name == "br" => code.push('\n'),
                Piece::Start(_, attributes) => {
                    if at > from
                        && let Some(after) = self.hidden_until(at)
                    {
                        at = after;
                        continue;
                    }
                    let class = attributes.get("class").and_then(|c| c.strip_prefix("language-"));
                    language = language.or_else(|| class.map(str::to_owned));
                }
                Piece::End(_) => {}
            }
            at += 1;
        }
        (code, language)
    }

    fn code_block(&mut self, code: &str, language: Option<&str>) {
        let language = language.filter(|name| {
            name.len() <= LANGUAGE
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "+#._-".contains(c))
        });
        self.out.block();
        if language.is_some_and(|name| DRAWN.contains(&name.to_ascii_lowercase().as_str())) {
            self.out.mark("(drawn on the page, where this text does not show:)");
            self.out.line();
        }
        let fence = "`".repeat(longest_run(code).max(2) + 1);
        self.out.mark(&fence);
        self.out.mark(language.unwrap_or_default());
        self.out.line();
        let code = code.strip_suffix('\n').unwrap_or(code);
        self.out.verbatim(code);
        self.out.line();
        self.out.mark(&fence);
        self.out.block();
    }

    fn inline_code(&mut self, code: &str) {
        let fence = "`".repeat(longest_run(code) + 1);
        let space = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
        self.out.mark(&format!("{fence}{space}"));
        self.out.text(code);
        self.out.mark(&format!("{space}{fence}"));
    }

    fn start(&mut self, name: &str, attributes: &Attributes) {
        match element(name) {
            Element::Block => self.out.block(),
            Element::Line => self.out.line(),
            Element::Inline | Element::Hidden => {}
            // Not what it says: a tag's name and attributes may say anything.
            Element::Unknown => self.out.mark("<…>"),
        }
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = name[1..].parse().unwrap_or(1);
                self.out.mark(&format!("{} ", "#".repeat(level)));
            }
            "hr" => {
                self.out.mark("---");
                self.out.block();
            }
            "blockquote" => self.out.push_prefix(None, "> "),
            "ul" => self.lists.push(None),
            "ol" => {
                let first = attributes.get("start").and_then(|n| n.parse().ok()).unwrap_or(1);
                self.lists.push(Some(first));
            }
            "li" => {
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let mark = format!("{number}. ");
                        *number = number.saturating_add(1);
                        mark
                    }
                    _ => "- ".to_owned(),
                };
                let indent = " ".repeat(mark.len());
                self.out.push_prefix(Some(mark), &indent);
            }
            "input" if attributes.get("type") == Some("checkbox") => {
                self.out.mark(if attributes.has("checked") { "[x] " } else { "[ ] " });
            }
            "td" | "th" => self.out.mark("| "),
            "del" | "s" | "strike" => self.out.mark("~~"),
            "sup" => self.out.mark("^"),
            "details" if !attributes.has("open") => {
                self.out.mark("(collapsed on the page:)");
                self.out.block();
            }
            "a" => {
                let href = attributes.get("href").and_then(address).map(str::to_owned);
                self.links.push((href, self.out.position()));
            }
            "img" => match attributes.get("src").and_then(address) {
                Some(src) => self.out.mark(&format!("(image: {src})")),
                None => self.out.mark("(image)"),
            },
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        match name {
            "blockquote" | "li" => self.out.pop_prefix(),
            "ul" | "ol" => drop(self.lists.pop()),
            "td" | "th" => self.out.mark(" "),
            "tr" => self.out.mark("|"),
            "del" | "s" | "strike" => self.out.mark("~~"),
            "details" => {
                self.out.block();
                self.out.mark("(end of what is collapsed)");
            }
            "a" => self.end_of_link(),
            _ => {}
        }
        match element(name) {
            Element::Block => self.out.block(),
            Element::Line => self.out.line(),
            Element::Inline | Element::Hidden | Element::Unknown => {}
        }
    }

    fn end_of_link(&mut self) {
        let Some((Some(href), from)) = self.links.pop() else { return };
        let text = self.out.since(from).trim();
        if !text.ends_with(href.trim_start_matches("mailto:")) {
            self.out.mark(&format!(" ({href})"));
        }
    }
}

fn longest_run(code: &str) -> usize {
    code.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
