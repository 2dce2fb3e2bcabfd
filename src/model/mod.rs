//! The nouns of relay and the rules that hold on values alone: ids, task states, leases, stop reasons.
//!
//! Architecture invariant: nothing here does I/O, reads a clock or imports another room.

pub mod clock;
pub mod disk;
pub mod event;
pub mod fault;
pub mod host;
pub mod id;
pub mod lease;
pub mod money;
pub mod order;
pub mod preference;
pub mod project;
pub mod refusal;
pub mod run;
pub mod secret;
pub mod stop_reason;
pub mod task;
pub mod text;
pub mod token;
pub mod usage;
pub mod worker;

pub use clock::{Clock, Ids, Timestamp};
pub use disk::DiskProblem;
pub use event::{Actor, Event, EventKind};
pub use fault::{FaultPlan, FaultPoint, Faults, NoFaults, Passage};
pub use host::{host_name, is_this_machine};
pub use id::{
    ClaimId, Epoch, IdError, InstanceId, Label, LaneName, ModelName, RepoName, RunId, TaskId,
    TokenId, TokenName, WorkerId, WorkerName,
};
pub use lease::{LEASE, Lease, LeaseRef};
pub use money::Cents;
pub use order::{Drain, Order, Orders, Pause};
pub use preference::{MAX_MINUTES, MAX_TURNS, Preference, PreferenceKey, RunPreferences, Scope};
pub use project::{ForgeKind, Project};
pub use refusal::{ForgeProblem, PushProblem, RepoProblem};
pub use run::{Effect, Run};
pub use secret::Secret;
pub use stop_reason::{Disposition, Outcome, StopReason};
pub use task::{Task, TaskState, WaitReason};
pub use token::{Token, TokenHash, TokenScope, TokenScopeError, token_text};
pub use usage::{COST_MOST, COUNT_MOST, Usage};
pub use worker::{Worker, WorkerState};
