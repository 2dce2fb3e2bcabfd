//! What the program's exit code says. docs/exit-codes.md is the same table for people.

use std::process::ExitCode;

use crate::api::Code;

/// How a command ended. The numbers are an API: scripts test them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Something failed that no other code names: the disk, the database, a bug.
    Failed = 1,
    /// The command line, a value in it or a setting is not valid. clap uses the same number.
    Usage = 2,
    /// The repository, issue, lane, task or worker that was named is not there.
    NotFound = 3,
    /// It does not fit the state things are in: a second owner of a home, a task that has ended.
    Conflict = 4,
    /// The site, the forge or the network could not be reached, or refused.
    Unreachable = 5,
    /// This machine lacks something: a login, a program, a lane to serve. `relay doctor` says what.
    NotReady = 6,
    /// The program and the site it speaks to are different versions of relay.
    Version = 7,
    /// The command worked and the task it waited for did not.
    TaskFailed = 8,
    /// It is not for relay to do; the hint names the program that does it.
    NotSupported = 9,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Conflict,
        Self::Unreachable,
        Self::NotReady,
        Self::Version,
        Self::TaskFailed,
        Self::NotSupported,
    ];

    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<Code> for Exit {
    fn from(code: Code) -> Self {
        match code {
            Code::BadRequest | Code::TooLarge | Code::MethodNotAllowed | Code::UnsupportedType => {
                Self::Usage
            }
            Code::NotFound => Self::NotFound,
            Code::LeaseLost | Code::WorkerUnknown | Code::Conflict => Self::Conflict,
            Code::Forge
            | Code::Timeout
            | Code::TooMany
            | Code::AuthorizationPending
            | Code::SlowDown => Self::Unreachable,
            Code::Unauthorized | Code::Forbidden | Code::AccessDenied | Code::ExpiredToken => {
                Self::NotReady
            }
            Code::VersionMismatch => Self::Version,
            Code::Disk | Code::Busy | Code::DatabaseAway | Code::Internal | Code::Unknown => {
                Self::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_people_lists_every_code() {
        let page = include_str!("../../docs/exit-codes.md");
        let listed: Vec<u8> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(listed, Exit::ALL.map(Exit::code));
    }
}
