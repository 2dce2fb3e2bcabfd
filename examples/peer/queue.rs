//! The scenarios that every peer has: tasks are added, drained, and started as soon as they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use relay::api::{ClaimAnswer, CreateTask, Doorbell, ReleaseAnswer, ReleaseRequest};
use relay::model::{Lease, StopReason, Task};
use serde_json::{Value, json};
use tokio::sync::{Barrier, mpsc};

use crate::line::Line;
use crate::number;
use crate::site::{Hand, LANE, Site};

/// JOBS tasks, by CONC callers, one at a time each.
pub async fn enqueue() -> anyhow::Result<Value> {
    let (jobs, callers) = (number("JOBS", 5000)?, number("CONC", 64)?);
    let site = Site::start().await?;
    site.link().await?;
    let token = site.token(&["tasks:write"], None).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let start = Arc::new(Barrier::new(callers + 1));
    let mut adding = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let mut line = Line::open(site.addr, &token).await?;
        let (next, start) = (Arc::clone(&next), Arc::clone(&start));
        adding.spawn(async move {
            start.wait().await;
            while next.fetch_add(1, Ordering::Relaxed) < jobs {
                line.post::<Task>("/tasks", &wish()?).await?;
            }
            anyhow::Ok(())
        });
    }
    start.wait().await;
    let began = Instant::now();
    while let Some(done) = adding.join_next().await {
        done??;
    }
    let secs = began.elapsed().as_secs_f64();
    site.stop().await?;
    Ok(json!({ "n": jobs, "secs": secs }))
}

/// All there is, claimed and finished by CONC workers, one at a time each.
pub async fn drain() -> anyhow::Result<Value> {
    let (jobs, callers) = (number("JOBS", 5000)?, number("CONC", 64)?);
    let site = Site::start().await?;
    let start = Arc::new(Barrier::new(callers + 1));
    let done = Arc::new(AtomicUsize::new(0));
    let mut draining = tokio::task::JoinSet::new();
    for n in 0..callers {
        let hand = site.hand(&format!("w{n}")).await?;
        let mut line = Line::open(site.addr, &hand.token).await?;
        let (start, done) = (Arc::clone(&start), Arc::clone(&done));
        draining.spawn(async move {
            start.wait().await;
            while let Some(lease) = claim(&mut line, &hand).await? {
                finish(&mut line, &hand, &lease).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(Instant::now())
        });
    }
    start.wait().await;
    let began = Instant::now();
    let mut last = began;
    while let Some(ended) = draining.join_next().await {
        last = last.max(ended??);
    }
    let secs = (last - began).as_secs_f64();
    site.stop().await?;
    let calls = done.load(Ordering::Relaxed);
    ensure!(calls == jobs, "{calls} of {jobs} tasks were claimed");
    Ok(json!({ "n": jobs, "secs": secs, "calls": calls }))
}

/// SAMPLES times one task for one worker that holds the doorbell: from before it is added to the
/// moment the worker has its claim.
pub async fn latency() -> anyhow::Result<Value> {
    let (samples, gap) = (number("SAMPLES", 200)?, number("GAP_MS", 20)?);
    let site = Site::start().await?;
    site.link().await?;
    let token = site.token(&["tasks:write"], None).await?;
    let hand = site.hand("w").await?;
    let (mut worker, mut person) =
        (Line::open(site.addr, &hand.token).await?, Line::open(site.addr, &token).await?);
    let (began, mut starts) = mpsc::unbounded_channel();
    let work = tokio::spawn(async move {
        let mut since = 0;
        loop {
            let bell: Doorbell = worker.get(&hand.doorbell(1, since)).await?;
            since = bell.version;
            while let Some(lease) = claim(&mut worker, &hand).await? {
                let now = Instant::now();
                let more = began.send(now).is_ok();
                finish(&mut worker, &hand, &lease).await?;
                if !more {
                    return anyhow::Ok(());
                }
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut lat = Vec::with_capacity(samples);
    for n in 0..samples {
        let gap = u64::try_from(gap + gap * (n * 7919 % 1000) / 1000)?;
        tokio::time::sleep(Duration::from_millis(gap)).await;
        let asked = Instant::now();
        person.post::<Task>("/tasks", &wish()?).await?;
        let start = starts.recv().await.context("the worker ended")?;
        lat.push((start - asked).as_secs_f64() * 1000.0);
    }
    work.abort();
    site.stop().await?;
    Ok(json!({ "lat": lat }))
}

async fn claim(line: &mut Line, hand: &Hand) -> anyhow::Result<Option<Lease>> {
    let answer: ClaimAnswer = line.post("/work/claim", &hand.claim()?).await?;
    Ok(answer.claim.map(|claim| claim.lease))
}

async fn finish(line: &mut Line, hand: &Hand, lease: &Lease) -> anyhow::Result<()> {
    let path = format!("/work/local/bench%23{}/release", lease.task.number);
    let end = ReleaseRequest {
        worker_id: hand.worker.id.clone(),
        epoch: lease.epoch,
        reason: StopReason::Skipped,
        pr: None,
        pr_url: None,
        summary: None,
        error: None,
        kept: None,
        usage: None,
        note: None,
    };
    line.post::<ReleaseAnswer>(&path, &end).await.map(|_| ())
}

/// About 200 bytes, as the other peers' jobs.
pub fn wish() -> anyhow::Result<CreateTask> {
    Ok(CreateTask {
        slug: "local/bench".parse()?,
        lane: LANE.parse()?,
        issue: None,
        title: Some("Mend it".to_owned()),
        body: Some("x".repeat(180)),
        asked_by: "bench".to_owned(),
    })
}
