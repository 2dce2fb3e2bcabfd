//! Which repositories of this disk a far site may send work into: those that somebody linked here.
//! A site names a path; without this, whoever runs it could have any repository of this user read
//! and pushed to.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::files;
use crate::model::{ForgeKind, Project};

/// `linked.json` of a home: the canonical paths.
#[derive(Clone, Debug)]
pub struct Linked {
    home: PathBuf,
}

impl Linked {
    /// Nothing is read yet.
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// Whether `path` was linked here; a file that cannot be read names none.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        self.paths().is_ok_and(|paths| paths.iter().any(|linked| linked == path))
    }

    /// Whether it is a repository of this machine, `host`, that was not linked here: its tasks fail.
    #[must_use]
    pub fn lacks(&self, project: &Project, host: &str) -> bool {
        let here = project.forge == ForgeKind::Local && project.host == host;
        here && !self.holds(&project.remote)
    }

    /// Notes that `path` was linked here.
    ///
    /// # Errors
    /// The disk's, or where the file is not one of relay's.
    pub fn add(&self, path: &str) -> io::Result<()> {
        let mut paths = self.paths()?;
        if paths.iter().any(|linked| linked == path) {
            return Ok(());
        }
        paths.push(path.to_owned());
        DirBuilder::new().recursive(true).mode(0o700).create(&self.home)?;
        files::replace(&self.file(), &serde_json::to_vec(&paths)?)
    }

    fn file(&self) -> PathBuf {
        self.home.join("linked.json")
    }

    fn paths(&self) -> io::Result<Vec<String>> {
        match fs::read(self.file()) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_linked_here_is_held_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let linked = Linked::of(&folder.path().join("home"));
        assert!(!linked.holds("/r/shop"));
        linked.add("/r/shop").expect("a disk");
        linked.add("/r/ö\n\"").expect("a disk");
        linked.add("/r/shop").expect("a disk");
        assert!(linked.holds("/r/shop") && linked.holds("/r/ö\n\""));
        assert!(!linked.holds("/r/shop/") && !linked.holds("/r") && !linked.holds(""));
        fs::write(folder.path().join("home/linked.json"), "broken").expect("a disk");
        assert!(!linked.holds("/r/shop"), "what cannot be read allows nothing");
        assert!(linked.add("/r/shop").is_err(), "and is not written over");
    }
}
