//! What of an issue's text a reader sees on GitHub's page, as plain text.
//!
//! The text goes the way it goes there: Markdown to HTML, and the HTML read as one document, so
//! that a comment opened in one paragraph hides the next one here as it does on the page. What
//! shows is kept, code as it stands; comments, attributes, definitions nobody refers to, cells a
//! table has no column for and characters without a shape are not. Where it is not certain that
//! the page shows something, it is left out: an agent is to read what the person read who asked.

mod elements;
mod html;
mod writer;

use std::collections::{BTreeSet, VecDeque};

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html as renderer};

/// Longest text that is read, in characters: GitHub's own limit of an issue's text.
pub const LIMIT: usize = 65_536;

/// Elements whose tags GitHub shows as text instead of obeying them (GFM's own list).
const SHOWN_AS_TEXT: [&str; 9] =
    ["title", "textarea", "style", "xmp", "iframe", "noembed", "noframes", "script", "plaintext"];

/// Commands of a formula that take room or ink away from what they are given.
const HIDING_MATH: [&str; 6] =
    ["color", "phantom", "transparent", "\\tiny", "\\hspace", "\\mathchoice"];

/// The text of an issue, without what its page does not show. Never longer than [`LIMIT`] and a
/// note that it was cut.
#[must_use]
pub fn shown(markdown: &str) -> String {
    let end = markdown.char_indices().nth(LIMIT).map(|(at, _)| at);
    let markdown = &markdown[..end.unwrap_or(markdown.len())];
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH
        | Options::ENABLE_GFM;
    let events: Vec<Event<'_>> = Parser::new_ext(markdown, options).collect();
    let referred = referred_footnotes(&events);
    let mut page = String::with_capacity(markdown.len() + markdown.len() / 2);
    renderer::push_html(&mut page, without_unreferred(events, &referred).map(as_shown));
    let (mut text, cut) = html::text(&page);
    if cut || end.is_some() {
        text.push_str("\n(cut here: the text is longer)");
    }
    text
}

/// What GitHub does to single events before the page is put together.
fn as_shown(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(raw) => Event::Html(tags_as_text(raw)),
        Event::InlineHtml(raw) => Event::InlineHtml(tags_as_text(raw)),
        Event::InlineMath(formula) => Event::Text(shown_formula(&formula, "$").into()),
        Event::DisplayMath(formula) => Event::Text(shown_formula(&formula, "$$").into()),
        other => other,
    }
}

fn shown_formula(formula: &str, sign: &str) -> String {
    if HIDING_MATH.iter().any(|command| formula.contains(command)) {
        return "(a formula that hides a part of itself)".to_owned();
    }
    format!("{sign}{formula}{sign}")
}

/// Makes `<` a letter where it begins one of [`SHOWN_AS_TEXT`].
fn tags_as_text(raw: CowStr<'_>) -> CowStr<'_> {
    let mut out = String::new();
    let mut rest = &*raw;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let name: String = tag[1..]
            .trim_start_matches('/')
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        let is_text = SHOWN_AS_TEXT.iter().any(|shown| shown.eq_ignore_ascii_case(&name));
        out.push_str(if is_text { "&lt;" } else { "<" });
        rest = &tag[1..];
    }
    if out.is_empty() {
        return raw;
    }
    out.push_str(rest);
    out.into()
}

/// The footnotes that the page shows: referred to from the text, or from one that is shown.
fn referred_footnotes(events: &[Event<'_>]) -> BTreeSet<String> {
    let mut within: Option<String> = None;
    let mut references: Vec<(Option<String>, String)> = Vec::new();
    for event in events {
        match event {
            Event::Start(Tag::FootnoteDefinition(label)) => within = Some(label.to_string()),
            Event::End(TagEnd::FootnoteDefinition) => within = None,
            Event::FootnoteReference(label) => references.push((within.clone(), label.to_string())),
            _ => {}
        }
    }
    let mut shown = BTreeSet::new();
    let mut next: VecDeque<Option<String>> = VecDeque::from([None]);
    while let Some(from) = next.pop_front() {
        for (_, to) in references.iter().filter(|(by, _)| *by == from) {
            if shown.insert(to.clone()) {
                next.push_back(Some(to.clone()));
            }
        }
    }
    shown
}

fn without_unreferred<'a>(
    events: Vec<Event<'a>>,
    referred: &BTreeSet<String>,
) -> impl Iterator<Item = Event<'a>> {
    let mut hidden = false;
    events.into_iter().filter(move |event| match event {
        Event::Start(Tag::FootnoteDefinition(label)) => {
            hidden = !referred.contains(&**label);
            !hidden
        }
        Event::End(TagEnd::FootnoteDefinition) => !std::mem::take(&mut hidden),
        _ => !hidden,
    })
}
