//! `relay serve` as a person starts it: its flags, its warnings, and how it ends.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::process::Signal;

use super::net::Answer;
use crate::support::PATIENCE;
use crate::support::house::{House, Working};

/// A site, its address, and its first token.
struct Serving {
    house: House,
    site: Working,
    addr: SocketAddr,
    token: String,
}

impl Serving {
    fn with(flags: &[&str]) -> Self {
        let house = House::new();
        let log = house.dir.path().join("serve.log");
        let file = File::create(&log).unwrap();
        let mut command = house.command(&[&["serve"], flags].concat());
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let site = Working { child, log };
        site.until("what it says", || site.said().contains("the API: "));
        let said = site.said();
        let after =
            |mark: &str| said.split_once(mark).unwrap().1.split_whitespace().next().unwrap();
        let port: SocketAddr = after("relay serve: http://").parse().unwrap();
        let addr = SocketAddr::new([127, 0, 0, 1].into(), port.port());
        let token = after("told this once: ").to_owned();
        Self { house, site, addr, token }
    }

    fn line(&self) -> TcpStream {
        let line = TcpStream::connect(self.addr).unwrap();
        line.set_read_timeout(Some(PATIENCE)).unwrap();
        line
    }

    fn get(&self, path: &str) -> Answer {
        let mut line = self.line();
        let token = &self.token;
        let ask = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        // One that is turned away may not be read to its end.
        let _ = line.write_all(ask.as_bytes());
        read(&mut line)
    }

    /// So many requests at once on one connection, and all that is answered.
    fn get_many(&self, path: &str, many: usize) -> String {
        let mut line = self.line();
        let token = &self.token;
        let ask = |close: &str| {
            format!(
                "GET {path} HTTP/1.1\r\nhost: x\r\n{close}authorization: Bearer {token}\r\n\r\n"
            )
        };
        let all = ask("").repeat(many - 1) + &ask("connection: close\r\n");
        line.write_all(all.as_bytes()).unwrap();
        let mut said = String::new();
        line.read_to_string(&mut said).unwrap();
        said
    }

    fn ends(mut self) -> String {
        self.site.signal(Signal::TERM);
        assert_eq!(self.site.ended(), 0, "{}", self.site.said());
        self.site.said()
    }
}

/// To the connection's end, which may be a hard one.
fn read(line: &mut TcpStream) -> Answer {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = line.read(&mut piece) {
        bytes.extend_from_slice(&piece[..n]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

const LOCAL: [&str; 2] = ["--addr", "127.0.0.1:0"];

#[test]
fn a_token_that_asks_more_than_rate_is_told_when_to_ask_again() {
    let serving = Serving::with(&[&LOCAL[..], &["--rate", "1"]].concat());
    // Five seconds of it may come at once.
    let answers = serving.get_many("/api/v1/status", 60);
    assert!(answers.starts_with("HTTP/1.1 200 "), "{answers}");
    let (_, refused) = answers.split_once("HTTP/1.1 429 ").expect("none was refused");
    let (head, body) = refused.split_once("\r\n\r\n").expect("an answer");
    assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
    assert!(body.contains("\"code\":\"too_many\""), "{body}");
    assert_eq!(serving.get("/healthz").status, 200);
    serving.ends();
    let free = Serving::with(&[&LOCAL[..], &["--rate", "0"]].concat());
    assert_eq!(free.get_many("/api/v1/status", 60).matches("HTTP/1.1 200 ").count(), 60);
    free.ends();
}

#[test]
fn one_connection_more_than_connections_is_told_when_to_ask_again() {
    let serving = Serving::with(&[&LOCAL[..], &["--connections", "2"]].concat());
    assert!(serving.site.said().contains("warning: 2 connections at a time"));
    let held = [serving.line(), serving.line()];
    let refused = serving.get("/healthz");
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("busy")));
    assert_eq!(refused.header("retry-after"), Some("5"), "{refused:?}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    drop(held);
    serving.site.until("a free place", || serving.get("/healthz").status == 200);
    serving.ends();
}

#[test]
fn what_is_said_in_the_clear_is_warned_of() {
    let clear = "cross the network in the clear";
    for (flags, warning) in [
        (&["--addr", "127.0.0.1:0"][..], None),
        (&["--addr", "127.0.0.1:0", "--public-url", "https://relay.example"], None),
        (&["--addr", "127.0.0.1:0", "--public-url", "http://localhost:8080/"], None),
        (&["--addr", "127.0.0.1:0", "--public-url", "http://relay.example"], Some(clear)),
        (&["--addr", "0.0.0.0:0"], Some(clear)),
        (&["--addr", "[::]:0"], Some(clear)),
        (
            &["--addr", "0.0.0.0:0", "--public-url", "https://relay.example"],
            Some("past the proxy speaks in the clear"),
        ),
    ] {
        let serving = Serving::with(flags);
        if let Some((_, url)) =
            flags.iter().position(|f| *f == "--public-url").map(|i| (i, flags[i + 1]))
        {
            let url = url.trim_end_matches('/');
            assert!(serving.site.said().contains(&format!("public URL:  {url}\n")));
        }
        let said = serving.ends();
        assert_eq!(said.matches("warning: ").count(), usize::from(warning.is_some()), "{said}");
        assert!(warning.is_none_or(|warning| said.contains(warning)), "{flags:?}: {said}");
    }
}

#[test]
fn an_address_that_cannot_be_served_is_refused_with_what_helps() {
    let house = House::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (flags, error, hint) in [
        (["--addr", &taken], "cannot be served", "another program has it"),
        (["--addr", "192.0.2.1:0"], "192.0.2.1:0 cannot be served", "an address of this machine"),
        (["--addr", "somewhere"], "invalid value 'somewhere'", ""),
        (["--addr", "127.0.0.1"], "invalid value '127.0.0.1'", ""),
        (["--addr", "127.0.0.1:99999"], "invalid value", ""),
        (["--public-url", "relay.example"], "--public-url is not", ""),
        (["--public-url", "https://ann:pw@relay.example"], "--public-url is not", ""),
        (["--rate", "few"], "--rate", ""),
        (["--connections", "many"], "--connections", ""),
    ] {
        let ran = house.relay(&["serve", flags[0], flags[1]]);
        assert_eq!(ran.code, 2, "{flags:?}: {ran:?}");
        assert!(ran.err.contains(error) && ran.err.contains(hint), "{flags:?}: {}", ran.err);
        assert!(!ran.err.contains("pw@"), "{}", ran.err);
    }
    assert!(!house.home.join("relay.db").exists(), "something was begun");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut serving = Serving::with(&LOCAL);
    // Its body does not come: a stop waits for it.
    let mut slow = serving.line();
    let (token, body) = (&serving.token, "{");
    let ask = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{body}"
    );
    slow.write_all(ask.as_bytes()).unwrap();
    let open = "relay_connections 2";
    serving.site.until("its request", || serving.get("/metrics").body.contains(open));
    // Both are there when it looks, however slow the machine is.
    serving.site.signal(Signal::STOP);
    serving.site.signal(Signal::TERM);
    serving.site.signal(Signal::INT);
    serving.site.signal(Signal::CONT);
    assert_eq!(serving.site.ended(), 0, "{}", serving.site.said());
    let said = serving.site.said();
    assert!(said.contains("stopping; requests under way are let go"), "{said}");
    assert!(said.contains("stopped at once"), "{said}");
    let next = serving.house.relay(&["task", "ls"]);
    assert_eq!(next.code, 0, "the home is free: {next:?}");
}
