//! The record of a run: written beside it, read again without its program.

mod file;
mod hostile;
mod whole;

use std::path::{Path, PathBuf};

/// Every recorded output of the real programs: its lane, its name, its text.
fn outputs() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut found = Vec::new();
    for lane in ["claude", "codex", "grok"] {
        for entry in std::fs::read_dir(folder(lane)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            found.push((lane, name, std::fs::read(path).unwrap()));
        }
    }
    assert!(found.len() > 40, "{} outputs", found.len());
    found
}

fn folder(lane: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lanes/tests").join(lane)
}
