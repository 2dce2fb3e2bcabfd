//! The real program: `relay demo`, on a machine that has nothing.

use std::path::{Path, PathBuf};

use crate::support::house::House;

#[test]
fn the_demo_needs_nothing_but_path_and_home() {
    let house = House::new();
    let mut command = house.command(&["demo"]);
    command.env_remove("RELAY_HOME");
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    for word in ["checkout", "pull request", "+", "relay link", "relay task create", "relay work"] {
        assert!(text.contains(word), "`{word}` is missing in:\n{text}");
    }
    assert!(!house.dir.path().join(".harness").exists(), "the demo wrote to the real home");
    // It stays for a look at it, in the machine's own folder for such things.
    let word = text.split(|c: char| c.is_whitespace() || "`'\"".contains(c));
    let place = word.into_iter().find(|word| word.starts_with("/tmp/relay-demo-")).unwrap();
    let root: PathBuf = Path::new(place).components().take(3).collect();
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn the_demo_says_that_it_made_a_folder() {
    let house = House::new();
    let folder = house.dir.path().join("not/there");
    let demo = || house.relay(&["demo", "--folder", folder.to_str().unwrap()]).ok();
    let made = format!("The folder {} was not there: it was made", folder.display());
    assert!(demo().contains(&made));
    assert!(!demo().contains(&made), "it is there now");
}
