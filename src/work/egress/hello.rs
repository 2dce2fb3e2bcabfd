//! The beginning of a tunnel, as far as it is TLS: which server its client asks for (SNI).
//!
//! Read as a server reads it, and where two servers could read it in two ways it is no good.

/// Bytes of a ClientHello with its records. Real ones have two to four thousand.
pub(super) const LONGEST: usize = 32 << 10;

/// What a client has begun with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// More of it has to come.
    Unfinished,
    /// No TLS.
    Other,
    /// TLS for this name, or for none.
    Tls(Option<String>),
    /// TLS that cannot be read.
    Unclear,
}

const HANDSHAKE: u8 = 0x16;
/// The kinds of records. Some servers pass over an alert and go on to the hello behind it.
const FIRST_KIND: u8 = 0x14;
const LAST_KIND: u8 = 0x18;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;

/// Reads what a client has said so far.
pub(super) fn read(said: &[u8]) -> Hello {
    match said {
        [] | [HANDSHAKE] => return Hello::Unfinished,
        [HANDSHAKE, 3, ..] => {}
        [FIRST_KIND..=LAST_KIND, ..] => return Hello::Unclear,
        // A hello in the frame of SSL 2, which some servers still read, and which names no host.
        [0x80..=0xff, _, CLIENT_HELLO, ..] => return Hello::Unclear,
        [0x80..=0xff] | [0x80..=0xff, _] => return Hello::Unfinished,
        _ => return Hello::Other,
    }
    let message = match message(said) {
        Ok(Some(message)) => message,
        Ok(None) if said.len() < LONGEST => return Hello::Unfinished,
        _ => return Hello::Unclear,
    };
    name(&message).map_or(Hello::Unclear, Hello::Tls)
}

/// The first message, put together from its records; none where it has not come whole.
fn message(mut said: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    let mut message = Vec::new();
    while let [kind, major, _, high, low, rest @ ..] = said {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if (*kind, *major) != (HANDSHAKE, 3) || length == 0 {
            return Err(());
        }
        message.extend_from_slice(&rest[..length.min(rest.len())]);
        if let [kind, a, b, c, body @ ..] = &message[..] {
            if *kind != CLIENT_HELLO {
                return Err(());
            }
            let whole = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if let Some(body) = body.get(..whole) {
                return Ok(Some(body.to_vec()));
            }
        }
        said = rest.get(length..).unwrap_or_default();
    }
    Ok(None)
}

/// The name in a ClientHello; none where it cannot be read.
fn name(hello: &[u8]) -> Option<Option<String>> {
    // Version and random.
    let mut rest = Part(hello.get(34..)?);
    let (_session, _ciphers, _compression) = (rest.part(1)?, rest.part(2)?, rest.part(1)?);
    if rest.0.is_empty() {
        return Some(None);
    }
    let mut extensions = Part(rest.part(2)?);
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let body = extensions.part(2)?;
        if kind == usize::from(SERVER_NAME) {
            let one = one_name(body)?;
            if found.replace(one).is_some() {
                return None;
            }
        }
    }
    rest.0.is_empty().then_some(found)
}

/// The host of a list of names that has nothing else in it.
fn one_name(body: &[u8]) -> Option<String> {
    let mut body = Part(body);
    let mut list = Part(body.part(2)?);
    let kind = list.number(1)?;
    let name = list.part(2)?;
    let whole = kind == 0 && list.0.is_empty() && body.0.is_empty() && name.is_ascii();
    whole.then(|| String::from_utf8_lossy(name).into_owned())
}

/// What is left of a message.
struct Part<'a>(&'a [u8]);

impl<'a> Part<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)))
    }

    /// What has its length, of `bytes` bytes, in front of it.
    fn part(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(bytes)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(bytes: usize, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32).to_be_bytes();
        [&length[4 - bytes..], body].concat()
    }

    fn names(list: &[&str]) -> Vec<u8> {
        let list: Vec<u8> =
            list.iter().flat_map(|n| [vec![0], sized(2, n.as_bytes())].concat()).collect();
        [vec![0, 0], sized(2, &sized(2, &list))].concat()
    }

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let body = [&[3; 34][..], &sized(1, &[7; 32]), &[0, 2, 19, 1, 1, 0], extensions].concat();
        [vec![CLIENT_HELLO], sized(3, &body)].concat()
    }

    fn record(part: &[u8]) -> Vec<u8> {
        [vec![HANDSHAKE, 3, 1], sized(2, part)].concat()
    }

    #[test]
    fn the_name_is_found_whatever_it_comes_in() {
        let other = [vec![0, 43], sized(2, &[2, 3, 4])].concat();
        let all = sized(2, &[other.clone(), names(&["Api.Example"]), other.clone()].concat());
        let named = Hello::Tls(Some("Api.Example".to_owned()));
        let whole = record(&hello(&all));
        assert_eq!(read(&whole), named);
        assert_eq!(read(&[&whole[..], b"early data"].concat()), named);
        let pieces: Vec<u8> = hello(&all).chunks(3).flat_map(record).collect();
        assert_eq!(read(&pieces), named, "in records of three bytes");
        for said in [&whole, &pieces] {
            // The last three bytes stand in the last record.
            for end in 0..said.len() - 3 {
                assert_eq!(read(&said[..end]), Hello::Unfinished, "{end}");
            }
        }
        assert_eq!(read(&record(&hello(&sized(2, &other)))), Hello::Tls(None));
        assert_eq!(read(&record(&hello(&[]))), Hello::Tls(None));
    }

    #[test]
    fn what_two_servers_could_read_in_two_ways_is_unclear() {
        for extensions in [
            sized(2, &[names(&["a.example"]), names(&["b.example"])].concat()),
            sized(2, &names(&["a.example", "b.example"])),
            sized(2, &names(&[])),
            sized(2, &names(&["b\u{fc}cher.example"])),
            [sized(2, &names(&["a.example"])), vec![0]].concat(),
            sized(2, &names(&["a.example"])[..9]),
        ] {
            assert_eq!(read(&record(&hello(&extensions))), Hello::Unclear, "{extensions:?}");
        }
        let certificate = [vec![11], sized(3, &[0; 40])].concat();
        let alert_between = [record(&hello(&[])[..9]), vec![0x15, 3, 1, 0, 2, 1, 0]].concat();
        let empty = record(&[]);
        let endless = [vec![HANDSHAKE, 3, 1, 0xff, 0xff, 1, 0xff], vec![0; LONGEST]].concat();
        for said in [record(&certificate), alert_between, empty, endless] {
            assert_eq!(read(&said), Hello::Unclear);
        }
    }

    #[test]
    fn nothing_stands_in_front_of_the_hello() {
        let named = record(&hello(&sized(2, &names(&["a.example"]))));
        for front in [
            // Alerts, of a warning and of the end; the change of the cipher; data; a heartbeat.
            &[0x15, 3, 1, 0, 2, 1, 41][..],
            &[0x15, 3, 3, 0, 2, 2, 0],
            &[0x14, 3, 3, 0, 1, 1],
            &[0x17, 3, 3, 0, 1, 0],
            &[0x18, 3, 3, 0, 1, 1],
            // The first byte is enough.
            &[0x15],
            &[HANDSHAKE, 4],
            &[HANDSHAKE, 0, 0],
        ] {
            assert_eq!(read(&[front, &named].concat()), Hello::Unclear, "{front:?}");
        }
    }

    #[test]
    fn a_hello_in_the_frame_of_ssl_2_is_unclear() {
        let framed = b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10";
        assert_eq!(read(&framed[..1]), Hello::Unfinished);
        assert_eq!(read(&framed[..2]), Hello::Unfinished);
        for end in 3..framed.len() {
            assert_eq!(read(&framed[..end]), Hello::Unclear, "{end}");
        }
    }

    #[test]
    fn what_is_no_tls_is_told_by_its_first_bytes() {
        for said in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x", b"\x80\x2e\x04", b"P", b"\x13\x16"] {
            assert_eq!(read(said), Hello::Other);
        }
    }
}
