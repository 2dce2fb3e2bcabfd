//! The loop: free slot → doorbell → claim → job, and again at once after a job.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::backoff::Ramp;
use super::beat::beating;
use super::claims::ClaimFile;
use super::courier::Courier;
use super::ended::WorkError;
use super::found::Found;
use super::gate::Gate;
use super::heartbeat::{Heartbeat, Held};
use super::job::{self, Context};
use super::limits::{Limits, Running};
use super::login::{CLAIMING, Seat};
use super::misfit::{self, Misfit};
use super::persist::{Patience, persistently};
use super::prune;
use super::ring::{Bell, Ring};
use super::room::{LOOK_AGAIN, Lacking, Room};
use super::stop::{Shutdown, StopSignal};
use crate::api::{Claim, ClaimRequest, Code, RegisterRequest, ReleaseRequest};
use crate::client::{Client, ClientError};
use crate::model::{
    Clock, Ids, InstanceId, Label, LaneName, Orders, Passage, RepoName, StopReason, TaskId,
    WorkerId, WorkerName, fault,
};

/// How long a claim is asked again after an answer was lost, before the loop goes back to the bell.
const CLAIM_PATIENCE: Patience = Patience::For(Duration::from_secs(60));
/// How long logins are held for a site that does not answer: a person's own runs wait meanwhile.
const HOLDS_LOGINS: Duration = Duration::from_secs(2);
/// How long the last word to the site may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// Why a claim is given back whose answer was late.
const LOGIN_GONE: &str = "the site's answer was late, and another run has the lane's login";
/// The same, where a person told the worker meanwhile to take nothing of the lane, or to end.
const TOLD_OTHERWISE: &str = "the site's answer was late, and the worker was paused or told to end";

/// What a worker is and serves.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Its name.
    pub name: WorkerName,
    /// The machine.
    pub host: String,
    /// What it serves.
    pub lanes: Vec<LaneName>,
    /// What it advertises.
    pub labels: Vec<Label>,
    /// Hosts of the forges it can push to.
    pub forges: Vec<String>,
    /// How many jobs at a time.
    pub jobs: usize,
    /// How many of them of one lane or repository.
    pub limits: Limits,
    /// The first wait of the ramp (`--interval`).
    pub interval: Duration,
    /// The longest wait, and how long the bell is held (`--max-interval`).
    pub max_interval: Duration,
    /// Drains the queue by claims alone and ends (`--once`).
    pub once: bool,
    /// relay's version.
    pub version: String,
}

impl WorkerConfig {
    fn introduction(&self, instance: &InstanceId, lanes: Vec<LaneName>) -> RegisterRequest {
        RegisterRequest {
            name: self.name.clone(),
            instance_id: instance.clone(),
            host: self.host.clone(),
            lanes,
            labels: self.labels.clone(),
            forges: self.forges.clone(),
            version: self.version.clone(),
        }
    }
}

/// A worker, ready to run. `shared` is put together by the caller once the worker's id is known.
pub struct Worker {
    config: WorkerConfig,
    client: Client,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    id: WorkerId,
    instance: InstanceId,
    /// What people had told it before it started.
    orders: Orders,
}

impl Worker {
    /// Registers with the site. A new instance of a name ends the leases of the one before, so what
    /// that one left for the site is handed in first.
    ///
    /// # Errors
    /// When there are no lanes, or the site does not take it.
    pub async fn register(
        config: WorkerConfig,
        client: Client,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        left: &Courier,
    ) -> Result<Self, WorkError> {
        if config.lanes.is_empty() {
            return Err(WorkError::NoLanes);
        }
        let refused = |source| WorkError::Register { name: config.name.clone(), source };
        left.at_start().await.map_err(refused)?;
        let instance: InstanceId = ids.uuid().parse()?;
        let request = config.introduction(&instance, config.lanes.clone());
        let worker = persistently(&*clock, &*ids, CLAIM_PATIENCE, || client.register(&request))
            .await
            .map_err(refused)?;
        Ok(Self { id: worker.id, orders: worker.orders, config, client, clock, ids, instance })
    }

    fn introduction(&self, lanes: Vec<LaneName>) -> RegisterRequest {
        self.config.introduction(&self.instance, lanes)
    }

    /// The id the site gave.
    #[must_use]
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// Runs until it is told to end, or has drained the queue with `once`. What is `found` while it
    /// runs it takes up.
    ///
    /// # Errors
    /// When it was replaced, or can no longer claim safely. Its jobs were stopped then.
    pub async fn run(
        self,
        shared: Arc<Context>,
        courier: Courier,
        shutdown: Shutdown,
        found: mpsc::Receiver<Found>,
    ) -> Result<(), WorkError> {
        shared.observer.registered(&self.id, &listed(&self.config.lanes));
        let held = Held::default();
        let faults = Arc::clone(&shared.faults);
        let heartbeat = Heartbeat {
            client: self.client.clone(),
            worker: self.id.clone(),
            instance: self.instance.clone(),
            interval: self.config.max_interval,
        };
        let beating = tokio::spawn(heartbeat.clone().run(
            held.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.ids),
        ));
        let handing_in = tokio::spawn(courier.beside());
        let pruning = tokio::spawn(prune::daily(Arc::clone(&shared)));
        let mut state = Loop {
            claim_file: ClaimFile::new(shared.copies.root(), &self.config.name),
            bell: Bell::new(
                self.client.clone(),
                self.id.clone(),
                self.instance.clone(),
                Arc::clone(&self.clock),
                Arc::clone(&self.ids),
                Ramp::new(self.config.interval, self.config.max_interval),
                Arc::clone(&shared.standing),
            )
            .knowing(self.orders.clone()),
            gate: Gate::new(Arc::clone(&shared)),
            unanswered: None,
            orders: Orders::default(),
            running: Running::default(),
            served: self.config.lanes.clone(),
            lacked: None,
            refused: None,
            jobs: JoinSet::new(),
            held,
            shared,
            heartbeat: heartbeat.clone(),
            draining: shutdown.drain.clone(),
            worker: &self,
        };
        let ended = state.run(&shutdown, found).await;
        if let Err(error) = &ended {
            // What a job has for a site that refuses the token is kept for the next one.
            let barred = matches!(error, WorkError::Barred { .. });
            let reason = if barred { StopReason::WorkerStopped } else { StopReason::LeaseLost };
            state.held.stop_all(&reason);
            state.finish_jobs().await;
        }
        drop(state);
        beating.abort();
        pruning.abort();
        handing_in.abort();
        if !matches!(ended, Err(WorkError::Replaced(_) | WorkError::Barred { .. })) {
            let leaving = tokio::time::timeout(FAREWELL, heartbeat.offline());
            if let Ok(Err(error)) = fault::pass(&*faults, Passage::Offline, leaving).await {
                tracing::debug!(%error, "the site was not told that the worker goes");
            }
        }
        ended
    }
}

/// The running loop.
struct Loop<'a> {
    worker: &'a Worker,
    draining: CancellationToken,
    shared: Arc<Context>,
    held: Held,
    heartbeat: Heartbeat,
    bell: Bell,
    claim_file: ClaimFile,
    /// The last claim, where no answer came: the next one asks for it by the same id.
    unanswered: Option<ClaimRequest>,
    jobs: JoinSet<(LaneName, job::Ended)>,
    /// Which lanes can run now.
    gate: Gate,
    /// What the jobs are of.
    running: Running,
    /// The lanes it serves now.
    served: Vec<LaneName>,
    /// What people told this worker, taken up.
    orders: Orders,
    /// What the disk lacked when it was last looked at, so that it is told once.
    lacked: Option<Lacking>,
    /// By [`Clock::uptime`]: the disk, or this worker, refused a claim then. Nothing is claimed for
    /// a moment.
    refused: Option<Duration>,
}

/// What a claim came to.
enum Claimed {
    Job,
    Nothing,
}

impl Loop<'_> {
    async fn run(
        &mut self,
        shutdown: &Shutdown,
        mut found: mpsc::Receiver<Found>,
    ) -> Result<(), WorkError> {
        let mut ask = true;
        let mut stopping = false;
        let once = self.worker.config.once;
        let observer = Arc::clone(&self.shared.observer);
        let mut told = self.held.orders();
        loop {
            observer.beat();
            ask |= self.take_orders(shutdown);
            let draining = shutdown.drain.is_cancelled();
            let served = self.lanes_let_begin();
            let lanes = self.gate.open(&served);
            self.bell.tell_refused(self.gate.refused(&served));
            let except = self.worker.config.limits.full(&self.running);
            let lacking = self.lacks_room();
            let disk_waits = lacking.is_some() || self.was_refused();
            let free = if draining || lanes.is_empty() || disk_waits {
                0
            } else {
                self.worker.config.jobs.saturating_sub(self.jobs.len())
            };
            if ask && free > 0 {
                ask = matches!(self.claim(&lanes, except).await?, Claimed::Job);
                continue;
            }
            if self.jobs.is_empty() && (draining || once) {
                return match lacking {
                    Some(lacking) if !draining => {
                        Err(WorkError::NoRoom { folder: self.folder(), lacking })
                    }
                    _ => Ok(()),
                };
            }
            if self.jobs.is_empty() {
                self.shared.observer.waiting();
            }
            tokio::select! {
                biased;
                () = shutdown.stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.held.stop_all(&StopReason::WorkerStopped);
                }
                refused = self.shared.standing.barred() => return Err(self.barred(refused)),
                Some(ended) = self.jobs.join_next_with_id(), if !self.jobs.is_empty() => {
                    self.ended(ended);
                    // A queue that held one task often holds another.
                    ask = true;
                }
                () = shutdown.drain.cancelled(), if !draining => {}
                Some(found) = found.recv(), if !draining => {
                    self.take_up(found).await;
                    ask = true;
                }
                Ok(()) = told.changed() => {
                    if *told.borrow_and_update() != self.orders {
                        self.bell.hurry();
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN), if disk_waits => ask = true,
                () = self.gate.changes(&served, &lanes), if !draining => ask = true,
                // With `--once` the bell only tells of leases that were called off.
                ring = beating(&*observer, self.bell.next(if once { 0 } else { free }, &lanes, &except)), if !once || !self.jobs.is_empty() => match ring {
                    Ring::Claim => ask = true,
                    Ring::Quiet => {}
                    // A hint; the heartbeat's answer is final and carries the reason.
                    Ring::Revoked => self.held.ask_now(),
                    Ring::Barred(error) => return Err(self.barred(error)),
                    Ring::Replaced => {
                        return Err(WorkError::Replaced(self.worker.config.name.clone()));
                    }
                },
            }
        }
    }

    async fn finish_jobs(&mut self) {
        let observer = Arc::clone(&self.shared.observer);
        while let Some(ended) = beating(&*observer, self.jobs.join_next_with_id()).await {
            self.ended(ended);
        }
    }

    async fn claim(
        &mut self,
        open: &[LaneName],
        except: Vec<RepoName>,
    ) -> Result<Claimed, WorkError> {
        let worker = self.worker;
        let mut seats = self.gate.seats(open).await;
        if seats.is_empty() {
            return Ok(Claimed::Nothing);
        }
        let lanes = seats.iter().map(|(lane, _)| lane.clone()).collect();
        let faults = Arc::clone(&self.shared.faults);
        let opening = async { self.claim_file.open(&*worker.ids) };
        let claim_id = match fault::pass(&*faults, Passage::ClaimId, opening).await {
            Ok(claim_id) => claim_id,
            Err(error) => {
                // Without its id on disk a claim could be lost, so nothing is claimed.
                let text =
                    format!("nothing is claimed: {}: {error}", self.claim_file.path().display());
                self.disk_refused(&text);
                return Ok(Claimed::Nothing);
            }
        };
        let request = ClaimRequest {
            worker_id: worker.id.clone(),
            instance_id: worker.instance.clone(),
            claim_id,
            lanes: Some(lanes),
            labels: Some(worker.config.labels.clone()),
            except,
        };
        let asking = persistently(&*worker.clock, &*worker.ids, CLAIM_PATIENCE, || {
            worker.client.claim(&request)
        });
        let asked = {
            let mut asking = pin!(fault::pass(&*faults, Passage::Claim, asking));
            tokio::select! {
                biased;
                asked = &mut asking => asked,
                () = tokio::time::sleep(HOLDS_LOGINS) => {
                    seats.clear();
                    asking.await
                }
            }
        };
        match asked {
            Ok(answer) => {
                let before = self.unanswered.take().filter(|b| b.claim_id == request.claim_id);
                let Some(claim) = answer.claim else {
                    self.claim_file.answered();
                    return Ok(Claimed::Nothing);
                };
                // It may be what was asked for before a lane was paused.
                let asked = misfit::check(&claim, &request).or_else(|misfit| {
                    let fits = |b: &ClaimRequest| misfit::check(&claim, b).is_ok();
                    if before.is_some_and(|b| fits(&b)) { Ok(()) } else { Err(misfit) }
                });
                if let Err(misfit) = asked {
                    self.claim_file.answered();
                    return self.give_back(&claim, misfit).await;
                }
                let lane = &claim.task.lane;
                if !self.lets_begin(lane) {
                    self.claim_file.answered();
                    return self.let_go(&claim, TOLD_OTHERWISE).await;
                }
                let mut own: Vec<_> = seats.into_iter().filter(|(of, _)| of == lane).collect();
                if own.is_empty() {
                    // Given back meanwhile, or the claim is of an earlier asking.
                    own = self.gate.seats(std::slice::from_ref(lane)).await;
                }
                let Some((_, seat)) = own.pop() else {
                    self.claim_file.answered();
                    return self.let_go(&claim, LOGIN_GONE).await;
                };
                self.start(claim, seat);
                self.claim_file.answered();
                Ok(Claimed::Job)
            }
            Err(ClientError::Refused(problem)) if problem.code == Code::WorkerUnknown => {
                Err(WorkError::Replaced(worker.config.name.clone()))
            }
            Err(error) if error.is_barring() => Err(self.barred(error)),
            Err(error) if worker.config.once && error.code() != Some(Code::Disk) => {
                Err(WorkError::Unclaimed(error))
            }
            Err(error) => {
                // The id stays on disk: the next claim asks for the same answer.
                self.unanswered = Some(request);
                let hint = error.hint().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
                let text = format!("could not claim: {error}{hint}");
                if error.code() == Some(Code::Disk) {
                    self.disk_refused(&text);
                } else {
                    self.shared.observer.warning(&text);
                }
                Ok(Claimed::Nothing)
            }
        }
    }

    /// A claim that is not what was asked for is not worked on, whatever it says. It is given back
    /// where it names a lease of this worker's, and the site is left alone for a moment.
    async fn give_back(&mut self, claim: &Claim, misfit: Misfit) -> Result<Claimed, WorkError> {
        self.shared.observer.warning(&format!("{misfit} (hint: {})", misfit::HINT));
        self.refused = Some(self.worker.clock.uptime());
        if let Some(release) = misfit.release(claim)
            && let Err(error) = self.worker.client.release(&claim.lease.reference(), &release).await
        {
            self.shared.observer.warning(&format!("{}: {error}", claim.lease.task));
        }
        if self.worker.config.once && self.jobs.is_empty() {
            return Err(WorkError::Misfit(misfit));
        }
        Ok(Claimed::Nothing)
    }

    /// Gives a claim back that cannot be worked on by now: other machines can take the task.
    async fn let_go(&self, claim: &Claim, why: &str) -> Result<Claimed, WorkError> {
        let release = ReleaseRequest {
            worker_id: claim.lease.worker.clone(),
            epoch: claim.lease.epoch,
            reason: StopReason::WorkerStopped,
            pr: None,
            pr_url: None,
            summary: None,
            error: Some(why.to_owned()),
            kept: None,
            usage: None,
            note: None,
        };
        let lease = claim.lease.reference();
        if let Err(error) = self.worker.client.release(&lease, &release).await {
            // The lease runs out by itself.
            self.shared.observer.warning(&format!("{}: {error}", claim.lease.task));
        }
        Ok(Claimed::Nothing)
    }

    /// Tells the site of other lanes, and serves them from now on; what runs is left alone. It is the
    /// same instance of this worker, which may register again. Where the site does not take it, the
    /// worker goes on as before, and may be told again.
    async fn take_up(&mut self, found: Found) {
        let Found { lanes, served, taken } = found;
        let request = self.worker.introduction(served);
        let telling = tokio::time::timeout(FAREWELL, self.worker.client.register(&request));
        let why = match telling.await {
            Ok(Ok(_)) => {
                self.shared.lanes.becomes(lanes);
                self.shared.observer.registered(&self.worker.id, &listed(&request.lanes));
                self.served = request.lanes;
                let _ = taken.send(());
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        self.shared.observer.warning(&format!(
            "the lanes of this machine changed, and the site was not told: {why}; it serves those it did"
        ));
    }

    fn barred(&self, source: ClientError) -> WorkError {
        WorkError::Barred { name: self.worker.config.name.clone(), source }
    }

    fn folder(&self) -> PathBuf {
        self.shared.copies.root().to_owned()
    }

    /// What the disk lacks for another run; told once, and once more when it is back.
    fn lacks_room(&mut self) -> Option<Lacking> {
        let folder = self.folder();
        let lacking = Room::of(&folder).ok().and_then(Room::lacking);
        match (self.lacked, lacking) {
            (None, Some(lacking)) => self.shared.observer.warning(&format!(
                "nothing is claimed: the disk under {} has no room for a run: {lacking} (hint: {})",
                folder.display(),
                lacking.mend(&folder)
            )),
            (Some(_), None) => self.shared.observer.warning("the disk has room again"),
            _ => {}
        }
        self.lacked = lacking;
        lacking
    }

    /// The disk refused what a claim needs: it is told, and left alone for a moment.
    fn disk_refused(&mut self, text: &str) {
        self.shared.observer.warning(text);
        self.refused = Some(self.worker.clock.uptime());
    }

    fn was_refused(&self) -> bool {
        let now = self.worker.clock.uptime();
        self.refused.is_some_and(|at| now.saturating_sub(at) < LOOK_AGAIN)
    }

    fn start(&mut self, claim: Claim, mut seat: Option<Seat>) {
        self.bell.reset();
        self.gate.begins(&claim.task.lane);
        let lease = claim.lease.reference();
        let lane = claim.task.lane.clone();
        let signal = StopSignal::default();
        // Dropped with the job, also when it panics: a lease without a job is not kept alive.
        let holding = self.held.hold(lease, signal.clone());
        let shared = Arc::clone(&self.shared);
        let heartbeat = self.heartbeat.clone();
        let draining = self.draining.clone();
        if let Some(seat) = &mut seat {
            seat.doing(&format!("{CLAIMING}, {}", claim.lease.task));
        }
        let of = (lane.clone(), claim.task.id.repo.clone());
        let job = self.jobs.spawn(async move {
            let ended = job::run(shared, claim, signal, heartbeat, draining, seat).await;
            drop(holding);
            (lane, ended)
        });
        self.running.began(job.id(), of.0, of.1);
    }

    /// Takes up what people told this worker. True where there may be more to claim now.
    fn take_orders(&mut self, shutdown: &Shutdown) -> bool {
        let orders = self.bell.orders();
        if *orders == self.orders {
            return false;
        }
        let before = std::mem::replace(&mut self.orders, orders.clone());
        let running: Vec<TaskId> = self.held.leases().into_iter().map(|held| held.task).collect();
        self.shared.observer.ordered(&self.orders, &running);
        if self.orders.drain.is_some() {
            shutdown.drain.cancel();
        }
        self.served.iter().any(|lane| !before.let_take(lane) && self.orders.let_take(lane))
    }

    fn ended(&mut self, ended: Result<(Id, (LaneName, job::Ended)), JoinError>) {
        self.running.ended(ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id));
        match ended {
            Ok((_, (lane, ended))) => self.gate.ended(&lane, &ended),
            // The lease runs out by itself; the site queues the task again.
            Err(error) => tracing::error!(%error, "a job ended without an answer"),
        }
    }

    /// Whether what was claimed of a lane may begin: it can be what was asked for before a pause.
    fn lets_begin(&self, lane: &LaneName) -> bool {
        self.orders.let_take(lane) && !self.draining.is_cancelled()
    }

    /// The lanes of which a job may begin: not paused, and not at their limit.
    fn lanes_let_begin(&self) -> Vec<LaneName> {
        let limits = &self.worker.config.limits;
        let may =
            |lane: &&LaneName| self.orders.let_take(lane) && limits.let_begin(lane, &self.running);
        self.served.iter().filter(may).cloned().collect()
    }
}

fn listed(lanes: &[LaneName]) -> String {
    lanes.iter().map(LaneName::as_str).collect::<Vec<_>>().join(", ")
}
