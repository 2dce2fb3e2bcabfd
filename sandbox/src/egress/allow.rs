//! The list of hosts of one run, and whether a host and port is on it.

use std::fmt;
use std::net::IpAddr;

use super::vendors::vendor_hosts;
use crate::domains::{Listed, is_label, listed, table};

/// The ports of an entry that names none.
const WEB: [u16; 2] = [443, 80];

/// A host as a client asks for it: small letters, no dot at the end, an address in one spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name that has to be looked up.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// Its port.
    pub port: u16,
}

/// What the list says of a destination that is on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It is reached at public addresses.
    Public,
    /// The operator named this host with this port: it may stand in the house.
    House,
    /// The operator named this very address.
    Address,
}

/// Why a destination is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAllowed {
    /// The host is not on the list.
    Host,
    /// It is an address, and addresses are only reached where they are listed.
    Literal,
    /// The host is on the list, and the port is not one of its.
    Port,
}

/// The hosts that one run may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    entries: Vec<Listed>,
}

impl Host {
    /// Reads a host; `None` where it is none. An address in another spelling (`2130706433`, `127.1`,
    /// `0x7f.1`) is none: the system's lookup would take it for an address.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let v6: std::net::Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(v6).to_canonical()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit());
        let is_name = name.len() <= 253 && name.split('.').all(is_label) && !is_number;
        is_name.then_some(Self::Name(name))
    }
}

impl Destination {
    /// Reads `host:port`; without a port it is `port`.
    #[must_use]
    pub fn parse(authority: &str, port: Option<u16>) -> Option<Self> {
        // The last colon is the port's, unless it stands in an address in brackets.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, text)) if !text.ends_with(']') => {
                let digits =
                    (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
                (host, digits.then(|| text.parse().ok()).flatten().filter(|port| *port != 0)?)
            }
            _ => (authority, port?),
        };
        // An address of IPv6 without brackets would be read in two ways.
        if host.contains(':') && !host.starts_with('[') {
            return None;
        }
        Some(Self { host: Host::parse(host)?, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
            Self::Address(v4) => write!(f, "{v4}"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl NotAllowed {
    /// As a person reads it, after the host and port.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Host => "it is not on this lane's list of hosts",
            Self::Literal => "an address is only reached where it is listed with its port",
            Self::Port => "of this host only the ports 443 and 80, or those listed, are reached",
        }
    }
}

impl AllowList {
    /// The list of a lane: its vendor's hosts, the forges and registries, and what the operator
    /// lists ([`crate::parse_domains`] has read it).
    #[must_use]
    pub fn of_lane(lane: &str, extra: &[String]) -> Self {
        let vendors = vendor_hosts(lane).iter().map(|host| (*host).to_owned());
        let known =
            vendors.chain(table()).map(|host| Listed::Name { host, wild: false, port: None });
        Self { entries: known.chain(extra.iter().filter_map(|item| listed(item).ok())).collect() }
    }

    /// Whether a run may go there.
    ///
    /// # Errors
    /// Why it may not.
    pub fn allows(&self, to: &Destination) -> Result<Grant, NotAllowed> {
        let mut known = false;
        let mut best = None;
        for entry in &self.entries {
            let (port, grant) = match (entry, &to.host) {
                (Listed::Address { address, port }, Host::Address(asked)) if address == asked => {
                    (Some(*port), Grant::Address)
                }
                (Listed::Name { host, wild, port }, Host::Name(asked)) => {
                    let under = || asked.strip_suffix(host).is_some_and(|n| n.ends_with('.'));
                    if !(if *wild { under() } else { host == asked }) {
                        continue;
                    }
                    // A name under a wildcard may be anybody's: it is not let into the house.
                    let house = port.is_some() && !wild;
                    (*port, if house { Grant::House } else { Grant::Public })
                }
                _ => continue,
            };
            known = true;
            if port.map_or(WEB.contains(&to.port), |port| port == to.port)
                && best.is_none_or(|best| best == Grant::Public)
            {
                best = Some(grant);
            }
        }
        best.ok_or(match (known, &to.host) {
            (true, _) => NotAllowed::Port,
            (false, Host::Address(_)) => NotAllowed::Literal,
            (false, Host::Name(_)) => NotAllowed::Host,
        })
    }

    /// Hosts of this machine that are on the list: what a program asks of them must come to the
    /// proxy, and is not asked of the box's own loopback.
    #[must_use]
    pub fn loopback(&self) -> Vec<String> {
        let of = |entry: &Listed| match entry {
            Listed::Address { address, .. } if address.is_loopback() => Some(address.to_string()),
            Listed::Name { host, .. } if host == "localhost" => Some(host.clone()),
            _ => None,
        };
        self.entries.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_domains;

    fn list(extra: &str) -> AllowList {
        AllowList::of_lane("claude", &parse_domains(extra).unwrap())
    }

    fn ask(list: &AllowList, to: &str) -> Result<Grant, NotAllowed> {
        list.allows(&Destination::parse(to, None).unwrap())
    }

    #[test]
    fn a_lane_has_its_vendor_the_table_and_what_is_listed() {
        let list = list("Git.Example,*.wide.example,xn--bcher-kva.example");
        for to in [
            "api.anthropic.com:443",
            "API.Anthropic.COM:443",
            "api.anthropic.com.:443",
            "github.com:443",
            "github.com:80",
            "codeload.github.com:443",
            "git.example:443",
            "a.wide.example:443",
            "a.b.wide.example:80",
            "xn--bcher-kva.example:443",
        ] {
            assert_eq!(ask(&list, to), Ok(Grant::Public), "{to}");
        }
        for to in [
            "api.openai.com:443",
            "sub.github.com:443",
            "notgithub.com:443",
            "github.com.evil.example:443",
            "wide.example:443",
            "notwide.example:443",
            "sub.git.example:443",
            "localhost:443",
        ] {
            assert_eq!(ask(&list, to), Err(NotAllowed::Host), "{to}");
        }
        for to in ["github.com:22", "github.com:8443", "git.example:8080", "a.wide.example:1"] {
            assert_eq!(ask(&list, to), Err(NotAllowed::Port), "{to}");
        }
        for to in ["127.0.0.1:443", "140.82.121.4:443", "[::1]:80", "[::ffff:10.0.0.1]:80"] {
            assert_eq!(ask(&list, to), Err(NotAllowed::Literal), "{to}");
        }
        let codex = AllowList::of_lane("codex", &[]);
        assert_eq!(ask(&codex, "chatgpt.com:443"), Ok(Grant::Public));
        assert_eq!(ask(&codex, "api.anthropic.com:443"), Err(NotAllowed::Host));
        let process = AllowList::of_lane("process:tidy", &[]);
        assert_eq!(ask(&process, "api.anthropic.com:443"), Err(NotAllowed::Host));
    }

    #[test]
    fn a_host_with_its_port_is_that_port_alone_and_may_stand_in_the_house() {
        let list = list(
            "127.0.0.1:8901,[::1]:11434,gitea.example:3000,*.wide.example:8443,both.example,both.example:9000",
        );
        assert_eq!(ask(&list, "127.0.0.1:8901"), Ok(Grant::Address));
        assert_eq!(ask(&list, "[::ffff:127.0.0.1]:8901"), Ok(Grant::Address));
        assert_eq!(ask(&list, "[::1]:11434"), Ok(Grant::Address));
        assert_eq!(ask(&list, "gitea.example:3000"), Ok(Grant::House));
        assert_eq!(ask(&list, "a.wide.example:8443"), Ok(Grant::Public));
        assert_eq!(ask(&list, "both.example:443"), Ok(Grant::Public));
        assert_eq!(ask(&list, "both.example:9000"), Ok(Grant::House));
        for to in ["127.0.0.1:8902", "127.0.0.1:443", "gitea.example:443", "[::1]:80"] {
            assert_eq!(ask(&list, to), Err(NotAllowed::Port), "{to}");
        }
        assert_eq!(ask(&list, "127.0.0.2:8901"), Err(NotAllowed::Literal));
        assert_eq!(list.loopback(), ["127.0.0.1", "::1"]);
    }

    #[test]
    fn what_is_no_destination() {
        for text in [
            "",
            ":443",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+443",
            "host:4 43",
            "host:443:443",
            "2130706433:80",
            "127.1:80",
            "0x7f.0.0.1:80",
            "0x7f000001:80",
            "017700000001:80",
            "::1:80",
            "[::1",
            "[::1]",
            "[127.0.0.1]:80",
            "[fe80::1%eth0]:80",
            "a b:80",
            "user@host:80",
            "host%2e:80",
            "bücher.example:443",
            "a..b:80",
            "-a:80",
            "host/:80",
            "host\r\n:80",
            "a.example..:443",
        ] {
            assert_eq!(Destination::parse(text, None), None, "{text:?}");
        }
        assert!(Destination::parse("127.0.0.01:80", None).is_none());
        let with_default = Destination::parse("[::1]", Some(80)).unwrap();
        assert_eq!(with_default.to_string(), "[::1]:80");
        assert_eq!(Destination::parse("A.Example.", Some(80)).unwrap().to_string(), "a.example:80");
    }
}
