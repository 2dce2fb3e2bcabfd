//! The worker's routes: seed 002, "The protocol", under the rules of DESIGN §2 and §3.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{
    ClaimId, Effect, Epoch, InstanceId, Label, LaneName, Lease, LeaseRef, Order, Orders, Project,
    RepoName, RunId, RunPreferences, StopReason, Task, Timestamp, Usage, Worker, WorkerId,
    WorkerName,
};

/// `POST /workers`. The answer is the [`crate::model::Worker`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// What the worker is called; its id is stable for it.
    pub name: WorkerName,
    /// This start of the worker. A new one ends the leases of the one before at once.
    pub instance_id: InstanceId,
    /// The machine.
    pub host: String,
    /// What it serves.
    pub lanes: Vec<LaneName>,
    /// What it advertises.
    pub labels: Vec<Label>,
    /// Hosts of the forges it can push to.
    pub forges: Vec<String>,
    /// The version of relay it runs.
    pub version: String,
}

/// `GET /workers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workers {
    /// Every worker that ever registered.
    pub workers: Vec<Worker>,
}

/// `POST /workers/{id}/heartbeat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// Which start of the worker speaks.
    pub instance_id: InstanceId,
    /// Set to true when the worker goes.
    #[serde(default)]
    pub offline: bool,
    /// How often it checks in.
    #[serde(default)]
    pub interval_ms: Option<u64>,
    /// The leases it believes it holds; each is renewed and answered.
    #[serde(default)]
    pub leases: Vec<LeaseRef>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatAnswer {
    /// One for each lease named, in the same order.
    pub leases: Vec<LeaseAnswer>,
    /// What people told the worker, where the site knows.
    #[serde(default)]
    pub orders: Option<Orders>,
}

/// What became of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum LeaseAnswer {
    /// Live until then.
    Renewed {
        /// On the site's clock.
        expires_at: Timestamp,
    },
    /// Not the worker's any more.
    Lost {
        /// Why, where the site knows: `cancelled` or `lease_lost`.
        reason: StopReason,
    },
}

/// `GET /work/doorbell`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DoorbellQuery {
    /// Comma-separated lanes the worker would take now.
    pub lanes: String,
    /// Who asks. Without it the reader only looks and takes no wake.
    #[serde(default)]
    pub worker_id: Option<WorkerId>,
    /// Which start of the worker asks.
    #[serde(default)]
    pub instance_id: Option<InstanceId>,
    /// Free slots; zero still hears of revoked leases.
    #[serde(default)]
    pub free: u32,
    /// The version last seen.
    #[serde(default)]
    pub since: i64,
    /// How long the answer may be held, in seconds, at most 300.
    #[serde(default)]
    pub wait: u32,
    /// Comma-separated repositories of which the worker would take nothing now.
    #[serde(default)]
    pub except: Option<String>,
    /// Comma-separated lanes that the worker serves and that are not among `lanes` since their
    /// vendor refused the login.
    #[serde(default)]
    pub refused: Option<String>,
    /// Comma-separated lanes that the worker serves and that are not among `lanes` since it runs as
    /// much of them as it may, though it has room for others.
    #[serde(default)]
    pub limited: Option<String>,
    /// Whether the worker takes nothing more and ends once its runs have: by a signal, or as it was
    /// told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
    /// What people told the worker, as far as it knows: `!` for a drain, `*` for a pause of the
    /// whole worker, else the paused lanes, comma-separated in this order. Where the site knows
    /// better it answers at once.
    #[serde(default)]
    pub told: Option<String>,
}

/// The doorbell's answer. Reading it writes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Doorbell {
    /// Moves with every write that can change what a claim would return; never repeats.
    pub version: i64,
    /// How many tasks this worker could take now.
    pub queued: u64,
    /// The site's clock.
    pub ts: Timestamp,
    /// Leases of this worker that were called off since it was last told.
    pub revoked: Vec<LeaseRef>,
    /// What people told the worker that asks.
    #[serde(default)]
    pub orders: Option<Orders>,
}

/// `POST /workers/orders`. The answer is the [`crate::model::Worker`] as it stands then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// Which worker.
    pub worker: WorkerName,
    /// What it is told.
    pub order: Order,
    /// The lanes that are paused or resumed; none is the whole worker. Of no drain.
    #[serde(default)]
    pub lanes: Vec<LaneName>,
    /// The person.
    pub by: String,
}

/// `POST /work/claim`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// Who claims.
    pub worker_id: WorkerId,
    /// Which start of it.
    pub instance_id: InstanceId,
    /// Asked again with the same one while its lease lives, the site returns the same lease.
    pub claim_id: ClaimId,
    /// The lanes it would take now; those it registered when left out.
    #[serde(default)]
    pub lanes: Option<Vec<LaneName>>,
    /// The labels it has; those it registered when left out.
    #[serde(default)]
    pub labels: Option<Vec<Label>>,
    /// Repositories of which it would take nothing now: it has as many runs of them as it may.
    #[serde(default)]
    pub except: Vec<RepoName>,
}

/// The answer to a claim: `claim: null` when nothing is claimable.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimAnswer {
    /// The claimed task and what its job needs.
    pub claim: Option<Claim>,
}

/// A claimed task.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The right to work on it.
    pub lease: Lease,
    /// This run.
    pub run: RunId,
    /// What to do.
    pub task: Task,
    /// Where.
    pub project: Project,
    /// What earlier claims of this task already did; the job goes on from there.
    pub effects: Vec<Effect>,
    /// The task's branch, `relay/<lane>-<number>`.
    pub branch: String,
    /// What the preferences say of the run. A site of an earlier version says nothing.
    #[serde(default)]
    pub preferences: RunPreferences,
}

/// `POST /work/{owner}/{repo}%23{issue}/start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// Who.
    pub worker_id: WorkerId,
    /// Under which claim.
    pub epoch: Epoch,
    /// The branch the work will be on.
    pub branch: String,
}

/// `POST /work/{owner}/{repo}%23{issue}/record`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordRequest {
    /// Who.
    pub worker_id: WorkerId,
    /// Under which claim.
    pub epoch: Epoch,
    /// What was done.
    pub effect: Effect,
}

/// `POST /work/{owner}/{repo}%23{issue}/log`. Text that starts at another offset than the log's
/// end is taken as far as it is new, so that a lost answer can be sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogChunk {
    /// Who.
    pub worker_id: WorkerId,
    /// Under which claim.
    pub epoch: Epoch,
    /// Bytes of this run's log before this chunk.
    pub offset: u64,
    /// Redacted text, whole lines.
    pub text: String,
}

/// The answer to a chunk of a run's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogTaken {
    /// The log's end now; the next chunk starts here.
    pub next: u64,
}

/// `POST /work/{owner}/{repo}%23{issue}/release`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Who.
    pub worker_id: WorkerId,
    /// Under which claim.
    pub epoch: Epoch,
    /// Why the run stopped; outcome and next state follow from it.
    pub reason: StopReason,
    /// The pull request's number.
    #[serde(default)]
    pub pr: Option<u64>,
    /// Where a person can read it.
    #[serde(default)]
    pub pr_url: Option<String>,
    /// What the lane said.
    #[serde(default)]
    pub summary: Option<String>,
    /// What went wrong, with a hint where there is one.
    #[serde(default)]
    pub error: Option<String>,
    /// The file on the worker's disk that keeps the work, where it could not be delivered.
    #[serde(default)]
    pub kept: Option<String>,
    /// What it cost.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// A lane's note; becomes an event.
    #[serde(default)]
    pub note: Option<String>,
}

/// The answer to a release: where the task stands now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseAnswer {
    /// The task after it.
    pub task: Task,
}
