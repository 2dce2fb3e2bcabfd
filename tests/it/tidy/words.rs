//! Words that must not stand in any file: hosts of package registries, paths of one machine.

use super::{Source, assert_none, root, sources};

/// Each in two parts, so that this list is not itself a finding.
const BANNED: [(&str, &str); 16] = [
    ("registry.npmjs", ".org"),
    ("registry.yarnpkg", ".com"),
    ("files.pythonhosted", ".org"),
    ("pypi", ".org"),
    ("index.crates", ".io"),
    ("static.crates", ".io"),
    ("https://crates", ".io"),
    ("proxy.golang", ".org"),
    ("deb.debian", ".org"),
    ("archive.ubuntu", ".com"),
    ("/work/", "main"),
    ("/work/", "shared"),
    ("/work/", "wt"),
    ("/tmp/", "setup"),
    ("/root", "/"),
    ("/home/", "runner"),
];

#[test]
fn no_registry_host_and_no_path_of_one_machine() {
    let mut findings = Vec::new();
    for Source { path, text } in sources().into_iter().filter(|s| s.path != "Cargo.lock") {
        findings.extend(banned(&path, &text));
    }
    assert_none("banned words", &findings);
}

fn banned(path: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = BANNED.iter().map(|(a, b)| format!("{a}{b}")).collect();
    text.lines()
        .enumerate()
        .filter_map(|(i, line)| {
            let word = words.iter().find(|w| line.contains(w.as_str()))?;
            Some(format!("{path}:{}: `{word}`", i + 1))
        })
        .collect()
}

/// A page that is named but not there is a promise nobody keeps.
#[test]
fn links_between_our_pages_lead_somewhere() {
    let mut findings = Vec::new();
    for Source { path, text } in sources().into_iter().filter(|s| s.path.ends_with(".md")) {
        let folder = root().join(&path).parent().unwrap().to_path_buf();
        for target in links(&text) {
            if !folder.join(&target).exists() {
                findings.push(format!("{path}: `{target}` is not there"));
            }
        }
    }
    assert_none("links", &findings);
}

/// Targets of `[text](target)` inside the repository, without their `#…`.
fn links(text: &str) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains(':') && !target.contains(' '))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_word_rules_find_violations() {
    let path = ["cd /work", "/main"].concat();
    assert_eq!(banned("a.md", &path), ["a.md:1: `".to_owned() + &path[3..] + "`"]);
    assert_eq!(banned("a.rs", "post(\"/work/claim\")"), Vec::<String>::new());
    assert_eq!(links("see [a](b.md#c) and [d](#e), [f](mailto:x)"), ["b.md"]);
}
