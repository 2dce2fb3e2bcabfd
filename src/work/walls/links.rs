//! What links in the places of logins lead to: a login that is kept elsewhere (dotfiles).

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// How deep below a place of logins is looked.
const DEEP: usize = 3;
/// Entries of one folder that are looked at: some of these places hold caches and histories.
const OF_ONE: usize = 512;
/// Entries that are looked at in all, those nearest to their place first: some ten milliseconds.
const OF_ALL: usize = 8192;

/// What the links below `places` lead to, where that is there, by its path without links. A folder
/// that one leads to is a place like them where `is_place` says so.
pub(super) fn targets(places: &[PathBuf], is_place: impl Fn(&Path) -> bool) -> BTreeSet<PathBuf> {
    let mut left = OF_ALL;
    let mut next: VecDeque<(PathBuf, usize)> =
        places.iter().map(|place| (place.clone(), 1)).collect();
    let mut found = BTreeSet::new();
    while let Some((folder, depth)) = next.pop_front() {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.take(OF_ONE.min(left)) {
            left -= 1;
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => {
                    let Ok(target) = fs::canonicalize(entry.path()) else { continue };
                    let is_new = found.insert(target.clone());
                    if is_new && depth < DEEP && target.is_dir() && is_place(&target) {
                        next.push_back((target, depth + 1));
                    }
                }
                Ok(kind) if kind.is_dir() && depth < DEEP => {
                    next.push_back((entry.path(), depth + 1));
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_to_their_end_and_not_looked_for_without_end() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b/c/d")).unwrap();
        fs::create_dir_all(root.join("many")).unwrap();
        for file in ["one", "two", "three", "deep"] {
            fs::write(root.join(file), "").unwrap();
        }
        symlink(root.join("one"), root.join("a/one")).unwrap();
        symlink(root.join("two"), root.join("again")).unwrap();
        symlink("../../again", root.join("a/b/two")).unwrap();
        symlink(root.join("three"), root.join("a/b/c/three")).unwrap();
        symlink(root.join("deep"), root.join("a/b/c/d/deep")).unwrap();
        symlink(root.join("a"), root.join("a/b/round")).unwrap();
        symlink(root.join("gone"), root.join("a/gone")).unwrap();
        for n in 0..OF_ONE * 2 {
            symlink(root.join("one"), root.join(format!("many/{n}"))).unwrap();
        }
        let places = ["many", "nowhere", "a"].map(|name| root.join(name));
        let expected = ["a", "one", "three", "two"].map(|name| root.join(name));
        let is_place = |folder: &Path| folder != root.join("a");
        assert_eq!(targets(&places, is_place), BTreeSet::from(expected));
    }

    #[test]
    fn a_linked_folder_is_looked_through_as_what_it_is_linked_from() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in ["ssh", "dot/keys", "more", "code", "last"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["id", "token", "tool", "far"] {
            fs::write(root.join(file), "").unwrap();
        }
        for (to, at) in [
            ("dot/keys", "ssh/keys"),
            ("id", "dot/keys/id"),
            ("more", "dot/keys/more"),
            ("token", "more/token"),
            ("dot/keys", "more/round"),
            ("last", "more/last"),
            ("far", "last/far"),
            ("code", "ssh/code"),
            ("tool", "code/tool"),
        ] {
            symlink(root.join(to), root.join(at)).unwrap();
        }
        let is_place = |folder: &Path| folder != root.join("code");
        let expected = ["code", "dot/keys", "id", "last", "more", "token"].map(|n| root.join(n));
        assert_eq!(targets(&[root.join("ssh")], is_place), BTreeSet::from(expected));
    }
}
