//! An owner in a folder of its own, and workers that speak to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use relay::api::feed::HostStatus;
use relay::api::{
    ClaimRequest, CreateTask, Doorbell, DoorbellQuery, LinkProject, LogChunk, Problem,
    RegisterRequest, ReleaseRequest, StartRequest,
};
use relay::client::{Client, Endpoint, VERSION};
use relay::model::{
    Clock, ForgeKind, Lease, Project, RepoName, StopReason, Task, Timestamp, Worker,
};
use relay::site::forges::{Forges, IssueText, LocalRepository, RemoteRepository};
use relay::site::owner::{Access, Owner, OwnerConfig, Role, connect};
use relay::system::SystemIds;

use crate::support::PATIENCE;
use crate::support::clock::{CountingIds, ManualClock};

/// A home with a living owner.
pub struct Home {
    pub folder: tempfile::TempDir,
    pub clock: ManualClock,
    pub owner: Owner,
    pub client: Client,
}

impl Home {
    pub async fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::open_in(folder, ManualClock::default()).await
    }

    pub async fn open_in(folder: tempfile::TempDir, clock: ManualClock) -> Self {
        let config = config(folder.path(), Role::Work, Arc::new(clock.clone()));
        Self::open_with(folder, clock, config).await
    }

    pub async fn open_with(
        folder: tempfile::TempDir,
        clock: ManualClock,
        config: OwnerConfig,
    ) -> Self {
        let owner = match connect(config).await.expect("an owner") {
            Access::Own(owner) => *owner,
            Access::Living(other) => panic!("somebody else owns the new home: {other:?}"),
        };
        let client = client(owner.socket());
        Self { folder, clock, owner, client }
    }

    /// Closes the owner and opens the home again.
    pub async fn restart(self) -> Self {
        let Self { folder, clock, owner, client: _ } = self;
        owner.close().await;
        Self::open_in(folder, clock).await
    }

    /// Links `local/NAME` as a repository of `machine`.
    pub async fn link(&self, name: &str) -> Project {
        let request = LinkProject {
            forge: ForgeKind::Local,
            slug: format!("local/{name}").parse().expect("a slug"),
            path: Some(format!("/repositories/{name}")),
            host: "machine".to_owned(),
        };
        self.client.link(&request).await.expect("a project")
    }

    pub async fn add(&self, project: &Project, lane: &str) -> Task {
        let request = CreateTask {
            slug: project.slug.clone(),
            lane: lane.parse().expect("a lane"),
            issue: None,
            title: Some("Mend the shop".to_owned()),
            body: None,
            asked_by: "ann".to_owned(),
        };
        self.client.create_task(&request).await.expect("a task")
    }

    pub async fn worker(&self, name: &str) -> TestWorker {
        TestWorker::register(self.client.clone(), name, instance(name, 1)).await
    }

    /// Time goes by while the site is there, which looks at the clock every minute: a longer
    /// step at once is a sleep of the machine. The last moment is not looked at.
    pub async fn pass(&self, time: Duration) {
        let mut left = time;
        while left > Duration::from_secs(60) {
            self.clock.advance(Duration::from_secs(60));
            self.owner.site().timers.sweep_if_due().await.expect("a look at the clock");
            left -= Duration::from_secs(60);
        }
        self.clock.advance(left);
    }

    /// What was written is read now, so that the site does not read it by itself a moment later: what
    /// is counted from here on is only what a test asks.
    pub async fn rest(&self) {
        self.owner.site().timers.settle().await.expect("it is read");
    }

    /// Waits until so many workers hold the bell.
    pub async fn held(&self, workers: usize) {
        until(|| self.owner.site().bell.present().len() == workers).await;
    }
}

/// A worker of the machine `machine` that serves `claude` and `process:edit`.
#[derive(Clone)]
pub struct TestWorker {
    pub client: Client,
    pub worker: Worker,
    pub request: RegisterRequest,
}

impl TestWorker {
    pub async fn register(client: Client, name: &str, instance: String) -> Self {
        let request = RegisterRequest {
            name: name.parse().expect("a name"),
            instance_id: instance.parse().expect("an instance"),
            host: "machine".to_owned(),
            lanes: lanes(),
            labels: Vec::new(),
            forges: vec!["github.com".to_owned()],
            version: VERSION.to_owned(),
        };
        let worker = client.register(&request).await.expect("a worker");
        Self { client, worker, request }
    }

    pub fn query(&self, free: u32, since: i64, wait: u32) -> DoorbellQuery {
        DoorbellQuery {
            lanes: "claude,process:edit".to_owned(),
            worker_id: Some(self.worker.id.clone()),
            instance_id: Some(self.request.instance_id.clone()),
            free,
            since,
            wait,
            except: None,
            refused: None,
            limited: None,
            ending: false,
            told: None,
        }
    }

    pub async fn ring(&self, free: u32, since: i64, wait: u32) -> Doorbell {
        self.client.doorbell(&self.query(free, since, wait)).await.expect("an answer")
    }

    /// Holds the bell in the background.
    pub fn hold(&self, free: u32, since: i64) -> tokio::task::JoinHandle<Doorbell> {
        let worker = self.clone();
        tokio::spawn(async move {
            let ring = worker.ring(free, since, 300);
            tokio::time::timeout(PATIENCE, ring).await.expect("the bell never rang")
        })
    }

    pub async fn claim(&self) -> Option<relay::api::Claim> {
        let claim_id = SystemIdsText::new();
        let request = ClaimRequest {
            worker_id: self.worker.id.clone(),
            instance_id: self.request.instance_id.clone(),
            claim_id: claim_id.0.parse().expect("a claim id"),
            lanes: None,
            labels: None,
            except: Vec::new(),
        };
        self.client.claim(&request).await.expect("an answer").claim
    }

    pub async fn start(&self, lease: &Lease) -> Task {
        let request = StartRequest {
            worker_id: self.worker.id.clone(),
            epoch: lease.epoch,
            branch: "relay/claude-1".to_owned(),
        };
        self.client.start(&lease.task, &request).await.expect("it starts")
    }

    pub fn chunk(&self, lease: &Lease, offset: u64, text: &str) -> LogChunk {
        LogChunk {
            worker_id: self.worker.id.clone(),
            epoch: lease.epoch,
            offset,
            text: text.to_owned(),
        }
    }

    pub fn end(&self, lease: &Lease, reason: StopReason) -> ReleaseRequest {
        ReleaseRequest {
            worker_id: self.worker.id.clone(),
            epoch: lease.epoch,
            reason,
            pr: None,
            pr_url: None,
            summary: Some("Mended.".to_owned()),
            error: None,
            kept: None,
            usage: None,
            note: None,
        }
    }
}

/// A new id each time, as text.
struct SystemIdsText(String);

impl SystemIdsText {
    fn new() -> Self {
        Self(relay::model::Ids::uuid(&SystemIds))
    }
}

pub fn lanes() -> Vec<relay::model::LaneName> {
    ["claude", "process:edit"].iter().map(|lane| lane.parse().expect("a lane")).collect()
}

/// The `n`th instance of a worker's name.
pub fn instance(name: &str, n: u64) -> String {
    let series = name.bytes().fold(100_u16, |sum, byte| sum + u16::from(byte));
    CountingIds::nth(series, n)
}

pub fn config(home: &Path, role: Role, clock: Arc<dyn Clock>) -> OwnerConfig {
    OwnerConfig {
        home: home.join("home"),
        role,
        database: None,
        many: false,
        listen: None,
        version: VERSION.to_owned(),
        revision: relay::api::REVISION,
        clock,
        ids: Arc::new(SystemIds),
        faults: Arc::new(relay::model::NoFaults),
        forges: Arc::new(PaperForges),
        watch: None,
    }
}

pub fn client(socket: &Path) -> Client {
    Client::new(Endpoint::Unix(socket.to_owned())).expect("a client")
}

pub fn socket_of(folder: &Path) -> PathBuf {
    folder.canonicalize().expect("a folder").join("home/relay.sock")
}

/// Looks again and again, for what only another task's progress can make true.
pub async fn until(mut holds: impl FnMut() -> bool) {
    let looks = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.expect("it never came true");
}

/// Forges that are only made up: every path is a repository, and GitHub has one of each.
#[derive(Debug)]
pub struct PaperForges;

#[async_trait]
impl Forges for PaperForges {
    fn hosts(&self, _: Timestamp) -> Vec<HostStatus> {
        Vec::new()
    }

    async fn repository(&self, slug: &RepoName) -> Result<RemoteRepository, Problem> {
        Ok(RemoteRepository {
            slug: slug.clone(),
            host: "github.com".to_owned(),
            remote: format!("https://github.com/{slug}.git"),
            api_base: "https://api.github.com".to_owned(),
            default_branch: "main".to_owned(),
        })
    }

    async fn inspect(&self, path: &Path) -> Result<LocalRepository, Problem> {
        let path = path.to_str().expect("text").to_owned();
        Ok(LocalRepository { path, default_branch: "main".to_owned() })
    }

    async fn issue(&self, _: &Project, number: u64) -> Result<IssueText, Problem> {
        if number == 404 {
            return Err(Problem::new(relay::api::Code::NotFound, "no issue 404"));
        }
        Ok(IssueText { number, title: format!("Issue {number}"), body: "As filed.".to_owned() })
    }

    async fn open_issue(&self, _: &Project, title: &str, body: &str) -> Result<IssueText, Problem> {
        Ok(IssueText { number: 77, title: title.to_owned(), body: body.to_owned() })
    }
}
