//! The sockets of this machine that have a path: a program in a box could still connect to them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::at;

/// Sockets of this machine's programs that have a path. A socket on a disk that cannot be written
/// can still be connected to.
pub(super) fn with_a_path() -> Vec<PathBuf> {
    let (tables, folders) = processes();
    let mut paths: Vec<PathBuf> =
        tables.iter().flat_map(|table| listed(table, &folders)).map(|path| at(&path)).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The RELAY_HOME that a socket of relay's stands in: its own, or the door of a run.
pub(super) fn relay_home_of(socket: &Path) -> Option<&Path> {
    let folder = socket.parent()?;
    if socket.file_name()? == "relay.sock" {
        return Some(folder);
    }
    let work = folder.parent().filter(|work| work.ends_with("work"))?;
    let is_door = folder.extension()? == "door" && socket.file_name()? == "s";
    work.parent().filter(|_| is_door)
}

/// The kernel's tables of sockets, one of each network that this user's processes are in (a socket
/// with a path is reached from all of them), and the folders that those processes work in.
fn processes() -> (Vec<Vec<u8>>, BTreeSet<PathBuf>) {
    let mut tables = vec![fs::read("/proc/net/unix").unwrap_or_default()];
    let mut networks = BTreeSet::from_iter(fs::read_link("/proc/self/ns/net"));
    let mut folders = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        // What is of another user or no process cannot be read.
        folders.extend(fs::read_link(process.path().join("cwd")));
        let Ok(network) = fs::read_link(process.path().join("ns/net")) else { continue };
        if networks.insert(network) {
            tables.extend(fs::read(process.path().join("net/unix")));
        }
    }
    (tables, folders)
}

/// The sockets that one of the kernel's tables names. It has the names they were given: one
/// without a folder is looked for in all of `folders`, and where nothing is there (it was
/// renamed, or the name has a line end) all sockets of its folder count.
fn listed(table: &[u8], folders: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut sockets = Vec::new();
    let mut gone = BTreeSet::new();
    let lines = table.split(|byte| *byte == b'\n').filter_map(socket_path);
    for path in lines.map(Path::new).collect::<BTreeSet<_>>() {
        if path.is_absolute() && !is_socket(path) {
            gone.extend(path.parent());
        } else if path.is_absolute() {
            sockets.push(path.to_owned());
        } else {
            sockets.extend(folders.iter().map(|f| f.join(path)).filter(|path| is_socket(path)));
        }
    }
    let entries = gone.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let of_gone = entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.extend(of_gone.map(|entry| entry.path()));
    sockets
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// The path in a line of the kernel's table: what is behind its seven other columns. An abstract
/// name begins with `@`.
fn socket_path(line: &[u8]) -> Option<&OsStr> {
    let mut rest = line;
    for _ in 0..7 {
        rest = rest.trim_ascii_start();
        rest = rest.get(rest.iter().position(|byte| *byte == b' ')?..)?;
    }
    let path = rest.get(1..).filter(|path| !path.is_empty() && path[0] != b'@')?;
    let is_header = line.starts_with(b"Num ");
    (!is_header).then(|| OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sockets_path_is_read_whole() {
        let line = b"ffff: 00000002 00000000 00010000 0001 01 2152 /run/with blank/a.sock";
        assert_eq!(socket_path(line), Some(OsStr::new("/run/with blank/a.sock")));
        let line = b"000000000664d68d: 00000003 00000000 00000000 0001 03   541 ./a b";
        assert_eq!(socket_path(line), Some(OsStr::new("./a b")));
        assert_eq!(socket_path(&line[..line.len() - 6]), None);
        assert_eq!(socket_path(b"ffff: 00000002 00000000 00010000 0001 01 2152 @/abstract"), None);
        assert_eq!(socket_path(b"Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }

    #[test]
    fn sockets_are_found_by_names_that_are_no_more_and_by_names_without_a_folder() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let bind = |name: &str| std::os::unix::net::UnixListener::bind(root.join(name)).unwrap();
        let _open = ["bare", "before", "with\nline", "whole"].map(bind);
        fs::rename(root.join("before"), root.join("after")).unwrap();
        let line = |path: &str| format!("ff: 00000002 00000000 00010000 0001 01 21 {path}\n");
        let folders = BTreeSet::from([root.clone(), root.join("none")]);
        let found = |path: &str| {
            let found = listed(line(path).as_bytes(), &folders);
            let mut found: Vec<String> = found
                .iter()
                .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
                .collect();
            found.sort();
            found
        };
        let whole = |name: &str| found(&root.join(name).display().to_string());
        assert_eq!(found("bare"), ["bare"]);
        assert_eq!(whole("whole"), ["whole"]);
        for name in ["before", "with\nline"] {
            assert_eq!(whole(name), ["after", "bare", "whole", "with\nline"]);
        }
        assert_eq!(listed(b"", &folders), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn the_home_that_a_socket_of_relays_stands_in() {
        let home_of = |path: &'static str| relay_home_of(Path::new(path)).map(Path::to_owned);
        for socket in ["/a/.two/relay.sock", "/a/.two/work/shop_1_x.door/s"] {
            assert_eq!(home_of(socket), Some("/a/.two".into()));
        }
        for socket in ["/a/s", "/a/work/s", "/a/work/x.door/t", "/a/x.door/s", "/a/work/x/s"] {
            assert_eq!(home_of(socket), None, "{socket}");
        }
    }
}
