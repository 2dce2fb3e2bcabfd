//! Doors for one host each: a program that asks no proxy looks its host up in the box's own table
//! of hosts, and connects to a loopback address where the proxy stands and knows which host that is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use relay_sandbox::egress::{Destination, Host};

use crate::process::{MOST_NAMED, named_address};

/// The system's table, which a program's lookup reads before it asks anybody.
const TABLE: &str = "/etc/hosts";

/// The hosts that have a door of their own in one run.
#[derive(Debug, Default)]
pub(super) struct Named {
    hosts: &'static [&'static str],
    /// Where the system's table really is, and the run's.
    table: Option<(PathBuf, PathBuf)>,
}

impl Named {
    /// Writes the run's table into `folder`.
    pub(super) fn of(hosts: &'static [&'static str], folder: &Path) -> io::Result<Self> {
        if hosts.len() > MOST_NAMED {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if hosts.is_empty() {
            return Ok(Self::default());
        }
        let at = fs::canonicalize(TABLE)?;
        let table = folder.join("hosts");
        fs::write(&table, table_of(hosts, &String::from_utf8_lossy(&fs::read(&at)?)))?;
        Ok(Self { hosts, table: Some((at, table)) })
    }

    pub(super) fn count(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn table(&self) -> Option<(PathBuf, PathBuf)> {
        self.table.clone()
    }

    /// Where each door leads, in their order.
    pub(super) fn hosts(&self) -> impl Iterator<Item = Destination> {
        let port = named_address(0).port();
        self.hosts.iter().map(move |host| Destination { host: Host::Name((*host).into()), port })
    }
}

/// The system's table with these hosts at their doors, and nowhere else.
fn table_of(hosts: &[&str], systems: &str) -> String {
    let names_one = |line: &&str| {
        let names = line.split('#').next().unwrap_or_default().split_whitespace().skip(1);
        names.into_iter().any(|name| hosts.iter().any(|host| host.eq_ignore_ascii_case(name)))
    };
    let mut table = String::new();
    for (at, host) in (0..).zip(hosts) {
        table.push_str(&format!("{} {host}\n", named_address(at).ip()));
    }
    for line in systems.lines().filter(|line| !names_one(line)) {
        table.push_str(line);
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_door_is_the_only_place_it_is_found_at() {
        let systems = "127.0.0.1 localhost\n127.0.1.1 desk\n10.0.0.1 b.example B.Example. # x\n\
                       10.0.0.2 other A.EXAMPLE\n10.0.0.3 c.example # a.example";
        let table = table_of(&["a.example", "b.example"], systems);
        let expected = "127.0.1.2 a.example\n127.0.1.3 b.example\n127.0.0.1 localhost\n\
                        127.0.1.1 desk\n10.0.0.3 c.example # a.example\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn no_more_than_there_may_be_and_none_is_no_table() {
        const MANY: &[&str] = &["a.example"; MOST_NAMED + 1];
        let folder = tempfile::tempdir().unwrap();
        assert!(Named::of(MANY, folder.path()).is_err());
        let none = Named::of(&[], folder.path()).unwrap();
        assert!(none.table().is_none() && none.count() == 0);
        let one = Named::of(&MANY[..1], folder.path()).unwrap();
        let to: Vec<_> = one.hosts().map(|to| to.to_string()).collect();
        assert_eq!(to, ["a.example:443"]);
    }
}
