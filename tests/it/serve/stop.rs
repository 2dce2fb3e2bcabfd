//! A site that is told to stop: held requests are answered, new ones are not taken.

use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::net::Net;
use crate::site::fixture::until;

/// Sooner than a connection ends that nobody uses.
const SOON: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_stopping_site_ends_idle_connections_and_takes_none() {
    let net = Net::open().await;
    let mut idle = net.line().await;
    net.is_well().await;
    let addr = net.addr;
    net.home.owner.site().stopping.cancel();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(SOON, idle.read_to_end(&mut rest)).await;
    assert!(ended.expect("it was kept").is_ok() && rest.is_empty());
    net.home.owner.close().await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_held_doorbell_and_a_follower_are_answered_when_the_site_stops() {
    let net = Net::open().await;
    let project = net.home.link("shop").await;
    let task = net.home.add(&project, "claude").await;
    let site = std::sync::Arc::clone(net.home.owner.site());
    let number = task.id.number;
    let (bell, log) = (
        format!("/api/v1/work/doorbell?lanes=codex&wait=300&since={}", site.bell.version()),
        format!("/api/v1/tasks/local/shop%23{number}/log?wait=60"),
    );
    let net = std::sync::Arc::new(net);
    let ask = |path: String| {
        let net = std::sync::Arc::clone(&net);
        tokio::spawn(async move { net.admin("GET", &path, "").await })
    };
    let (bell, log) = (ask(bell), ask(log));
    until(|| site.counters().lines().any(|line| line == "relay_connections 2")).await;
    // Both are held: neither a task of another lane nor an empty log lets them go.
    assert!(!bell.is_finished() && !log.is_finished());
    site.stopping.cancel();
    site.bell.close();
    site.closing.cancel();
    let bell = bell.await.expect("an answer");
    assert_eq!(bell.status, 200, "{bell:?}");
    assert!(bell.json()["version"].is_i64(), "{bell:?}");
    assert_eq!(log.await.expect("an answer").status, 200);
    let net = std::sync::Arc::into_inner(net).expect("nobody else asks");
    net.home.owner.close().await;
}
