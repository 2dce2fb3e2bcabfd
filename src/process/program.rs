//! What is to be run, and why it could not be.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// A program with everything it is given. Nothing is inherited: not the environment, not the
/// working folder, not a terminal.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable, as an absolute path.
    pub path: PathBuf,
    /// Its arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// What it reads on its standard input, followed by the end of it.
    pub stdin: Vec<u8>,
}

/// Values of the environment and the text on standard input are not for logs.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Program")
            .field("path", &self.path)
            .field("args", &self.args.len())
            .field("env", &names)
            .field("cwd", &self.cwd)
            .field("stdin_bytes", &self.stdin.len())
            .finish()
    }
}

/// Why a program could not be run to its end. What the program itself says by its exit code is
/// no error here.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no file at the program's path.
    #[error("no program at {}", .0.display())]
    NotFound(PathBuf),
    /// The file is there and may not be executed, or is not a program.
    #[error("{} is not an executable program", .0.display())]
    NotExecutable(PathBuf),
    /// The working folder is missing.
    #[error("no working folder at {}", .0.display())]
    NoFolder(PathBuf),
    /// The system refused to start it for another reason.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The program's path.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It ran longer than it may, and its process group was killed.
    #[error("{} did not end within {limit:?}", program.display())]
    TimedOut {
        /// The program's path.
        program: PathBuf,
        /// The limit it broke.
        limit: Duration,
    },
    /// It wrote more than it may, and its process group was killed.
    #[error("{} wrote more than {limit} bytes to its standard output", program.display())]
    OutputLimit {
        /// The program's path.
        program: PathBuf,
        /// The limit it broke, in bytes.
        limit: usize,
    },
    /// The supervisor was killed, or did not speak its protocol.
    #[error("the supervisor of {} was lost: {why}", program.display())]
    SupervisorLost {
        /// The supervised program's path.
        program: PathBuf,
        /// What is known of it.
        why: String,
    },
    /// Processes of a run could not be killed: they wait inside the kernel, or belong to another
    /// user.
    #[error("{count} processes of {} could not be killed", program.display())]
    Survivors {
        /// The supervised program's path.
        program: PathBuf,
        /// How many were left.
        count: usize,
    },
}

impl Program {
    /// The command that starts it: these arguments, this environment and no other.
    pub(super) fn command(&self) -> Command {
        #[expect(clippy::disallowed_methods, reason = "this is the room that spawns")]
        let mut command = Command::new(&self.path);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.cwd)
            .process_group(0);
        command
    }
}

impl ProcessError {
    /// Finds the named reason behind a failed start.
    pub(super) fn start(path: &Path, cwd: &Path, source: io::Error) -> Self {
        const ENOEXEC: i32 = 8;
        if !cwd.is_dir() {
            return Self::NoFolder(cwd.to_owned());
        }
        match source.kind() {
            io::ErrorKind::NotFound if !path.exists() => Self::NotFound(path.to_owned()),
            io::ErrorKind::PermissionDenied => Self::NotExecutable(path.to_owned()),
            _ if source.raw_os_error() == Some(ENOEXEC) => Self::NotExecutable(path.to_owned()),
            _ => Self::Start { program: path.to_owned(), source },
        }
    }
}

/// Whether the system refused for want of what others have at the moment: open files, processes,
/// memory. It passes by itself.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    short.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Looks whether a program is there and may be executed. For a program that a wrapper will
/// start: its own exit code does not tell a missing program from a failing one.
///
/// # Errors
/// [`ProcessError::NotFound`] or [`ProcessError::NotExecutable`].
pub fn check_executable(path: &Path) -> Result<(), ProcessError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(ProcessError::NotExecutable(path.to_owned()))
        }
        Err(_) => Err(ProcessError::NotFound(path.to_owned())),
        Ok(meta) if meta.is_file() && access(path, Access::EXEC_OK).is_ok() => Ok(()),
        Ok(_) => Err(ProcessError::NotExecutable(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_value_and_no_text() {
        let program = Program {
            path: "/bin/true".into(),
            args: vec!["argument-text".into()],
            env: vec![("TOKEN".into(), "environment-value".into())],
            cwd: "/".into(),
            stdin: b"prompt-text".to_vec(),
        };
        let shown = format!("{program:?}");
        assert!(shown.contains("TOKEN") && shown.contains("/bin/true"), "{shown}");
        for hidden in ["environment-value", "prompt-text", "argument-text"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }

    #[test]
    fn a_missing_program_and_a_plain_file_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "text").unwrap();
        assert!(matches!(
            check_executable(&dir.path().join("absent")),
            Err(ProcessError::NotFound(_))
        ));
        assert!(matches!(check_executable(&plain), Err(ProcessError::NotExecutable(_))));
        assert!(matches!(check_executable(dir.path()), Err(ProcessError::NotExecutable(_))));
        assert!(check_executable(Path::new("/bin/sh")).is_ok());
    }
}
