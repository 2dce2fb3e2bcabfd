//! Keeps `relay work` running: launchd and systemd units as text, and the commands that load them.
//!
//! Values only: nothing here reads a file, the environment or a clock, and nothing is spawned.

mod launchd;
mod systemd;

use std::path::PathBuf;
use std::time::Duration;

pub use launchd::LABEL;
pub use systemd::UNIT;

/// Which program keeps a user's services running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// macOS, in the user's session: vendor programs keep their logins in its keychain.
    Launchd {
        /// Whose session.
        uid: u32,
    },
    /// Linux, in the user's manager.
    Systemd {
        /// Its version; 0 where it is not known, and then only what all of them know is used.
        version: u32,
    },
}

/// What is to be kept running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The program, by absolute path.
    pub program: String,
    /// What it is told.
    pub args: Vec<String>,
    /// Its environment besides what the keeper gives it; names and values. Never a secret: the file
    /// may be read by whoever reads a backup.
    pub environment: Vec<(String, String)>,
    /// The file that what it says before it opens its own log is added to, by absolute path.
    pub log: String,
    /// How long a stop waits for running jobs; under systemd, for one that gives no sign of life.
    pub drain: Duration,
    /// A loop that has not turned for so long is taken for stuck.
    pub watchdog: Duration,
}

/// A service as a file and the commands around it; nothing here writes or runs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Where the file goes.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
    /// What loads it, one argv a command.
    pub load: Vec<Vec<String>>,
    /// What loads it in the place of one that is loaded; running jobs finish first.
    pub reload: Vec<Vec<String>>,
    /// What unloads it before the file is removed, one argv a command; running jobs finish first.
    pub unload: Vec<Vec<String>>,
    /// What is said to the keeper once the file is gone.
    pub forget: Vec<Vec<String>>,
    /// What shows how it stands.
    pub show: Vec<String>,
}

/// How a service stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether the keeper knows the file.
    pub loaded: bool,
    /// Whether its program runs.
    pub active: bool,
    /// The keeper's own word for it.
    pub word: String,
}

/// Text that cannot stand in a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} holds {held}, which no unit can hold there")]
pub struct UnitError {
    /// What holds it.
    pub what: String,
    /// What it holds.
    pub held: &'static str,
}

impl Keeper {
    /// The file and commands that keep `service` running for a user with this home folder.
    ///
    /// # Errors
    /// Where a text of the service cannot stand in a unit.
    pub fn unit(self, home: &str, service: &Service) -> Result<Unit, UnitError> {
        service.check()?;
        Ok(match self {
            Self::Launchd { uid } => launchd::unit(uid, home, service),
            Self::Systemd { version } => systemd::unit(version, home, service)?,
        })
    }

    /// How it stands, from what [`Unit::show`] printed; `None` where the command failed.
    #[must_use]
    pub fn standing(self, shown: Option<&str>) -> Standing {
        match self {
            Self::Launchd { .. } => launchd::standing(shown),
            Self::Systemd { .. } => systemd::standing(shown),
        }
    }
}

impl Service {
    fn check(&self) -> Result<(), UnitError> {
        let held = "a line break or another control character";
        let fine = |what: &str, text: &str| match text.chars().any(char::is_control) {
            true => Err(UnitError { what: what.to_owned(), held }),
            false => Ok(()),
        };
        fine("the program's path", &self.program)?;
        fine("the log's path", &self.log)?;
        for arg in &self.args {
            fine(&format!("the option `{}`", arg.escape_debug()), arg)?;
        }
        for (name, value) in &self.environment {
            fine(&format!("the name `{}`", name.escape_debug()), name)?;
            fine(name, value)?;
        }
        Ok(())
    }
}

fn argv<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As awkward as it may be.
    pub fn example() -> Service {
        Service {
            program: "/opt/my relay/100%/relay $X".to_owned(),
            args: [
                "work",
                "--lanes",
                "claude,process:a b",
                "--name",
                "50% $HOME ${X} \"q\" 'r' \\ ;",
                ";",
            ]
            .map(str::to_owned)
            .to_vec(),
            environment: vec![
                ("PATH".to_owned(), "/usr/bin:/home/ada/a b/%h".to_owned()),
                ("RELAY_HOME".to_owned(), "/home/ada/ö <&> \"x\" $Y \\".to_owned()),
            ],
            log: "/home/ada/100% of it/work.log".to_owned(),
            drain: Duration::from_secs(4200),
            watchdog: Duration::from_secs(300),
        }
    }

    #[test]
    fn a_line_break_is_refused_wherever_it_stands() {
        let keepers = [Keeper::Launchd { uid: 501 }, Keeper::Systemd { version: 252 }];
        type Change = fn(&mut Service);
        let bad: [(&str, Change); 6] = [
            ("program", |s| s.program.push('\n')),
            ("log", |s| s.log.push('\r')),
            ("option", |s| s.args.push("a\nExecStartPre=/bin/evil".to_owned())),
            ("EVIL", |s| s.environment.push(("EVIL".to_owned(), "a\nb".to_owned()))),
            ("name", |s| s.environment.push(("E\nVIL".to_owned(), String::new()))),
            ("NUL", |s| s.environment.push(("NUL".to_owned(), "a\0b".to_owned()))),
        ];
        for keeper in keepers {
            assert!(keeper.unit("/home/ada", &example()).is_ok());
            for (what, change) in bad {
                let mut service = example();
                change(&mut service);
                let error = keeper.unit("/home/ada", &service).expect_err(what);
                assert!(error.to_string().contains(what), "{what}: {error}");
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
}
