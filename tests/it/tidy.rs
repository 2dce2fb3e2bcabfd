//! The rules of the house that neither the compiler nor clippy holds, as tests.
//!
//! Each rule is a function from text to findings, so that a test can also show it a violation.

mod arrows;
mod proofs;
mod supply;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, tests included. A longer one holds two ideas.
const MOST_LINES: usize = 600;

/// A tracked text file, named from the repository's root with forward slashes.
struct Source {
    path: String,
    text: String,
}

/// Fails the test with every finding at once.
fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the project's own, without what builds and tools leave behind.
fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if matches!(name.as_str(), ".git" | "target" | "node_modules" | ".relay-tools") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push(Source { path: from_root(&path), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(|s| s.path == "src/lib.rs"), "the walk found no source");
    found
}

fn from_root(path: &Path) -> String {
    let relative: PathBuf = path.strip_prefix(root()).unwrap().into();
    relative.to_string_lossy().replace('\\', "/")
}

fn rust_sources() -> impl Iterator<Item = Source> {
    sources().into_iter().filter(|s| s.path.ends_with(".rs"))
}

#[test]
fn every_file_is_short_and_says_what_it_is() {
    let mut findings = Vec::new();
    for Source { path, text } in rust_sources() {
        findings.extend(shape(&path, &text));
    }
    assert_none("shape of a file", &findings);
}

fn shape(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        findings.push(format!("{path}: {lines} lines, at most {MOST_LINES}"));
    }
    let first = text.lines().next().unwrap_or_default();
    let said = first.strip_prefix("//!").map(str::trim);
    if !said.is_some_and(|s| s.contains(' ')) {
        findings.push(format!("{path}: the first line is not a `//!` sentence"));
    }
    findings
}

/// Product code is the same under test: `cfg(test)` may only guard a module of tests or their data.
#[test]
fn product_code_has_no_test_forks() {
    let mut findings = Vec::new();
    for Source { path, text } in rust_sources().filter(|s| !s.path.starts_with("tests/")) {
        findings.extend(forks(&path, &text));
    }
    assert_none("cfg(test) in product code", &findings);
}

fn forks(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let guards_tests = |after: usize| {
        lines
            .iter()
            .skip(after + 1)
            .find(|l| !l.starts_with("#[") && !l.starts_with("//"))
            .is_some_and(|l| l.trim_start_matches("pub(crate) ").starts_with("mod "))
    };
    let fork = |i: usize, line: &str| {
        let test = line.contains("cfg(test)") || line.contains("cfg!(test)");
        line.contains("cfg(not(test))")
            || test && !line.starts_with("//") && !(line == "#[cfg(test)]" && guards_tests(i))
    };
    lines
        .iter()
        .enumerate()
        .filter(|(i, line)| fork(*i, line))
        .map(|(i, line)| format!("{path}:{}: {line}", i + 1))
        .collect()
}

#[test]
fn the_shape_rules_find_violations() {
    assert_eq!(shape("a.rs", "//! One idea.\n"), Vec::<String>::new());
    assert_eq!(shape("a.rs", "//! placeholder\n").len(), 1);
    assert_eq!(shape("a.rs", "use std::fs;\n").len(), 1);
    assert_eq!(shape("a.rs", &"//! One idea.\n".repeat(601)).len(), 1);
    assert_eq!(forks("a.rs", "#[cfg(test)]\nmod tests {\n"), Vec::<String>::new());
    assert_eq!(forks("a.rs", "#[cfg(test)]\npub(crate) mod sample {\n"), Vec::<String>::new());
    assert_eq!(forks("a.rs", "#[cfg(test)]\nuse x::y;\n").len(), 1);
    assert_eq!(forks("a.rs", "#[cfg(test)]\npub(crate) fn f() {\n").len(), 1);
    assert_eq!(forks("a.rs", "if cfg!(test) {\n").len(), 1);
}
