//! Keeps `relay work` running: launchd and systemd units as text, and the commands that load them.
//!
//! Only its types stand yet; `relay work --install` comes with the service issue.

use std::path::PathBuf;

/// Which program keeps a user's services running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// macOS, in the user's session: vendor programs keep their logins in its keychain.
    Launchd,
    /// Linux, in the user's manager.
    Systemd,
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
    /// What unloads it, one argv a command.
    pub unload: Vec<Vec<String>>,
}
