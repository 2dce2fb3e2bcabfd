//! What `cargo deny` checks, for machines without it: crates, licences and sources, by the lists
//! of deny.toml.

use std::fs;

use super::{assert_none, root};

/// The one source Cargo.lock may name.
const SOURCE: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

#[test]
fn only_known_sources_are_locked() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    assert!(lock.contains("name = \"relay\""));
    assert_none("sources in Cargo.lock", &foreign_sources(&lock));
}

#[test]
fn what_is_built_is_allowed() {
    let lists = Lists::read(&fs::read_to_string(root().join("deny.toml")).unwrap());
    let mut findings = Vec::new();
    let tree = cargo_tree();
    assert!(tree.len() > 50, "cargo tree printed {} crates", tree.len());
    for (name, license) in &tree {
        findings.extend(lists.against(name, license));
    }
    assert_none("deny.toml", &findings);
}

#[test]
fn the_supply_rules_find_violations() {
    let git = "source = \"git+https://example.invalid/x\"\n";
    assert_eq!(foreign_sources(git).len(), 1);
    let lists = Lists::read(
        "deny = [\n  { crate = \"openssl\", reason = \"\" },\n]\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n\
         exceptions = [\n  { crate = \"x\", allow = [\"MPL-2.0\"] },\n]\n",
    );
    let ok = |name, license| lists.against(name, license).is_none();
    assert!(!ok("openssl", "MIT"));
    assert!(ok("a", "MIT OR GPL-3.0"));
    assert!(ok("a", "MIT/GPL-3.0"));
    assert!(ok("a", "(MIT OR GPL-3.0) AND ISC"));
    assert!(!ok("a", "MIT AND GPL-3.0"));
    assert!(!ok("a", "(MIT OR GPL-3.0) AND GPL-3.0"));
    assert!(!ok("a", ""));
    assert!(ok("x", "MPL-2.0"));
    assert!(!ok("y", "MPL-2.0"));
}

fn foreign_sources(lock: &str) -> Vec<String> {
    let sources = lock.lines().filter_map(|l| l.strip_prefix("source = "));
    sources.map(|s| s.trim_matches('"').to_owned()).filter(|s| s != SOURCE).collect()
}

/// `(crate, licence)` of everything that is compiled on this machine. Cargo.lock alone names more:
/// crates of other systems and of features nobody turned on.
fn cargo_tree() -> Vec<(String, String)> {
    #[expect(clippy::disallowed_methods, reason = "cargo itself is asked; no product code spawns")]
    let output = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--workspace", "--edges", "normal,build,dev"])
        .args(["--prefix", "none", "--format", "{p}|{l}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut crates: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once('|'))
        .filter_map(|(package, license)| {
            let name = package.split(' ').next()?;
            Some((name.to_owned(), license.trim_end_matches(" (*)").to_owned()))
        })
        .collect();
    crates.sort();
    crates.dedup();
    crates
}

/// The three lists of deny.toml, read line by line: one entry a line is the file's own style.
struct Lists {
    denied: Vec<String>,
    allowed: Vec<String>,
    exceptions: Vec<(String, String)>,
}

impl Lists {
    fn read(text: &str) -> Self {
        let quoted = |line: &str| -> Vec<String> {
            line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let list = |start: &str| -> Vec<Vec<String>> {
            let lines = text.lines().skip_while(|l| *l != start).skip(1);
            lines.take_while(|l| *l != "]").map(quoted).collect()
        };
        let first = |words: Vec<String>| words.into_iter().next();
        let pair = |words: Vec<String>| Some((words.first()?.clone(), words.get(1)?.clone()));
        let lists = Self {
            denied: list("deny = [").into_iter().filter_map(first).collect(),
            allowed: list("allow = [").into_iter().filter_map(first).collect(),
            exceptions: list("exceptions = [").into_iter().filter_map(pair).collect(),
        };
        assert!(!lists.denied.is_empty() && !lists.allowed.is_empty(), "deny.toml is not readable");
        lists
    }

    fn against(&self, name: &str, license: &str) -> Option<String> {
        if self.denied.iter().any(|d| d == name) {
            return Some(format!("`{name}` is banned"));
        }
        let allowed = |l: &str| {
            let excepted = self.exceptions.iter().any(|(c, e)| c == name && e == l);
            excepted || self.allowed.iter().any(|a| a == l)
        };
        (!satisfied(license, &allowed)).then(|| format!("`{name}` has the licence `{license}`"))
    }
}

/// Whether an SPDX expression can be met; OR binds weaker than AND, a slash is an old OR.
fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let expression = expression.replace('/', " OR ");
    any_part(&expression, " OR ", &|part| {
        !any_part(part, " AND ", &|term| {
            let term = term.trim();
            let inner = term.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
            !inner.map_or_else(|| allowed(term), |inner| satisfied(inner, allowed))
        })
    })
}

/// Whether one of the parts between `separator`s outside brackets passes `test`.
fn any_part(text: &str, separator: &str, test: &dyn Fn(&str) -> bool) -> bool {
    let mut start = 0;
    for (at, _) in text.match_indices(separator) {
        if text[..at].matches('(').count() == text[..at].matches(')').count() {
            if test(&text[start..at]) {
                return true;
            }
            start = at + separator.len();
        }
    }
    test(&text[start..])
}
