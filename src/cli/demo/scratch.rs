//! The demo's folder: a home of its own and a small repository with one commit.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::DEMO_LANE;
use crate::git::{Identity, plant};
use crate::model::Timestamp;

/// What the demo asks for.
pub(super) const TITLE: &str = "Greet people by their name";
/// And in more words.
pub(super) const BODY: &str = "`greet.sh` always says \"Hello, world\". It should greet the name given as its first \
     argument, and the world when there is none.";

const FILES: [(&str, &str); 2] = [
    ("README.md", "# greeter\n\nRun `sh greet.sh`.\n"),
    ("greet.sh", "#!/bin/sh\necho \"Hello, world\"\n"),
];

/// Where the demo happens. It stays when the demo ends, for a look at the branch.
pub(super) struct Scratch {
    pub(super) root: PathBuf,
    pub(super) home: PathBuf,
    pub(super) repo: PathBuf,
    /// The folder around it, where that was not there.
    pub(super) made: Option<PathBuf>,
}

impl Scratch {
    pub(super) fn make(folder: &Path, now: Timestamp) -> anyhow::Result<Self> {
        let made = (!folder.exists()).then(|| folder.to_owned());
        let mut named = tempfile::Builder::new();
        named.prefix("relay-demo-");
        let root = std::fs::create_dir_all(folder)
            .and_then(|()| named.tempdir_in(folder))
            .with_context(|| format!("no scratch folder can be made in {}", folder.display()))?
            .keep();
        let (home, repo) = (root.join("home"), root.join("greeter"));
        std::fs::create_dir_all(home.join("lanes"))?;
        let identity =
            Identity { name: "relay demo".to_owned(), email: "demo@relay.invalid".to_owned() };
        plant(&repo, &FILES, &identity, "A greeter\n", now)
            .context("the scratch repository cannot be made")?;
        Ok(Self { root, home, repo, made })
    }

    /// Makes this very program the lane `process:demo`.
    pub(super) fn configure_lane(&self, program: &Path) -> anyhow::Result<()> {
        let config = json!({"command": program, "args": [DEMO_LANE], "env": []});
        std::fs::write(self.home.join("lanes/demo.json"), config.to_string())?;
        Ok(())
    }
}
