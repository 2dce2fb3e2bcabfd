//! Removing what a lane left behind, whatever it is: a chain of folders deeper than a path is long,
//! than a thread's stack reaches or than a process may have files open, and folders without their
//! own rights. No link is followed.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// So many folders are open at once, each inside the one before. What lies deeper is moved to the
/// top and emptied from there.
const DEPTH: usize = 64;

/// Removes a folder or a file of a lane's, with all that is in it; one that is not there is
/// removed.
///
/// # Errors
/// Where the disk refuses. What was removed until then is gone.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.is_dir() => return fs::remove_file(path),
        Ok(_) => {}
    }
    let Some(mut top) = Folder::open(CWD, path)? else { return Ok(()) };
    let mut moved = 0;
    while let Some(name) = top.folders.pop() {
        let mut deep = empty(&top, &name, &mut moved)?;
        top.folders.append(&mut deep);
    }
    fs::remove_dir(path)
}

/// Removes the folder `name` of `top`; the names in `top` of what was moved there from its depths.
fn empty(top: &Folder, name: &CString, moved: &mut u64) -> io::Result<Vec<CString>> {
    let mut deep = Vec::new();
    let mut open: Vec<(CString, Folder)> = Vec::new();
    open.extend(Folder::open(&top.fd, name)?.map(|folder| (name.clone(), folder)));
    loop {
        let at_the_limit = open.len() >= DEPTH;
        let Some((_, folder)) = open.last_mut() else { return Ok(deep) };
        let Some(inner) = folder.folders.pop() else {
            let Some((done, _)) = open.pop() else { return Ok(deep) };
            let above = open.last().map_or(&top.fd, |(_, above)| &above.fd);
            or_gone(rustix::fs::unlinkat(above, &done, AtFlags::REMOVEDIR))?;
            continue;
        };
        if at_the_limit {
            deep.push(move_up(folder, &inner, top, moved)?);
        } else if let Some(next) = Folder::open(&folder.fd, &inner)? {
            open.push((inner, next));
        }
    }
}

/// An open folder with no file in it any more.
struct Folder {
    fd: OwnedFd,
    /// The folders that are still in it.
    folders: Vec<CString>,
}

impl Folder {
    /// Opens the folder `name` of `at` and removes its files. `None` where it is gone.
    fn open(at: impl AsFd, name: impl rustix::path::Arg + Copy) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&at, name, flags, Mode::empty());
        let fd = match open() {
            Err(Errno::ACCESS) => {
                rustix::fs::chmodat(&at, name, Mode::RWXU, AtFlags::empty())?;
                open()?
            }
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        // Nothing goes out of a folder that may not be written.
        rustix::fs::fchmod(&fd, Mode::RWXU)?;
        let mut folders = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if is_folder(&fd, &entry)? {
                folders.push(name.to_owned());
            } else {
                or_gone(rustix::fs::unlinkat(&fd, name, AtFlags::empty()))?;
            }
        }
        Ok(Some(Self { fd, folders }))
    }
}

fn is_folder(at: &OwnedFd, entry: &rustix::fs::DirEntry) -> io::Result<bool> {
    let kind = match entry.file_type() {
        // Some disks do not say it in the listing.
        FileType::Unknown => {
            let stat = rustix::fs::statat(at, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            FileType::from_raw_mode(stat.st_mode)
        }
        kind => kind,
    };
    Ok(kind == FileType::Directory)
}

/// Moves the folder `name` of `from` into `top`, under a name that is free there.
fn move_up(from: &Folder, name: &CString, top: &Folder, moved: &mut u64) -> io::Result<CString> {
    loop {
        *moved += 1;
        let new = CString::new(format!(".relay-gone-{moved}"))?;
        match rustix::fs::renameat(&from.fd, name, &top.fd, &new) {
            Ok(()) => return Ok(new),
            // The lane has something of that name there.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            // A folder that may not be written itself does not move either.
            Err(Errno::ACCESS) => {
                rustix::fs::chmodat(&from.fd, name, Mode::RWXU, AtFlags::empty())?;
                rustix::fs::renameat(&from.fd, name, &top.fd, &new)?;
                return Ok(new);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn or_gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A chain of `depth` folders in `dir`, which no path can name.
    fn dig(dir: &Path, depth: usize) {
        let mut at = OwnedFd::from(fs::File::open(dir).unwrap());
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
        }
        rustix::fs::openat(&at, "f", OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR).unwrap();
    }

    #[test]
    fn a_chain_of_folders_deeper_than_any_path_goes() {
        // Where there is a disk in memory: on another it takes a minute.
        let memory = Path::new("/dev/shm");
        let (place, depth) = if memory.is_dir() {
            (memory.to_owned(), 20_000)
        } else {
            (std::env::temp_dir(), 3_000)
        };
        let dir = tempfile::tempdir_in(place).unwrap();
        let copy = dir.path().join("copy");
        fs::create_dir_all(copy.join(".relay-gone-1")).unwrap();
        fs::write(copy.join(".relay-gone-1/x"), "").unwrap();
        fs::write(copy.join(".relay-gone-2"), "").unwrap();
        dig(&copy, depth);
        remove_tree(&copy).unwrap();
        assert!(!copy.exists());
    }

    #[test]
    fn no_link_is_followed_and_no_right_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("copy/locked/in")).unwrap();
        fs::create_dir(at("kept")).unwrap();
        fs::write(at("kept/file"), "").unwrap();
        std::os::unix::fs::symlink(at("kept"), at("copy/locked/link")).unwrap();
        for (folder, mode) in [("copy/locked/in", 0o000), ("copy/locked", 0o500), ("copy", 0o000)] {
            fs::set_permissions(at(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        remove_tree(&at("copy")).unwrap();
        assert!(!at("copy").exists() && at("kept/file").exists());
        std::os::unix::fs::symlink(at("kept"), at("copy")).unwrap();
        remove_tree(&at("copy")).unwrap();
        remove_tree(&at("copy")).unwrap();
        assert!(at("kept/file").exists());
    }
}
