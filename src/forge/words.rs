//! Every sentence that relay sends to a forge, each a named function.
//!
//! Titles and summaries come from strangers and from a lane: they are made safe here, so that
//! they ping nobody, refer to nothing, hide nothing, and cannot imitate relay's own marker.

use serde::Serialize;

use crate::model::text::is_hidden;
use crate::model::{LaneName, RunId, Task, TaskId, Usage};

/// GitHub takes titles of 256 characters; what is longer is cut.
const TITLE_LIMIT: usize = 200;
/// GitHub takes comments of 65,536 characters; a summary that long is no summary.
const SUMMARY_LIMIT: usize = 6_000;
/// Put into a mention or a reference so that a forge no longer sees one, and a reader still does.
const BREAK: &str = "\u{200b}";

/// The label that asks for a lane: `agent:<lane>`.
#[must_use]
pub fn agent_label(lane: &LaneName) -> String {
    format!("agent:{lane}")
}

/// The pull request's title: `<lane>: <title>`.
#[must_use]
pub fn pr_title(lane: &LaneName, title: &str) -> String {
    // A squash makes it a commit's message: it mentions nobody and refers to no issue, so whatever
    // it says it closes is not closed. A blank shows, so nothing is hidden in a title.
    let title = without_references(&one_line(title), " ", false);
    let title = if title.is_empty() { "no title".to_owned() } else { title };
    cut(&format!("{lane}: {title}"), TITLE_LIMIT)
}

/// The pull request's text: `Closes #N`, and who made it.
#[must_use]
pub fn pr_body(task: &Task) -> String {
    let Task { id, lane, .. } = task;
    format!(
        "Closes #{}\n\nMade by relay with the lane `{lane}`. Please review it like any other.",
        id.number
    )
}

/// The one commit's message: the pull request's title, and the task it belongs to.
#[must_use]
pub fn commit_message(task: &Task) -> String {
    // `Task:` is no closing word; the pull request closes the issue, not the commit.
    format!("{}\n\nTask: {}\n", pr_title(&task.lane, &task.title), task.id)
}

/// What a finished run tells.
#[derive(Clone, Copy, Debug)]
pub struct Result<'a> {
    /// The task.
    pub task: &'a Task,
    /// The run that posts it.
    pub run: &'a RunId,
    /// [`run_marker`] of the work.
    pub marker: &'a str,
    /// What the lane said about its work. Not to be trusted.
    pub summary: Option<&'a str>,
    /// What it cost, as reported.
    pub usage: Option<&'a Usage>,
}

/// The one comment on a pull request: the lane's summary, quoted, and the usage block.
#[must_use]
pub fn result_comment(result: &Result<'_>) -> String {
    let Result { task, run, marker, summary, usage } = result;
    let lane = &task.lane;
    let summary = summary.map(plain).filter(|text| !text.trim().is_empty());
    let said = match summary {
        Some(text) => format!("**{lane}** says:\n\n{}", quote(&text)),
        None => format!("**{lane}** finished without a summary."),
    };
    format!("{marker}\n{said}\n\n```json\n{}\n```\n", usage_block(task, run, *usage))
}

/// The comment that can be found again, by this run or by a later one of the same work, however
/// its answer got lost. A reader does not see it.
#[must_use]
pub fn run_marker(task: &TaskId, commit: &str) -> String {
    let commit: String = commit.chars().filter(char::is_ascii_hexdigit).take(64).collect();
    format!("<!-- relay-run:{task}:{commit} -->")
}

/// The marker that `body` begins with, where it is one of relay's.
#[must_use]
pub fn marker_of(body: &str) -> Option<&str> {
    let rest = body.strip_prefix("<!-- relay-run:")?;
    let end = rest.find(" -->")?;
    Some(&body[..body.len() - rest.len() + end + " -->".len()])
}

/// Why a label did not become a task: its text is no longer the one that was asked for.
#[must_use]
pub fn text_changed(label: &str) -> String {
    format!("the issue was edited after `{label}` was set; read it and set the label again")
}

/// Why a label did not become a task: nobody can say whether the text is the same.
#[must_use]
pub fn text_unknown(label: &str) -> String {
    format!(
        "the server cannot say whether the issue was edited after `{label}` was set; \
         set the label again"
    )
}

/// Why a label did not become a task: who set it may not.
#[must_use]
pub fn sender_refused(label: &str, login: &str, listed: bool) -> String {
    let login = one_line(login);
    if listed {
        format!("`{label}` was set by {login}, who is not in RELAY_ALLOWED_SENDERS")
    } else {
        format!("`{label}` was set by {login}, who cannot write to the repository")
    }
}

/// Why a label did not become a task: a program set it, perhaps at a stranger's word.
#[must_use]
pub fn sender_is_program(label: &str, login: &str) -> String {
    let login = one_line(login);
    format!(
        "`{label}` was set by {login}, which is no person; a person has to set it, or \
         RELAY_ALLOWED_SENDERS has to name {login}"
    )
}

/// Why a label did not become a task: it is there, and nothing says who set it.
#[must_use]
pub fn sender_unknown(label: &str) -> String {
    format!("nothing says who set `{label}`; set the label again")
}

/// The usage block: what was not reported is absent, never zero.
fn usage_block(task: &Task, run: &RunId, usage: Option<&Usage>) -> String {
    #[derive(Serialize)]
    struct Block<'a> {
        source: &'a str,
        task: String,
        run: &'a str,
        lane: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_read_tokens: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_write_tokens: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        model_calls: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        turns: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        duration_ms: Option<u64>,
    }
    let nothing = Usage::default();
    let usage = usage.unwrap_or(&nothing);
    let block = Block {
        source: "relay-work",
        task: task.id.to_string(),
        run: run.as_str(),
        lane: task.lane.as_str(),
        model: usage.model.as_deref().map(model_name),
        input_tokens: usage.input_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        output_tokens: usage.output_tokens,
        model_calls: usage.model_calls,
        turns: usage.turns,
        cost_usd: usage.cost_usd,
        duration_ms: usage.duration_ms,
    };
    serde_json::to_string_pretty(&block).unwrap_or_default()
}

/// A model's name comes from the vendor's program: only what names are made of is kept.
fn model_name(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || "._-:/[]".contains(*c)).take(80).collect()
}

/// A stranger's text as one visible line.
fn one_line(text: &str) -> String {
    let visible: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .filter(|c| !is_hidden(*c))
        .collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A lane's summary as text that does nothing: visible characters, no mention, no reference, no
/// HTML (a comment hides, `</blockquote>` ends the quotation), no character written as an entity
/// (`&#64;` is an `@`), cut to a length.
fn plain(text: &str) -> String {
    let visible: String = text
        .replace("\r\n", "\n")
        .chars()
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .filter(|c| !is_hidden(*c))
        .collect();
    let visible = cut(visible.trim(), SUMMARY_LIMIT);
    without_references(&visible, BREAK, true)
}

/// Puts `sign` into what a forge would make a mention or a reference of, and with `markup` also
/// into what it would take for a tag, an entity or an image.
fn without_references(text: &str, sign: &str, markup: bool) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len() + 16);
    for (i, &c) in chars.iter().enumerate() {
        out.push(c);
        let before = i.checked_sub(1).map(|j| chars[j]);
        let Some(&next) = chars.get(i + 1) else { break };
        if refers(&out, before, c, next) || (markup && begins_markup(c, next)) {
            out.push_str(sign);
        }
    }
    out
}

/// Whether what stands before `next` would make a mention or an issue reference of it.
fn refers(so_far: &str, before: Option<char>, c: char, next: char) -> bool {
    match c {
        // An address (`a@b`) is no mention; GitHub looks for ASCII letters only. Behind `_` it can
        // be one: `_@b_` is `@b` in italics.
        '@' => next.is_alphanumeric() && !before.is_some_and(|c| c.is_ascii_alphanumeric()),
        '#' => next.is_ascii_digit(),
        '-' => next.is_ascii_digit() && ends_with_word(so_far, "gh-"),
        '/' => {
            next.is_ascii_digit()
                && ["/issues/", "/pull/", "/pulls/", "/discussions/"]
                    .iter()
                    .any(|path| so_far.to_ascii_lowercase().ends_with(path))
        }
        _ => false,
    }
}

/// A tag, an entity (`&#64;` is an `@`), an image: its address is asked for by whoever looks. A
/// footnote stands at the end of the comment, outside of the quotation, and `[!NOTE]` makes a box
/// of the quotation, as if the forge said it.
fn begins_markup(c: char, next: char) -> bool {
    match c {
        '<' => next.is_ascii_alphabetic() || "/!?".contains(next),
        '&' => next.is_ascii_alphabetic() || next == '#',
        '!' => next == '[',
        '[' => next == '^' || next == '!',
        _ => false,
    }
}

fn ends_with_word(text: &str, word: &str) -> bool {
    let Some(start) = text.len().checked_sub(word.len()) else { return false };
    text.is_char_boundary(start)
        && text[start..].eq_ignore_ascii_case(word)
        && !text[..start].chars().next_back().is_some_and(char::is_alphanumeric)
}

fn quote(text: &str) -> String {
    text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::sample::task;
    use proptest::prelude::*;

    fn lane() -> LaneName {
        "claude".parse().unwrap()
    }

    fn marker() -> String {
        run_marker(&task().id, "5eed")
    }

    fn comment(summary: Option<&str>, usage: Option<&Usage>) -> String {
        let run = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let (task, marker) = (task(), marker());
        result_comment(&Result { task: &task, run: &run, marker: &marker, summary, usage })
    }

    #[test]
    fn a_pull_request_names_its_lane_and_closes_its_issue() {
        assert_eq!(
            pr_title(&lane(), "Add a  total\nto the cart"),
            "claude: Add a total to the cart"
        );
        assert_eq!(pr_title(&lane(), "\u{202e}\u{200b}\t"), "claude: no title");
        assert!(pr_body(&task()).starts_with("Closes #12\n"));
        assert_eq!(commit_message(&task()), "claude: Add a total\n\nTask: acme/shop#12\n");
        assert_eq!(pr_title(&lane(), &"x".repeat(900)).chars().count(), 200);
    }

    #[test]
    fn a_title_closes_no_other_issue() {
        for (title, safe) in [
            ("Fixes #9", "claude: Fixes # 9"),
            ("this closes: acme/shop#9 too", "claude: this closes: acme/shop# 9 too"),
            ("(resolved GH-9)", "claude: (resolved GH- 9)"),
            ("fix:#9", "claude: fix:# 9"),
            ("Follow-up of #9", "claude: Follow-up of # 9"),
            ("thanks @mona, é@max and @acme/core", "claude: thanks @ mona, é@ max and @ acme/core"),
            ("mail a@b.example about <b> & c", "claude: mail a@b.example about <b> & c"),
            ("--upload-pack=evil", "claude: --upload-pack=evil"),
            (
                "Co-authored-by: x <x@y>\n\nSigned-off-by: z\nRelay-Epoch: 9",
                "claude: Co-authored-by: x <x@y> Signed-off-by: z Relay-Epoch: 9",
            ),
        ] {
            assert_eq!(pr_title(&lane(), title), safe);
        }
        let url = pr_title(&lane(), "fixes https://github.com/acme/shop/issues/9");
        assert!(!url.contains("/issues/9"), "{url}");
        let message =
            commit_message(&Task { title: "x\n\nCo-authored-by: y <y@z>".into(), ..task() });
        assert_eq!(message.lines().filter(|l| !l.is_empty()).count(), 2, "{message}");
    }

    #[test]
    fn the_comment_holds_summary_usage_and_marker() {
        let usage = Usage {
            model: Some("opus".to_owned()),
            output_tokens: Some(7),
            cost_usd: Some(0.25),
            duration_ms: Some(1200),
            ..Usage::default()
        };
        insta::assert_snapshot!(comment(Some("Added the total.\n\nTests pass."), Some(&usage)), @r#"
        <!-- relay-run:acme/shop#12:5eed -->
        **claude** says:

        > Added the total.
        > 
        > Tests pass.

        ```json
        {
          "source": "relay-work",
          "task": "acme/shop#12",
          "run": "01890a5d-ac96-774b-bcce-b302099a8057",
          "lane": "claude",
          "model": "opus",
          "output_tokens": 7,
          "cost_usd": 0.25,
          "duration_ms": 1200
        }
        ```
        "#);
        let silent = comment(None, None);
        assert!(!silent.contains("tokens") && !silent.contains("cost"), "{silent}");
        assert_eq!(marker_of(&silent), Some(marker().as_str()));
        assert_eq!(marker_of("hello"), None);
    }

    #[test]
    fn a_summary_pings_nobody_and_refers_to_nothing() {
        let text = "@boss see #9, GH-9, acme/other#3 and https://github.com/a/b/issues/4; \
                    mail a@b.example\n@\u{200b}x (@team/core) closes #9";
        let shown = comment(Some(text), None);
        for bad in ["@boss", "#9", "GH-9", "#3", "issues/4", "@x", "@team"] {
            assert!(!shown.contains(bad), "{bad} in {shown}");
        }
        assert!(shown.contains("a@b.example"), "an address stays: {shown}");
        let in_italics = comment(Some("_@boss_ and __@team/core__"), None);
        assert!(!in_italics.contains("@b") && !in_italics.contains("@t"), "{in_italics}");
    }

    #[test]
    fn a_summary_stays_in_its_quotation() {
        let text = "[!IMPORTANT]\nApproved[^a].\n\n[^a]: **relay** says: merge this";
        let shown = comment(Some(text), None);
        assert!(!shown.contains("[!") && !shown.contains("[^"), "{shown}");
        assert!(shown.contains("Approved["), "{shown}");
    }

    #[test]
    fn a_summary_cannot_imitate_the_marker() {
        let forged = run_marker(&task().id, "f00d");
        let usage = Usage { model: Some(forged.clone()), ..Usage::default() };
        for trick in
            [forged.clone(), forged.replace("<!", "<\u{200b}!"), format!("<<!--!-- {forged}")]
        {
            let shown = comment(Some(&trick), Some(&usage));
            assert_eq!(shown.matches("<!--").count(), 1, "{shown}");
            assert!(!shown.contains(&forged));
        }
    }

    /// A forge reads mentions and references off the page, where `&#64;` is an `@` again, and a
    /// tag that ends the quotation lets what follows look like relay's own words.
    #[test]
    fn a_summary_has_no_tag_and_no_entity() {
        let text =
            "&#64;boss &commat;boss @&#98;oss &#35;9 </blockquote> <details> <!doctype> <?x a<b";
        let shown = comment(Some(text), None);
        for bad in ["&#", "&c", "</", "<d", "<!d", "<?", "a<b"] {
            assert!(!shown.contains(bad), "{bad} in {shown}");
        }
        assert!(comment(Some("a < b && c"), None).contains("a < b && c"));
    }

    #[test]
    fn a_long_summary_is_cut() {
        let shown = comment(Some(&"word ".repeat(50_000)), None);
        assert!(shown.len() < 20_000 && shown.contains('…'));
        let lines = comment(Some(&"@a\n".repeat(50_000)), None);
        assert!(lines.chars().count() < 65_536);
    }

    proptest! {
        #[test]
        fn no_text_gets_through(text in "(@|#|[a-z]{1,3}|[0-9]|<!--|gh-|GH-|/issues/|\u{200b}|\u{202e}|\n| |closes )*") {
            let shown = plain(&text);
            let chars: Vec<char> = shown.chars().collect();
            for pair in chars.windows(2) {
                prop_assert!(!(pair[0] == '#' && pair[1].is_ascii_digit()), "{shown}");
            }
            prop_assert!(!shown.contains("<!--"));
            let title = pr_title(&lane(), &text);
            prop_assert!(!title.contains('\n') && !title.chars().any(|c| c.is_control() || is_hidden(c)));
        }
    }
}
