//! The log of a worker that runs as a service: `work.log` in relay's folder takes the place of the
//! terminal, and is kept small. All that this process writes lands there, a panic's words too.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::output::plain;

/// Its name in relay's folder (seed 002).
const NAME: &str = "work.log";
/// At this size it becomes `work.log.1`, in the place of the one before.
const MOST: u64 = 4 << 20;
/// How often its size is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// The last lines are looked for in so much of its end.
const TAIL: u64 = 64 << 10;

/// Where the log of a home is.
pub(super) fn path(home: &Path) -> PathBuf {
    home.join(NAME)
}

/// A log that stdout and stderr go to.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    most: u64,
}

impl LogFile {
    /// Opens the log of `home`, and sends there what this process writes from now on.
    ///
    /// # Errors
    /// Where it cannot be opened, or a link is in its place.
    pub(super) fn take_over(home: &Path) -> io::Result<Self> {
        let log = Self::open(path(home), MOST)?;
        log.redirect()?;
        Ok(log)
    }

    fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        Ok(Self { file: file(&path)?, path, most })
    }

    fn redirect(&self) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&self.file)?;
        rustix::stdio::dup2_stderr(&self.file)?;
        Ok(())
    }

    /// Keeps it small for as long as this process lives.
    pub(super) async fn keep(mut self) {
        loop {
            match self.turn() {
                Ok(true) => {
                    if let Err(error) = self.redirect() {
                        tracing::warn!(%error, "the new log is not written to");
                    }
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the log cannot be turned"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether a new file is to be written to: the old one was full and was put aside, or somebody
    /// moved or removed it.
    fn turn(&mut self) -> io::Result<bool> {
        let full = self.file.metadata()?.len() >= self.most;
        let ours = self.is_at_its_place();
        if full && ours {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
        }
        if full || !ours {
            self.file = file(&self.path)?;
        }
        Ok(full || !ours)
    }

    fn is_at_its_place(&self) -> bool {
        let (Ok(ours), Ok(there)) = (self.file.metadata(), self.path.symlink_metadata()) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }
}

/// Opens it to be added to, for this user's eyes alone.
fn file(path: &Path) -> io::Result<File> {
    let no_follow = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(no_follow.cast_signed());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is no file"));
    }
    // A service's keeper that made it did not ask whom it is for.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Makes the log of `home` where there is none.
///
/// # Errors
/// As [`LogFile::take_over`].
pub(super) fn make(home: &Path) -> io::Result<()> {
    file(&path(home)).map(drop)
}

/// The last `count` lines of the log of `home`, made safe for a terminal; none where there is no log.
pub(super) fn last_lines(home: &Path, count: usize) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path(home))?;
        let from = file.metadata()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = plain(&String::from_utf8_lossy(&read().unwrap_or_default()));
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(count)).map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_full_log_is_put_aside_and_one_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(path(home.path()), 100).unwrap();
        for round in 0..50 {
            for _ in 0..10 {
                writeln!(&log.file, "round {round}: a line of some length").unwrap();
            }
            assert!(log.turn().unwrap());
        }
        let files: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|f| f.unwrap()).collect();
        let sizes: u64 = files.iter().map(|f| f.metadata().unwrap().len()).sum();
        assert!(files.len() == 2 && sizes < 1000, "{files:?} {sizes}");
        assert!(files.iter().all(|f| f.metadata().unwrap().mode() & 0o777 == 0o600));
        let aside = std::fs::read_to_string(home.path().join("work.log.1")).unwrap();
        assert!(aside.starts_with("round 49:"), "{aside}");
    }

    #[test]
    fn a_log_that_was_moved_away_is_opened_anew() {
        let home = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(path(home.path()), MOST).unwrap();
        assert!(!log.turn().unwrap());
        std::fs::rename(path(home.path()), home.path().join("elsewhere")).unwrap();
        assert!(log.turn().unwrap());
        writeln!(&log.file, "after").unwrap();
        assert_eq!(last_lines(home.path(), 10), ["after"]);
        assert!(!log.turn().unwrap());
    }

    #[test]
    fn a_link_in_its_place_is_not_written_through() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = home.path().join("elsewhere");
        std::fs::write(&elsewhere, "").unwrap();
        std::os::unix::fs::symlink(&elsewhere, path(home.path())).unwrap();
        assert!(LogFile::open(path(home.path()), MOST).is_err());
    }

    #[test]
    fn the_last_lines_are_read_and_cannot_steer_the_terminal() {
        let home = tempfile::tempdir().unwrap();
        assert!(last_lines(home.path(), 10).is_empty());
        let lines: String = (0..10_000).map(|n| format!("line {n} \x1b[2J\n")).collect();
        std::fs::write(path(home.path()), lines).unwrap();
        let last = last_lines(home.path(), 10);
        assert_eq!((last.len(), last[9].as_str()), (10, "line 9999 \u{fffd}[2J"));
    }
}
