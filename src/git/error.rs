//! What can go wrong with a repository, and how git's own words are understood.

use std::io;
use std::path::{Path, PathBuf};

use crate::model::{DiskProblem, RepoProblem};
use crate::process::{Output, ProcessError, is_shortage};

/// How much of git's own text goes into an error, in bytes.
const TEXT: usize = 2_000;

/// Why the worker's git work failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The repository cannot be worked on.
    #[error("{text}")]
    Repo {
        /// Which of the known problems it is.
        why: RepoProblem,
        /// What git said, or what relay found.
        text: String,
    },
    /// git ended with an error that none of the known problems explains.
    #[error("git {command} failed: {text}")]
    Failed {
        /// git's subcommand.
        command: &'static str,
        /// What git said.
        text: String,
    },
    /// git could not be run to its end.
    #[error("git {command}: {source}")]
    Process {
        /// git's subcommand.
        command: &'static str,
        /// Why not.
        source: ProcessError,
    },
    /// The remote's address is not one relay talks to.
    #[error("cannot use the remote `{url}`: {why}")]
    BadRemote {
        /// The address, without a login.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A text that cannot be a branch's name.
    #[error("`{0}` cannot be the name of a branch")]
    BadBranch(String),
    /// The remote has commits, and no branch that it calls its default.
    #[error("the repository has no default branch: its HEAD is on no branch that has a commit")]
    NoDefaultBranch,
    /// The repository has no branch of this name.
    #[error("the repository has no branch `{0}`")]
    NoBranch(String),
    /// A folder or file of relay's own refused.
    #[error("{}: {source}", path.display())]
    Disk {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// libgit2 could not read or write one of relay's own repositories.
    #[error("reading relay's own repository: {}", .0.message())]
    Objects(#[from] git2::Error),
}

impl GitError {
    /// The problem a run that met this error is reported with.
    #[must_use]
    pub fn problem(&self) -> RepoProblem {
        match self {
            Self::Repo { why, .. } => *why,
            Self::Process { source: ProcessError::TimedOut { .. }, .. } => RepoProblem::Unreachable,
            Self::Process { source: ProcessError::Start { source, .. }, .. }
            | Self::Disk { source, .. }
                if is_shortage(source) =>
            {
                RepoProblem::Machine
            }
            Self::Disk { .. } => RepoProblem::Disk,
            Self::BadRemote { .. } => RepoProblem::NotFound,
            Self::NoBranch(_) | Self::NoDefaultBranch => RepoProblem::NoBranch,
            Self::Objects(error) if problem_in(error.message()) == Some(RepoProblem::Disk) => {
                RepoProblem::Disk
            }
            Self::Failed { .. } | Self::Process { .. } | Self::BadBranch(_) | Self::Objects(_) => {
                RepoProblem::CheckoutFailed
            }
        }
    }

    /// For a person: what helps, where it is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Disk { path, source } => DiskProblem::of(source).map(|why| why.mend(path)),
            other if other.problem() == RepoProblem::Disk => Some(
                "`relay doctor` shows the disk; relay goes on by itself once it has room"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// For `map_err` on a call of the file system.
    pub(super) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Disk { path: path.to_owned(), source }
    }

    /// What a command that ended with an error meant.
    pub(super) fn told(command: &'static str, output: &Output) -> Self {
        let text = text_of(output);
        match problem_in(&text) {
            Some(why) => Self::Repo { why, text },
            None => Self::Failed { command, text },
        }
    }
}

/// What a command that ended with an error about a lane's files meant. What stands in quotes is a
/// name of the lane's choice, and may say that a disk is full.
pub(super) fn told_of_files(command: &'static str, output: &Output) -> GitError {
    let text = text_of(output);
    let names = text.find('\'').zip(text.rfind('\''));
    let own = names.map(|(first, last)| format!("{}{}", &text[..first], &text[last..]));
    match problem_in(own.as_deref().unwrap_or(&text)) {
        Some(why @ RepoProblem::Disk) => GitError::Repo { why, text },
        _ => GitError::Failed { command, text },
    }
}

/// The end of what git wrote to standard error, as one printable text.
pub(super) fn text_of(output: &Output) -> String {
    let all = String::from_utf8_lossy(&output.stderr);
    let clean: String =
        all.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    let lines: Vec<&str> = clean.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let text = lines.join("\n");
    if text.is_empty() {
        return match (output.code, output.signal) {
            (_, Some(signal)) => format!("it was ended by signal {signal}"),
            (code, None) => format!("it said nothing and ended with {}", code.unwrap_or(-1)),
        };
    }
    let start = text.len().saturating_sub(TEXT);
    let start = (start..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    text[start..].to_owned()
}

/// Which known problem git's text tells of. The words are those of git and of GitHub under
/// `LC_ALL=C`; the first that matches wins, so the sure ones stand first.
pub(super) fn problem_in(text: &str) -> Option<RepoProblem> {
    let text = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["no space left on device", "read-only file system", "disk quota exceeded"]) {
        Some(RepoProblem::Disk)
    } else if says(&[
        "too many open files",
        "cannot allocate memory",
        "resource temporarily unavailable",
    ]) {
        Some(RepoProblem::Machine)
    } else if says(&["fsck error"]) {
        // The remote sent an object that no git should check out; fetching again brings it again.
        Some(RepoProblem::UnsafeHistory)
    } else if says(&[
        "authentication failed",
        "could not read username",
        "could not read password",
        "invalid username or",
        "returned error: 401",
        "returned error: 403",
        "access denied",
        "permission denied",
        "dubious ownership",
    ]) {
        Some(RepoProblem::NoAccess)
    } else if says(&[
        "repository not found",
        "' not found",
        "does not appear to be a git repository",
        "returned error: 404",
        "returned error: 410",
    ]) {
        Some(RepoProblem::NotFound)
    } else if says(&[
        // A repository that was renamed answers with a redirection, which relay does not follow:
        // the token is for the address it was given for.
        "returned error: 301",
        "returned error: 302",
        "returned error: 307",
        "returned error: 308",
    ]) {
        Some(RepoProblem::Moved)
    } else if says(&[
        "could not resolve host",
        "could not resolve proxy",
        "failed to connect",
        "couldn't connect",
        "connection refused",
        "connection reset",
        "connection timed out",
        "operation timed out",
        "operation too slow",
        "network is unreachable",
        "empty reply from server",
        "returned error: 429",
        "returned error: 5",
        "rpc failed",
        "early eof",
        "unexpected disconnect",
        "hung up unexpectedly",
        "ssl:",
        "ssl_",
        "ssl certificate",
        "certificate verif",
        "gnutls",
    ]) {
        Some(RepoProblem::Unreachable)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn told(stderr: &str) -> GitError {
        let stderr = stderr.as_bytes().to_vec();
        GitError::told(
            "fetch",
            &Output { code: Some(128), signal: None, stdout: Vec::new(), stderr },
        )
    }

    #[test]
    fn the_ways_a_fetch_fails_are_told_apart() {
        for (stderr, why) in [
            ("fatal: repository 'http://127.0.0.1:1/a/b.git/' not found", RepoProblem::NotFound),
            (
                "fatal: '/srv/x' does not appear to be a git repository\nfatal: Could not read from remote repository.",
                RepoProblem::NotFound,
            ),
            (
                "fatal: could not read Username for 'http://127.0.0.1:1': terminal prompts disabled",
                RepoProblem::NoAccess,
            ),
            (
                "fatal: unable to access 'https://h/': The requested URL returned error: 403",
                RepoProblem::NoAccess,
            ),
            (
                "fatal: unable to access 'http://127.0.0.1:1/': Failed to connect to 127.0.0.1 port 1 after 0 ms: Couldn't connect to server",
                RepoProblem::Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/': The requested URL returned error: 301",
                RepoProblem::Moved,
            ),
            ("error: RPC failed; curl 56\nfatal: early EOF", RepoProblem::Unreachable),
            ("fatal: write error: No space left on device", RepoProblem::Disk),
            (
                "error: cannot fork() for index-pack: Resource temporarily unavailable",
                RepoProblem::Machine,
            ),
        ] {
            assert_eq!(told(stderr).problem(), why, "{stderr}");
        }
        assert!(matches!(told("fatal: bad object HEAD"), GitError::Failed { .. }));
    }

    #[test]
    fn a_lanes_file_names_tell_nothing() {
        let told = |stderr: &str| {
            let stderr = stderr.as_bytes().to_vec();
            told_of_files("add", &Output { code: Some(128), signal: None, stdout: vec![], stderr })
        };
        for name in ["connection reset", "no space left on device", "a' no space left on device 'b"]
        {
            let error = told(&format!("fatal: BOM is required in '{name}' if encoded as UTF-16"));
            assert_eq!(error.problem(), RepoProblem::CheckoutFailed, "{error}");
        }
        let full = told("error: unable to write file 'x': No space left on device");
        assert_eq!(full.problem(), RepoProblem::Disk);
    }

    #[test]
    fn what_the_machine_has_no_more_of_is_nobodys_fault() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            let refused = || io::Error::from_raw_os_error(errno.raw_os_error());
            let start = ProcessError::Start { program: "/usr/bin/git".into(), source: refused() };
            let started = GitError::Process { command: "fetch", source: start };
            assert_eq!(started.problem(), RepoProblem::Machine, "{started}");
            let opened = GitError::Disk { path: "/x".into(), source: refused() };
            assert_eq!(opened.problem(), RepoProblem::Machine, "{opened}");
        }
    }

    #[test]
    fn a_text_is_short_and_printable() {
        let long = format!("{}\r\u{1b}[31mfatal: é", "é\n".repeat(4_000));
        let text = told(&long).to_string();
        assert!(text.len() < TEXT + 100 && !text.contains('\u{1b}') && text.ends_with("fatal: é"));
        assert!(told("").to_string().contains("said nothing"));
    }
}
