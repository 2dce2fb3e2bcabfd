//! A worker that runs for weeks serves what its machine has now: a lane that was configured since
//! it started, or a program that was installed or logged in, and no longer one that was taken away.

use std::time::Duration;

use relay_lanes::VENDORS;
use tokio::sync::{mpsc, oneshot};

use crate::cli::config::Config;
use crate::cli::context::Context;
use crate::cli::machine;
use crate::model::LaneName;
use crate::work::lane::{Installed, Lanes};
use crate::work::login::Whose;
use crate::work::probe::{LaneState, LaneStatus, WORKER_PATIENCE, probe, process_statuses};
use crate::work::{Found, Stamp};

/// How often the lanes that are configured here are looked at: whoever has written one waits for it.
const GLANCE: Duration = Duration::from_secs(1);
/// After so many of these, all else is: some twenty files, and no program.
const GLANCES: u32 = 15;
/// After so many looks whoever did not answer is asked again.
const ASK_AGAIN: u32 = 20;

/// One worker's.
pub(in crate::cli) struct Lookout<'a> {
    machine: Here<'a>,
    seen: Seen,
}

/// By what a machine is known to serve what it served. A vendor's program is asked only where this
/// became another.
#[derive(PartialEq, Eq)]
struct Seen {
    vendors: Vec<(Option<Stamp>, Whose, Option<String>)>,
    processes: Vec<LaneName>,
}

/// A machine that is looked at.
trait Machine {
    /// Waits until it is time to look, or others are configured than those that are `known`.
    async fn until_next(&self, known: &[LaneName]);
    /// What its disk shows; `None` where it cannot be looked at.
    async fn seen(&self) -> Option<Seen>;
    /// What it has for lanes, and what their programs say.
    async fn found(&self) -> (Lanes, Vec<LaneStatus>);
}

/// This one.
struct Here<'a> {
    context: &'a Context,
    lanes: Lanes,
}

impl<'a> Lookout<'a> {
    /// From now on: what changes while a worker asks for its lanes at its start is seen as well.
    pub(super) fn new(context: &'a Context, lanes: Lanes) -> Self {
        let seen = Seen::now(&context.config, &lanes);
        Self { machine: Here { context, lanes }, seen }
    }

    /// Tells a worker that serves `served` of other lanes, whenever there are; ends with the worker.
    pub(super) async fn tell(self, served: Vec<LaneName>, worker: mpsc::Sender<Found>) {
        let by = served_by(&self.machine.lanes);
        follow(&self.machine, self.seen, by, served, worker).await;
    }
}

async fn follow(
    machine: &impl Machine,
    mut last: Seen,
    mut by: Vec<ServedBy>,
    mut served: Vec<LaneName>,
    worker: mpsc::Sender<Found>,
) {
    let mut looks = 0;
    // Of a program whether there is a login, or of the site whether it takes the lanes. One that
    // was silent at the start is asked again as well.
    let mut lacks_answer = true;
    loop {
        machine.until_next(&last.processes).await;
        let Some(seen) = machine.seen().await else { continue };
        looks += 1;
        if seen == last && !(lacks_answer && looks >= ASK_AGAIN) {
            continue;
        }
        (last, looks) = (seen, 0);
        let (lanes, found) = machine.found().await;
        lacks_answer = found.iter().any(is_unanswered);
        // What serves a lane may be another program now.
        let by_now = served_by(&lanes);
        let moves = || (by_now != by).then(|| served.clone());
        let Some(now) = changed(&served, &found).or_else(moves) else { continue };
        let (taken, answer) = oneshot::channel();
        let left_out = left_out(&served, &now, &found);
        let told = Found { lanes, served: now.clone(), left_out, taken };
        if worker.send(told).await.is_err() {
            return;
        }
        match answer.await {
            Ok(()) => (served, by) = (now, by_now),
            Err(_) => lacks_answer = true,
        }
    }
}

impl Machine for Here<'_> {
    async fn until_next(&self, known: &[LaneName]) {
        other_lanes(&self.lanes, known).await;
    }

    /// On a thread of its own: a disk that does not answer holds nothing else up.
    async fn seen(&self) -> Option<Seen> {
        let (config, lanes) = (self.context.config.clone(), self.lanes.clone());
        tokio::task::spawn_blocking(move || Seen::now(&config, &lanes)).await.ok()
    }

    async fn found(&self) -> (Lanes, Vec<LaneStatus>) {
        let Lanes { boxing, sandbox, secrets, .. } = self.lanes.clone();
        let lanes = machine::lanes_with(self.context, boxing, sandbox, secrets);
        let found = probe(&lanes, WORKER_PATIENCE).await;
        (lanes, found)
    }
}

impl Seen {
    fn now(config: &Config, lanes: &Lanes) -> Self {
        let vendors = VENDORS.iter().map(|vendor| {
            let installed = machine::installed(config, vendor);
            let program = installed.program.as_deref().and_then(Stamp::of);
            (program, lanes.whose(&installed), installed.chosen)
        });
        Self { vendors: vendors.collect(), processes: configured(lanes) }
    }
}

/// Waits until others are configured than those that are `known`, or it is time to look at all.
/// Whether there are others.
async fn other_lanes(lanes: &Lanes, known: &[LaneName]) -> bool {
    for _ in 0..GLANCES {
        tokio::time::sleep(GLANCE).await;
        let lanes = lanes.clone();
        let now = tokio::task::spawn_blocking(move || configured(&lanes)).await;
        if now.is_ok_and(|now| now != known) {
            return true;
        }
    }
    false
}

/// The lanes of one's own that could be served.
fn configured(lanes: &Lanes) -> Vec<LaneName> {
    let lanes = process_statuses(lanes).into_iter().filter(|lane| lane.served);
    lanes.map(|lane| lane.lane).collect()
}

/// The program behind a vendor's lane, and the model that its own settings name.
type ServedBy = (&'static str, Option<String>);

fn served_by(lanes: &Lanes) -> Vec<ServedBy> {
    let by = |known: &Installed| (known.vendor.program, known.chosen.clone());
    lanes.vendors.iter().map(by).collect()
}

/// What to serve by what was `found`, where that differs from what is `served`; it may be nothing. A
/// lane stays whose program did not answer, or is gone for a moment as in an update.
fn changed(served: &[LaneName], found: &[LaneStatus]) -> Option<Vec<LaneName>> {
    let stays = |lane: &&LaneStatus| {
        lane.served || served.contains(&lane.lane) && (is_unanswered(lane) || is_gone(lane))
    };
    let now: Vec<LaneName> = found.iter().filter(stays).map(|lane| lane.lane.clone()).collect();
    let is_same = now.len() == served.len() && served.iter().all(|lane| now.contains(lane));
    (!is_same).then_some(now)
}

/// Why each lane that was served is not any more.
fn left_out(served: &[LaneName], now: &[LaneName], found: &[LaneStatus]) -> Vec<String> {
    let why = |lane: &LaneName| match found.iter().find(|status| status.lane == *lane) {
        Some(status) => {
            let hint = status.hint.as_ref().map(|hint| format!(" (hint: {hint})"));
            format!("{}{}", status.detail, hint.unwrap_or_default())
        }
        None => "its configuration is gone".to_owned(),
    };
    let gone = served.iter().filter(|lane| !now.contains(lane));
    gone.map(|lane| format!("{lane} is served no more: {}", why(lane))).collect()
}

/// Whether its program, or what that needs to run, is not there.
fn is_gone(lane: &LaneStatus) -> bool {
    matches!(lane.state, LaneState::Missing | LaneState::NoInterpreter | LaneState::NotThere)
}

fn is_unanswered(lane: &LaneStatus) -> bool {
    matches!(lane.state, LaneState::Silent | LaneState::Unclear)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::work::boxing::Boxing;

    fn lane(name: &str, state: LaneState) -> LaneStatus {
        LaneStatus {
            lane: name.parse().unwrap(),
            served: state == LaneState::Served,
            state,
            program: None,
            version: None,
            through: None,
            measured: None,
            model: None,
            detail: String::new(),
            hint: None,
            remarks: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_lane_is_seen_at_the_next_glance_after_its_file_is_whole_and_after_it_went() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        let env = [("HOME", home), ("RELAY_HOME", home), ("PATH", "/usr/bin:/bin")];
        let env = env.map(|(name, value)| (name.into(), value.into()));
        let context = Context::new(Config::from_environment(env.into()).unwrap());
        let lanes = machine::lanes_with(&context, Boxing::untried(), true, Vec::new());
        std::fs::create_dir(dir.path().join("lanes")).unwrap();
        let file = dir.path().join("lanes/edit.json");
        std::fs::write(&file, "").unwrap();
        let seen = Seen::now(&context.config, &lanes);
        assert_eq!(seen.processes, [], "it is being written");
        std::fs::write(&file, r#"{"command": "/bin/sh"}"#).unwrap();
        assert!(other_lanes(&lanes, &seen.processes).await);
        let seen = Seen::now(&context.config, &lanes);
        assert_eq!(seen.processes, ["process:edit".parse().unwrap()]);
        std::fs::remove_file(&file).unwrap();
        assert!(other_lanes(&lanes, &seen.processes).await);
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
        for passing in [Silent, Unclear, Missing, NoInterpreter, NotThere] {
            assert!(!with(passing, Missing, Some(Served)), "{passing:?}");
            assert!(!with(Served, passing, Some(Served)), "{passing:?}");
        }
        assert!(with(NotLoggedIn, NotLoggedIn, None), "the last ones went");
    }

    /// Its disk shows the same at each look; `process:edit` is served, and claude answers so, one
    /// answer after the other.
    struct Still {
        lanes: Lanes,
        looks: Cell<u32>,
        answers: RefCell<Vec<LaneState>>,
        /// At which looks programs were asked.
        asked: RefCell<Vec<u32>>,
    }

    impl Still {
        fn with(mut answers: Vec<LaneState>) -> Self {
            answers.reverse();
            let home = [("HOME", "/nowhere")].map(|(name, value)| (name.into(), value.into()));
            let context = Context::new(Config::from_environment(home.into()).unwrap());
            let boxing = Boxing::untried();
            Self {
                lanes: machine::lanes_with(&context, boxing, false, Vec::new()),
                looks: Cell::new(0),
                answers: RefCell::new(answers),
                asked: RefCell::default(),
            }
        }

        async fn tells(&self, worker: mpsc::Sender<Found>) {
            let served = vec!["process:edit".parse().unwrap()];
            follow(self, self.seen().await.unwrap(), served_by(&self.lanes), served, worker).await;
        }
    }

    impl Machine for Still {
        async fn until_next(&self, _: &[LaneName]) {
            tokio::task::yield_now().await;
        }

        async fn seen(&self) -> Option<Seen> {
            self.looks.set(self.looks.get() + 1);
            assert!(self.looks.get() <= 200, "nobody was asked again");
            Some(Seen { vendors: Vec::new(), processes: Vec::new() })
        }

        async fn found(&self) -> (Lanes, Vec<LaneStatus>) {
            self.asked.borrow_mut().push(self.looks.get() - 1);
            let claude = self.answers.borrow_mut().pop().expect("who has answered is asked again");
            let found = vec![lane("claude", claude), lane("process:edit", LaneState::Served)];
            (self.lanes.clone(), found)
        }
    }

    #[tokio::test]
    async fn a_program_that_did_not_answer_is_asked_again_after_five_minutes() {
        assert_eq!(GLANCE * GLANCES * ASK_AGAIN, Duration::from_secs(300));
        let machine = Still::with(vec![LaneState::Silent, LaneState::Unclear, LaneState::Served]);
        let (tells, mut told) = mpsc::channel::<Found>(1);
        let found = tokio::select! {
            () = machine.tells(tells) => panic!("it ended before its worker"),
            found = told.recv() => found.unwrap(),
        };
        assert_eq!(found.served, ["claude", "process:edit"].map(|name| name.parse().unwrap()));
        assert_eq!(*machine.asked.borrow(), [20, 40, 60]);
    }

    #[tokio::test]
    async fn a_site_that_did_not_take_the_lanes_is_told_again_after_five_minutes() {
        let machine = Still::with(vec![LaneState::Served; 2]);
        let (tells, mut told) = mpsc::channel::<Found>(1);
        let site = async {
            drop(told.recv().await.unwrap().taken);
            told.recv().await.unwrap().taken.send(()).unwrap();
            // It has all answers now.
            while machine.looks.get() < 100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = machine.tells(tells) => panic!("it ended before its worker"),
            () = site => {}
        }
        assert_eq!(*machine.asked.borrow(), [20, 40]);
    }
}
