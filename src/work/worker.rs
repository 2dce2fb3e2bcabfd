//! A worker: what it is, how it introduces itself to its site, and how it takes its leave.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::courier::Courier;
use super::ended::WorkError;
use super::found::Found;
use super::heartbeat::{Heartbeat, Held};
use super::job::Context;
use super::limits::Limits;
use super::persist::{Patience, persistently};
use super::prune;
use super::stop::Shutdown;
use crate::api::RegisterRequest;
use crate::client::{Client, ClientError};
use crate::model::{
    self, Clock, Ids, InstanceId, Label, LaneName, Orders, Passage, StopReason, WorkerId,
    WorkerName, fault,
};

mod rounds;

use self::rounds::Rounds;

/// How long the site is asked again after an answer was lost: to register, and for a claim before
/// the loop goes back to the bell.
const PATIENCE: Patience = Patience::For(Duration::from_secs(60));
/// How long the last word to the site may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a worker is and serves.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Its name.
    pub name: WorkerName,
    /// The machine.
    pub host: String,
    /// What it serves.
    pub lanes: Vec<LaneName>,
    /// What it advertises.
    pub labels: Vec<Label>,
    /// Hosts of the forges it can push to.
    pub forges: Vec<String>,
    /// How many jobs at a time.
    pub jobs: usize,
    /// How many of them of one lane or repository.
    pub limits: Limits,
    /// The first wait of the ramp (`--interval`).
    pub interval: Duration,
    /// The longest wait, and how long the bell is held (`--max-interval`).
    pub max_interval: Duration,
    /// Drains the queue by claims alone and ends (`--once`).
    pub once: bool,
    /// relay's version.
    pub version: String,
}

impl WorkerConfig {
    fn introduction(&self, instance: &InstanceId, lanes: Vec<LaneName>) -> RegisterRequest {
        RegisterRequest {
            name: self.name.clone(),
            instance_id: instance.clone(),
            host: self.host.clone(),
            lanes,
            labels: self.labels.clone(),
            forges: self.forges.clone(),
            version: self.version.clone(),
        }
    }
}

/// A worker, ready to run. `shared` is put together by the caller once the worker's id is known.
pub struct Worker {
    config: WorkerConfig,
    client: Client,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    id: WorkerId,
    instance: InstanceId,
    /// What people had told it before it started.
    orders: Orders,
}

impl Worker {
    /// Registers with the site. A new instance of a name ends the leases of the one before, so what
    /// that one left for the site is handed in first.
    ///
    /// # Errors
    /// When there are no lanes, or the site does not take it.
    pub async fn register(
        config: WorkerConfig,
        client: Client,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        left: &Courier,
    ) -> Result<Self, WorkError> {
        if config.lanes.is_empty() {
            return Err(WorkError::NoLanes);
        }
        let refused = |source| WorkError::Register { name: config.name.clone(), source };
        left.at_start().await.map_err(refused)?;
        let instance: InstanceId = ids.uuid().parse()?;
        let request = config.introduction(&instance, config.lanes.clone());
        let worker = persistently(&*clock, &*ids, PATIENCE, || introduced(&client, &request))
            .await
            .and_then(|answer| answer)
            .map_err(refused)?;
        Ok(Self { id: worker.id, orders: worker.orders, config, client, clock, ids, instance })
    }

    fn introduction(&self, lanes: Vec<LaneName>) -> RegisterRequest {
        self.config.introduction(&self.instance, lanes)
    }

    /// The id the site gave.
    #[must_use]
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// Runs until it is told to end, or has drained the queue with `once`. What is `found` while it
    /// runs it takes up.
    ///
    /// # Errors
    /// When it was replaced, or can no longer claim safely. Its jobs were stopped then.
    pub async fn run(
        self,
        shared: Arc<Context>,
        courier: Courier,
        shutdown: Shutdown,
        found: mpsc::Receiver<Found>,
    ) -> Result<(), WorkError> {
        shared.observer.registered(&self.id, &listed(&self.config.lanes));
        let held = Held::default();
        let faults = Arc::clone(&shared.faults);
        let heartbeat = Heartbeat {
            client: self.client.clone(),
            worker: self.id.clone(),
            instance: self.instance.clone(),
            interval: self.config.max_interval,
        };
        let beating = tokio::spawn(heartbeat.clone().run(
            held.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.ids),
        ));
        let handing_in = tokio::spawn(courier.beside());
        let pruning = tokio::spawn(prune::daily(Arc::clone(&shared)));
        let mut rounds = Rounds::new(&self, shared, held, heartbeat.clone(), &shutdown);
        let ended = rounds.run(&shutdown, found).await;
        if let Err(error) = &ended {
            // What a job has for a site that refuses the token is kept for the next one.
            let barred = matches!(error, WorkError::Barred { .. });
            let reason = if barred { StopReason::WorkerStopped } else { StopReason::LeaseLost };
            rounds.stop_jobs(&reason).await;
        }
        drop(rounds);
        beating.abort();
        pruning.abort();
        handing_in.abort();
        if !matches!(ended, Err(WorkError::Replaced(_) | WorkError::Barred { .. })) {
            let leaving = tokio::time::timeout(FAREWELL, heartbeat.offline());
            if let Ok(Err(error)) = fault::pass(&*faults, Passage::Offline, leaving).await {
                tracing::debug!(%error, "the site was not told that the worker goes");
            }
        }
        ended
    }
}

/// A site without TLS has none a minute later: what is wrong is its address, and that is the answer.
async fn introduced(
    client: &Client,
    request: &RegisterRequest,
) -> Result<Result<model::Worker, ClientError>, ClientError> {
    match client.register(request).await {
        Err(error @ ClientError::NoTls { .. }) => Ok(Err(error)),
        answer => answer.map(Ok),
    }
}

fn listed(lanes: &[LaneName]) -> String {
    lanes.iter().map(LaneName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::system::SystemIds;

    /// What is no failure of a call is not tried again.
    #[tokio::test]
    async fn a_site_without_tls_is_asked_once_and_that_is_its_answer() {
        let site = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", site.local_addr().unwrap());
        let client = Client::new(url.parse().unwrap()).unwrap();
        let request = RegisterRequest {
            name: "desk".parse().unwrap(),
            instance_id: SystemIds.uuid().parse().unwrap(),
            host: "desk".to_owned(),
            lanes: Vec::new(),
            labels: Vec::new(),
            forges: Vec::new(),
            version: "0".to_owned(),
        };
        let in_the_clear = async {
            let (mut line, _) = site.accept().await.unwrap();
            line.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            line
        };
        let (answer, _line) = tokio::join!(introduced(&client, &request), in_the_clear);
        assert!(matches!(answer, Ok(Err(ClientError::NoTls { .. }))), "{answer:?}");
    }
}
