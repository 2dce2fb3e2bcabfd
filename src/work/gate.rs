//! Which of a worker's lanes could run a task now. What could not is not asked for: a task that
//! waits in the queue can be taken by another machine, and one that was claimed cannot.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::job::Context;
use super::job::Ended;
use super::lane::Installed;
use super::login::{CLAIMING, Holder, NoSeat, Seat, Whose, look};
use super::quota::{MOST, Marks, Said};
use super::rest::Rests;
use crate::model::{Disposition, LaneName, StopReason, Timestamp};

/// How often a login that another run is under is looked at.
const LOOK_AT_LOGIN: Duration = Duration::from_secs(2);
/// How often all else is looked at that shuts a lane: a person may have mended it.
const LOOK: Duration = Duration::from_secs(5);

/// Why a lane is shut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shut {
    /// The login is out of the vendor's quota.
    OutOfQuota(Timestamp),
    /// The forge's limit is used up, which the lane's last task ran into.
    ForgeLimit(Timestamp),
    /// The vendor did not answer the lane's last run.
    VendorAway(Timestamp),
    /// The vendor refused the login, which has not changed since. It is tried again then.
    Refused {
        /// When.
        until: Timestamp,
        /// The lane, which is probed.
        lane: &'static str,
        /// What mends it.
        log_in: &'static str,
    },
    /// Another run is under the login.
    InUse(Option<Holder>),
    /// The login's lock cannot be made.
    NoLock(String),
    /// The program is not where it was.
    Gone(PathBuf),
}

impl From<NoSeat> for Shut {
    fn from(why: NoSeat) -> Self {
        match why {
            NoSeat::Taken(holder) => Self::InUse(holder),
            NoSeat::Lock { .. } => Self::NoLock(why.to_string()),
        }
    }
}

/// One worker's.
pub struct Gate {
    shared: Arc<Context>,
    pid: u32,
    /// Lanes whose last task ran into the forge's limit.
    limits: Vec<(LaneName, Timestamp)>,
    /// What was said of the shut ones, so that it is said once.
    told: BTreeMap<LaneName, Shut>,
}

impl Gate {
    /// With everything open that is not marked.
    #[must_use]
    pub fn new(shared: Arc<Context>) -> Self {
        let pid = std::process::id();
        Self { shared, pid, limits: Vec::new(), told: BTreeMap::new() }
    }

    /// Those of `served` that are open; a person is told of the others, once each.
    pub fn open(&mut self, served: &[LaneName]) -> Vec<LaneName> {
        let mut open = Vec::new();
        for lane in served {
            match self.shut(lane) {
                None => {
                    // Whoever else has the login has it again soon.
                    if !matches!(self.told.get(lane), Some(Shut::InUse(_))) {
                        self.told.remove(lane);
                    }
                    open.push(lane.clone());
                }
                Some(why) => self.tell(lane, why),
            }
        }
        open
    }

    /// Those of `served` that were found shut since their login was refused.
    #[must_use]
    pub fn refused(&self, served: &[LaneName]) -> Vec<LaneName> {
        let refused = |lane: &&LaneName| matches!(self.told.get(*lane), Some(Shut::Refused { .. }));
        served.iter().filter(refused).cloned().collect()
    }

    /// The lanes among `open` that a claim may ask for, each with what its run needs. Held while the
    /// site is asked, so that nothing is claimed that another run then keeps waiting.
    pub async fn seats(&mut self, open: &[LaneName]) -> Vec<(LaneName, Option<Seat>)> {
        let mut seats = Vec::new();
        let lanes = self.shared.lanes.now();
        for lane in open {
            let Some(installed) = lanes.installed(lane) else {
                seats.push((lane.clone(), None));
                continue;
            };
            let whose = lanes.whose(installed);
            match Seat::take_soon(&whose, &self.holder()).await {
                Ok(seat) => seats.push((lane.clone(), Some(seat))),
                Err(why) => self.tell(lane, why.into()),
            }
        }
        seats
    }

    /// A job of `lane` is about to run.
    pub fn begins(&mut self, lane: &LaneName) {
        self.told.remove(lane);
    }

    /// A job of `lane` ended. What it showed of its login is marked as it ends.
    pub fn ended(&mut self, lane: &LaneName, ended: &Ended) {
        let Ended { reason, answered } = ended;
        let now = self.shared.clock.now();
        self.rests().ended(lane, reason, *answered, now);
        if let (StopReason::ForgeLimited { .. }, Disposition::Park(until)) =
            (reason, reason.disposition())
        {
            self.limits.push((lane.clone(), until.min(now + MOST)));
        }
    }

    /// Waits until other lanes than `open` are.
    pub async fn changes(&self, served: &[LaneName], open: &[LaneName]) {
        loop {
            let shut: Vec<Shut> = served.iter().filter_map(|lane| self.shut(lane)).collect();
            let now_open = || served.iter().filter(|lane| self.shut(lane).is_none());
            if !now_open().eq(open) {
                return;
            }
            let Some(soonest) = shut.iter().map(|why| self.look(why)).min() else {
                return std::future::pending().await;
            };
            tokio::time::sleep(soonest).await;
        }
    }

    /// How long a shut lane is left alone.
    fn look(&self, why: &Shut) -> Duration {
        match why {
            Shut::InUse(_) => LOOK_AT_LOGIN,
            Shut::OutOfQuota(until)
            | Shut::ForgeLimit(until)
            | Shut::VendorAway(until)
            | Shut::Refused { until, .. } => {
                let left = until.since(self.shared.clock.now());
                left.clamp(Duration::from_millis(10), LOOK)
            }
            Shut::NoLock(_) | Shut::Gone(_) => LOOK,
        }
    }

    fn shut(&self, lane: &LaneName) -> Option<Shut> {
        let now = self.shared.clock.now();
        let limit = self.limits.iter().filter(|(limited, until)| limited == lane && *until > now);
        if let Some(until) = limit.map(|(_, until)| *until).max() {
            return Some(Shut::ForgeLimit(until));
        }
        if let Some(until) = self.rests().until(lane, now) {
            return Some(Shut::VendorAway(until));
        }
        let lanes = self.shared.lanes.now();
        let Some(installed) = lanes.installed(lane) else {
            return lanes.gone_program(lane).map(Shut::Gone);
        };
        if installed.is_gone() {
            return installed.program.clone().map(Shut::Gone);
        }
        let whose = lanes.whose(installed);
        of_login(&lanes.relay_home, installed, &whose, now)
    }

    fn tell(&mut self, lane: &LaneName, why: Shut) {
        // Its own run is nothing to tell.
        let is_own = matches!(&why, Shut::InUse(Some(holder)) if holder.pid == self.pid);
        let same = |told: &Shut| match (told, &why) {
            (Shut::InUse(_), Shut::InUse(_)) | (Shut::VendorAway(_), Shut::VendorAway(_)) => true,
            (told, why) => told == why,
        };
        if is_own || self.told.get(lane).is_some_and(same) {
            return;
        }
        self.shared.observer.shut(lane, &why, self.shared.clock.now());
        self.told.insert(lane.clone(), why);
    }

    fn rests(&self) -> Rests {
        Rests::of(&self.shared.lanes.now().relay_home)
    }

    fn holder(&self) -> Holder {
        Holder {
            pid: self.pid,
            home: self.shared.lanes.now().relay_home.clone(),
            doing: CLAIMING.to_owned(),
            since: self.shared.clock.now(),
        }
    }
}

/// What keeps a worker of `relay_home` from running under this login at `now`.
#[must_use]
pub fn of_login(
    relay_home: &Path,
    installed: &Installed,
    whose: &Whose,
    now: Timestamp,
) -> Option<Shut> {
    let Some(mark) = Marks::of(relay_home).of_login(installed.vendor, whose, now) else {
        return look(whose.lock.as_deref()?).err().map(Shut::from);
    };
    let (lane, log_in) = (installed.vendor.lane, installed.vendor.log_in);
    Some(match mark.said {
        Said::OutOfQuota => Shut::OutOfQuota(mark.until),
        Said::Refused => Shut::Refused { until: mark.until, lane, log_in },
    })
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("told", &self.told).finish_non_exhaustive()
    }
}
