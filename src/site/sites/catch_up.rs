//! What a site does for what other sites did: for what it was told, and where it may have missed
//! something for everything.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::Notice;
use super::line::Letter;
use crate::model::{InstanceId, LeaseRef, WorkerId};
use crate::queue::QueueError;
use crate::site::state::Site;

/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often it is written down who was heard of: a worker counts as idle after two minutes of
/// silence.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// What came over the line.
#[derive(Debug)]
pub(super) enum Heard {
    /// A letter.
    Letter(String),
    /// The line was broken: what was told meanwhile was not heard.
    Gap,
    /// A look round; whether anything differs from the one before, told or not.
    Beat { changed: bool },
}

/// Takes up what was heard, in its order.
pub(super) async fn take_on(site: &Site, me: &str, mut hearing: UnboundedReceiver<Heard>) {
    let mut written = site.clock.uptime();
    while let Some(heard) = hearing.recv().await {
        match heard {
            Heard::Letter(text) => match serde_json::from_str::<Letter>(&text) {
                Ok(letter) if letter.from == me => {}
                Ok(letter) => {
                    site.queue.written_elsewhere();
                    for notice in letter.news {
                        if let Err(error) = take(site, notice).await {
                            tracing::warn!(%error, "what another site told was not taken up; reading everything");
                            everything(site).await;
                        }
                    }
                }
                // Of a newer relay: what it means is not known.
                Err(_) => missed(site).await,
            },
            Heard::Gap => missed(site).await,
            Heard::Beat { changed } => {
                let now = site.clock.uptime();
                if now.saturating_sub(written) >= WRITE_EVERY {
                    written = now;
                    write_heard(site).await;
                }
                if changed {
                    everything(site).await;
                }
                site.sites.looks.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// Does for another site's change what is done for one of its own.
async fn take(site: &Site, notice: Notice) -> Result<(), QueueError> {
    match notice {
        Notice::Changed => site.timers.heard(),
        Notice::Claimed { task, until } => {
            if site.bell.taken(&task) {
                site.timers.reread();
            }
            site.timers.no_later_than(until);
        }
        Notice::Released { worker, lease, parked } => {
            site.logs.ended(&lease);
            site.bell.settled(&worker, &lease);
            site.bell.moved();
            if let Some(at) = parked {
                site.timers.no_later_than(at);
            }
        }
        Notice::Revoked { worker, lease } => end(site, &worker, lease),
        Notice::Registered { worker, instance, ended } => {
            meet(site, &worker, instance, &ended).await?;
        }
        Notice::Left { worker } => {
            site.queue.forget(&worker);
            site.bell.left(&worker);
        }
        Notice::LeavesOut { worker, left } => {
            let _is_news = site.queue.leaves_out(&worker, left);
        }
        Notice::Ordered { worker } => site.reread_order(&worker).await?,
        Notice::Tokens => site.reread().await?,
        Notice::Linked => site.linked.notify_one(),
    }
    Ok(())
}

/// A lease was called off. Its holder is told here where it was ever met here; elsewhere there is
/// nobody to tell, and its heartbeat tells it wherever it goes.
fn end(site: &Site, worker: &WorkerId, lease: LeaseRef) {
    site.logs.ended(&lease);
    if site.bell.knows(worker, None).is_some() {
        site.bell.revoke(worker, lease);
    }
}

/// Another instance of a worker lives, and `ended` are the leases of the one before. What that one
/// left out is forgotten as at the site that it registered with: its first word there is no news.
async fn meet(
    site: &Site,
    worker: &WorkerId,
    instance: InstanceId,
    ended: &[LeaseRef],
) -> Result<(), QueueError> {
    site.queue.forget(worker);
    for lease in ended {
        site.logs.ended(lease);
    }
    let written = site.orders.written();
    if site.bell.knows(worker, None).is_some()
        && let Some(known) = site.queue.worker(worker).await?
    {
        site.registered(&known, Some(instance), ended, written).await?;
    }
    Ok(())
}

/// Something was told that was not heard: what is in no database is forgotten, the rest read anew.
async fn missed(site: &Site) {
    site.queue.forget_left_out(&site.bell.present());
    everything(site).await;
}

/// Reads everything anew, and goes on trying where the database is away.
async fn everything(site: &Site) {
    site.queue.written_elsewhere();
    while let Err(error) = read(site).await {
        tracing::warn!(%error, "what other sites changed cannot be read; trying again in a second");
        tokio::time::sleep(PAUSE).await;
    }
    site.timers.heard();
}

async fn read(site: &Site) -> Result<(), QueueError> {
    site.reread().await?;
    let instances = site.queue.instances().await?;
    let workers: Vec<WorkerId> = instances.iter().map(|(worker, _)| worker.clone()).collect();
    for (worker, instance) in instances {
        if site.bell.knows(&worker, Some(&instance)) == Some(false) {
            meet(site, &worker, instance, &[]).await?;
        }
    }
    site.reread_orders(&workers).await?;
    // Taken before the database is asked: what it does not say of these has ended.
    let believed = site.logs.believed();
    let living = site.queue.live_leases().await?;
    for (worker, lease) in believed {
        if !living.contains(&lease) {
            end(site, &worker, lease);
        }
    }
    Ok(())
}

/// Workers that wait here are not silent at the other sites.
async fn write_heard(site: &Site) {
    let mut heard = site.sites.take_heard();
    heard.extend(site.bell.present());
    let heard: Vec<WorkerId> = heard.into_iter().collect();
    if let Err(error) = site.queue.write_heard(&heard).await {
        tracing::warn!(%error, "which workers wait here was not written down");
    }
}
