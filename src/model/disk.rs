//! What can be wrong with a disk, and the command that mends it.

use std::io::{self, ErrorKind};
use std::path::Path;

/// Why a file or a folder cannot be written, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskProblem {
    /// No room, or no inodes, or the quota is used up.
    Full,
    /// Mounted so that nobody can write.
    ReadOnly,
    /// This user may not.
    Denied,
    /// A folder stands where a file should, or the other way round.
    InTheWay,
    /// The path is longer than the system takes.
    TooLong,
}

impl DiskProblem {
    /// Reads it off the system's error.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        Some(match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            ErrorKind::PermissionDenied => Self::Denied,
            ErrorKind::IsADirectory | ErrorKind::NotADirectory => Self::InTheWay,
            ErrorKind::InvalidFilename => Self::TooLong,
            _ => return None,
        })
    }

    /// For a person: what helps with this problem at `path`.
    #[must_use]
    pub fn mend(self, path: &Path) -> String {
        let (here, folder) = (quoted(path), quoted(path.parent().unwrap_or(path)));
        match self {
            Self::Full => format!(
                "make room on that disk (`df -h {folder}`, `df -i {folder}`); relay goes on by itself"
            ),
            Self::ReadOnly => format!(
                "the disk is read-only (`findmnt -T {folder}` names it): mount it for writing, or set \
                 RELAY_HOME to another"
            ),
            Self::Denied => format!("this user may not write it: ls -ld {folder} {here}"),
            Self::InTheWay => format!("something else stands there: mv {here} {here}.aside"),
            Self::TooLong => "set RELAY_HOME to a shorter path".to_owned(),
        }
    }
}

/// A path as a shell takes it.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_whatever_the_path() {
        for (path, shown) in [
            ("/srv/relay", "/srv/relay"),
            ("/srv/my disk", "'/srv/my disk'"),
            ("/srv/ada's $HOME", r"'/srv/ada'\''s $HOME'"),
            ("/srv/größe", "'/srv/größe'"),
        ] {
            assert_eq!(quoted(Path::new(path)), shown);
        }
        let full = DiskProblem::Full.mend(Path::new("/srv/my disk/relay.db"));
        assert!(full.contains("`df -h '/srv/my disk'`"), "{full}");
    }

    #[test]
    fn the_system_s_errors_are_told_apart() {
        let of = |errno: rustix::io::Errno| DiskProblem::of(&errno.into());
        assert_eq!(of(rustix::io::Errno::NOSPC), Some(DiskProblem::Full));
        assert_eq!(of(rustix::io::Errno::DQUOT), Some(DiskProblem::Full));
        assert_eq!(of(rustix::io::Errno::ROFS), Some(DiskProblem::ReadOnly));
        assert_eq!(of(rustix::io::Errno::ACCESS), Some(DiskProblem::Denied));
        assert_eq!(of(rustix::io::Errno::ISDIR), Some(DiskProblem::InTheWay));
        assert_eq!(of(rustix::io::Errno::NAMETOOLONG), Some(DiskProblem::TooLong));
        assert_eq!(of(rustix::io::Errno::IO), None);
    }
}
