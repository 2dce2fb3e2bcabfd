//! A claim: asked for by an id that stands on disk before, and begun only where it is what was asked.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::super::PATIENCE;
use super::Rounds;
use crate::api::{Claim, ClaimRequest, Code, ReleaseRequest};
use crate::client::ClientError;
use crate::model::{LaneName, Passage, RepoName, StopReason, fault};
use crate::work::ended::WorkError;
use crate::work::misfit::{self, Misfit};
use crate::work::persist::persistently;
use crate::work::room::LOOK_AGAIN;

/// How long logins are held for a site that does not answer: a person's own runs wait meanwhile.
const HOLDS_LOGINS: Duration = Duration::from_secs(2);

/// Why a claim is given back whose answer was late.
const LOGIN_GONE: &str = "the site's answer was late, and another run has the lane's login";
/// The same, where a person told the worker meanwhile to take nothing of the lane, or to end.
const TOLD_OTHERWISE: &str = "the site's answer was late, and the worker was paused or told to end";

/// What a claim came to.
pub(super) enum Claimed {
    Job,
    Nothing,
}

impl Rounds<'_> {
    /// Asks for a job of the lanes that are `open`, and begins it.
    pub(super) async fn claim(
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
        let asking =
            persistently(&*worker.clock, &*worker.ids, PATIENCE, || worker.client.claim(&request));
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

    /// The disk refused what a claim needs: it is told, and left alone for a moment.
    fn disk_refused(&mut self, text: &str) {
        self.shared.observer.warning(text);
        self.refused = Some(self.worker.clock.uptime());
    }

    /// Whether the disk, or this worker, refused a claim a moment ago.
    pub(super) fn was_refused(&self) -> bool {
        let now = self.worker.clock.uptime();
        self.refused.is_some_and(|at| now.saturating_sub(at) < LOOK_AGAIN)
    }

    /// Whether what was claimed of a lane may begin: it can be what was asked for before a pause.
    fn lets_begin(&self, lane: &LaneName) -> bool {
        self.orders.let_take(lane) && !self.draining.is_cancelled()
    }
}
