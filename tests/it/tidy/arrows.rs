//! Which room may name which: the arrows of docs/ARCHITECTURE.md.

use super::{assert_none, rust_sources};

/// A room and the rooms it may import. Every room may import `model` and itself.
const ARROWS: [(&str, &[&str]); 15] = [
    ("api", &[]),
    (
        "cli",
        &[
            "api", "client", "files", "forge", "git", "intake", "process", "queue", "site",
            "store", "system", "work",
        ],
    ),
    ("client", &["api"]),
    ("files", &[]),
    ("forge", &["process"]),
    ("git", &["process"]),
    ("intake", &["forge", "queue"]),
    ("model", &[]),
    ("process", &[]),
    ("queue", &["store"]),
    ("site", &["intake", "queue", "api", "forge", "files"]),
    ("store", &[]),
    ("system", &[]),
    ("work", &["client", "api", "forge", "git", "process", "files"]),
    // The lib's own list of rooms.
    ("lib", &[]),
];

/// A name of the outside and the only rooms that may say it.
const OUTSIDE: [(&str, &[&str]); 14] = [
    ("anyhow", &["cli"]),
    ("axum", &["site"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("git2", &["git", "forge"]),
    ("indicatif", &["cli"]),
    ("octocrab", &["forge"]),
    ("relay_lanes", &["cli", "work"]),
    ("relay_sandbox", &["cli", "work"]),
    ("relay_service", &["cli"]),
    ("sqlx", &["store"]),
    ("process::Command", &["process"]),
    ("tokio::process", &["process"]),
    ("std::process::exit", &[]),
];

#[test]
fn rooms_import_downwards_only() {
    let mut findings = Vec::new();
    for source in rust_sources().filter(|s| s.path.starts_with("src/")) {
        findings.extend(forbidden(&source.path, &source.text));
    }
    assert_none("imports between rooms", &findings);
}

#[test]
fn the_three_crates_import_nothing_of_src() {
    let mut findings = Vec::new();
    for source in rust_sources() {
        let own = ["lanes/", "sandbox/", "service/"].iter().any(|c| source.path.starts_with(c));
        if own && says(&product(&source.text), "relay") {
            findings.push(format!("{}: names the package relay", source.path));
        }
    }
    assert_none("crates below src", &findings);
}

#[test]
fn an_arrow_that_is_not_there_is_found() {
    let bad = |path, text| forbidden(path, text).len();
    assert_eq!(bad("src/queue/add.rs", "use crate::model::Task;\nuse crate::store::Store;"), 0);
    assert_eq!(bad("src/queue/add.rs", "use crate::api::Problem;"), 1);
    assert_eq!(
        bad("src/queue/add.rs", "use crate::{\n    model::{Task, TaskId},\n    site,\n};"),
        1
    );
    assert_eq!(bad("src/queue/mod.rs", "fn f() { super::site::open() }"), 1);
    assert_eq!(bad("src/work/mod.rs", "let q = crate::queue::Queue::new();"), 1);
    assert_eq!(
        bad("src/work/mod.rs", "// crate::queue is not for us\nlet s = \"crate::site\";"),
        0
    );
    assert_eq!(bad("src/work/mod.rs", "use sqlx::Row;"), 1);
    assert_eq!(bad("src/git/mod.rs", "tokio::process::Command::new(\"git\")"), 2);
    assert_eq!(
        bad("src/git/mod.rs", "#[cfg(test)]\nmod tests {\n std::process::Command::new(1)"),
        0
    );
    assert_eq!(bad("src/new/mod.rs", ""), 1);
}

fn forbidden(path: &str, text: &str) -> Vec<String> {
    let room = room_of(path);
    if room == "main" {
        return Vec::new();
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{path}: the room `{room}` has no line in ARROWS")];
    };
    let whole = without_comments(text);
    let product = product(&whole);
    let mut findings = Vec::new();
    for named in rooms_named(&whole, room) {
        if named != room && named != "model" && !allowed.contains(&named.as_str()) {
            // A unit test may hand in the machine's real clock.
            if named == "system" && !rooms_named(&product, room).contains(&named) {
                continue;
            }
            findings.push(format!("{path}: `{room}` imports `{named}`"));
        }
    }
    for (name, rooms) in OUTSIDE {
        if !rooms.contains(&room) && says(&product, name) {
            findings.push(format!("{path}: `{name}` belongs to {rooms:?}"));
        }
    }
    findings
}

/// `src/queue/add.rs` and `src/queue.rs` are of the room `queue`.
fn room_of(path: &str) -> &str {
    let inside = path.trim_start_matches("src/");
    inside.split_once('/').map_or_else(|| inside.trim_end_matches(".rs"), |(room, _)| room)
}

/// The part above the unit tests.
fn product(text: &str) -> String {
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

/// The rooms that `crate::…` and `super::…` paths lead to.
fn rooms_named(text: &str, own: &str) -> Vec<String> {
    let mut named = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        named.extend(first_names(&text[at + "crate::".len()..]));
    }
    for (at, _) in text.match_indices("super::") {
        let rest = text[at..].trim_start_matches("super::");
        // A room may have a file called like another room; `super::` then means its own.
        named.extend(first_names(rest).into_iter().filter(|n| is_room(n) && !has_file(own, n)));
    }
    named.sort();
    named.dedup();
    named.retain(|n| is_room(n));
    named
}

fn is_room(name: &str) -> bool {
    ARROWS.iter().any(|(room, _)| *room == name)
}

fn has_file(room: &str, name: &str) -> bool {
    let folder = super::root().join("src").join(room);
    folder.join(format!("{name}.rs")).exists() || folder.join(name).exists()
}

/// `a::b` gives `a`; `{a::b, c::{d, e}}` gives `a` and `c`.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()];
    };
    let (mut names, mut name, mut depth, mut first) = (Vec::new(), String::new(), 0, true);
    for c in group.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => {
                names.push(std::mem::take(&mut name));
                first = true;
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            ':' => first = false,
            _ => {}
        }
        if depth == 0 && first && (c.is_alphanumeric() || c == '_') {
            name.push(c);
        }
    }
    names.push(name);
    names
}

/// Whether `name` stands in the text as a path of its own, not as a part of a longer word.
fn says(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let path = text[at + name.len()..].starts_with("::") || text[..at].ends_with("use ");
        !word(before) && !word(after) && (path || name.contains("::"))
    })
}

/// The text with comments and string literals blanked.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut chars = line.chars().peekable();
        let mut quoted = false;
        while let Some(c) = chars.next() {
            match c {
                '\\' if quoted => drop(chars.next()),
                '"' => quoted = !quoted,
                '/' if !quoted && chars.peek() == Some(&'/') => break,
                _ if quoted => {}
                _ => out.push(c),
            }
        }
        out.push('\n');
    }
    out
}
