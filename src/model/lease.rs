//! The right to work on a task for a while.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Epoch, TaskId, Timestamp, WorkerId};

/// How long a claim or a heartbeat makes a lease live (seed 002, "Leases").
pub const LEASE: Duration = Duration::from_secs(30 * 60);

/// A live claim. A worker holds exactly one value of it a job, and finishing the job consumes it:
/// it is deliberately not `Clone`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// The leased task.
    pub task: TaskId,
    /// Which claim of the task this is.
    pub epoch: Epoch,
    /// The holder.
    pub worker: WorkerId,
    /// When it ends unless a heartbeat renews it, on the site's clock.
    pub expires_at: Timestamp,
}

impl Lease {
    /// The name every write under this lease carries.
    #[must_use]
    pub fn reference(&self) -> LeaseRef {
        LeaseRef { task: self.task.clone(), epoch: self.epoch }
    }
}

/// `(task, epoch)`: names a lease without giving any right to it.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct LeaseRef {
    /// The leased task.
    pub task: TaskId,
    /// Which claim of it.
    pub epoch: Epoch,
}
