//! The site's API as functions, over HTTP: a URL or a unix socket. One function a route.
//!
//! Architecture invariant: a worker and a command reach tasks only through here.

mod endpoint;
mod error;
mod tokens;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use endpoint::{Endpoint, EndpointError, Outward};
pub use error::ClientError;

use transport::{Transport, WORK_TIMEOUT};

use crate::api::route::{self, PREFIX, project_path, task_path, worker_path};
use crate::api::{
    CancelRequest, ClaimAnswer, ClaimRequest, CreateTask, Doorbell, DoorbellQuery, EventsAnswer,
    EventsQuery, HealthAnswer, HeartbeatAnswer, HeartbeatRequest, LinkProject, LocalPull,
    LogAnswer, LogChunk, LogQuery, LogTaken, OpenLocalPull, OrderRequest, PreferRequest,
    Preferences, Projects, REVISION, RecordRequest, RegisterRequest, ReleaseAnswer, ReleaseRequest,
    SetDone, StartRequest, StatusAnswer, TaskDetail, Tasks, TasksQuery, Workers,
};
use crate::model::{
    Event, LeaseRef, Preference, Project, RepoName, Secret, Task, TaskId, TaskState, Worker,
    WorkerId,
};

/// This program's version, as it is sent with every request and compared with the site's.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Is told how each request went, so that one place knows how it stands with the site.
pub trait Reach: fmt::Debug + Send + Sync {
    /// The site answered a request for `route`.
    fn answered(&self, route: &str);
    /// It refused that, or it, or the way to it, failed.
    fn failed(&self, route: &str, error: &ClientError);
}

/// A site, as functions. Cheap to clone; clones share their connections.
///
/// Each request has a time-out. Reads that are not held are sent once more where the connection
/// broke; writes are sent once, and [`ClientError::is_passing`] tells a caller whether to repeat one.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// Makes a client of `endpoint`; nothing is sent yet.
    ///
    /// # Errors
    /// [`ClientError::Setup`] where the machine has no certificates for `https`, or a socket's
    /// path is too long for the system.
    pub fn new(endpoint: Endpoint) -> Result<Self, ClientError> {
        Self::of_version(endpoint, VERSION)
    }

    /// The same, where the network may be left through a proxy alone.
    ///
    /// # Errors
    /// As [`Client::new`], and where the proxy's URL is none.
    pub fn outward(endpoint: Endpoint, outward: Option<&Outward>) -> Result<Self, ClientError> {
        Ok(Self { transport: Transport::new(endpoint, VERSION, REVISION, outward)? })
    }

    /// A client that says it is of another version.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn of_version(endpoint: Endpoint, version: &str) -> Result<Self, ClientError> {
        Self::of_revision(endpoint, version, REVISION)
    }

    /// A client that says it speaks another revision of the API.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn of_revision(
        endpoint: Endpoint,
        version: &str,
        revision: u32,
    ) -> Result<Self, ClientError> {
        Ok(Self { transport: Transport::new(endpoint, version, revision, None)? })
    }

    /// The same client with a token, which is shown with each request and in no message.
    #[must_use]
    pub fn with_token(mut self, token: Secret) -> Self {
        self.transport.token = Some(token);
        self
    }

    /// The same client with somebody who is told how each request went.
    #[must_use]
    pub fn watched(mut self, reach: Arc<dyn Reach>) -> Self {
        self.transport.reach = Some(reach);
        self
    }

    /// Where the site is, for a person and for what is kept for it.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.transport.endpoint()
    }

    /// Registers a worker; its id is stable for its name. A new instance ends the old one's leases.
    pub async fn register(&self, request: &RegisterRequest) -> Result<Worker, ClientError> {
        self.say(&plain(route::WORKERS), request).await
    }

    /// Renews the leases named, and is answered for each.
    pub async fn heartbeat(
        &self,
        worker: &WorkerId,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatAnswer, ClientError> {
        self.say(&worker_path(route::HEARTBEAT, worker), request).await
    }

    /// Tells a worker to pause, to go on or to end; answers how it stands then. May be repeated.
    pub async fn order(&self, request: &OrderRequest) -> Result<Worker, ClientError> {
        self.transport.post(&plain(route::ORDERS), request).await
    }

    /// Reads the doorbell, held for `query.wait` seconds.
    pub async fn doorbell(&self, query: &DoorbellQuery) -> Result<Doorbell, ClientError> {
        self.transport.get(&plain(route::DOORBELL), query, seconds(query.wait)).await
    }

    /// Leases the oldest task that fits. May be repeated with the same claim id.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<ClaimAnswer, ClientError> {
        self.say(&plain(route::CLAIM), request).await
    }

    /// The lane starts now. May be repeated.
    pub async fn start(&self, task: &TaskId, request: &StartRequest) -> Result<Task, ClientError> {
        self.say(&task_path(route::START, task), request).await
    }

    /// Writes an effect into the run's journal. May be repeated.
    pub async fn record(&self, task: &TaskId, request: &RecordRequest) -> Result<(), ClientError> {
        self.say(&task_path(route::RECORD, task), request).await
    }

    /// Appends to the run's log; answers its end. May be repeated with the same offset.
    pub async fn log(&self, task: &TaskId, chunk: &LogChunk) -> Result<LogTaken, ClientError> {
        self.say(&task_path(route::LOG, task), chunk).await
    }

    /// Ends the run and gives the lease up. May be repeated.
    pub async fn release(
        &self,
        lease: &LeaseRef,
        request: &ReleaseRequest,
    ) -> Result<ReleaseAnswer, ClientError> {
        self.say(&task_path(route::RELEASE, &lease.task), request).await
    }

    /// Opens the pull request of a local repository, or brings it up to date.
    pub async fn open_local_pull(
        &self,
        slug: &RepoName,
        request: &OpenLocalPull,
    ) -> Result<LocalPull, ClientError> {
        self.transport.post(&project_path(route::LOCAL_PULLS, slug), request).await
    }

    /// Every worker that ever registered.
    pub async fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        Ok(self.read::<_, Workers>(route::WORKERS, &NOTHING).await?.workers)
    }

    /// Tasks, newest first.
    pub async fn tasks(&self, state: Option<TaskState>) -> Result<Vec<Task>, ClientError> {
        let query = TasksQuery { state, lines: false };
        Ok(self.read::<_, Tasks>(route::TASKS, &query).await?.tasks)
    }

    /// The same for a list: without their texts, and with short titles.
    pub async fn task_lines(&self, state: Option<TaskState>) -> Result<Vec<Task>, ClientError> {
        let query = TasksQuery { state, lines: true };
        Ok(self.read::<_, Tasks>(route::TASKS, &query).await?.tasks)
    }

    /// One task with its runs, its effects and why it waits.
    pub async fn task(&self, id: &TaskId) -> Result<TaskDetail, ClientError> {
        self.transport.get(&task_path(route::TASK, id), &NOTHING, Duration::ZERO).await
    }

    /// A piece of a run's log, held for `query.wait` seconds where there is nothing new.
    pub async fn task_log(&self, id: &TaskId, query: &LogQuery) -> Result<LogAnswer, ClientError> {
        self.transport.get(&task_path(route::TASK_LOG, id), query, seconds(query.wait)).await
    }

    /// Makes a task, or gives the one that is there already.
    pub async fn create_task(&self, request: &CreateTask) -> Result<Task, ClientError> {
        self.transport.post(&plain(route::TASKS), request).await
    }

    /// Calls a task off.
    pub async fn cancel(&self, id: &TaskId, by: &str) -> Result<Task, ClientError> {
        let request = CancelRequest { by: by.to_owned() };
        self.transport.post(&task_path(route::TASK_CANCEL, id), &request).await
    }

    /// Queues a task again.
    pub async fn retry(&self, id: &TaskId, by: &str) -> Result<Task, ClientError> {
        let request = SetDone { by: by.to_owned() };
        self.transport.post(&task_path(route::TASK_RETRY, id), &request).await
    }

    /// Ends a task by hand.
    pub async fn done(&self, id: &TaskId, by: &str) -> Result<Task, ClientError> {
        let request = SetDone { by: by.to_owned() };
        self.transport.post(&task_path(route::TASK_DONE, id), &request).await
    }

    /// Links a repository. Linking it again brings it up to date.
    pub async fn link(&self, request: &LinkProject) -> Result<Project, ClientError> {
        self.transport.post(&plain(route::PROJECTS), request).await
    }

    /// Every linked repository.
    pub async fn projects(&self) -> Result<Vec<Project>, ClientError> {
        Ok(self.read::<_, Projects>(route::PROJECTS, &NOTHING).await?.projects)
    }

    /// One linked repository.
    pub async fn project(&self, slug: &RepoName) -> Result<Project, ClientError> {
        self.transport.get(&project_path(route::PROJECT, slug), &NOTHING, Duration::ZERO).await
    }

    /// What happened after `query.after`, oldest first.
    pub async fn events(&self, query: &EventsQuery) -> Result<Vec<Event>, ClientError> {
        Ok(self.read::<_, EventsAnswer>(route::EVENTS, query).await?.events)
    }

    /// Sets a preference, or takes it away; answers all of them.
    pub async fn prefer(&self, request: &PreferRequest) -> Result<Vec<Preference>, ClientError> {
        let answer: Preferences = self.transport.post(&plain(route::PREFERENCES), request).await?;
        Ok(answer.preferences)
    }

    /// Every preference, widest first.
    pub async fn preferences(&self) -> Result<Vec<Preference>, ClientError> {
        Ok(self.read::<_, Preferences>(route::PREFERENCES, &NOTHING).await?.preferences)
    }

    /// The site's version, process and forges.
    pub async fn status(&self) -> Result<StatusAnswer, ClientError> {
        self.read(route::STATUS, &NOTHING).await
    }

    /// The site's database, read through.
    pub async fn health(&self) -> Result<HealthAnswer, ClientError> {
        self.read(route::HEALTH, &NOTHING).await
    }

    /// A worker's write.
    async fn say<B: serde::Serialize + Sync, A: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<A, ClientError> {
        self.transport.post_within(WORK_TIMEOUT, path, body).await
    }

    async fn read<Q: serde::Serialize + Sync, A: serde::de::DeserializeOwned>(
        &self,
        template: &str,
        query: &Q,
    ) -> Result<A, ClientError> {
        self.transport.get(&plain(template), query, Duration::ZERO).await
    }
}

/// A query without anything in it.
const NOTHING: serde_json::Value = serde_json::Value::Null;

fn plain(template: &str) -> String {
    format!("{PREFIX}{template}")
}

fn seconds(wait: u32) -> Duration {
    Duration::from_secs(u64::from(wait))
}
