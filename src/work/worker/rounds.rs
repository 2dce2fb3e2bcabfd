//! The loop: free slot → doorbell → claim → job, and again at once after a job.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{FAREWELL, Worker, WorkerConfig, listed};
use crate::api::{Claim, ClaimRequest};
use crate::client::ClientError;
use crate::model::{LaneName, Orders, StopReason, TaskId};
use crate::work::backoff::Ramp;
use crate::work::beat::beating;
use crate::work::claims::ClaimFile;
use crate::work::ended::WorkError;
use crate::work::found::Found;
use crate::work::gate::Gate;
use crate::work::heartbeat::{Heartbeat, Held};
use crate::work::job::{self, Context};
use crate::work::limits::Running;
use crate::work::login::{CLAIMING, Seat};
use crate::work::ring::{Bell, Ring};
use crate::work::room::{LOOK_AGAIN, Lacking, Room};
use crate::work::stop::{Shutdown, StopSignal};

mod claim;

use self::claim::Claimed;

/// What a running worker goes round with.
pub(super) struct Rounds<'a> {
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

impl<'a> Rounds<'a> {
    pub(super) fn new(
        worker: &'a Worker,
        shared: Arc<Context>,
        held: Held,
        heartbeat: Heartbeat,
        shutdown: &Shutdown,
    ) -> Self {
        let config = &worker.config;
        let bell = Bell::new(
            worker.client.clone(),
            worker.id.clone(),
            worker.instance.clone(),
            Arc::clone(&worker.clock),
            Arc::clone(&worker.ids),
            Ramp::new(config.interval, config.max_interval),
            Arc::clone(&shared.standing),
        );
        Self {
            worker,
            draining: shutdown.drain.clone(),
            held,
            heartbeat,
            bell: bell.knowing(worker.orders.clone()),
            claim_file: ClaimFile::new(shared.copies.root(), &config.name),
            unanswered: None,
            jobs: JoinSet::new(),
            gate: Gate::new(Arc::clone(&shared)),
            running: Running::default(),
            served: config.lanes.clone(),
            orders: Orders::default(),
            lacked: None,
            refused: None,
            shared,
        }
    }

    /// Goes round until the worker is told to end, or has drained the queue with `once`.
    pub(super) async fn run(
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
            if draining {
                self.bell.tell_ending();
            }
            let served = self.lanes_let_begin();
            let lanes = self.gate.open(&served);
            self.bell.tell_refused(self.gate.refused(&served));
            let WorkerConfig { limits, jobs, .. } = &self.worker.config;
            self.bell.tell_limited(limits.full_lanes(&self.served, &self.running, *jobs));
            let except = limits.full(&self.running);
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

    /// Stops all jobs for `reason`, and ends once they have.
    pub(super) async fn stop_jobs(&mut self, reason: &StopReason) {
        self.held.stop_all(reason);
        let observer = Arc::clone(&self.shared.observer);
        while let Some(ended) = beating(&*observer, self.jobs.join_next_with_id()).await {
            self.ended(ended);
        }
    }

    /// Tells the site of other lanes, and serves them from now on; what runs is left alone. It is the
    /// same instance of this worker, which may register again. Where the site does not take it, the
    /// worker goes on as before, and may be told again.
    async fn take_up(&mut self, found: Found) {
        let Found { lanes, served, left_out, taken } = found;
        let request = self.worker.introduction(served);
        let telling = tokio::time::timeout(FAREWELL, self.worker.client.register(&request));
        let why = match telling.await {
            Ok(Ok(_)) => {
                self.shared.lanes.becomes(lanes);
                for why in &left_out {
                    self.shared.observer.warning(why);
                }
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

    /// The lanes of which a job may begin: not paused, and not at their limit.
    fn lanes_let_begin(&self) -> Vec<LaneName> {
        let limits = &self.worker.config.limits;
        let may =
            |lane: &&LaneName| self.orders.let_take(lane) && limits.let_begin(lane, &self.running);
        self.served.iter().filter(may).cloned().collect()
    }
}
