//! A worker that runs for weeks serves what its machine has now: a lane that was configured since
//! it started, or a program that was installed or logged in, and no longer one that was taken away.

use std::time::Duration;

use relay_lanes::VENDORS;
use tokio::sync::{mpsc, oneshot};

use crate::cli::config::Config;
use crate::cli::context::Context;
use crate::cli::machine;
use crate::model::LaneName;
use crate::work::lane::Lanes;
use crate::work::login::Whose;
use crate::work::probe::{LaneState, LaneStatus, WORKER_PATIENCE, probe, process_statuses};
use crate::work::{Found, Stamp};

/// How often the disk is looked at: some twenty files, and no program.
const LOOK: Duration = Duration::from_secs(15);
/// After so many looks a program is asked again that did not say whether there is a login.
const ASK_AGAIN: u32 = 20;

/// One worker's.
pub(in crate::cli) struct Lookout<'a> {
    context: &'a Context,
    lanes: Lanes,
    seen: Seen,
}

/// By what a machine is known to serve what it served. A vendor's program is asked only where this
/// became another.
#[derive(PartialEq, Eq)]
struct Seen {
    vendors: Vec<(Option<Stamp>, Whose)>,
    processes: Vec<LaneName>,
}

impl<'a> Lookout<'a> {
    /// From now on: what changes while a worker asks for its lanes at its start is seen as well.
    pub(super) fn new(context: &'a Context, lanes: Lanes) -> Self {
        let seen = Seen::now(&context.config, &lanes);
        Self { context, lanes, seen }
    }

    /// Tells a worker that serves `served` of other lanes, whenever there are; ends with the worker.
    pub(super) async fn tell(mut self, mut served: Vec<LaneName>, worker: mpsc::Sender<Found>) {
        // One that was silent at the start is asked again as well.
        let mut unanswered = 1;
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(seen) = self.look().await else { continue };
            if seen == self.seen && (unanswered == 0 || unanswered % ASK_AGAIN != 0) {
                unanswered += u32::from(unanswered > 0);
                continue;
            }
            self.seen = seen;
            let boxing = self.lanes.boxing.clone();
            let secrets = self.lanes.secrets.clone();
            let lanes = machine::lanes_with(self.context, boxing, self.lanes.sandbox, secrets);
            let found = probe(&lanes, WORKER_PATIENCE).await;
            unanswered = found.iter().any(is_unanswered).into();
            let Some(now) = changed(&served, &found) else { continue };
            let (taken, answer) = oneshot::channel();
            if worker.send(Found { lanes, served: now.clone(), taken }).await.is_err() {
                return;
            }
            match answer.await {
                Ok(()) => served = now,
                Err(_) => unanswered = 1,
            }
        }
    }

    /// On a thread of its own: a disk that does not answer holds nothing else up.
    async fn look(&self) -> Option<Seen> {
        let (config, lanes) = (self.context.config.clone(), self.lanes.clone());
        tokio::task::spawn_blocking(move || Seen::now(&config, &lanes)).await.ok()
    }
}

impl Seen {
    fn now(config: &Config, lanes: &Lanes) -> Self {
        let vendors = VENDORS.iter().map(|vendor| {
            let installed = machine::installed(config, vendor);
            (installed.program.as_deref().and_then(Stamp::of), lanes.whose(&installed))
        });
        let processes = process_statuses(lanes).into_iter().filter(|lane| lane.served);
        Self { vendors: vendors.collect(), processes: processes.map(|lane| lane.lane).collect() }
    }
}

/// What to serve by what was `found`, where that differs from what is `served`. A lane stays whose
/// program did not answer, or is gone for a moment as in an update, and no worker stays without any.
fn changed(served: &[LaneName], found: &[LaneStatus]) -> Option<Vec<LaneName>> {
    let stays = |lane: &&LaneStatus| {
        lane.served || served.contains(&lane.lane) && (is_unanswered(lane) || is_gone(lane))
    };
    let now: Vec<LaneName> = found.iter().filter(stays).map(|lane| lane.lane.clone()).collect();
    let is_same = now.len() == served.len() && served.iter().all(|lane| now.contains(lane));
    (!is_same && !now.is_empty()).then_some(now)
}

/// Whether its program, or what runs it, is not there: of a lane that is configured one is named
/// all the same.
fn is_gone(lane: &LaneStatus) -> bool {
    let configured = lane.state == LaneState::Unfit && lane.program.is_some();
    configured || matches!(lane.state, LaneState::Missing | LaneState::NoInterpreter)
}

fn is_unanswered(lane: &LaneStatus) -> bool {
    matches!(lane.state, LaneState::Silent | LaneState::Unclear)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str, state: LaneState) -> LaneStatus {
        LaneStatus {
            lane: name.parse().unwrap(),
            served: state == LaneState::Served,
            state,
            program: None,
            version: None,
            measured: None,
            model: None,
            detail: String::new(),
            hint: None,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn a_worker_is_told_of_other_lanes_alone() {
        let served: Vec<LaneName> =
            ["claude", "process:edit"].map(|name| name.parse().unwrap()).into();
        let with = |claude, codex, edit: Option<LaneState>| {
            let mut found = vec![lane("claude", claude), lane("codex", codex)];
            found.extend(edit.map(|state| lane("process:edit", state)));
            changed(&served, &found).is_some()
        };
        use LaneState::*;
        assert!(!with(Served, NotLoggedIn, Some(Served)));
        assert!(with(Served, Served, Some(Served)), "one came");
        assert!(with(NotLoggedIn, Missing, Some(Served)), "one went");
        assert!(with(Served, Missing, None), "a configuration went");
        assert!(with(Served, Missing, Some(Unfit)), "a configuration is no good");
        assert!(with(NotLoggedIn, Served, Some(Served)), "one came for another");
        for passing in [Silent, Unclear, Missing, NoInterpreter] {
            assert!(!with(passing, Missing, Some(Served)), "{passing:?}");
            assert!(!with(Served, passing, Some(Served)), "{passing:?}");
        }
        assert!(!with(NotLoggedIn, NotLoggedIn, None), "nothing would be left");
        let gone = LaneStatus { program: Some("/gone".into()), ..lane("process:edit", Unfit) };
        assert_eq!(changed(&served, &[lane("claude", Served), gone]), None, "an update");
    }
}
