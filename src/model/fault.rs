//! Fault points: named places at which a test can end or hold a real relay process. They are
//! handed in like the clock; docs/design/fault-points.md tells how they are used.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

/// Something that is done whole or not at all, with a point before it and one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passage {
    /// The claim's id is brought to the worker's disk.
    ClaimId,
    /// The worker claims. After: the task is leased, and no job has begun.
    Claim,
    /// The mirror is brought up to date.
    Fetch,
    /// A claim of a later epoch moves the task's hidden ref.
    Fence,
    /// The lane's copy is made.
    Checkout,
    /// The site is told that the lane starts.
    Start,
    /// The prompt is put together.
    Prompt,
    /// The lane runs.
    Run,
    /// What it left becomes one commit.
    Commit,
    /// The lane's copy is removed.
    Clean,
    /// The commit is recorded.
    RecordCommitted,
    /// The commit goes to the task's branch.
    Push,
    /// The work of a refused push is kept as a bundle.
    Keep,
    /// The push is recorded.
    RecordPushed,
    /// A pull request is looked for.
    FindPull,
    /// The pull request is opened.
    OpenPull,
    /// The pull request is recorded.
    RecordPull,
    /// The comment is posted.
    Comment,
    /// The comment is recorded.
    RecordCommented,
    /// The site is told how the job ended.
    Release,
    /// The worker says good-bye.
    Offline,
    /// A worker registers.
    QueueRegister,
    /// A worker is heard of, and its leases are renewed.
    QueueHeartbeat,
    /// A lease that ran out is given back.
    QueueRevive,
    /// A task is leased.
    QueueClaim,
    /// A task is running.
    QueueStart,
    /// An effect goes into the journal.
    QueueRecord,
    /// A local pull request is written.
    QueueLocalPull,
    /// A run and its lease end.
    QueueFinish,
    /// What ran out is ended.
    QueueSweep,
    /// A task is asked for.
    QueueAdd,
    /// A task is called off.
    QueueCancel,
    /// A task is ended well.
    QueueDone,
    /// A task is queued again.
    QueueRetry,
    /// A repository is linked.
    QueueLink,
    /// A preference is set.
    QueuePrefer,
    /// A preference is taken away.
    QueueUnprefer,
    /// A token is kept.
    QueueToken,
    /// A token is revoked, and its leases end.
    QueueRevoke,
    /// Budgets that are used up, or there again, are written.
    QueueBudgets,
    /// An invite is kept.
    QueueInvite,
    /// An invite is traded for a token.
    QueueRedeem,
}

impl Passage {
    /// Every passage and its name, in the order of a job, then the writes of the queue.
    pub const ALL: [(Self, &'static str); 42] = [
        (Self::ClaimId, "work.claim_id"),
        (Self::Claim, "work.claim"),
        (Self::Fetch, "job.fetch"),
        (Self::Fence, "job.fence"),
        (Self::Checkout, "job.checkout"),
        (Self::Start, "job.start"),
        (Self::Prompt, "job.prompt"),
        (Self::Run, "job.run"),
        (Self::Commit, "job.commit"),
        (Self::Clean, "job.clean"),
        (Self::RecordCommitted, "job.record_committed"),
        (Self::Push, "job.push"),
        (Self::Keep, "job.keep"),
        (Self::RecordPushed, "job.record_pushed"),
        (Self::FindPull, "job.find_pull"),
        (Self::OpenPull, "job.open_pull"),
        (Self::RecordPull, "job.record_pull"),
        (Self::Comment, "job.comment"),
        (Self::RecordCommented, "job.record_commented"),
        (Self::Release, "job.release"),
        (Self::Offline, "work.offline"),
        (Self::QueueRegister, "queue.register"),
        (Self::QueueHeartbeat, "queue.heartbeat"),
        (Self::QueueRevive, "queue.revive"),
        (Self::QueueClaim, "queue.claim"),
        (Self::QueueStart, "queue.start"),
        (Self::QueueRecord, "queue.record"),
        (Self::QueueLocalPull, "queue.local_pull"),
        (Self::QueueFinish, "queue.finish"),
        (Self::QueueSweep, "queue.sweep"),
        (Self::QueueAdd, "queue.add"),
        (Self::QueueCancel, "queue.cancel"),
        (Self::QueueDone, "queue.done"),
        (Self::QueueRetry, "queue.retry"),
        (Self::QueueLink, "queue.link"),
        (Self::QueuePrefer, "queue.prefer"),
        (Self::QueueUnprefer, "queue.unprefer"),
        (Self::QueueToken, "queue.token"),
        (Self::QueueRevoke, "queue.revoke"),
        (Self::QueueBudgets, "queue.budgets"),
        (Self::QueueInvite, "queue.invite"),
        (Self::QueueRedeem, "queue.redeem"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(passage, _)| *passage == self).map_or("", |(_, name)| name)
    }
}

/// A point: before a passage or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultPoint {
    /// What is passed.
    pub passage: Passage,
    /// Whether it is done already, however it went.
    pub after: bool,
}

impl FaultPoint {
    /// Every point, in the order of a job.
    pub fn all() -> impl Iterator<Item = Self> {
        let sides = |passage| [false, true].map(|after| Self { passage, after });
        Passage::ALL.into_iter().flat_map(move |(passage, _)| sides(passage))
    }
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.passage.name(), if self.after { "after" } else { "before" })
    }
}

/// Who hears that a point is passed.
pub trait Faults: Send + Sync + fmt::Debug {
    /// The process is at `point`. It may not get any further.
    fn at(&self, point: FaultPoint);
}

/// Nothing goes wrong: every process of which nobody asked for a fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn at(&self, _: FaultPoint) {}
}

/// Does `work` between the two points of `passage`.
pub async fn pass<T>(faults: &dyn Faults, passage: Passage, work: impl Future<Output = T>) -> T {
    faults.at(FaultPoint { passage, after: false });
    let done = work.await;
    faults.at(FaultPoint { passage, after: true });
    done
}

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAct {
    /// The process kills itself (SIGKILL).
    Kill,
    /// The process holds itself until somebody lets it go on (SIGSTOP).
    Stop,
}

/// One fault that was asked for: `<point>[#n]:kill|stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Where.
    pub point: FaultPoint,
    /// The how manieth time the process is there, from 1.
    pub nth: u32,
    /// What.
    pub act: FaultAct,
}

/// Why a text is no plan of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultPlanError {
    /// It is not of the form.
    #[error("`{0}` is not `POINT:kill`, `POINT:stop` or `POINT#N:…`")]
    Form(String),
    /// There is no such point.
    #[error("no point `{0}`; the points are {points}", points = points())]
    Point(String),
}

fn points() -> String {
    FaultPoint::all().map(|point| point.to_string()).collect::<Vec<_>>().join(", ")
}

impl FromStr for FaultPlan {
    type Err = FaultPlanError;

    fn from_str(text: &str) -> Result<Self, FaultPlanError> {
        let form = || FaultPlanError::Form(text.to_owned());
        let (place, act) = text.split_once(':').ok_or_else(form)?;
        let act = match act {
            "kill" => FaultAct::Kill,
            "stop" => FaultAct::Stop,
            _ => return Err(form()),
        };
        let (name, nth) = match place.split_once('#') {
            Some((name, nth)) => (name, nth.parse().ok().filter(|n| *n > 0).ok_or_else(form)?),
            None => (place, 1),
        };
        let point = FaultPoint::all().find(|point| point.to_string() == name);
        Ok(Self { point: point.ok_or_else(|| FaultPlanError::Point(name.to_owned()))?, nth, act })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_point_has_a_name_of_its_own_and_is_read_from_it() {
        let names: HashSet<String> = FaultPoint::all().map(|point| point.to_string()).collect();
        assert_eq!(names.len(), 2 * Passage::ALL.len());
        for point in FaultPoint::all() {
            let plan = FaultPlan { point, nth: 1, act: FaultAct::Kill };
            assert_eq!(format!("{point}:kill").parse(), Ok(plan));
        }
    }

    #[test]
    fn a_plan_may_name_the_time_and_a_wrong_one_is_told() {
        let plan: FaultPlan = "queue.record.after#3:stop".parse().expect("a plan");
        assert_eq!((plan.nth, plan.act, plan.point.after), (3, FaultAct::Stop, true));
        let wrong = |text: &str| text.parse::<FaultPlan>().expect_err(text).to_string();
        for text in ["job.push.after", "job.push.after:die", "job.push.after#0:kill", ""] {
            assert!(wrong(text).contains("POINT:kill"), "{text}");
        }
        assert!(wrong("job.dance.after:kill").contains("job.push.before, job.push.after"));
    }
}
