//! Files that are there whole: as they were, or as they were to become.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// What the name of one begins with that is still being written. A process that is killed leaves it.
const UNFINISHED: &str = ".relay-new-";

/// Puts `bytes` in the place of the file at `path`, for this user alone (mode 0600). Whatever ends
/// this process, or the machine, the file is the old one or the new one, and once this has returned
/// it is the new one: its bytes are on the disk before it has the name, and the name before this
/// returns.
///
/// # Errors
/// The disk's. Then the file is as it was, or the new one may not outlive the machine.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Whether a file of this name is one that [`replace`] was kept from ending.
#[must_use]
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(UNFINISHED)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.json");
        fs::write(&path, "a longer text of before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Who reads it meanwhile has the old one, to its end.
    #[test]
    fn one_that_is_open_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.json");
        replace(&path, b"old").unwrap();
        let open = File::open(&path).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(io::read_to_string(open).unwrap(), "old");
    }

    #[test]
    fn what_cannot_be_replaced_is_left_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.json");
        fs::create_dir(&path).unwrap();
        replace(&path, b"new").unwrap_err();
        assert!(path.is_dir());
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| !is_unfinished(name.to_str().unwrap())));
        replace(&folder.path().join("nowhere/kept.json"), b"new").unwrap_err();
    }
}
