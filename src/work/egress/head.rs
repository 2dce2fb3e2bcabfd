//! The head of a request to a proxy: where it wants to go, and what is passed on of it.

use std::io;

use relay_sandbox::egress::Destination;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a head, its empty line included. Servers take 8 to 16 KiB.
const LONGEST: usize = 16 << 10;

/// Headers that are between a client and its proxy, and the ones that are said anew.
const NOT_PASSED: [&str; 9] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "host",
];

/// Why a request is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHead {
    /// It does not end.
    TooLong,
    /// It is not HTTP/1, or not a proxy's.
    Malformed,
    /// Whoever was there is gone.
    Gone,
}

/// What a client wants of its proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A tunnel.
    Tunnel(Destination),
    /// That a request in the clear is made for it.
    Forward {
        /// To whom.
        to: Destination,
        /// `GET`, as it came.
        method: String,
        /// Path and query.
        path: String,
        /// The headers that are passed on, each with its line end.
        headers: Vec<u8>,
        /// What comes behind them.
        body: Body,
    },
}

/// How the end of a request is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// It has so many bytes.
    Length(u64),
    /// It comes in pieces that say how long they are.
    Chunked,
}

/// Reads up to the empty line, and gives what came behind it as well.
pub(super) async fn read(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<(Vec<u8>, Vec<u8>), BadHead> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let before = head.len();
        let mut piece = from.take((LONGEST - before) as u64);
        match piece.read_buf(&mut head).await {
            Ok(1..) => {}
            Ok(0) if before >= LONGEST => return Err(BadHead::TooLong),
            Ok(0) => return Err(BadHead::Gone),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(BadHead::Gone),
        }
        let from = before.saturating_sub(3);
        if let Some(at) = head[from..].windows(4).position(|end| end == b"\r\n\r\n") {
            let rest = head.split_off(from + at + 4);
            return Ok((head, rest));
        }
    }
}

/// What the head asks for.
pub(super) fn asked(head: &[u8]) -> Result<Asked, BadHead> {
    parse(head).ok_or(BadHead::Malformed)
}

fn parse(head: &[u8]) -> Option<Asked> {
    let mut lines = head.strip_suffix(b"\r\n\r\n")?.split(|byte| *byte == b'\n');
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let mut words = first.strip_suffix('\r').unwrap_or(first).split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_token = !method.is_empty() && method.bytes().all(|b| b.is_ascii_alphabetic());
    let is_text = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
    if words.next().is_some() || !is_token || !is_text(target) {
        return None;
    }
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return None;
    }
    let headers: Vec<(&str, &[u8])> = lines
        .map(|line| header(line.strip_suffix(b"\r").unwrap_or(line)))
        .collect::<Option<_>>()?;
    if method == "CONNECT" {
        return Some(Asked::Tunnel(Destination::parse(target, None)?));
    }
    // Only this scheme is forwarded: with TLS a client asks for a tunnel.
    let rest = strip_prefix_in_any_case(target, "http://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = path.split('#').next().unwrap_or_default();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Some(Asked::Forward {
        to: Destination::parse(authority, Some(80))?,
        method: method.to_owned(),
        path,
        headers: passed(&headers),
        body: body(&headers)?,
    })
}

/// Where the request ends; none where two readers could find two ends.
fn body(headers: &[(&str, &[u8])]) -> Option<Body> {
    let of = |name: &str| -> Vec<&[u8]> {
        let named = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.map(|(_, value)| blanks_off(value)).collect()
    };
    match (&of("content-length")[..], &of("transfer-encoding")[..]) {
        ([], []) => Some(Body::Length(0)),
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            Some(Body::Length(std::str::from_utf8(length).ok()?.parse().ok()?))
        }
        ([], [encoding]) if encoding.eq_ignore_ascii_case(b"chunked") => Some(Body::Chunked),
        _ => None,
    }
}

/// Without the blanks around it; what else is white is no blank to everybody.
fn blanks_off(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// A header's name and value. A line that goes on with the one before it is none.
fn header(line: &[u8]) -> Option<(&str, &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (std::str::from_utf8(&line[..colon]).ok()?, &line[colon + 1..]);
    let in_name = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let is_name = !name.is_empty() && name.bytes().all(in_name);
    let is_value = !value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'));
    (is_name && is_value).then_some((name, value))
}

/// What is said to the server of a client's headers.
fn passed(headers: &[(&str, &[u8])]) -> Vec<u8> {
    let is = |name: &str, other: &str| name.eq_ignore_ascii_case(other);
    let named: Vec<String> = headers
        .iter()
        .filter(|(name, _)| is(name, "connection") || is(name, "proxy-connection"))
        .flat_map(|(_, value)| {
            String::from_utf8_lossy(value).split(',').map(str::to_owned).collect::<Vec<_>>()
        })
        .map(|name| name.trim().to_owned())
        // How long the body is stays said, whoever wants it unsaid.
        .filter(|name| !is(name, "content-length") && !is(name, "transfer-encoding"))
        .collect();
    let mut text = Vec::new();
    for (name, value) in headers {
        if NOT_PASSED.iter().any(|other| is(name, other)) || named.iter().any(|n| is(name, n)) {
            continue;
        }
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    }
    text
}

fn strip_prefix_in_any_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> Destination {
        Destination::parse(text, None).unwrap()
    }

    #[test]
    fn a_tunnel_and_a_request_in_the_clear() {
        let head =
            b"CONNECT Api.Example.:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: y\r\n\r\n";
        assert_eq!(asked(head), Ok(Asked::Tunnel(to("api.example:443"))));
        let head = b"POST HTTP://a.example:81/v1?q=1#f HTTP/1.1\r\nHost: evil.example\r\n\
                     Proxy-Connection: Keep-Alive, X-Hop\r\nX-Hop: 1\r\nContent-Length: 3\r\n\
                     Connection: content-length\r\nAuthorization: key\r\n\r\n";
        let Ok(Asked::Forward { to: host, method, path, headers, body }) = asked(head) else {
            panic!()
        };
        assert_eq!(body, Body::Length(3));
        assert_eq!((host, method.as_str(), path.as_str()), (to("a.example:81"), "POST", "/v1?q=1"));
        let headers = String::from_utf8(headers).unwrap();
        assert_eq!(headers, "Content-Length: 3\r\nAuthorization: key\r\n");
        let path = |target: &str| {
            let head = format!("GET {target} HTTP/1.0\r\n\r\n");
            match asked(head.as_bytes()) {
                Ok(Asked::Forward { to, path, .. }) => format!("{to}{path}"),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(path("http://a.example"), "a.example:80/");
        assert_eq!(path("http://a.example?q"), "a.example:80/?q");
        assert_eq!(path("http://[::1]:8/x"), "[::1]:8/x");
    }

    #[test]
    fn the_end_of_a_request_is_found_in_one_way_or_not_at_all() {
        let body = |headers: &str| match asked(
            format!("POST http://a.example/ HTTP/1.1\r\n{headers}\r\n").as_bytes(),
        ) {
            Ok(Asked::Forward { body, .. }) => Some(body),
            _ => None,
        };
        assert_eq!(body(""), Some(Body::Length(0)));
        assert_eq!(body("content-LENGTH:  12 \r\n"), Some(Body::Length(12)));
        assert_eq!(body("Transfer-Encoding: Chunked\r\n"), Some(Body::Chunked));
        for headers in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding: chunked\x0c\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(body(headers), None, "{headers:?}");
        }
    }

    #[test]
    fn what_is_no_request_to_a_proxy() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "GET http://user:password@a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example@b.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example\\@b.example/ HTTP/1.1\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT http://a.example:443 HTTP/1.1\r\n\r\n",
            "CONNECT a.example:443 HTTP/2\r\n\r\n",
            "CONNECT a.example:443\r\n\r\n",
            "CONNECT  a.example:443 HTTP/1.1\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1 x\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nno header\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nA: b\rc\r\n\r\n",
            "CONNECT a.example:443 HTTP/1.1\r\nA : b\r\n\r\n",
            "\r\n\r\n",
            "\u{16}\u{3}\u{1}\r\n\r\n",
        ] {
            assert_eq!(asked(head.as_bytes()), Err(BadHead::Malformed), "{head:?}");
        }
    }

    #[tokio::test]
    async fn a_head_is_read_up_to_its_end_and_no_further_than_it_may_be_long() {
        let mut from: &[u8] = b"CONNECT a:1 HTTP/1.1\r\n\r\nbody";
        let (head, rest) = read(&mut from).await.unwrap();
        assert_eq!(
            (head.as_slice(), rest.as_slice()),
            (&b"CONNECT a:1 HTTP/1.1\r\n\r\n"[..], &b"body"[..])
        );
        let endless = vec![b'a'; LONGEST + 1];
        assert_eq!(read(&mut endless.as_slice()).await, Err(BadHead::TooLong));
        let mut fits = vec![b'a'; LONGEST - 4];
        fits.extend_from_slice(b"\r\n\r\n");
        assert_eq!(read(&mut fits.as_slice()).await.unwrap().0.len(), LONGEST);
        assert_eq!(read(&mut &b"CONNECT"[..]).await, Err(BadHead::Gone));
    }
}
