//! Whether the site was there all the time, and whether its clock was set meanwhile.
//!
//! A lease that runs out blames its worker for a silence. That is fair only where somebody
//! listened: after a sleep of this machine, or a jump of its clock, leases seem to have run out
//! whose workers are alive and well and about to say so. docs/design/clock.md has the picture.

use std::time::Duration;

use crate::model::{Clock, Timestamp};

/// How often the clocks are compared, while nothing else happens.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The site was away when it did not look for so long.
const AWAY: Duration = Duration::from_secs(180);

/// The wall clock was set when it and the time that passed differ by more than this: far more than
/// a clock that is slowly put right, far less than a lease.
const SET: Duration = Duration::from_secs(30);

/// For so long leases are left to their workers: two heartbeats of a minute.
pub(super) const GRACE: Duration = Duration::from_secs(120);

/// What a look at the clocks found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noticed {
    /// Workers could not renew, or leases look older than they are.
    pub(super) missed: bool,
    /// Times that were to come soon lie far ahead.
    pub(super) set_back: bool,
}

/// When the clocks were looked at last.
#[derive(Debug, Default)]
pub(super) struct Attention(Option<(Timestamp, Duration)>);

impl Attention {
    /// Looks at both clocks.
    pub(super) fn look(&mut self, clock: &dyn Clock) -> Noticed {
        let (now, uptime) = (clock.now(), clock.uptime());
        let Some((then, before)) = self.0.replace((now, uptime)) else {
            return Noticed::default();
        };
        let passed = uptime.saturating_sub(before);
        Noticed {
            missed: passed > AWAY || now > then + passed + SET,
            set_back: now + SET < then + passed,
        }
    }
}
