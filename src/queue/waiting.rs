//! Why a task waits. Worked out when asked, never stored.

use super::{Need, Queue, QueueError};
use crate::model::{ForgeKind, Label, TaskId, TaskState, WaitReason, Worker, WorkerState};
use crate::store::BudgetStop;

/// Of each lane of each project, so many queued tasks are told at most. A longer queue is read
/// again before these are all taken.
pub const NEEDS_MOST: u32 = 128;

impl Queue {
    /// What the queued tasks ask of a worker, in the order in which they are claimed; of each lane
    /// of each project the oldest [`NEEDS_MOST`].
    pub async fn needs(&self) -> Result<Vec<Need>, QueueError> {
        Ok(self.inner.store.needs(NEEDS_MOST, self.inner.clock.now()).await?)
    }

    /// Why a task waits; empty where it does not.
    pub async fn waiting(&self, id: &TaskId) -> Result<Vec<WaitReason>, QueueError> {
        let task = self.task(id).await?;
        match (task.state, task.parked_until) {
            (TaskState::Parked, Some(until)) => {
                return Ok(vec![WaitReason::Parked { until, stopped: task.stop_reason }]);
            }
            (TaskState::Queued, _) => {}
            _ => return Ok(Vec::new()),
        }
        // No worker helps against a budget.
        let stops = self.budget_stops().await?.into_iter();
        let stops = stops.filter(|stop| stop.scope.covers(&task.id.repo, &task.lane));
        let budgets: Vec<WaitReason> = stops.map(budget).collect();
        if !budgets.is_empty() {
            return Ok(budgets);
        }
        let project = self.project(&task.id.repo).await?;
        let need = Need {
            task: task.id,
            lane: task.lane,
            labels: task.required_labels,
            forge: project.forge,
            host: project.host,
        };
        Ok(vec![why(&need, &self.workers().await?)])
    }
}

fn budget(stop: BudgetStop) -> WaitReason {
    let BudgetStop { scope, usd_day, spent_usd, until } = stop;
    WaitReason::Budget { scope, usd_day, spent_usd, until }
}

/// The first demand that no worker is left to meet, in the order in which a person can mend it.
fn why(need: &Need, workers: &[Worker]) -> WaitReason {
    let mut left: Vec<&Worker> =
        workers.iter().filter(|w| w.state != WorkerState::Offline).collect();
    if left.is_empty() {
        return WaitReason::NoWorker;
    }
    if need.forge == ForgeKind::Local {
        left.retain(|w| w.host == need.host);
        if left.is_empty() {
            return WaitReason::OtherHost { host: need.host.clone() };
        }
    }
    left.retain(|w| w.lanes.contains(&need.lane));
    if left.is_empty() {
        return WaitReason::NoLane { lane: need.lane.clone() };
    }
    if need.forge == ForgeKind::Github {
        left.retain(|w| w.forges.contains(&need.host));
        if left.is_empty() {
            return WaitReason::NoForgeLogin { forge: need.host.clone() };
        }
    }
    // What the worker that comes closest lacks.
    let lacks = |w: &&Worker| -> Vec<Label> {
        need.labels.iter().filter(|label| !w.labels.contains(label)).cloned().collect()
    };
    match left.iter().map(lacks).min_by_key(Vec::len) {
        Some(missing) if !missing.is_empty() => WaitReason::NoLabel { missing },
        _ => WaitReason::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    fn worker() -> Worker {
        Worker {
            id: "00000000-0000-7000-8000-000000000001".parse().expect("an id"),
            name: "desk".parse().expect("a name"),
            host: "desk".to_owned(),
            lanes: vec!["claude".parse().expect("a lane")],
            labels: vec!["gpu".parse().expect("a label")],
            forges: vec!["github.com".to_owned()],
            version: "0".to_owned(),
            state: WorkerState::Idle,
            last_seen: Timestamp(0),
            interval_ms: None,
            leases: Vec::new(),
        }
    }

    fn need() -> Need {
        Need {
            task: "acme/shop#1".parse().expect("an id"),
            lane: "claude".parse().expect("a lane"),
            labels: vec!["gpu".parse().expect("a label")],
            forge: ForgeKind::Github,
            host: "github.com".to_owned(),
        }
    }

    #[test]
    fn the_demand_that_nobody_meets_is_named() {
        let lacking = |change: &dyn Fn(&mut Worker)| {
            let mut changed = worker();
            change(&mut changed);
            why(&need(), &[changed])
        };
        let codex: crate::model::LaneName = "codex".parse().expect("a lane");
        let claude = "claude".parse().expect("a lane");
        assert_eq!(why(&need(), &[]), WaitReason::NoWorker);
        assert_eq!(lacking(&|w| w.state = WorkerState::Offline), WaitReason::NoWorker);
        assert_eq!(
            lacking(&|w| w.lanes = vec![codex.clone()]),
            WaitReason::NoLane { lane: claude }
        );
        assert_eq!(
            lacking(&|w| w.forges.clear()),
            WaitReason::NoForgeLogin { forge: "github.com".to_owned() }
        );
        assert_eq!(lacking(&|w| w.labels.clear()), WaitReason::NoLabel { missing: need().labels });
        assert_eq!(lacking(&|_| ()), WaitReason::Busy);
        let local = Need { forge: ForgeKind::Local, host: "attic".to_owned(), ..need() };
        assert_eq!(why(&local, &[worker()]), WaitReason::OtherHost { host: "attic".to_owned() });
    }
}
