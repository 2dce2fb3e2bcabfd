//! docs/SECURITY.md says which test proves what: each it names is there.

use std::collections::BTreeSet;

use super::{assert_none, root, rust_sources};

#[test]
fn every_test_that_the_security_page_names_is_there() {
    let page = std::fs::read_to_string(root().join("docs/SECURITY.md")).unwrap();
    let tests = rust_sources().flat_map(|s| functions(&s.text)).collect();
    let findings = unproven(&page, &tests);
    assert_none("a row without its test", &findings);
}

/// The functions a file defines, by name.
fn functions(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let (_, rest) = line.split_once("fn ")?;
        Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
    };
    text.lines().filter(|line| !line.trim_start().starts_with("//")).filter_map(name).collect()
}

/// Rows of the tables of attacks that name no test, or one that is not in `tests`.
fn unproven(page: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let (_, tables) = page.split_once("\n## Attacks and faults").unwrap_or_default();
    let tables = tables.split("\n## ").next().unwrap_or_default();
    let mut findings = Vec::new();
    let mut rows = 0;
    for line in tables.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [attack, happens, proof] = cells[..] else {
            findings.push(format!("not three cells: {line}"));
            continue;
        };
        if attack == "attack or fault" {
            continue;
        }
        rows += 1;
        // A name cut short with `…` stands beside a whole one.
        let named: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        let whole = named.iter().filter(|name| !name.contains('…'));
        let missing = whole
            .clone()
            .filter(|name| !tests.contains(name.rsplit("::").next().unwrap_or_default()));
        findings.extend(missing.map(|name| format!("there is no test `{name}`")));
        if happens.is_empty() || (whole.count() == 0 && !proof.starts_with("the same")) {
            findings.push(format!("nothing proves: {attack}"));
        }
    }
    if rows == 0 {
        findings.push("the page has no table of attacks".to_owned());
    }
    findings
}

#[test]
fn the_rule_finds_violations() {
    let tests = BTreeSet::from(["it_holds".to_owned()]);
    let page =
        |row: &str| format!("# S\n\n## Attacks and faults\n\n{row}\n\n## More\n| x | y | z |\n");
    assert_eq!(unproven(&page("| a | b | `it::m::it_holds` |"), &tests), Vec::<String>::new());
    assert_eq!(unproven(&page("| a | b | `it::m::gone` |"), &tests).len(), 1);
    assert_eq!(unproven(&page("| a | b | by hand |"), &tests).len(), 1);
    assert_eq!(unproven(&page("| a | b |"), &tests).len(), 2);
    assert_eq!(unproven("# S\n", &tests).len(), 1);
}
