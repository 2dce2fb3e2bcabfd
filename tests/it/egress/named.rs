//! Doors of one host each, as a program that asks no proxy meets them.

use std::net::SocketAddr;

use relay::client::Outward;
use relay::model::Secret;
use relay::work::egress::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Run, echo, hears};
use crate::support::connect::Connect;

const HOSTS: &[&str] = &["far.example", "other.example"];

/// What is heard at a door until its end.
async fn heard(door: SocketAddr) -> Vec<u8> {
    let mut line = TcpStream::connect(door).await.unwrap();
    // Whoever is turned away may not be listened to.
    let _gone = line.write_all(b"hello").await;
    let mut said = Vec::new();
    let _reset = line.read_to_end(&mut said).await;
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_spoken_to_at_its_door_without_a_word_of_the_proxys() {
    let beyond = Connect::to(SocketAddr::from(([127, 0, 0, 1], echo().await)));
    let outward = Outward { proxy: Secret::new(beyond.url("a:b")), except: String::new() };
    let names: &[(&str, &[&str])] =
        &[("far.example", &["1.1.1.1"]), ("other.example", &["1.1.1.1"])];
    let listed = "far.example,other.example";
    let run = Run::naming(listed, names, Limits::default(), Some(outward), HOSTS).await;
    for door in &run.named {
        let mut line = TcpStream::connect(door).await.unwrap();
        hears(&mut line, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n").await;
    }
    // The ordinary one is beside them.
    drop(run.tunnel("far.example:443").await);
    let asked: Vec<String> =
        beyond.asked().iter().map(|line| line.split('|').next().unwrap().to_owned()).collect();
    let to = |host: &str| format!("CONNECT {host}:443 HTTP/1.1");
    assert_eq!(asked, [to("far.example"), to("other.example"), to("far.example")]);
    let (lines, traffic) = run.end().await;
    assert_eq!(lines, [""; 0]);
    assert_eq!((traffic.asked, traffic.led), (3, 3));
}

#[tokio::test]
async fn what_the_list_and_the_addresses_forbid_is_forbidden_there_as_well() {
    let names: &[(&str, &[&str])] =
        &[("far.example", &["10.0.0.1"]), ("other.example", &["1.1.1.1"])];
    let run = Run::naming("far.example", names, Limits::default(), None, HOSTS).await;
    for door in &run.named {
        assert_eq!(heard(*door).await, b"", "it is closed without a word");
    }
    let (lines, traffic) = run.end().await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("   network: refused far.example:443: it is "), "{lines:?}");
    let not_listed =
        "   network: refused other.example:443: it is not on this lane's list of hosts";
    assert_eq!(lines[1], not_listed);
    assert_eq!((traffic.asked, traffic.led), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_doors_together_have_the_places_of_one() {
    let beyond = Connect::to(SocketAddr::from(([127, 0, 0, 1], echo().await)));
    let outward = Outward { proxy: Secret::new(beyond.url("a:b")), except: String::new() };
    let names: &[(&str, &[&str])] = &[("far.example", &["1.1.1.1"])];
    let limits = Limits { tunnels: 1, ..Limits::default() };
    let run = Run::naming("far.example", names, limits, Some(outward), HOSTS).await;
    let mut line = TcpStream::connect(run.named[0]).await.unwrap();
    hears(&mut line, "hello").await;
    assert_eq!(heard(run.named[1]).await, b"");
    let (lines, _) = run.end().await;
    assert_eq!(lines, ["   network: refused a connection: there are too many at a time"]);
}
