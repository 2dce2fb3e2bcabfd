//! The host part of a URL, as far as it decides who is given a token.

/// The host without its port, in lower case: `[::1]:80` is `::1`.
#[must_use]
pub fn host_name(authority: &str) -> String {
    let name = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    name.to_ascii_lowercase()
}

/// Whether what is sent there stays on this machine.
#[must_use]
pub fn is_this_machine(authority: &str) -> bool {
    let name = host_name(authority);
    name == "localhost"
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_this_machine() {
        for here in ["localhost", "LOCALHOST:80", "127.0.0.1:4800", "127.8.8.8", "[::1]:1"] {
            assert!(is_this_machine(here), "{here}");
        }
        for far in
            ["example.com", "127.0.0.1.example.com", "localhost.example", "[::2]", "", "10.0.0.1"]
        {
            assert!(!is_this_machine(far), "{far}");
        }
    }
}
