//! A machine that runs `relay work`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Label, LaneName, LeaseRef, Orders, Timestamp, WorkerId, WorkerName};

/// How a worker is seen from the site (seed 002: online < 2 min, idle < 1 h, else offline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Heard of within two minutes, or holding the doorbell right now.
    Online,
    /// Heard of within the hour.
    Idle,
    /// Not heard of, or it said so, or its token was revoked.
    Offline,
}

impl WorkerState {
    /// The state that follows from when a worker was last heard of.
    #[must_use]
    pub fn derive(now: Timestamp, last_seen: Timestamp, said_offline: bool) -> Self {
        let silent = now.since(last_seen);
        if said_offline || silent >= Duration::from_secs(3600) {
            Self::Offline
        } else if silent >= Duration::from_secs(120) {
            Self::Idle
        } else {
            Self::Online
        }
    }

    /// The word shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Idle => "idle",
            Self::Offline => "offline",
        }
    }
}

/// A worker, as the site tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Worker {
    /// Its id.
    pub id: WorkerId,
    /// Its name.
    pub name: WorkerName,
    /// The machine it runs on.
    pub host: String,
    /// The lanes it serves.
    pub lanes: Vec<LaneName>,
    /// The labels it advertises.
    pub labels: Vec<Label>,
    /// Hosts of the forges it is logged in to.
    pub forges: Vec<String>,
    /// The version of relay it runs.
    pub version: String,
    /// Derived from when it was last heard of.
    pub state: WorkerState,
    /// When it was last heard of.
    pub last_seen: Timestamp,
    /// How often it checks in, in milliseconds.
    pub interval_ms: Option<u64>,
    /// The leases it holds.
    pub leases: Vec<LeaseRef>,
    /// Whether it takes nothing more and ends once its runs have: by a signal, or as it was told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
    /// Whether the token that it registered with was revoked: it is refused everywhere until it
    /// registers with another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
    /// What people told it; a site of an earlier version says nothing.
    #[serde(default, skip_serializing_if = "Orders::is_none")]
    pub orders: Orders,
}
