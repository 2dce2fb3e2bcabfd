//! When a task is set aside because its runs end with their worker.

use std::time::Duration;

use super::lease::RETRIES;
use crate::model::LEASE;
use crate::store::DeathLimits;

/// A run whose worker was last heard of within this time of its start was killed by its task
/// (facts of peers: three deaths within 60 s). Where the worker lost several leases at once, none of
/// their tasks is to blame for it so soon: a power cut takes them all.
pub const QUICK: Duration = Duration::from_secs(60);

/// So many of them in a row quarantine the task.
pub const QUICK_DEATHS: u32 = 3;

/// So many deaths in a row, however slow, do too: a lost worker is given as many tries as any
/// other infrastructure.
pub const DEATHS: u32 = RETRIES + 1;

/// The same as the store takes it.
pub(super) const LIMITS: DeathLimits =
    DeathLimits { lease: LEASE, quick: QUICK, quick_most: QUICK_DEATHS, most: DEATHS };
