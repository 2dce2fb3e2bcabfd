//! The workers of this machine that are at work, for commands that only look: nobody is waited for
//! long, and no home is taken for it.

use std::time::Duration;

use super::context::Context;
use super::site::elsewhere;
use crate::client::{Client, Endpoint};
use crate::model::{LaneName, Worker, WorkerName, WorkerState};

/// A site that says nothing for so long is left alone.
const SOON: Duration = Duration::from_secs(2);

/// Those that are there, as their site tells; nobody where that does not answer, or may not tell.
pub(super) async fn at_work(context: &Context) -> Vec<Worker> {
    let asked = tokio::time::timeout(SOON, ask(context)).await;
    let mut workers = asked.ok().flatten().unwrap_or_default();
    let host = context.host();
    workers.retain(|worker| worker.host == host && worker.state != WorkerState::Offline);
    workers
}

async fn ask(context: &Context) -> Option<Vec<Worker>> {
    let client = match &context.config.site {
        None => Client::new(Endpoint::Unix(context.config.socket())),
        Some(site) => elsewhere(context, site),
    };
    client.ok()?.workers().await.ok()
}

/// The names of `workers`, where not one of them serves the lane.
pub(super) fn unserved(lane: &LaneName, workers: &[Worker]) -> Vec<WorkerName> {
    if workers.iter().any(|worker| worker.lanes.contains(lane)) {
        return Vec::new();
    }
    workers.iter().map(|worker| worker.name.clone()).collect()
}
