//! One job: from a claim to its release, in the steps of DESIGN §4.
//!
//! Effects on the world are recorded before the next step begins, so that another claim of the
//! task goes on from the first that is missing. What a job makes on this disk goes with it,
//! however it ends.

mod asking;
mod effects;
mod halt;
mod keep;
mod publish;
mod report;
mod run;
mod transcript;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::effects::Done;
pub use self::halt::Stop;
use self::report::Unrecorded;
use super::away::Standing;
use super::copies::Copies;
use super::heartbeat::Heartbeat;
use super::lane::{Lanes, Present};
use super::linked::Linked;
use super::log::{RunLog, Speaker};
use super::login::Seat;
use super::observer::{Observer, Step, StepEvent};
use super::outbox::Outbox;
use super::persist::{Patience, persistently};
use super::renewal::Renewal;
use super::stop::StopSignal;
use crate::api::{Claim, Code, StartRequest};
use crate::client::{Client, ClientError};
use crate::forge::github::{Accounts, Login};
use crate::git::Git;
use crate::model::{
    Clock, Faults, ForgeKind, Ids, LeaseRef, Outcome, Passage, StopReason, Timestamp, Usage,
    WorkerId, fault,
};
use crate::process::Redactor;
use tokio_util::sync::CancellationToken;

/// How long a step speaks to a site that is there and fails. One that is away is waited for: a lane
/// that was not begun costs nothing, and what was done is not thrown away.
const PATIENCE: Patience = Patience::WhileAway(Duration::from_secs(120));

/// How long a site that does not answer is waited for once the worker is told to end: the next start
/// hands in what there is.
const LAST_WORD: Duration = Duration::from_secs(60);

/// What every job of a worker shares.
pub struct Context {
    /// The site.
    pub client: Client,
    /// This worker.
    pub worker: WorkerId,
    /// Git.
    pub git: Git,
    /// What this machine has.
    pub lanes: Present,
    /// Where copies stand.
    pub copies: Copies,
    /// Where work is kept that could not be pushed.
    pub kept: PathBuf,
    /// Where the transcripts of runs stand.
    pub runs: PathBuf,
    /// Where results are kept until the site has them.
    pub outbox: Outbox,
    /// This machine's logins, for pull requests and for git.
    pub accounts: Arc<Accounts>,
    /// The API that this machine's login is for. A site says in which repository a task is, and
    /// not who is given the token.
    pub forge_api: String,
    /// The repositories of this disk that a far site may name. `None` where the site is this
    /// machine's own.
    pub linked: Option<Linked>,
    /// relay's own program, which supervises lanes.
    pub supervisor: PathBuf,
    /// The time limit of a run, where a flag names one: it beats a preference.
    pub max_run: Option<Duration>,
    /// Leaves copies for a person.
    pub keep: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub ids: Arc<dyn Ids>,
    /// The fault points of worker and job.
    pub faults: Arc<dyn Faults>,
    /// How it stands with the site.
    pub standing: Arc<Standing>,
    /// Who is told.
    pub observer: Arc<dyn Observer>,
}

/// One job.
pub struct Job {
    shared: Arc<Context>,
    /// As they were when it began.
    lanes: Arc<Lanes>,
    claim: Claim,
    lease: LeaseRef,
    signal: StopSignal,
    renewal: Renewal,
    log: RunLog,
    unrecorded: Unrecorded,
    /// The site's clock against this machine's, in milliseconds.
    skew: i64,
    /// Nothing new is taken, and the worker ends once its jobs have.
    draining: CancellationToken,
    /// The login for the task's forge; a repository on this disk needs none.
    login: Option<Login>,
    /// What nobody may be shown and no commit may hold: the run's own login as well, once it has one.
    hidden: Redactor,
    /// The vendor's login, until the lane has run, and when it was taken.
    seat: Option<(Seat, Timestamp)>,
}

/// What a job has to show for itself when it is released.
#[derive(Debug, Default)]
struct Report {
    summary: Option<String>,
    usage: Option<Usage>,
    note: Option<String>,
    pr: Option<(u64, String)>,
    /// The file that keeps work which was not delivered.
    kept: Option<PathBuf>,
}

/// What came of a step that was done.
struct Note {
    note: String,
    outcome: Outcome,
}

impl From<String> for Note {
    fn from(note: String) -> Self {
        Self { note, outcome: Outcome::Finished }
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why it stopped.
    pub reason: StopReason,
    /// Whether the vendor answered its program at least once.
    pub answered: bool,
}

/// Does one job and releases its lease.
pub async fn run(
    shared: Arc<Context>,
    claim: Claim,
    signal: StopSignal,
    heartbeat: Heartbeat,
    draining: CancellationToken,
    seat: Option<Seat>,
) -> Ended {
    let seat = seat.map(|seat| (seat, shared.clock.now()));
    let lease = claim.lease.reference();
    let renewal = Renewal {
        heartbeat,
        lease: lease.clone(),
        signal: signal.clone(),
        clock: Arc::clone(&shared.clock),
        ids: Arc::clone(&shared.ids),
    };
    let speaker = Speaker {
        client: shared.client.clone(),
        worker: shared.worker.clone(),
        lease: lease.clone(),
    };
    let place = shared.outbox.place(&claim.run);
    let (log, sender) = RunLog::start(speaker, place, Arc::clone(&shared.ids));
    let unrecorded = Unrecorded::default();
    let skew = report::skew(&claim.lease, shared.clock.now());
    let lanes = shared.lanes.now();
    let hidden = lanes.redactor();
    let mut job = Job {
        shared,
        lanes,
        claim,
        lease,
        signal,
        renewal,
        log,
        unrecorded,
        skew,
        draining,
        login: None,
        hidden,
        seat,
    };
    let mut report = Report::default();
    let end = Box::pin(job.steps(&mut report)).await;
    let end = end.map_err(|stop| job.for_a_person(stop));
    if let Err(stop) = &end {
        job.leave_login(Some(&stop.reason));
        job.forget_refused_login(stop).await;
        job.log.line(&format!("stopped: {}", stop.reason));
        if let Some(error) = stop.told() {
            job.log.line(&error);
        }
    }
    // The log goes first: the site takes none for a lease that was released.
    let rest = sender.finish().await;
    let faults = Arc::clone(&job.shared);
    let answered = report.usage.as_ref().is_some_and(Usage::tells_of_an_answer);
    let releasing = job.release(end.err(), report, rest);
    let reason = fault::pass(&*faults.faults, Passage::Release, releasing).await;
    Ended { reason, answered }
}

impl Job {
    /// With what mends it. A path or a word of the lane's may stand in an error, and a secret in it.
    fn for_a_person(&self, stop: Stop) -> Stop {
        stop.hinted(&self.lease.task).without(&self.hidden)
    }

    async fn steps(&mut self, report: &mut Report) -> Result<(), Stop> {
        let mut done = Done::read(&self.claim.effects);
        report.kept = self.kept_before(&done);
        // On the heap: one after another these are by far the largest values of the worker.
        let mut work = Box::pin(self.produce(&mut done, report)).await?;
        report.summary.clone_from(&work.summary);
        report.usage.clone_from(&work.usage);
        Box::pin(self.publish(&mut work, &mut done, report)).await?;
        self.let_go(&work, report).await;
        Ok(())
    }

    /// Does `work` between two fault points.
    async fn pass<T>(&self, passage: Passage, work: impl Future<Output = T>) -> T {
        fault::pass(&*self.shared.faults, passage, work).await
    }

    /// Tells the observer and the log about a step around doing it.
    async fn step<T, N: Into<Note>>(
        &self,
        step: Step,
        work: impl Future<Output = Result<T, Stop>>,
        note: impl FnOnce(&T) -> N,
    ) -> Result<T, Stop> {
        let task = &self.lease.task;
        self.shared.observer.step(task, step, &StepEvent::Began);
        self.log.line(&format!("== {}", step.as_str()));
        let began = self.shared.clock.uptime();
        match work.await {
            Ok(value) => {
                let Note { note, outcome } = note(&value).into();
                let took = self.shared.clock.uptime().saturating_sub(began).as_secs_f64();
                self.log.line(&format!("   {note} ({took:.3} s)"));
                self.shared.observer.step(task, step, &StepEvent::Ended { note, outcome });
                Ok(value)
            }
            Err(stop) => {
                let stop = self.for_a_person(stop);
                let event = StepEvent::Failed { reason: stop.reason.clone(), error: stop.told() };
                self.shared.observer.step(task, step, &event);
                Err(stop)
            }
        }
    }

    /// Keeps what the run showed of the vendor's login, and lets the next run have it. Only the
    /// first call says something.
    fn leave_login(&mut self, stop: Option<&StopReason>) {
        let Some((seat, began)) = self.seat.take() else { return };
        let (lane, now) = (&self.claim.task.lane, self.shared.clock.now());
        self.lanes.heard(lane, seat.whose(), began, stop, now);
    }

    async fn start(&self) -> Result<(), Stop> {
        let request = StartRequest {
            worker_id: self.shared.worker.clone(),
            epoch: self.lease.epoch,
            branch: self.claim.branch.clone(),
        };
        let starting = self.tell(PATIENCE, || self.shared.client.start(&self.lease.task, &request));
        self.pass(Passage::Start, starting).await.map(drop)
    }

    /// Says something to the site under the lease. The lease being gone ends the job.
    async fn tell<T, F>(&self, patience: Patience, ask: impl Fn() -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (clock, ids) = (&*self.shared.clock, &*self.shared.ids);
        let asking = self.renewal.saying(|| persistently(clock, ids, patience, &ask));
        match self.while_the_site_is_itself(asking).await? {
            Ok(value) => Ok(value),
            Err(ClientError::Refused(problem)) if problem.code == Code::LeaseLost => {
                Err(self.signal.reason().unwrap_or(StopReason::LeaseLost).into())
            }
            Err(error) => Err(Stop::new(
                StopReason::WorkerStopped,
                format!("the site did not take the job's report: {error}"),
            )),
        }
    }

    /// Waits for the site, unless the job is stopped, or the worker was told to end and something
    /// that is no relay answers in the site's place. What was done is recorded or kept.
    async fn while_the_site_is_itself<T>(
        &self,
        asking: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        tokio::select! {
            biased;
            answer = self.signal.guard(asking) => Ok(answer?),
            () = self.shared.standing.strange_after(&self.draining, LAST_WORD) => {
                let text = "something else answers in the site's place, and the worker ends";
                Err(Stop::new(StopReason::WorkerStopped, text))
            }
        }
    }

    fn is_local(&self) -> bool {
        self.claim.project.forge == ForgeKind::Local
    }
}
