//! The hosts a lane's commands may reach.

use std::net::{IpAddr, SocketAddr};

/// Forges and public package registries: a domain, its ending, and the names under it; an empty
/// name is the domain itself. Kept in parts and put together by [`domains`].
const HOSTS: &[(&str, &str, &[&str])] = &[
    ("npmjs", "org", &["registry"]),
    ("yarnpkg", "com", &["registry"]),
    ("github", "com", &["", "codeload"]),
    ("githubusercontent", "com", &["objects"]),
    ("pypi", "org", &[""]),
    ("pythonhosted", "org", &["files"]),
    ("crates", "io", &["", "static"]),
    ("golang", "org", &["proxy"]),
];

/// Why a name is not one that can be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a host name: {why}")]
pub struct DomainError {
    /// The name, cut to 80 characters.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// One item of an operator's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// A host, or with `wild` every host under it.
    Name { host: String, wild: bool, port: Option<u16> },
    /// An address, which is only ever listed with its port.
    Address { address: IpAddr, port: u16 },
}

/// Every host a command may reach: the table and `extra`, each once, without ports.
#[must_use]
pub fn domains(extra: &[String]) -> Vec<String> {
    let listed = extra.iter().filter_map(|item| match listed(item).ok()? {
        Listed::Name { host, wild, .. } => Some(if wild { format!("*.{host}") } else { host }),
        Listed::Address { address: IpAddr::V4(v4), .. } => Some(v4.to_string()),
        // Of these no vendor's list of hosts is known to take any.
        Listed::Address { .. } => None,
    });
    let mut all: Vec<String> = Vec::new();
    for host in table().chain(listed) {
        if !all.contains(&host) {
            all.push(host);
        }
    }
    all
}

/// The forges and registries.
pub(crate) fn table() -> impl Iterator<Item = String> {
    HOSTS.iter().flat_map(|(domain, ending, names)| {
        names.iter().map(move |name| match *name {
            "" => format!("{domain}.{ending}"),
            name => format!("{name}.{domain}.{ending}"),
        })
    })
}

/// Reads a comma-separated list such as `RELAY_LANE_ALLOWED_DOMAINS`: host names, or `*.` before
/// one for everything under it, each with a port or without; addresses with their port. Letters
/// become small; empty items are passed over.
///
/// # Errors
/// On the first item that is an address without a port, a URL, this machine itself without a port
/// or a wildcard over a whole ending. A wrong item must not be dropped in silence: its owner
/// believes it holds.
pub fn parse_domains(list: &str) -> Result<Vec<String>, DomainError> {
    let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| listed(item).map(|_| item.to_ascii_lowercase())).collect()
}

/// Reads one item.
pub(crate) fn listed(item: &str) -> Result<Listed, DomainError> {
    let refuse = |why| Err(DomainError { name: item.chars().take(80).collect(), why });
    let item = item.to_ascii_lowercase();
    if item.contains('/') {
        return refuse("leave out the scheme and the path");
    }
    if let Ok(at) = item.parse::<SocketAddr>() {
        let address = at.ip().to_canonical();
        return match at.port() {
            0 => refuse("there is no port 0"),
            _ if address.is_unspecified() => refuse("it is no host's address"),
            port => Ok(Listed::Address { address, port }),
        };
    }
    let (host, port) = match item.split_once(':') {
        None => (item.as_str(), None),
        Some((host, digits)) => {
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            match digits.parse::<u16>().ok().filter(|port| is_number && *port != 0) {
                Some(port) => (host, Some(port)),
                None => return refuse("behind `:` stands a port; `[…]:PORT` around IPv6"),
            }
        }
    };
    let name = host.strip_prefix("*.").unwrap_or(host);
    let wild = name.len() != host.len();
    let labels: Vec<&str> = name.split('.').collect();
    if name.len() > 253 || !labels.iter().all(|label| is_label(label)) {
        return refuse("use letters, digits, `-` and `.`, and `*.` only at its start");
    }
    let last = labels.last().copied().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit()) {
        return refuse("an address is listed as four numbers and with its port, 10.0.0.1:443");
    }
    if last == "localhost" && (port.is_none() || wild) {
        return refuse("it is this machine: name the one service, localhost:PORT");
    }
    if wild && labels.len() < 2 {
        return refuse("a wildcard needs a domain, such as `*.example.com`");
    }
    Ok(Listed::Name { host: name.to_owned(), wild, port })
}

pub(crate) fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=63).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_documented_list() {
        let all = domains(&[]);
        assert_eq!(all.len(), 10, "{all:?}");
        let under = |start: &str, end: &str| {
            all.iter().any(|host| host.starts_with(start) && host.ends_with(end))
        };
        assert!(under("registry.npm", ".org") && under("registry.yarn", ".com"));
        assert!(under("files.python", ".org") && under("pypi.", "org"));
        assert!(under("crates.", "io") && under("static.crates.", "io"));
        assert!(under("proxy.go", ".org"));
        for host in ["github.com", "codeload.github.com", "objects.githubusercontent.com"]
            .map(str::to_owned)
        {
            assert!(all.contains(&host), "{host}");
        }
    }

    #[test]
    fn extra_hosts_come_after_it_once() {
        let extra = ["github.com", "b.example", "b.example"].map(str::to_owned);
        let all = domains(&extra);
        assert_eq!(all.len(), 11);
        assert_eq!(all.last().map(String::as_str), Some("b.example"));
    }

    #[test]
    fn a_list_is_read() {
        let read = parse_domains(
            " Host.Example, *.other.example,,a_b.example ,gitea:3000, xn--bcher-kva.example,\
             127.0.0.1:8901,[::1]:80,localhost:11434,*.other.example:8443",
        )
        .unwrap();
        let expected = [
            "host.example",
            "*.other.example",
            "a_b.example",
            "gitea:3000",
            "xn--bcher-kva.example",
            "127.0.0.1:8901",
            "[::1]:80",
            "localhost:11434",
            "*.other.example:8443",
        ];
        assert_eq!(read, expected);
        // Without ports, each once, and IPv6 left out.
        let expected = [
            "host.example",
            "*.other.example",
            "a_b.example",
            "gitea",
            "xn--bcher-kva.example",
            "127.0.0.1",
            "localhost",
        ];
        assert_eq!(domains(&read)[10..], expected);
        assert_eq!(parse_domains("").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_host_name() {
        let long = format!("{}.example", "a".repeat(64));
        let very_long = ["abcdefgh"; 30].join(".");
        for (item, part) in [
            ("https://host.example", "scheme"),
            ("host.example/path", "scheme"),
            ("host.example:", "port"),
            ("host.example:0", "port"),
            ("host.example:70000", "port"),
            ("host.example:+443", "port"),
            ("127.0.0.1:0", "port"),
            ("0.0.0.0:80", "no host"),
            ("0x7f.0x1", "address"),
            ("[::1]", "port"),
            ("::1", "port"),
            ("10.0.0.1", "address"),
            ("2130706433", "address"),
            ("127.1:80", "address"),
            ("localhost", "this machine"),
            ("*.localhost:80", "this machine"),
            ("LOCALHOST", "this machine"),
            ("a.localhost", "this machine"),
            ("*", "letters"),
            ("*.", "letters"),
            ("*.com", "wildcard"),
            ("a.*.example", "letters"),
            ("*.*.example", "letters"),
            ("a..example", "letters"),
            (".example", "letters"),
            ("example.", "letters"),
            ("-a.example", "letters"),
            ("a b.example", "letters"),
            ("bücher.example", "letters"),
            ("user@host.example", "letters"),
            (&long, "letters"),
            (&very_long, "letters"),
        ] {
            let error = parse_domains(&format!("ok.example,{item}")).unwrap_err();
            assert!(error.why.contains(part), "{item}: {error}");
        }
    }
}
