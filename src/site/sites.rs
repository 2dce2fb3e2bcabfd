//! Several sites on one Postgres: each tells the others what it changed, and does for what it is
//! told what it does for a change of its own. Here is what is told; `line` tells and hears it.
//!
//! It is told right after the change was committed. What was not heard, since a line was broken or
//! a site died between the two, is found by the next look round and read anew.

mod catch_up;
mod line;
mod seat;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(super) use line::Line;
pub use seat::Seat;

use crate::model::{InstanceId, LeaseRef, TaskId, Timestamp, WorkerId};
use crate::queue::LeftOut;

/// A site's place among the sites of its database.
#[derive(Debug)]
pub struct Sites {
    /// Whether there may be others.
    many: bool,
    outbox: Mutex<Option<UnboundedSender<Notice>>>,
    /// Whether its session with the database stands.
    seated: AtomicBool,
    /// Whether this is the one that watches the forges.
    watches: AtomicBool,
    looks: AtomicU64,
    /// Workers that were heard of since it was written down.
    heard: Mutex<BTreeSet<WorkerId>>,
}

/// What one site tells the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Notice {
    /// What a claim would return, or when a timer is due.
    Changed,
    /// A task is no longer queued: a worker has it until then, unless it is renewed.
    Claimed { task: TaskId, until: Timestamp },
    /// A worker gave its lease back; the task may be parked.
    Released { worker: WorkerId, lease: LeaseRef, parked: Option<Timestamp> },
    /// A lease was called off or ran out; its holder may wait at any site.
    Revoked { worker: WorkerId, lease: LeaseRef },
    /// A worker registered; the leases of its instance before have ended.
    Registered { worker: WorkerId, instance: InstanceId, ended: Vec<LeaseRef> },
    /// A worker said that it goes.
    Left { worker: WorkerId },
    /// A worker takes nothing of some things for now.
    LeavesOut { worker: WorkerId, left: LeftOut },
    /// People told a worker something.
    Ordered { worker: WorkerId },
    /// A token was made or revoked.
    Tokens,
    /// A repository was linked.
    Linked,
}

impl Notice {
    pub(super) fn revoked(worker: &WorkerId, lease: &LeaseRef) -> Self {
        Self::Revoked { worker: worker.clone(), lease: lease.clone() }
    }
}

impl Sites {
    /// A site's place, and where what it tells comes out.
    pub(super) fn new(many: bool) -> (Self, UnboundedReceiver<Notice>) {
        let (outbox, told) = unbounded_channel();
        let sites = Self {
            many,
            outbox: Mutex::new(Some(outbox)),
            seated: AtomicBool::new(true),
            watches: AtomicBool::new(!many),
            looks: AtomicU64::new(0),
            heard: Mutex::default(),
        };
        (sites, told)
    }

    /// Whether there may be other sites.
    #[must_use]
    pub fn is_many(&self) -> bool {
        self.many
    }

    /// Whether its session with the database, and so its lock there, stands.
    #[must_use]
    pub fn is_seated(&self) -> bool {
        self.seated.load(Ordering::Acquire)
    }

    fn seat(&self, seated: bool) {
        self.seated.store(seated, Ordering::Release);
    }

    /// Whether this site is the one that watches the forges.
    #[must_use]
    pub fn watches(&self) -> bool {
        self.watches.load(Ordering::Acquire)
    }

    /// How often it looked round, and took up what it found.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    fn watch(&self, watches: bool) {
        self.watches.store(watches, Ordering::Release);
    }

    /// Tells the others, soon. The change must be committed.
    pub(super) fn tell(&self, notice: Notice) {
        if self.many
            && let Some(outbox) = &*self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // Nobody takes it any more where the site ends.
            let _ = outbox.send(notice);
        }
    }

    /// Nothing is told from now on; what was is on its way.
    pub(super) fn close(&self) {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// A worker was heard of without a statement.
    pub(super) fn heard(&self, worker: &WorkerId) {
        if self.many {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.insert(worker.clone());
        }
    }

    fn take_heard(&self) -> BTreeSet<WorkerId> {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
