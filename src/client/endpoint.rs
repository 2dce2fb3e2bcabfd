//! Where a site is reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::model::Secret;

/// Where a site is reached: the value of `RELAY_SITE`, or the socket of this home's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket on this machine, written `unix:PATH`.
    Unix(PathBuf),
    /// An `http://` or `https://` URL, without the API's prefix and without a trailing slash.
    Http(String),
}

/// The way out of a network that lets nobody out by themselves. Only a site with `https` is reached
/// through it: what is said in the clear, and what is on this machine, goes there directly.
#[derive(Clone, Debug)]
pub struct Outward {
    /// The proxy's URL, which may hold a password.
    pub proxy: Secret,
    /// Hosts that are reached without it, comma-separated, as in NO_PROXY.
    pub except: String,
}

/// Why a text names no site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a site (`https://host`, `http://host:port` or `unix:/absolute/path`)")]
pub struct EndpointError {
    /// The offending text, without what could be a password in it.
    pub text: String,
}

impl Endpoint {
    /// Whether nobody on the way can read what is said: a socket, TLS, or this machine's own
    /// loopback.
    #[must_use]
    pub fn is_private(&self) -> bool {
        let Self::Http(url) = self else { return true };
        let Ok(url) = reqwest::Url::parse(url) else { return false };
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = address.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        url.scheme() == "https" || host == "localhost" || loopback
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let bad = || EndpointError { text: without_userinfo(text) };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(bad()) };
        }
        let url = reqwest::Url::parse(text).map_err(|_| bad())?;
        let plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !plain || !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad());
        }
        Ok(Self::Http(url.as_str().trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http(url) => f.write_str(url),
        }
    }
}

/// A token that was pasted into a URL must not come back in an error message.
fn without_userinfo(text: &str) -> String {
    let shown: String = text.chars().take(80).collect();
    match shown.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_read_as_written() {
        for (text, shown) in [
            ("https://relay.example", "https://relay.example"),
            ("https://relay.example/", "https://relay.example"),
            ("http://127.0.0.1:8080/base/", "http://127.0.0.1:8080/base"),
            ("unix:/run/relay.sock", "unix:/run/relay.sock"),
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|e| e.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn only_loopback_does_without_tls() {
        let private = |text: &str| text.parse::<Endpoint>().map(|site| site.is_private());
        for text in [
            "https://a.example",
            "unix:/x",
            "http://127.8.0.1:1",
            "http://[::1]:7410",
            "http://localhost:7410",
        ] {
            assert_eq!(private(text), Ok(true), "{text}");
        }
        for text in [
            "http://a.example",
            "http://10.0.0.1",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "http://[::2]",
        ] {
            assert_eq!(private(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn what_is_no_site_is_refused_without_its_password() {
        for text in ["", "relay.example", "ftp://x", "unix:relative.sock", "unix:", "https://x?y=1"]
        {
            assert!(text.parse::<Endpoint>().is_err(), "{text} was taken");
        }
        let refused = "https://me:hunter2@relay.example".parse::<Endpoint>();
        let message = refused.map_err(|e| e.to_string()).expect_err("userinfo was taken");
        assert!(!message.contains("hunter2") && message.contains("relay.example"), "{message}");
    }
}
