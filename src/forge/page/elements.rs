//! Which HTML elements there are, and which of them a page does not show.

use std::collections::BTreeMap;

use html5gum::HtmlString;

/// What a tag's element is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// Begins on a line of its own, a blank line before it.
    Block,
    /// Begins on a line of its own.
    Line,
    /// Stands in the line.
    Inline,
    /// Its content shows nowhere.
    Hidden,
    /// No element of HTML: the page leaves the tag out, as in `List<String>`.
    Unknown,
}

const BLOCKS: [&str; 28] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "center",
    "details",
    "dl",
    "fieldset",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "ul",
    "hgroup",
];
const LINES: [&str; 15] = [
    "br",
    "caption",
    "dd",
    "div",
    "dt",
    "figcaption",
    "legend",
    "li",
    "summary",
    "tbody",
    "tfoot",
    "thead",
    "tr",
    "option",
    "search",
];
const INLINE: [&str; 54] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "button", "cite", "code", "col", "colgroup",
    "data", "del", "dfn", "em", "font", "html", "body", "i", "img", "input", "ins", "kbd", "label",
    "mark", "meter", "picture", "progress", "q", "rb", "rt", "ruby", "s", "samp", "select",
    "small", "source", "span", "strike", "strong", "sub", "sup", "td", "th", "time", "track", "tt",
    "u", "var", "wbr", "embed", "area", "link",
];
/// Content that stands in for what a browser cannot show, or that no browser shows.
const HIDDEN: [&str; 15] = [
    "audio", "video", "canvas", "object", "template", "noscript", "datalist", "svg", "math",
    "head", "map", "rp", "rtc", "base", "dialog",
];

/// Hides what it holds also where its end tag is missing: GitHub keeps these, and a browser shows
/// nothing of what follows.
pub(super) fn hides_the_rest(name: &str) -> bool {
    matches!(name, "audio" | "video")
}

pub(super) fn element(name: &str) -> Element {
    if BLOCKS.contains(&name) {
        Element::Block
    } else if LINES.contains(&name) {
        Element::Line
    } else if INLINE.contains(&name) || matches!(name, "meta" | "param" | "basefont") {
        Element::Inline
    } else if HIDDEN.contains(&name) {
        Element::Hidden
    } else {
        Element::Unknown
    }
}

/// The attributes of one tag. Those that hold words for a reader's pointer are never read.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(BTreeMap<String, String>);

impl Attributes {
    pub(super) fn read<'a>(all: impl Iterator<Item = (&'a HtmlString, &'a HtmlString)>) -> Self {
        let read = |text: &HtmlString| String::from_utf8_lossy(text).into_owned();
        let known = ["hidden", "style", "href", "src", "open", "class", "start", "type", "checked"];
        let kept = all.map(|(name, value)| (read(name).to_ascii_lowercase(), read(value)));
        Self(kept.filter(|(name, _)| known.contains(&name.as_str())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether whoever wrote it meant it not to be seen.
    pub(super) fn hide(&self) -> bool {
        self.has("hidden") || self.get("style").is_some_and(hiding_style)
    }
}

fn hiding_style(style: &str) -> bool {
    style.split(';').filter_map(|rule| rule.split_once(':')).any(|(property, value)| {
        let value = value.trim().to_ascii_lowercase();
        let nothing = || {
            let number: String =
                value.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            number.parse::<f64>() == Ok(0.0)
        };
        match property.trim().to_ascii_lowercase().as_str() {
            "display" => value.starts_with("none"),
            "visibility" => value.starts_with("hidden") || value.starts_with("collapse"),
            "color" => value.starts_with("transparent"),
            "opacity" | "font-size" | "height" | "width" | "max-height" => nothing(),
            _ => false,
        }
    })
}

/// An address that may stand in the text: of the web or of the repository, not one that holds its
/// content itself, and short enough to be one.
pub(super) fn address(href: &str) -> Option<&str> {
    const LONGEST: usize = 300;
    let href = href.trim();
    let scheme = href.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let usable = match scheme.as_deref() {
        Some("http" | "https" | "mailto") => true,
        Some(_) => false,
        None => !href.starts_with('#'),
    };
    let plain = href.chars().all(|c| c.is_ascii_graphic()) && !href.contains("%20");
    (usable && plain && !href.is_empty() && href.len() <= LONGEST).then_some(href)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_style_that_hides_is_told_from_one_that_does_not() {
        for style in
            ["display: none", "color:red; DISPLAY:none !important", "opacity:0", "font-size:0px"]
        {
            assert!(hiding_style(style), "{style}");
        }
        for style in ["opacity: 0.9", "display:block", "font-size: 10px", "none", ""] {
            assert!(!hiding_style(style), "{style}");
        }
    }

    #[test]
    fn an_address_is_one_of_the_web_or_the_repository() {
        for href in ["https://example.invalid/a?b=c", "docs/a.md", "../x", "mailto:a@b.invalid"] {
            assert_eq!(address(href), Some(href));
        }
        for href in
            ["data:text/plain,send", "javascript:x", "#here", "send%20the%20token", "send the", ""]
        {
            assert_eq!(address(href), None, "{href}");
        }
        assert_eq!(address(&format!("https://x/{}", "a".repeat(400))), None);
    }
}
