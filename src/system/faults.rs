//! The fault a person or a test asked this process for with RELAY_FAULT.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::model::fault::{FaultAct, FaultPlan, FaultPoint, Faults};

/// Longer than the system takes to stop every thread of a process.
const UNTIL_STOPPED: Duration = Duration::from_millis(200);

/// Ends or holds this process at one point.
#[derive(Debug)]
pub struct PlannedFault {
    plan: FaultPlan,
    passed: AtomicU32,
}

impl PlannedFault {
    /// Nothing has been passed yet.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan, passed: AtomicU32::new(0) }
    }
}

impl Faults for PlannedFault {
    fn at(&self, point: FaultPoint) {
        if point != self.plan.point
            || self.passed.fetch_add(1, Ordering::AcqRel) + 1 != self.plan.nth
        {
            return;
        }
        let signal = match self.plan.act {
            FaultAct::Kill => Signal::KILL,
            FaultAct::Stop => Signal::STOP,
        };
        tracing::warn!(%point, act = ?self.plan.act, "RELAY_FAULT");
        if let Err(error) = kill_process(getpid(), signal) {
            tracing::error!(%point, %error, "the fault did not happen");
        }
        // The signal goes to the process, so this thread may run on for a moment.
        std::thread::sleep(UNTIL_STOPPED);
    }
}
