//! Clients that are slow, silent or wrong: each loses its own connection, and others are answered.

use std::time::Duration;

use relay::site::serve::Listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::net::{Net, answer};
use crate::site::fixture::until;
use crate::support::PATIENCE;

/// Time-outs in tenths of a second instead of tens of seconds.
const TICK: Duration = Duration::from_millis(25);

async fn impatient() -> Net {
    Net::open_with(|listen| Listen { tick: TICK, ..listen }).await
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let net = impatient().await;
    let mut line = net.line().await;
    let (mut read, mut write) = line.split();
    let drip = async {
        for byte in b"GET /healthz HTTP/1.1\r\nx-slow: ".iter().chain(std::iter::repeat(&b'x')) {
            if write.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(TICK / 2).await;
        }
        std::future::pending::<()>().await;
    };
    let mut rest = Vec::new();
    let ended = async { read.read_to_end(&mut rest).await };
    tokio::select! {
        ended = tokio::time::timeout(PATIENCE, ended) => drop(ended.expect("it was waited for")),
        () = drip => {}
    }
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{rest:?}");
    net.is_well().await;
    net.home.owner.close().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let net = impatient().await;
    let mut silent = net.line().await;
    let mut after = net.line().await;
    after.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is sent");
    assert_eq!(answer(&mut after).await.status, 200, "kept open after its answer, for a while");
    assert_eq!(answer(&mut silent).await.status, 0);
    net.home.owner.close().await;
}

#[tokio::test]
async fn the_homes_socket_waits_no_longer_for_its_clients_and_holds_what_is_held() {
    let net = impatient().await;
    let project = net.home.link("shop").await;
    let worker = net.home.worker("desk").await;
    let held = worker.hold(1, net.home.owner.site().bell.version());
    net.home.held(1).await;
    let line = || UnixStream::connect(net.home.owner.socket());
    let mut silent = line().await.expect("a connection");
    let mut slow = line().await.expect("a connection");
    slow.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").await.expect("it is sent");
    let mut idle = line().await.expect("a connection");
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is sent");
    for (line, answered) in [(&mut silent, false), (&mut slow, false), (&mut idle, true)] {
        let mut said = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, line.read_to_end(&mut said)).await;
        let _ = ended.expect("a client that does nothing was waited for");
        assert_eq!(said.starts_with(b"HTTP/1.1 200"), answered);
    }
    // What is held longer than any of them was waited for is held, and rings.
    assert!(!held.is_finished());
    net.home.add(&project, "claude").await;
    assert_eq!(held.await.expect("an answer").queued, 1);
    net.home.owner.close().await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up() {
    let net = impatient().await;
    let mut deaf = net.line().await;
    // More answers than every buffer on the way holds.
    let ask = format!(
        "GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        net.token
    );
    deaf.write_all(ask.repeat(400).as_bytes()).await.expect("it is sent");
    let site = net.home.owner.site();
    let open = |n: u32| {
        let line = format!("relay_connections {n}");
        site.counters().lines().any(|l| l == line)
    };
    until(|| open(1)).await;
    until(|| open(0)).await;
    drop(deaf);
    net.is_well().await;
    net.home.owner.close().await;
}

#[tokio::test]
async fn two_thousand_idle_connections_keep_nobody_out() {
    let net = Net::open().await;
    let mut idle = Vec::new();
    for _ in 0..2000 {
        match tokio::net::TcpStream::connect(net.addr).await {
            Ok(line) => idle.push(line),
            // Both ends of each are this process's.
            Err(error) if error.raw_os_error() == Some(24) => break,
            Err(error) => panic!("{error}"),
        }
        if idle.len() > 400 && few_descriptors() {
            break;
        }
    }
    assert!(idle.len() > 300, "{}", idle.len());
    drop(idle.split_off(idle.len() - 20));
    net.is_well().await;
    drop(idle);
    net.home.owner.close().await;
}

/// Where the soft limit is the usual 1,024.
fn few_descriptors() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.is_some_and(|soft| soft < 5000)
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_the_next_one_is_taken() {
    let net = Net::open_with(|listen| Listen { connections: 2, ..listen }).await;
    let (first, mut second) = (net.line().await, net.line().await);
    second.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is sent");
    let mut head = [0; 12];
    second.read_exact(&mut head).await.expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut third = net.line().await;
    let refused = answer(&mut third).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("busy")));
    assert_eq!(refused.header("retry-after"), Some("5"));
    drop((first, second));
    let taken = async {
        while net.get("/healthz").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.expect("no place was given back");
    net.home.owner.close().await;
}

#[tokio::test]
async fn what_is_no_http_ends_its_own_connection() {
    let net = impatient().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\r\n\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = net.raw(garbage).await;
        let shown = String::from_utf8_lossy(garbage);
        assert!(answer.status == 0 || (400..500).contains(&answer.status), "{shown}: {answer:?}");
        assert!(!answer.body.contains("panicked"), "{shown}: {answer:?}");
    }
    net.is_well().await;
    net.home.owner.close().await;
}

#[tokio::test]
async fn a_request_behind_another_is_answered_after_it_and_what_is_not_one_ends_the_line() {
    let net = impatient().await;
    let two = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answers = net.raw(two).await;
    assert_eq!(answers.status, 200);
    assert_eq!(answers.body.matches("HTTP/1.1 200").count(), 1, "{answers:?}");
    let then_garbage = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n\x00\x01\x02 nonsense\r\n\r\n";
    let answers = net.raw(then_garbage).await;
    assert_eq!(answers.status, 200, "{answers:?}");
    assert!(!answers.body.contains("HTTP/1.1 5"), "{answers:?}");
    net.is_well().await;
    net.home.owner.close().await;
}
#[tokio::test]
async fn a_body_that_does_not_come_is_answered_and_given_up() {
    let net = impatient().await;
    let token = net.token.clone();
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"slug\":"
    );
    let late = net.raw(head.as_bytes()).await;
    assert_eq!((late.status, late.code().as_str()), (408, "timeout"));
    net.is_well().await;
    net.home.owner.close().await;
}

#[tokio::test]
async fn a_body_shorter_than_it_was_said_to_be_stores_nothing() {
    let net = impatient().await;
    let token = net.token.clone();
    net.home.link("shop").await;
    let body = r#"{"slug":"local/shop","lane":"claude","title":"x","asked_by":"ann"}"#;
    let mut line = net.line().await;
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len() + 1
    );
    line.write_all(head.as_bytes()).await.expect("it is sent");
    line.shutdown().await.expect("the client is done");
    let answer = answer(&mut line).await;
    assert!(answer.status == 0 || answer.status == 400, "{answer:?}");
    assert_eq!(net.home.client.tasks(None).await.expect("tasks"), []);
    net.home.owner.close().await;
}

#[tokio::test]
async fn chunks_with_trailers_are_a_body_like_any_other() {
    let net = impatient().await;
    let token = net.token.clone();
    net.home.link("shop").await;
    let body = r#"{"slug":"local/shop","lane":"claude","title":"x","asked_by":"ann"}"#;
    let (first, rest) = body.split_at(10);
    let request = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\ntrailer: x-later\r\n\r\n\
         {:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\nx-later: 1\r\n\r\n",
        first.len(),
        rest.len()
    );
    let answer = net.raw(request.as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(net.home.client.tasks(None).await.expect("tasks").len(), 1);
    net.home.owner.close().await;
}
