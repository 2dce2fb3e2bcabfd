//! This machine's own proxy, where it has one. A run's proxy asks it, and shows it the login that
//! stands in its address; the lane sees neither.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use relay_sandbox::egress::Host;
use reqwest::Url;

use crate::client::Outward;
use crate::model::Secret;

/// A proxy that is spoken to in the clear, as nearly all are.
pub(super) struct Beyond {
    /// Where it is.
    pub(super) host: String,
    /// Its port.
    pub(super) port: u16,
    /// The value of `Proxy-Authorization`.
    pub(super) login: Option<Secret>,
    except: Vec<String>,
}

/// What helps where [`unusable`] says something.
pub const USABLE: &str = "HTTPS_PROXY=http://HOST:PORT";

/// Why runs do not go through this machine's proxy, where it has one: relay speaks to proxies with
/// `http://` alone.
#[must_use]
pub fn unusable(outward: Option<&Outward>) -> Option<String> {
    let outward = outward?;
    if Beyond::of(outward).is_some() {
        return None;
    }
    // The rest of it may hold a password.
    let scheme = outward.proxy.expose().split_once("://").map_or("", |(scheme, _)| scheme);
    Some(format!(
        "lanes do not go through a proxy with `{scheme}://`, only with `http://`: they are let out past it"
    ))
}

impl Beyond {
    pub(super) fn of(outward: &Outward) -> Option<Self> {
        let text = outward.proxy.expose();
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&text).ok().filter(|url| url.scheme() == "http")?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        let login = (!url.username().is_empty()).then(|| {
            let password = decoded(url.password().unwrap_or_default());
            let plain = [decoded(url.username()), b":".to_vec(), password].concat();
            Secret::new(format!("Basic {}", STANDARD.encode(plain)))
        });
        let except = outward.except.split(',').map(|item| item.trim().to_ascii_lowercase());
        let except = except.filter(|item| !item.is_empty()).collect();
        Some(Self { host, port: url.port_or_known_default().unwrap_or(80), login, except })
    }

    /// Whether the machine reaches this host without it (NO_PROXY).
    pub(super) fn leaves_out(&self, host: &Host) -> bool {
        let host = host.to_string();
        let host = host.trim_matches(['[', ']']);
        self.except.iter().any(|item| {
            let name = item.trim_start_matches('*').trim_start_matches('.');
            let under = || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
            item == "*" || (!name.is_empty() && (host == name || under()))
        })
    }
}

/// What stands for `%41` in an address.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outward(proxy: &str, except: &str) -> Outward {
        Outward { proxy: Secret::new(proxy), except: except.to_owned() }
    }

    #[test]
    fn a_proxy_is_read_with_its_login() {
        for address in ["http://ada:p%40ss@proxy.example:3128", "ada:p%40ss@proxy.example:3128"] {
            let beyond = Beyond::of(&outward(address, "")).unwrap();
            assert_eq!((beyond.host.as_str(), beyond.port), ("proxy.example", 3128));
            let login = beyond.login.unwrap();
            assert_eq!(login.expose(), format!("Basic {}", STANDARD.encode("ada:p@ss")));
        }
        let plain = Beyond::of(&outward("proxy.example:8080", "")).unwrap();
        assert_eq!((plain.port, plain.login.is_none()), (8080, true));
    }

    #[test]
    fn one_that_cannot_be_spoken_to_is_told_without_its_login() {
        assert_eq!(unusable(None), None);
        assert_eq!(unusable(Some(&outward("http://proxy.example", ""))), None);
        let told = unusable(Some(&outward("socks5://ada:secret@proxy.example", ""))).unwrap();
        assert!(told.contains("socks5://") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn hosts_that_are_left_out() {
        let leaves = |except: &str, host: &str| {
            let beyond = Beyond::of(&outward("http://p.example", except)).unwrap();
            beyond.leaves_out(&Host::parse(host).unwrap())
        };
        assert!(leaves("*", "a.example") && leaves("a.example", "a.example"));
        assert!(leaves(" .Example ", "a.example") && leaves("*.example", "b.a.example"));
        assert!(leaves("127.0.0.1", "127.0.0.1") && leaves("::1", "[::1]"));
        assert!(!leaves("", "a.example") && !leaves("b.example", "a.example"));
        assert!(!leaves("ample", "a.example"));
    }
}
