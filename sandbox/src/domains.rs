//! The hosts a lane's commands may reach.

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

/// Every host a command may reach: the table and `extra`, each once.
#[must_use]
pub fn domains(extra: &[String]) -> Vec<String> {
    let table = HOSTS.iter().flat_map(|(domain, ending, names)| {
        names.iter().map(move |name| match *name {
            "" => format!("{domain}.{ending}"),
            name => format!("{name}.{domain}.{ending}"),
        })
    });
    let mut all: Vec<String> = Vec::new();
    for host in table.chain(extra.iter().cloned()) {
        if !all.contains(&host) {
            all.push(host);
        }
    }
    all
}

/// Reads a comma-separated list such as `RELAY_LANE_ALLOWED_DOMAINS`: host names, or `*.` before
/// one for everything under it. Letters become small; empty items are passed over.
///
/// # Errors
/// On the first item that is an address, a URL, this machine itself or a wildcard over a whole
/// ending. A wrong item must not be dropped in silence: its owner believes it holds.
pub fn parse_domains(list: &str) -> Result<Vec<String>, DomainError> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(parse_domain).collect()
}

fn parse_domain(item: &str) -> Result<String, DomainError> {
    let refuse = |why| Err(DomainError { name: item.chars().take(80).collect(), why });
    let host = item.to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let wild = name.len() != host.len();
    if name.contains("://") || name.contains('/') {
        return refuse("leave out the scheme and the path");
    }
    if name.contains(':') {
        return refuse("leave out the port; an address is not a name");
    }
    let labels: Vec<&str> = name.split('.').collect();
    if name.len() > 253 || !labels.iter().all(|label| is_label(label)) {
        return refuse("use letters, digits, `-` and `.`, and `*.` only at its start");
    }
    if labels.last().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) {
        return refuse("an address is not a name");
    }
    if matches!(labels.last(), Some(&"localhost")) {
        return refuse("it is this machine, whose own services a lane may not reach");
    }
    if wild && labels.len() < 2 {
        return refuse("a wildcard needs a domain, such as `*.example.com`");
    }
    Ok(host)
}

fn is_label(label: &str) -> bool {
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
            " Host.Example, *.other.example,,a_b.example ,gitea, xn--bcher-kva.example",
        );
        let expected =
            ["host.example", "*.other.example", "a_b.example", "gitea", "xn--bcher-kva.example"];
        assert_eq!(read.unwrap(), expected);
        assert_eq!(parse_domains("").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_host_name() {
        let long = format!("{}.example", "a".repeat(64));
        let very_long = ["abcdefgh"; 30].join(".");
        for (item, part) in [
            ("https://host.example", "scheme"),
            ("host.example/path", "scheme"),
            ("host.example:443", "port"),
            ("[::1]", "port"),
            ("::1", "port"),
            ("10.0.0.1", "address"),
            ("2130706433", "address"),
            ("localhost", "this machine"),
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
