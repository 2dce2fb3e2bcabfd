//! A run's way out over real sockets: the proxy behind a door, as a program in the box meets it.

mod named;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay::client::Outward;
use relay::model::Secret;
use relay::process::hand_over;
use relay::work::egress::{Boxed, Door, Egress, Limits, Names, Traffic};
use relay_sandbox::egress::AllowList;
use relay_sandbox::parse_domains;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::PATIENCE;
use crate::support::connect::Connect;
use crate::support::house::House;

/// Names of this test, each with what every look-up of it gives, the last one for ever.
#[derive(Default)]
struct Book {
    names: BTreeMap<&'static str, Vec<IpAddr>>,
    looked_up: AtomicUsize,
}

impl Names for Book {
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        let time = self.looked_up.fetch_add(1, Ordering::SeqCst);
        let found = self.names.get(host).and_then(|all| all.get(time).or(all.last()));
        let found = found.map(|ip| vec![SocketAddr::new(*ip, port)]);
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

/// A run with a door, and a program at it.
struct Run {
    door: SocketAddr,
    /// Those that lead to one host each.
    named: Vec<SocketAddr>,
    folder: tempfile::TempDir,
    lines: Arc<Mutex<Vec<String>>>,
    book: Arc<Book>,
    stop: Arc<Notify>,
    serving: JoinHandle<((), Traffic)>,
}

impl Run {
    async fn new(listed: &str, names: &[(&'static str, &[&str])]) -> Self {
        Self::with(listed, names, Limits::default(), None).await
    }

    async fn with(
        listed: &str,
        names: &[(&'static str, &[&str])],
        limits: Limits,
        outward: Option<Outward>,
    ) -> Self {
        Self::naming(listed, names, limits, outward, &[]).await
    }

    async fn naming(
        listed: &str,
        names: &[(&'static str, &[&str])],
        limits: Limits,
        outward: Option<Outward>,
        hosts: &'static [&'static str],
    ) -> Self {
        let addresses = |all: &[&str]| all.iter().map(|ip| ip.parse().unwrap()).collect();
        let names = names.iter().map(|(name, all)| (*name, addresses(all))).collect();
        let book = Arc::new(Book { names, ..Book::default() });
        let names = Arc::clone(&book) as Arc<dyn Names>;
        let egress = Egress { names, limits, ..Egress::new("relay".into(), outward, false) };
        let folder = tempfile::tempdir().unwrap();
        let allowed = AllowList::of_lane("process:x", &parse_domains(listed).unwrap());
        let door = Door::open(folder.path().join("c.door"), allowed, &egress).unwrap();
        let door = door.naming(hosts).unwrap();
        let socket = door.folder().join("s");
        let (lines, stop) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Notify::new()));
        let (to, stopped) = (Arc::clone(&lines), Arc::clone(&stop));
        let tell = Box::new(move |line: &str| to.lock().unwrap().push(line.to_owned()));
        let serving = tokio::spawn(async move { door.beside(stopped.notified(), tell).await });
        let listen = |_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let inside: Vec<_> = (0..=hosts.len()).map(listen).collect();
        let mut named: Vec<_> = inside.iter().map(|door| door.local_addr().unwrap()).collect();
        let door = named.remove(0);
        tokio::task::spawn_blocking(move || hand_over(&socket, &inside).unwrap()).await.unwrap();
        Self { door, named, folder, lines, book, stop, serving }
    }

    /// Says something to the proxy and gives all that it answers.
    async fn say(&self, words: &str) -> String {
        let mut client = TcpStream::connect(self.door).await.unwrap();
        client.write_all(words.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The status and the words for a tunnel that comes to nothing.
    async fn refused(&self, to: &str) -> String {
        let answer = self.say(&format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        let words = answer.rsplit("\r\n\r\n").next().unwrap_or_default();
        format!("{status} {}", words.trim_end())
    }

    /// A tunnel that was opened.
    async fn tunnel(&self, to: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.door).await.unwrap();
        let ask = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        client.write_all(ask.as_bytes()).await.unwrap();
        let mut answer = [0; 19];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200 OK\r\n\r\n");
        client
    }

    async fn end(self) -> (Vec<String>, Traffic) {
        self.stop.notify_one();
        let traffic = self.serving.await.unwrap().1;
        let lines = self.lines.lock().unwrap().clone();
        (lines, traffic)
    }
}

/// A server that says back what it hears, in front of it `heard:`.
async fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = client.split();
                let _gone = to.write_all(b"heard:").await;
                let _gone = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

async fn hears(line: &mut TcpStream, words: &str) {
    line.write_all(words.as_bytes()).await.unwrap();
    let mut answer = vec![0; "heard:".len() + words.len()];
    line.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), format!("heard:{words}"));
}

#[tokio::test]
async fn a_tunnel_leads_to_a_host_that_is_listed() {
    let port = echo().await;
    let listed = format!("model.example:{port},127.0.0.1:{port}");
    let run = Run::new(&listed, &[("model.example", &["127.0.0.1"])]).await;
    for to in [format!("Model.Example.:{port}"), format!("127.0.0.1:{port}")] {
        let mut line = run.tunnel(&to).await;
        hears(&mut line, "one two").await;
        line.shutdown().await.unwrap();
        let mut rest = Vec::new();
        line.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"", "the server's end comes through");
    }
    let (lines, traffic) = run.end().await;
    assert_eq!((lines, traffic), (Vec::new(), Traffic { asked: 2, led: 2, opened: true }));
}

#[tokio::test]
async fn a_request_in_the_clear_is_made_with_the_host_that_was_looked_at() {
    let port = echo().await;
    let run = Run::new(&format!("127.0.0.1:{port}"), &[]).await;
    let mut client = TcpStream::connect(run.door).await.unwrap();
    let words = format!(
        "POST http://127.0.0.1:{port}/v1?q HTTP/1.1\r\nHost: evil.example\r\nX-Key: k\r\n\
         Proxy-Authorization: secret\r\nProxy-Connection: keep-alive\r\nContent-Length: 2\r\n\r\nhi"
    );
    client.write_all(words.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = String::new();
    client.read_to_string(&mut heard).await.unwrap();
    let expected = format!(
        "heard:POST /v1?q HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Key: k\r\n\
         Content-Length: 2\r\nConnection: close\r\n\r\nhi"
    );
    assert_eq!(heard, expected.replace("\r\n         ", "\r\n"));
}

#[tokio::test]
async fn what_is_not_listed_is_refused_by_name_and_told_once() {
    let port = echo().await;
    let run = Run::new("git.example", &[("evil.example", &["127.0.0.1"])]).await;
    let not_listed = "403 relay refuses evil.example:443: it is not on this lane's list of hosts";
    for _ in 0..3 {
        assert_eq!(run.refused("evil.example:443").await, not_listed);
    }
    assert!(run.refused(&format!("127.0.0.1:{port}")).await.starts_with("403 relay refuses 127."));
    assert!(run.refused("[::ffff:127.0.0.1]:443").await.contains("127.0.0.1:443: an address"));
    assert!(run.refused("git.example:22").await.contains("only the ports 443 and 80"));
    assert!(run.refused("2130706433:443").await.starts_with("400 "));
    let path = "GET http://evil.example/SECRET-path HTTP/1.1\r\nAuthorization: SECRET\r\n\r\n";
    assert!(run.say(path).await.starts_with("HTTP/1.1 403 "));
    assert_eq!(run.book.looked_up.load(Ordering::SeqCst), 0, "nobody was asked for these names");
    let (lines, traffic) = run.end().await;
    assert_eq!(traffic.led, 0);
    let told = lines.join("\n");
    assert!(!told.contains("SECRET"), "{told}");
    let of_evil = "   network: refused evil.example:443: it is not on this lane's list of hosts";
    assert_eq!(lines.iter().filter(|line| *line == of_evil).count(), 1, "{told}");
    assert_eq!(lines.last().unwrap(), "   network: 2 more of these: refused evil.example:443 2x");
}

#[tokio::test]
async fn a_listed_name_that_leads_into_the_house_is_refused() {
    let names: &[(&str, &[&str])] = &[
        ("here.wide.example", &["127.0.0.1"]),
        ("mapped.wide.example", &["::ffff:127.0.0.1"]),
        ("lan.wide.example", &["192.168.1.1"]),
        ("ula.wide.example", &["fd00::1"]),
        ("nat.wide.example", &["100.64.0.1"]),
        ("meta.wide.example", &["169.254.169.254"]),
        ("zero.wide.example", &["0.0.0.0"]),
    ];
    let run = Run::new("*.wide.example,meta.wide.example:8080", names).await;
    for (name, _) in names {
        let said = run.refused(&format!("{name}:443")).await;
        assert!(said.starts_with(&format!("403 relay refuses {name}:443: it is a")), "{said}");
    }
    let said = run.refused("meta.wide.example:8080").await;
    assert!(said.contains("a link-local address"), "not even where its port is named: {said}");
    assert!(run.refused("none.wide.example:443").await.starts_with("502 relay cannot reach none."));
    assert_eq!(run.end().await.1.led, 0);
}

#[tokio::test]
async fn what_is_connected_to_is_what_was_looked_at() {
    let port = echo().await;
    // Public at the first look, this machine at the second: a turned name is looked up once.
    let turned: &[(&str, &[&str])] = &[("turned.example", &["127.0.0.1", "10.0.0.1"])];
    let run = Run::new(&format!("turned.example:{port}"), turned).await;
    hears(&mut run.tunnel(&format!("turned.example:{port}")).await, "x").await;
    assert_eq!(run.book.looked_up.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn clients_that_do_not_end_are_ended() {
    let limits = Limits { head: Duration::from_millis(200), ..Limits::default() };
    let run = Run::with("git.example", &[], limits, None).await;
    assert!(run.say("CONNECT git.example:443 HTTP/1.1\r\n").await.starts_with("HTTP/1.1 408 "));
    let run = Run::new("git.example", &[]).await;
    let endless = format!("GET http://git.example/ HTTP/1.1\r\nA: {}", "a".repeat(40 << 10));
    assert!(run.say(&endless).await.starts_with("HTTP/1.1 431 "));
    assert!(run.say("\u{16}\u{3}\u{1}\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    assert!(run.say("GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn tunnels_are_counted_and_a_silent_one_ends() {
    let port = echo().await;
    let listed = format!("127.0.0.1:{port}");
    let limits = Limits { tunnels: 1, ..Limits::default() };
    let run = Run::with(&listed, &[], limits, None).await;
    let first = run.tunnel(&listed).await;
    assert!(run.refused(&listed).await.starts_with("503 "));
    drop(first);
    let taken = async {
        let ask = format!("CONNECT {listed} HTTP/1.1\r\nHost: {listed}\r\n\r\n");
        let mut start = [0; 12];
        // The place is free once the tunnel has noticed.
        while &start != b"HTTP/1.1 200" {
            let mut client = TcpStream::connect(run.door).await.unwrap();
            client.write_all(ask.as_bytes()).await.unwrap();
            client.read_exact(&mut start).await.unwrap();
        }
    };
    let taken = tokio::time::timeout(PATIENCE, taken).await;
    taken.expect("the place of a tunnel that ended was not given to another");
}

/// What comes past the places costs the worker few descriptors, however much of it there is.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn more_connections_than_places_hold_no_more_sockets_than_a_few() {
    const ALL: usize = 200;
    const PLACES: usize = 4;
    const TURNED_AWAY: usize = 16;
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let limits = Limits { tunnels: PLACES, ..Limits::default() };
    let run = Run::with("git.example", &[], limits, None).await;
    let before = open();
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..ALL {
        let mut client = TcpStream::connect(run.door).await.unwrap();
        answers.spawn(async move {
            let mut start = [0; 12];
            let said = client.read_exact(&mut start).await;
            // Kept open: it is the proxy that lets go.
            (said.is_ok_and(|_| &start == b"HTTP/1.1 503"), client)
        });
    }
    let mut clients = Vec::new();
    for _ in 0..ALL - PLACES {
        clients.push(answers.join_next().await.unwrap().unwrap());
    }
    let held = open() - before - ALL;
    assert!(held <= PLACES + TURNED_AWAY, "{held} sockets are held");
    assert!(clients.iter().any(|(told, _)| *told), "nobody was told why");
    answers.abort_all();
    drop(clients);
    let (lines, traffic) = run.end().await;
    assert_eq!((traffic.asked, traffic.led), (ALL as u64, 0));
    assert!(lines[0].ends_with("refused a connection: there are too many at a time"), "{lines:?}");
}

#[tokio::test]
async fn a_silent_tunnel_ends() {
    let port = echo().await;
    let listed = format!("127.0.0.1:{port}");
    let limits = Limits { idle: Duration::from_millis(100), ..Limits::default() };
    let run = Run::with(&listed, &[], limits, None).await;
    let mut silent = run.tunnel(&listed).await;
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).await.unwrap();
    // A machine that stood still meanwhile ends it before the other side's word came.
    assert!(rest.is_empty() || rest == b"heard:", "{rest:?}");
}

#[tokio::test]
async fn nothing_of_it_outlives_the_run() {
    let port = echo().await;
    let listed = format!("127.0.0.1:{port}");
    let run = Run::new(&listed, &[]).await;
    let mut line = run.tunnel(&listed).await;
    hears(&mut line, "x").await;
    assert_eq!(std::fs::read_dir(run.folder.path()).unwrap().count(), 0, "nobody meets twice");
    let at = run.door;
    run.end().await;
    let mut rest = Vec::new();
    let _reset = line.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
    assert!(TcpStream::connect(at).await.is_err(), "the door is shut");
}

#[tokio::test]
async fn a_door_that_nobody_came_to_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let egress = Egress::new("relay".into(), None, false);
    let open = || {
        let allowed = AllowList::of_lane("claude", &[]);
        Door::open(folder.path().join("c.door"), allowed, &egress).unwrap()
    };
    drop(open());
    let door = open();
    let told = Box::new(|line: &str| panic!("{line}"));
    assert_eq!(door.beside(async { 7 }, told).await, (7, Traffic::default()));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn this_machines_own_proxy_is_gone_through_and_its_login_told_to_nobody() {
    let port = echo().await;
    let beyond = Connect::to((Ipv4Addr::LOCALHOST, port).into());
    let outward = |except: &str| {
        let proxy = Secret::new(beyond.url("ada:SECRET"));
        Some(Outward { proxy, except: except.to_owned() })
    };
    let names: &[(&str, &[&str])] =
        &[("far.wide.example", &["1.1.1.1"]), ("lan.wide.example", &["10.0.0.1"])];
    let listed = format!("*.wide.example,127.0.0.1:{port}");
    let run = Run::with(&listed, names, Limits::default(), outward("")).await;
    hears(&mut run.tunnel("far.wide.example:443").await, "far").await;
    hears(&mut run.tunnel("only-known-beyond.wide.example:443").await, "known").await;
    let lan = run.refused("lan.wide.example:443").await;
    assert!(lan.contains("a private address"), "{lan}");
    // What is in the house is not asked of a proxy outside.
    hears(&mut run.tunnel(&format!("127.0.0.1:{port}")).await, "house").await;
    let login = "Proxy-Authorization: Basic YWRhOlNFQ1JFVA==";
    let asked = ["far.wide.example:443", "only-known-beyond.wide.example:443"]
        .map(|to| format!("CONNECT {to} HTTP/1.1|{login}"));
    assert_eq!(beyond.asked(), asked);
    beyond.refuse();
    let refused = run.refused("far.wide.example:443").await;
    assert!(refused.contains("this machine's proxy refuses with 407"), "{refused}");
    let (lines, _) = run.end().await;
    let told = format!("{} {lan} {refused}", lines.join(" "));
    assert!(!told.contains("SECRET") && !told.contains("YWRh"), "{told}");
}

/// The beginning of TLS, as a client says it to the server of this name.
fn hello(name: Option<&str>) -> Vec<u8> {
    hello_with(name, &[])
}

/// The same with more extensions.
fn hello_with(name: Option<&str>, more: &[u8]) -> Vec<u8> {
    let sized = |bytes: usize, body: &[u8]| {
        let length = (body.len() as u32).to_be_bytes();
        [&length[4 - bytes..], body].concat()
    };
    let name = name.map(|name| sized(2, &[&[0][..], &sized(2, name.as_bytes())].concat()));
    let names = name.map(|list| [vec![0, 0], sized(2, &list)].concat()).unwrap_or_default();
    let extensions = sized(2, &[&names[..], more].concat());
    let body = [&[3; 34][..], &[0, 0, 2, 19, 1, 1, 0], &extensions].concat();
    let message = [vec![1], sized(3, &body)].concat();
    [vec![22, 3, 1], sized(2, &message)].concat()
}

#[tokio::test]
async fn a_tunnel_has_tls_for_its_own_host_alone() {
    let beyond = Connect::to((Ipv4Addr::LOCALHOST, echo().await).into());
    let outward = Outward { proxy: Secret::new(beyond.url("a:b")), except: String::new() };
    let names: &[(&str, &[&str])] = &[("far.example", &["1.1.1.1"])];
    let run = Run::with("far.example", names, Limits::default(), Some(outward)).await;
    let heard = async |pieces: &[&[u8]]| {
        let mut line = run.tunnel("far.example:443").await;
        for piece in pieces {
            line.write_all(piece).await.unwrap();
        }
        let _torn = line.shutdown().await;
        let mut answer = Vec::new();
        let _torn = line.read_to_end(&mut answer).await;
        answer.strip_prefix(b"heard:").map(<[u8]>::to_vec)
    };
    let own = hello(Some("Far.Example."));
    let rest = b"\x17\x03\x03\0\x12what is enciphered";
    assert_eq!(heard(&[&own, rest]).await, Some([&own[..], rest].concat()));
    let (start, end) = own.split_at(20);
    assert_eq!(heard(&[start, end]).await, Some(own.clone()));
    let plain = b"SSH-2.0-x";
    assert_eq!(heard(&[plain]).await, Some(plain.to_vec()));
    assert_eq!(heard(&[]).await, Some(Vec::new()));
    let broken = [&[22, 3, 1, 0, 4, 1, 0, 0, 0][..], &[0; 40]].concat();
    // One that has another enciphered within (ECH, or what looks like it) is for the name outside.
    let within = [&[0xfe, 0x0d, 0, 46, 0, 0, 1, 0, 1, 7, 0, 0, 0, 36][..], &[9; 36]].concat();
    let fronted = hello_with(Some("far.example"), &within);
    assert_eq!(heard(&[&fronted, rest]).await, Some([&fronted[..], rest].concat()));
    let elsewhere = hello_with(Some("evil.example"), &within);
    for other in [elsewhere, hello_with(None, &within), broken] {
        let heard = heard(&[&other]).await.unwrap_or_default();
        assert_eq!(heard, b"", "it came through");
    }
    let (lines, _) = run.end().await;
    let said = |why: &str| format!("   network: refused far.example:443: {why}");
    let whys = [
        "its TLS asks for evil.example instead",
        "its TLS names no host",
        "its TLS cannot be read",
    ];
    assert_eq!(lines, whys.map(said));
}

/// OpenSSL goes by the name in the second.
#[tokio::test]
async fn a_second_hello_is_for_the_tunnels_own_host_as_well() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let beyond = Connect::to(server.local_addr().unwrap());
    let outward = Outward { proxy: Secret::new(beyond.url("a:b")), except: String::new() };
    let names: &[(&str, &[&str])] = &[("far.example", &["1.1.1.1"])];
    let run = Run::with("far.example", names, Limits::default(), Some(outward)).await;
    let retry = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c";
    let retry: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&retry[2 * at..2 * at + 2], 16).unwrap()).collect();
    let again = [&[22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3][..], &retry, &[0, 19, 1, 0]].concat();
    let own = hello(Some("far.example"));
    let front = &b"\x14\x03\x03\0\x01\x01\x17\x03\x03\0\x05early"[..];
    let heard = async |second: Vec<u8>, at_once: bool| {
        let mut line = run.tunnel("far.example:443").await;
        let (mut there, _) = server.accept().await.unwrap();
        let behind = [front, &second[..]].concat();
        line.write_all(&own).await.unwrap();
        if at_once {
            line.write_all(&behind).await.unwrap();
        }
        let mut first = vec![0; own.len()];
        there.read_exact(&mut first).await.unwrap();
        assert_eq!(first, own);
        there.write_all(&again).await.unwrap();
        let mut answer = vec![0; again.len()];
        line.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, again);
        if !at_once {
            line.write_all(&behind).await.unwrap();
        }
        let _torn = line.shutdown().await;
        let mut heard = Vec::new();
        let _torn = there.read_to_end(&mut heard).await;
        heard
    };
    let rest = b"\x17\x03\x03\0\x04rest";
    for at_once in [false, true] {
        let whole = [&own[..], rest].concat();
        assert_eq!(heard(whole.clone(), at_once).await, [front, &whole[..]].concat());
        for other in [hello(Some("evil.example")), hello(None)] {
            assert_eq!(heard(other, at_once).await, front);
        }
    }
    let (lines, _) = run.end().await;
    assert!(lines[0].ends_with("far.example:443: its TLS asks for evil.example instead"));
    assert!(lines[1].ends_with("far.example:443: its TLS names no host"), "{lines:?}");
}

#[tokio::test]
async fn a_connection_is_one_request_and_what_is_behind_it_goes_to_no_proxy() {
    let parent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = Secret::new(format!("http://{}", parent.local_addr().unwrap()));
    let outward = Outward { proxy, except: String::new() };
    let names: &[(&str, &[&str])] = &[("far.example", &["1.1.1.1"])];
    let run = Run::with("far.example", names, Limits::default(), Some(outward)).await;
    let second = "GET http://evil.example/secret HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for (method, headers, body) in [
        ("GET", "", ""),
        ("POST", "Content-Length: 3\r\n", "abc"),
        ("POST", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
    ] {
        let mut client = TcpStream::connect(run.door).await.unwrap();
        let first = format!("{method} http://far.example/x HTTP/1.1\r\n{headers}\r\n{body}");
        client.write_all(format!("{first}{second}").as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let (mut line, _) = parent.accept().await.unwrap();
        let mut heard = String::new();
        line.read_to_string(&mut heard).await.unwrap();
        line.write_all(b"HTTP/1.1 200 OK\r\n\r\nhi").await.unwrap();
        drop(line);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "HTTP/1.1 200 OK\r\n\r\nhi");
        let expected = format!(
            "{method} http://far.example/x HTTP/1.1\r\nHost: far.example\r\n{headers}\
             Connection: close\r\n\r\n{body}"
        );
        assert_eq!(heard, expected);
    }
    let two_ends = "POST http://far.example/ HTTP/1.1\r\nContent-Length: 3\r\n\
                    Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(run.say(two_ends).await.starts_with("HTTP/1.1 400 "));
    run.end().await;
}

#[test]
fn a_proxy_that_lanes_do_not_go_through_is_named_by_a_worker() {
    let mut house = House::new();
    house.process_lane("tidy", "true", r#"{"skip":true}"#);
    let work = ["work", "--once", "--lanes", "process:tidy"];
    house.set("HTTPS_PROXY", "http://a:SECRET@proxy.example");
    assert!(!house.relay(&work).err.contains("proxy"), "one that they go through");
    for scheme in ["socks5", "https"] {
        house.set("HTTPS_PROXY", &format!("{scheme}://a:SECRET@proxy.example"));
        let worked = house.relay(&work);
        let why = format!(
            "warning: lanes do not go through a proxy with `{scheme}://`, only with `http://`: they are \
             let out past it (hint: HTTPS_PROXY=http://HOST:PORT)"
        );
        assert!(worked.code == 0 && worked.err.contains(&why), "{worked:?}");
        assert!(!worked.err.contains("SECRET"), "{worked:?}");
    }
}

#[tokio::test]
async fn a_lane_is_told_of_the_proxy_and_of_its_own_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let env = |listed: &str, name: &str| {
        let allowed = AllowList::of_lane("claude", &parse_domains(listed).unwrap());
        let egress = Egress::new("relay".into(), None, false);
        let door = Door::open(folder.path().join("c.door"), allowed, &egress).unwrap();
        let env = door.environment();
        let value = env.into_iter().find(|(key, _)| key == name).unwrap().1;
        value.into_string().unwrap()
    };
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        assert_eq!(env("", name), "http://127.0.0.1:18123");
    }
    for name in ["NO_PROXY", "no_proxy"] {
        assert_eq!(env("", name), "localhost,127.0.0.1,::1,[::1]");
        assert_eq!(env("127.0.0.1:8901", name), "localhost,::1,[::1]");
        assert_eq!(env("localhost:8901,[::1]:80", name), "127.0.0.1");
    }
}
