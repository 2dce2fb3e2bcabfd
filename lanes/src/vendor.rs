//! What is different of one vendor's program and the next before a run begins: its name, how its
//! login is asked for, and where that login is a file.

use crate::known;
use crate::{Known, Login};

/// How the names end that hold a server's address, and not a key.
const ADDRESS: &str = "_BASE_URL";

/// A vendor's program.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// The lane it serves.
    pub lane: &'static str,
    /// The program's name on `PATH`: the lane's, unless it serves that of another vendor.
    pub program: &'static str,
    /// Arguments that make it print its version.
    pub version_args: &'static [&'static str],
    /// Reads what it printed for its version.
    pub version: fn(&str) -> Option<String>,
    /// The version that all of this was measured with.
    pub measured: &'static str,
    /// What is known of its versions.
    pub known: &'static [Known],
    /// Arguments that make it tell its login, without asking the vendor.
    pub login_args: &'static [&'static str],
    /// Reads the answer: exit code, standard output, standard error.
    pub login: fn(Option<i32>, &str, &str) -> Login,
    /// The command that installs it.
    pub install: &'static str,
    /// The command that logs in.
    pub log_in: &'static str,
    /// The model where nobody names one; without one the program chooses.
    pub default_model: Option<&'static str>,
    /// Switches that every run and every probe has in its environment.
    pub env: &'static [(&'static str, &'static str)],
    /// Names of its keys and of its server's address: an operator may let them through to its own
    /// lane, and another vendor's never gets them.
    pub keys: &'static [&'static str],
    /// Places in the person's home, hidden from a run, that the program may be installed in.
    pub parts: &'static [&'static str],
    /// The hosts that it looks up and connects to by itself, since it asks no proxy. None of one that
    /// does.
    pub doors: &'static [&'static str],
    /// Where its login is.
    pub home: Home,
}

/// A vendor's own folder in a person's home, and the login in it. A run gets a folder of its own
/// with a copy of the login alone.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// The variable that names another folder, where there is one.
    pub variable: Option<&'static str>,
    /// The folder, below the person's home.
    pub folder: &'static str,
    /// The login's file in it, a JSON object.
    pub file: &'static str,
    /// Whether the file is a table of logins, each an object: the pointers below are of each.
    pub each: bool,
    /// The fields of that object that are the login; all others are never a run's. Of a table all
    /// are.
    pub fields: &'static [&'static str],
    /// Pointers to the tokens: kept out of what is printed, and by them two logins are told apart.
    pub tokens: &'static [&'static str],
    /// Pointers to what names the account: the same after each refresh.
    pub account: &'static [&'static str],
    /// The pointer to the token that is good for one refresh; a login without it is never refreshed.
    pub refresh: &'static str,
    /// Pointers to what changes when the login is refreshed. A run is believed nothing else.
    pub refreshed: &'static [&'static str],
    /// The pointer, among `refreshed`, to a number or a UTC time in RFC 3339 that only grows.
    pub later: &'static str,
    /// A folder that the program makes beside the file while it refreshes.
    pub lock: Option<&'static str>,
    /// A second file that is part login.
    pub beside: Option<Beside>,
    /// Whether the login is in the keychain on macOS, and no file.
    pub keychain: bool,
}

/// A file of settings with a login among them. It stands in [`Home::folder`] where that was moved
/// by its variable, else in the person's home.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// Its name.
    pub file: &'static str,
    /// The fields a run gets.
    pub fields: &'static [&'static str],
    /// Pointers to keys among them: kept out of what is printed.
    pub keys: &'static [&'static str],
    /// Pointers to what names the account.
    pub account: &'static [&'static str],
}

impl Vendor {
    /// Those of its [`Vendor::keys`] that are secrets, and no address.
    pub fn secret_keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().copied().filter(|name| !name.ends_with(ADDRESS))
    }

    /// Those of its [`Vendor::keys`] that are addresses, and no secret.
    pub fn addresses(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().copied().filter(|name| name.ends_with(ADDRESS))
    }

    /// What is known of one version.
    pub fn known_of(&self, version: &str) -> impl Iterator<Item = &'static Known> {
        let number = known::number(version);
        self.known.iter().filter(move |known| number.is_some_and(|n| known.of.holds(n)))
    }

    /// The command that tells the login, for a person.
    #[must_use]
    pub fn asks_login(&self) -> String {
        format!("{} {}", self.program, self.login_args.join(" "))
    }

    /// The program's name where it is not the vendor's own.
    #[must_use]
    pub fn through(&self) -> Option<&'static str> {
        (self.program != self.lane).then_some(self.program)
    }

    /// Names it among all that run here.
    #[must_use]
    pub fn name(&self) -> String {
        match self.through() {
            None => self.lane.to_owned(),
            Some(program) => format!("{program}-{}", self.lane),
        }
    }
}
