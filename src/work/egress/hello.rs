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
    /// TLS for this name, or for none, with the bytes that this takes.
    Tls(Option<String>, usize),
    /// TLS that cannot be read.
    Unclear,
}

const HANDSHAKE: u8 = 0x16;
/// The kinds of records. Some servers pass over an alert and go on to the hello behind it.
const FIRST_KIND: u8 = 0x14;
const LAST_KIND: u8 = 0x18;
const ALERT: u8 = 0x15;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const SERVER_NAME: u16 = 0;

/// By this random a server's hello is one that asks for a second of the client (RFC 8446 §4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

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
    let (message, end) = match message(said) {
        Ok(Some(whole)) => whole,
        Ok(None) if said.len() < LONGEST => return Hello::Unfinished,
        _ => return Hello::Unclear,
    };
    name(&message).map_or(Hello::Unclear, |name| Hello::Tls(name, end))
}

/// Whether a server that was said a hello asks for a second one; none where more has to come.
pub(super) fn asks_again(mut said: &[u8]) -> Option<bool> {
    let mut message = Vec::new();
    while let [kind, _, _, high, low, rest @ ..] = said {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        match *kind {
            HANDSHAKE => message.extend_from_slice(&rest[..length.min(rest.len())]),
            ALERT => {}
            _ => return Some(false),
        }
        // Kind, length and version.
        if let [kind, _, _, _, _, _, random @ ..] = &message[..]
            && let Some(random) = random.get(..RETRY.len())
        {
            return Some(*kind == SERVER_HELLO && random == RETRY);
        }
        said = rest.get(length..).unwrap_or_default();
    }
    matches!(said, [kind, ..] if ![HANDSHAKE, ALERT].contains(kind)).then_some(false)
}

/// The first message, put together from its records, and where the last of them ends; none where it
/// has not come whole. It ends with its record, as all do: what else is in that may be read as well.
fn message(whole_of: &[u8]) -> Result<Option<(Vec<u8>, usize)>, ()> {
    let (mut said, mut message) = (whole_of, Vec::new());
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
            if body.len() >= whole {
                let end = whole_of.len() - rest.len() + length;
                let ends_with_it = body.len() == whole && end <= whole_of.len();
                return ends_with_it.then(|| Some((body.to_vec(), end))).ok_or(());
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
        let named = |said: &[u8]| Hello::Tls(Some("Api.Example".to_owned()), said.len());
        let whole = record(&hello(&all));
        assert_eq!(read(&whole), named(&whole));
        assert_eq!(read(&[&whole[..], b"early data"].concat()), named(&whole));
        let pieces: Vec<u8> = hello(&all).chunks(3).flat_map(record).collect();
        assert_eq!(read(&pieces), named(&pieces), "in records of three bytes");
        for said in [&whole, &pieces] {
            // The last three bytes stand in the last record.
            for end in 0..said.len() - 3 {
                assert_eq!(read(&said[..end]), Hello::Unfinished, "{end}");
            }
        }
        for nameless in [record(&hello(&sized(2, &other))), record(&hello(&[]))] {
            assert_eq!(read(&nameless), Hello::Tls(None, nameless.len()));
        }
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
        let two = record(&[hello(&[]), hello(&[])].concat());
        for said in [record(&certificate), alert_between, empty, endless, two] {
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
    fn a_server_that_asks_for_a_second_hello_is_known_by_its_random() {
        let of = |kind: u8, random: &[u8]| {
            let body = [&[3, 3], random, &[0; 6]].concat();
            [vec![kind], sized(3, &body)].concat()
        };
        let again = of(SERVER_HELLO, &RETRY);
        let alert = [ALERT, 3, 3, 0, 2, 1, 112];
        let pieces: Vec<u8> = again.chunks(3).flat_map(record).collect();
        for said in [record(&again), pieces, [&alert[..], &record(&again)].concat()] {
            assert_eq!(asks_again(&said), Some(true));
            assert_eq!(asks_again(&said[..30]), None);
        }
        for other in [
            record(&of(SERVER_HELLO, &[7; 32])),
            record(&of(11, &RETRY)),
            b"HTTP/1.1 400".to_vec(),
            b"S".to_vec(),
        ] {
            assert_eq!(asks_again(&other), Some(false));
        }
        assert_eq!((asks_again(&[]), asks_again(&alert)), (None, None));
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
