//! The folders lanes work in: named, locked while their job lives, removed afterwards.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::git::remove_tree;
use crate::model::{RunId, TaskId};
use crate::process::kill_marked;

/// A variable that every lane's program is given, with the path of its copy: by it a later worker
/// finds what is left of a run whose supervisor and worker were both killed.
pub const COPY_MARK: &str = "RELAY_COPY";

/// The home's folder of copies.
#[derive(Clone, Debug)]
pub struct Copies {
    root: PathBuf,
}

/// One lane's copy. Its lock is held for as long as the value lives, and the kernel lets go of
/// it when the worker dies, whichever way: that is how a later start knows what was left behind.
#[derive(Debug)]
pub struct CopyDir {
    /// The lane's folder.
    pub path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Copies {
    /// Under `root`, which is made if it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        Ok(Self { root })
    }

    /// Where the copies stand.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Takes the folder of one run: `<owner>_<repo>_<n>_<short id>` (DESIGN §4). The folder
    /// itself is left to the checkout.
    ///
    /// # Errors
    /// When its lock cannot be taken.
    pub fn take(&self, task: &TaskId, run: &RunId) -> io::Result<CopyDir> {
        let id = run.as_str();
        // The end of a UUIDv7 is random; its beginning is the time.
        let short = &id[id.len() - 8..];
        let name = format!("{}_{}_{}_{short}", task.repo.owner(), task.repo.name(), task.number);
        let path = self.root.join(&name);
        let lock_path = self.root.join(format!("{name}.lock"));
        let lock = File::create(&lock_path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(format!("{} is in use", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        remove_tree(&path)?;
        Ok(CopyDir { path, lock_path, _lock: lock })
    }

    /// Ends and removes what a worker that died left behind. Copies of living jobs are locked, and those a
    /// person asked to keep have no lock file: both stay.
    pub fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            let (lock_path, name) = (entry.path(), entry.file_name());
            // Only what a copy can be called: `...lock` would be the lock of the folder above. And
            // only a file: a pipe of that name would be waited for.
            let copy = name.to_str().and_then(|n| n.strip_suffix(".lock"));
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let Some(copy) = copy.filter(|n| is_file && n.contains('_') && !n.starts_with('.'))
            else {
                continue;
            };
            let Ok(lock) = File::open(&lock_path) else { continue };
            if lock.try_lock().is_err() {
                continue;
            }
            let copy = self.root.join(copy);
            let killed = kill_marked(COPY_MARK, copy.as_os_str());
            if killed > 0 {
                tracing::warn!(killed, path = %copy.display(), "a left-over run was still alive");
            }
            if let Err(error) = remove_all(&copy) {
                tracing::warn!(path = %copy.display(), %error, "a left-over copy stays");
                continue;
            }
            let _gone_already = std::fs::remove_file(&lock_path);
        }
    }
}

impl CopyDir {
    /// Ends the copy: removes it, or leaves it for a person with `keep`.
    ///
    /// # Errors
    /// When something in it cannot be removed.
    pub fn close(self, keep: bool) -> io::Result<()> {
        if !keep {
            remove_all(&self.path)?;
        }
        std::fs::remove_file(&self.lock_path)
    }
}

/// The copy and what the worker keeps beside it (its index, its objects): everything whose name
/// begins with the copy's name and a dot, but the lock.
fn remove_all(copy: &Path) -> io::Result<()> {
    remove_tree(copy)?;
    let (Some(parent), Some(name)) = (copy.parent(), copy.file_name().and_then(|n| n.to_str()))
    else {
        return Ok(());
    };
    let beside = format!("{name}.");
    for entry in std::fs::read_dir(parent)?.flatten() {
        let file = entry.file_name();
        let Some(file) = file.to_str() else { continue };
        if file.starts_with(&beside) && !file.ends_with(".lock") {
            remove_tree(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn ids() -> (TaskId, RunId) {
        ("acme/shop#12".parse().unwrap(), "00000000-0000-7000-8000-0000deadbeef".parse().unwrap())
    }

    #[test]
    fn a_copy_is_named_locked_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let copies = Copies::open(dir.path().join("work")).unwrap();
        let (task, run) = ids();
        let copy = copies.take(&task, &run).unwrap();
        assert_eq!(copy.path.file_name().unwrap(), "acme_shop_12_deadbeef");
        std::fs::create_dir_all(copy.path.join("locked/in")).unwrap();
        std::fs::write(copies.root().join("acme_shop_12_deadbeef.index"), "").unwrap();
        std::fs::set_permissions(copy.path.join("locked"), std::fs::Permissions::from_mode(0o500))
            .unwrap();
        copies.sweep();
        assert!(copy.path.exists(), "a living copy was swept");
        assert!(copies.take(&task, &run).is_err(), "a living copy was taken twice");
        copy.close(false).unwrap();
        assert_eq!(std::fs::read_dir(copies.root()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_locks_of_copies_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let copies = Copies::open(dir.path().join("work")).unwrap();
        std::fs::write(dir.path().join("relay.db"), "").unwrap();
        let living = copies.take(&ids().0, &ids().1).unwrap();
        std::fs::create_dir(&living.path).unwrap();
        for planted in ["...lock", "..lock", ".lock"] {
            std::fs::write(copies.root().join(planted), "").unwrap();
        }
        let pipe = copies.root().join("a_b_1_x.lock");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (done, told) = std::sync::mpsc::channel();
        let sweeping = copies.clone();
        std::thread::spawn(move || {
            sweeping.sweep();
            let _ = done.send(());
        });
        told.recv_timeout(std::time::Duration::from_secs(300)).expect("the sweep ends");
        assert!(dir.path().join("relay.db").exists() && living.path.exists());
    }

    #[test]
    fn what_a_dead_worker_left_is_swept_and_what_a_person_keeps_stays() {
        let dir = tempfile::tempdir().unwrap();
        let copies = Copies::open(dir.path().to_owned()).unwrap();
        let (task, run) = ids();
        let left = copies.take(&task, &run).unwrap();
        std::fs::create_dir(&left.path).unwrap();
        drop(left);
        let kept_run = "00000000-0000-7000-8000-00000000cafe".parse().unwrap();
        let kept = copies.take(&task, &kept_run).unwrap();
        std::fs::create_dir(&kept.path).unwrap();
        let kept_path = kept.path.clone();
        kept.close(true).unwrap();
        copies.sweep();
        let names: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.path()).collect();
        assert_eq!(names, [kept_path]);
    }
}
