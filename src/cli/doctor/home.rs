//! The home: its folder, and what stands in it.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::Check;
use crate::model::DiskProblem;
use crate::model::disk::quoted;

const ANOTHER: &str = "set RELAY_HOME to a folder of your own";

/// What relay makes in its home.
const INSIDE: [&str; 8] =
    ["relay.db", "relay.lock", "relay.sock", "cache", "work", "logs", "kept", "lanes"];

/// The longest path of a socket that every system takes (macOS has 104 bytes with the final zero).
const SOCKET_PATH: usize = 103;

/// Whether relay can keep its files, and whether others can read them.
pub fn folder(home: &Path) -> Check {
    let shown = home.display().to_string();
    let there = nearest(home);
    if let Err(error) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        let seen = format!("{}: {}", there.display(), std::io::Error::from(error));
        let mend = DiskProblem::of(&error.into())
            .map_or_else(|| ANOTHER.to_owned(), |why| why.mend(&there.join("relay.db")));
        return Check::fail("home", seen, mend);
    }
    let Ok(meta) = home.metadata() else {
        return Check::ok("home", format!("{shown} (made at first use)"));
    };
    if !meta.is_dir() {
        return Check::fail("home", format!("{shown} is not a folder"), ANOTHER);
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let seen = format!("{shown} belongs to another user (uid {})", meta.uid());
        return Check::fail("home", seen, ANOTHER);
    }
    if let Some(check) = inside(home) {
        return check;
    }
    if let Some(kind) = network(home) {
        let seen = format!("{shown} is on a network file system ({kind}): its locks may not hold");
        return Check::warn("home", seen, "set RELAY_HOME to a folder on a local disk");
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let seen = format!("{shown} can be read by others (mode {mode:o})");
        return Check::warn("home", seen, format!("chmod 700 {}", quoted(home)));
    }
    let socket = home.join("relay.sock");
    let length = socket.as_os_str().len();
    if length > SOCKET_PATH && !cfg!(target_os = "linux") {
        let seen =
            format!("{} is {length} bytes long, a socket takes {SOCKET_PATH}", socket.display());
        return Check::fail("home", seen, DiskProblem::TooLong.mend(home));
    }
    Check::ok("home", shown)
}

/// The first thing in the home that this user cannot write, or that is something else than relay's.
fn inside(home: &Path) -> Option<Check> {
    for name in INSIDE {
        let path = home.join(name);
        let Ok(meta) = path.symlink_metadata() else { continue };
        let kind = meta.file_type();
        let fits = match name {
            "relay.sock" => kind.is_socket(),
            "relay.db" | "relay.lock" => path.is_file(),
            _ => path.is_dir(),
        };
        if !fits {
            let seen = format!("{} is not what relay keeps there", path.display());
            return Some(Check::fail("home", seen, DiskProblem::InTheWay.mend(&path)));
        }
        let rights =
            if path.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
        if let Err(error) = access(&path, Access::READ_OK | rights) {
            let error = std::io::Error::from(error);
            let mend = DiskProblem::of(&error).unwrap_or(DiskProblem::Denied).mend(&path);
            return Some(Check::fail("home", format!("{}: {error}", path.display()), mend));
        }
    }
    None
}

/// The kind of network file system a folder is on (statfs(2) lists the numbers).
#[cfg(target_os = "linux")]
fn network(folder: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(folder).ok()?.f_type;
    NETWORK.iter().find(|(number, _)| u32::try_from(kind) == Ok(*number)).map(|(_, name)| *name)
}

#[cfg(target_os = "linux")]
const NETWORK: [(u32, &str); 7] = [
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x5346_414f, "afs"),
    (0x00c3_6400, "ceph"),
    (0x0102_1997, "9p"),
];

#[cfg(not(target_os = "linux"))]
fn network(_: &Path) -> Option<&'static str> {
    None
}

/// Copies that nobody works in any more: what a dead worker left, and what `--keep` left.
pub fn copies(home: &Path) -> Option<Check> {
    let work = home.join("work");
    let (mut left, mut kept): (usize, Vec<PathBuf>) = (0, Vec::new());
    for entry in std::fs::read_dir(&work).ok()?.flatten() {
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        match std::fs::File::open(&lock) {
            Err(_) => kept.push(path),
            Ok(lock) if lock.try_lock().is_ok() => left += 1,
            Ok(_) => {}
        }
    }
    if let Some(first) = kept.first() {
        let seen = format!("{} kept by `--keep`, {left} left by a worker that died", kept.len());
        return Some(Check::warn(
            "copies",
            seen,
            format!("when done with it: rm -rf {}", quoted(first)),
        ));
    }
    if left > 0 {
        let seen = format!("{left} left by a worker that died");
        return Some(Check::warn("copies", seen, "relay work removes them as it starts"));
    }
    None
}

/// The deepest folder on the way to `path` that is there.
pub(super) fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(path)
}
