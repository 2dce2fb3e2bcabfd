//! What only relay has: doorbells that are held, and doorbells that are answered at once.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use relay::api::{ClaimAnswer, Doorbell};
use relay::model::Task;
use serde_json::{Value, json};

use crate::line::Line;
use crate::number;
use crate::queue::wish;
use crate::site::Site;

/// HELD doorbells, each of a worker of its own; then one task. How large the site has become, how
/// many were answered, and how many claims they made.
pub async fn held() -> anyhow::Result<Value> {
    let count = number("HELD", 10_000)?;
    let site = Site::start().await?;
    site.link().await?;
    let token = site.token(&["tasks:write"], None).await?;
    let empty = resident(site.pid())?;
    let (rings, claims, got) = (counter(), counter(), counter());
    let mut holding = tokio::task::JoinSet::new();
    let names: Vec<String> = (0..count).map(|n| format!("w{n}")).collect();
    let mut hands = Vec::with_capacity(count);
    for some in names.chunks(32) {
        hands.extend(try_join_all(some.iter().map(|name| site.hand(name))).await?);
    }
    for hand in hands {
        let mut line = Line::open(site.addr, &hand.token).await?;
        let (rings, claims, got) = (Arc::clone(&rings), Arc::clone(&claims), Arc::clone(&got));
        holding.spawn(async move {
            let _: Doorbell = line.get(&hand.doorbell(1, 0)).await?;
            rings.fetch_add(1, Ordering::Relaxed);
            let answer: ClaimAnswer = line.post("/work/claim", &hand.claim()?).await?;
            claims.fetch_add(1, Ordering::Relaxed);
            got.fetch_add(usize::from(answer.claim.is_some()), Ordering::Relaxed);
            anyhow::Ok(())
        });
    }
    // By then each held answer has begun with its first blank.
    tokio::time::sleep(Duration::from_secs(22)).await;
    let full = resident(site.pid())?;
    let early = rings.load(Ordering::Relaxed);
    Line::open(site.addr, &token).await?.post::<Task>("/tasks", &wish()?).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let now = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let answer = json!({
        "held": count, "early": early, "rings": now(&rings), "claims": now(&claims),
        "got": now(&got), "rss_mib": full, "empty_rss_mib": empty,
        "after_rss_mib": resident(site.pid())?,
    });
    holding.abort_all();
    site.stop().await?;
    Ok(answer)
}

/// A site whose doorbell another program measures: says where, and ends with its input.
pub async fn doorbell() -> anyhow::Result<Value> {
    let site = Site::start().await?;
    site.link().await?;
    let hand = site.hand("w").await?;
    let path = hand.doorbell(1, 0).replace("&wait=300", "&wait=0");
    let url = format!("http://{}/api/v1{path}", site.addr);
    println!("{}", json!({ "url": url, "token": hand.token }));
    until_told().await?;
    site.stop().await?;
    Ok(json!({}))
}

/// A bare server of the same library that answers a constant, to be measured in the same way.
pub async fn hello() -> anyhow::Result<Value> {
    let constant = axum::routing::get(|| async { r#"{"hello":"world"}"# });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    println!("{}", json!({ "url": url, "token": "none" }));
    let router = axum::Router::new().route("/", constant);
    tokio::select! {
        ended = async { axum::serve(listener, router).await } => ended?,
        ended = until_told() => ended?,
    }
    Ok(json!({}))
}

async fn until_told() -> anyhow::Result<()> {
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn counter() -> Arc<AtomicUsize> {
    Arc::default()
}

/// VmRSS in MiB.
fn resident(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
