//! The worker's routes: register, heartbeat, doorbell, claim, start, record, log, release.

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body as Stream, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};

use super::answer::Json;
use super::bell::Ask;
use super::caller::Caller;
use super::extract::{Asked, Body, OfProject, OfTask, OfWorker, Own};
use super::logs::CHUNK_MAX;
use super::problem::{Answer, Refusal};
use super::sites::Notice;
use super::state::Site;
use crate::api::{
    Claim, ClaimAnswer, ClaimRequest, Code, Doorbell, DoorbellQuery, HeartbeatAnswer,
    HeartbeatRequest, LeaseAnswer, LocalPull, LogChunk, LogTaken, OpenLocalPull, Problem,
    RecordRequest, RegisterRequest, ReleaseAnswer, ReleaseRequest, StartRequest, Workers,
};
use crate::model::{InstanceId, LaneName, LeaseRef, RepoName, Task, Worker, WorkerId};
use crate::queue::{Claimant, Claimed, LeaseRenewal, LeftOut, LocalPullRow, NewWorker, RunEnd};

/// A held answer begins after this, and then says a blank as often, so that proxies keep the line
/// and a dead one is noticed (DESIGN §3).
const BLANK_EVERY: Duration = Duration::from_secs(20);

/// Where a piece of a log may begin at most: what every reader of JSON tells apart from its
/// neighbours, and far more than a log can have.
const OFFSET_MAX: u64 = 1 << 53;

pub(super) async fn register(
    State(site): State<Arc<Site>>,
    caller: Caller,
    Body(request): Body<RegisterRequest>,
) -> Answer<Json<Worker>> {
    caller.register_as(&request.name)?;
    let inner = Arc::clone(&site);
    site.write(async move {
        let site = inner;
        let instance = request.instance_id.clone();
        let written = site.orders.written();
        let registered = site
            .queue
            .register(NewWorker {
                name: request.name,
                instance: request.instance_id,
                host: request.host,
                lanes: request.lanes,
                labels: request.labels,
                forges: request.forges,
                version: request.version,
            })
            .await?;
        // Before the worker is answered, so that it claims nothing that its token does not end.
        site.queue.bind_worker(&registered.worker.id, caller.token()).await?;
        site.bearers.met(&registered.worker.name, &registered.worker.id);
        for lease in &registered.ended {
            site.logs.ended(lease);
        }
        let (worker, ended) = (&registered.worker, &registered.ended);
        site.registered(worker, Some(instance.clone()), ended, written).await?;
        site.sites.tell(Notice::Registered {
            worker: registered.worker.id.clone(),
            instance,
            ended: registered.ended.clone(),
        });
        if !registered.ended.is_empty() {
            site.timers.changed();
        }
        Ok(Json(registered.worker))
    })
    .await
}

pub(super) async fn workers(State(site): State<Arc<Site>>) -> Answer<Json<Workers>> {
    site.hear_held();
    Ok(Json(Workers { workers: site.queue.workers().await? }))
}

pub(super) async fn heartbeat(
    State(site): State<Arc<Site>>,
    OfWorker(worker): OfWorker,
    Body(request): Body<HeartbeatRequest>,
) -> Answer<Json<HeartbeatAnswer>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let (site, request) = (inner, request);
        let HeartbeatRequest { instance_id, offline, interval_ms, leases } = request;
        let renewals =
            site.queue.heartbeat(&worker, &instance_id, offline, interval_ms, &leases).await?;
        let mut answers = Vec::with_capacity(renewals.len());
        for (lease, renewal) in leases.iter().zip(renewals) {
            answers.push(match renewal {
                LeaseRenewal::Renewed { expires_at } => {
                    site.logs.renewed(lease, expires_at);
                    site.bell.renewed(&worker, lease);
                    site.timers.no_later_than(expires_at);
                    LeaseAnswer::Renewed { expires_at }
                }
                LeaseRenewal::Lost { reason } => {
                    site.logs.ended(lease);
                    site.bell.settled(&worker, lease);
                    LeaseAnswer::Lost { reason }
                }
            });
        }
        site.sites.heard(&worker);
        if offline {
            site.bell.left(&worker);
            site.queue.leaves_out(&worker, LeftOut::default());
            site.sites.tell(Notice::Left { worker: worker.clone() });
        }
        let orders = site.bell.orders(&worker);
        Ok(Json(HeartbeatAnswer { leases: answers, orders }))
    })
    .await
}

pub(super) async fn doorbell(
    State(site): State<Arc<Site>>,
    caller: Caller,
    Asked(query): Asked<DoorbellQuery>,
) -> Answer<Response> {
    let lanes: Vec<LaneName> = listed(Some(&query.lanes))?;
    let except: Vec<RepoName> = listed(query.except.as_deref())?;
    let refused: Vec<LaneName> = listed(query.refused.as_deref())?;
    let limited: Vec<LaneName> = listed(query.limited.as_deref())?;
    if let Some(worker) = &query.worker_id {
        caller.speak_for(&site, worker).await?;
        introduce(&site, worker, query.instance_id.as_ref()).await?;
        site.queue.heard(worker);
        let (full, ending) = (except.clone(), query.ending);
        let left = LeftOut { refused, limited, full, ending };
        if site.queue.leaves_out(worker, left.clone()) {
            site.sites.tell(Notice::LeavesOut { worker: worker.clone(), left });
        }
        site.sites.heard(worker);
    }
    let ask = Ask {
        worker: query.worker_id,
        instance: query.instance_id,
        lanes,
        free: query.free,
        since: query.since,
        except,
        told: query.told,
    };
    let bell = Arc::clone(&site.bell);
    let wait = Duration::from_secs(u64::from(query.wait));
    Ok(held(async move { bell.ring(ask, wait).await }.boxed(), BLANK_EVERY).await)
}

/// The names of a list with commas between them.
fn listed<T: FromStr>(text: Option<&str>) -> Result<Vec<T>, T::Err> {
    let names = text.unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::parse).collect()
}

/// Makes sure that the bell knows the worker, and that this instance of it is the living one. The
/// database is asked once a worker and owner.
async fn introduce(site: &Site, worker: &WorkerId, instance: Option<&InstanceId>) -> Answer<()> {
    let unknown = || {
        let detail = format!("worker `{worker}` is not registered, or another instance of it is");
        Refusal(Problem::new(Code::WorkerUnknown, detail))
    };
    match site.bell.knows(worker, instance) {
        Some(true) => return Ok(()),
        // Another site may have met a newer one: what is remembered here decides nothing.
        Some(false) if site.sites.is_many() => site.queue.forget(worker),
        Some(false) => return Err(unknown()),
        None => {}
    }
    // On the heap: else every ring would carry room for it.
    Box::pin(meet(site, worker, instance)).await?.ok_or_else(unknown)
}

/// Asks the database about a worker that the bell does not know. `None` where there is none.
async fn meet(site: &Site, worker: &WorkerId, instance: Option<&InstanceId>) -> Answer<Option<()>> {
    if let Some(instance) = instance {
        let (queue, worker, instance) = (site.queue.clone(), worker.clone(), instance.clone());
        let beat = async move { Ok(queue.heartbeat(&worker, &instance, false, None, &[]).await?) };
        site.write(beat).await?;
    }
    let written = site.orders.written();
    let Some(known) = site.queue.worker(worker).await? else { return Ok(None) };
    site.registered(&known, instance.cloned(), &[], written).await?;
    Ok(Some(()))
}

/// The doorbell's answer as a response. One that comes soon is an ordinary one; after `every` the
/// head goes out with a blank in front of the JSON, and a blank `every` so often.
async fn held(mut ring: BoxFuture<'static, Doorbell>, every: Duration) -> Response {
    // Most are answered without waiting: no timer is made for those.
    let soon = match (&mut ring).now_or_never() {
        Some(answer) => Ok(answer),
        None => tokio::time::timeout(every, &mut ring).await,
    };
    if let Ok(answer) = soon {
        return Json(answer).into_response();
    }
    let blanks = stream::unfold(Some(ring), move |ring| async move {
        let mut ring = ring?;
        match tokio::time::timeout(every, &mut ring).await {
            Ok(answer) => {
                let json = serde_json::to_vec(&answer).unwrap_or_default();
                Some((Bytes::from(json), None))
            }
            Err(_) => Some((Bytes::from_static(b" "), Some(ring))),
        }
    });
    let body = stream::once(async { Bytes::from_static(b" ") }).chain(blanks);
    let body = Stream::from_stream(body.map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

pub(super) async fn claim(
    State(site): State<Arc<Site>>,
    caller: Caller,
    Own(request): Own<ClaimRequest>,
) -> Answer<Json<ClaimAnswer>> {
    let inner = Arc::clone(&site);
    site.write(async move {
        let site = inner;
        site.timers.sweep_if_due().await?;
        let began = site.bell.reading();
        let claimant = Claimant {
            worker: request.worker_id,
            instance: request.instance_id,
            claim_id: request.claim_id,
            lanes: request.lanes,
            labels: request.labels,
            except: request.except,
        };
        let Some(claimed) = site.queue.claim(&claimant).await? else {
            let Claimant { worker, lanes, except, .. } = &claimant;
            if site.bell.declined(worker, lanes.as_deref(), except, began) {
                site.timers.reread();
            }
            return Ok(Json(ClaimAnswer { claim: None }));
        };
        if caller.is_revoked() {
            // The token was revoked while this went on, maybe before there was a lease to end.
            site.end_claimed(&caller).await?;
            return Ok(Json(ClaimAnswer { claim: None }));
        }
        let Claimed { lease, run, task, project, effects, branch, preferences } = claimed;
        let worker = claimant.worker;
        site.logs.claimed(lease.reference(), worker.clone(), run.clone(), lease.expires_at);
        if site.bell.claimed(&worker, &task.id) {
            site.timers.reread();
        }
        site.timers.no_later_than(lease.expires_at);
        site.sites.tell(Notice::Claimed { task: task.id.clone(), until: lease.expires_at });
        let claim = Claim { lease, run, task, project, effects, branch, preferences };
        Ok(Json(ClaimAnswer { claim: Some(claim) }))
    })
    .await
}

pub(super) async fn start(
    State(site): State<Arc<Site>>,
    OfTask(task): OfTask,
    Own(request): Own<StartRequest>,
) -> Answer<Json<Task>> {
    let lease = LeaseRef { task, epoch: request.epoch };
    let queue = site.queue.clone();
    site.write(
        async move { Ok(Json(queue.start(&lease, &request.worker_id, &request.branch).await?)) },
    )
    .await
}

pub(super) async fn record(
    State(site): State<Arc<Site>>,
    OfTask(task): OfTask,
    Own(request): Own<RecordRequest>,
) -> Answer<StatusCode> {
    let lease = LeaseRef { task, epoch: request.epoch };
    let queue = site.queue.clone();
    site.write(async move {
        queue.record(&lease, &request.worker_id, &request.effect).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

pub(super) async fn log(
    State(site): State<Arc<Site>>,
    OfTask(task): OfTask,
    Own(chunk): Own<LogChunk>,
) -> Answer<Json<LogTaken>> {
    if chunk.text.len() > CHUNK_MAX {
        let detail = format!("a chunk of a log is at most {CHUNK_MAX} bytes");
        return Err(Refusal(Problem::new(Code::TooLarge, detail)));
    }
    if chunk.offset > OFFSET_MAX {
        return Err(Refusal::bad(format!("a log's offset is at most {OFFSET_MAX}")));
    }
    let lease = LeaseRef { task, epoch: chunk.epoch };
    let chunk = Arc::new(chunk);
    loop {
        if let Some(next) = append(&site, &lease, &chunk).await? {
            return Ok(Json(LogTaken { next }));
        }
        let asked = site.logs.asking();
        let run = site.queue.check_lease(&lease, &chunk.worker_id).await?;
        site.logs.believe(asked, lease.clone(), chunk.worker_id.clone(), run);
    }
}

async fn append(site: &Arc<Site>, lease: &LeaseRef, chunk: &Arc<LogChunk>) -> Answer<Option<u64>> {
    let (logs, lease, chunk) = (Arc::clone(&site.logs), lease.clone(), Arc::clone(chunk));
    let write = move || logs.append(&lease, &chunk.worker_id, chunk.offset, &chunk.text);
    match tokio::task::spawn_blocking(write).await {
        Ok(written) => {
            let folder = site.logs.folder();
            written.map_err(|e| Refusal::disk("writing the run's log", folder, &e))
        }
        Err(cause) => Err(Refusal::internal("writing the run's log", &cause)),
    }
}

pub(super) async fn release(
    State(site): State<Arc<Site>>,
    OfTask(task): OfTask,
    Own(request): Own<ReleaseRequest>,
) -> Answer<Json<ReleaseAnswer>> {
    let lease = LeaseRef { task, epoch: request.epoch };
    let inner = Arc::clone(&site);
    site.write(async move {
        let (site, worker) = (inner, request.worker_id);
        let end = RunEnd {
            reason: request.reason,
            pr: request.pr,
            pr_url: request.pr_url,
            summary: request.summary,
            error: request.error,
            kept: request.kept,
            usage: request.usage,
            note: request.note,
        };
        let task = site.queue.finish(&lease, &worker, end).await?;
        site.logs.ended(&lease);
        site.bell.settled(&worker, &lease);
        site.timers.released(&task);
        let parked = task.parked_until;
        site.sites.tell(Notice::Released { worker, lease, parked });
        Ok(Json(ReleaseAnswer { task }))
    })
    .await
}

pub(super) async fn open_local_pull(
    State(site): State<Arc<Site>>,
    OfProject(slug): OfProject,
    Own(request): Own<OpenLocalPull>,
) -> Answer<Json<LocalPull>> {
    if request.lease.task.repo != slug {
        return Err(Refusal::bad(format!("`{}` is no task of `{slug}`", request.lease.task)));
    }
    let queue = site.queue.clone();
    site.write(async move {
        let OpenLocalPull { lease, worker_id, title, body, branch, base, head, diff, comment } =
            request;
        let number = lease.task.number;
        let row = LocalPullRow { number, title, body, branch, base, head, diff, comment };
        queue.open_local_pull(&lease, &worker_id, &row).await?;
        let kept = queue.local_pull(&lease.task).await?.unwrap_or(row);
        Ok(Json(super::tasks::local_pull(kept)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    fn doorbell_of(version: i64) -> Doorbell {
        let (queued, ts, revoked) = (1, Timestamp(5), Vec::new());
        Doorbell { version, queued, ts, revoked, orders: None }
    }

    #[tokio::test]
    async fn a_long_held_answer_begins_with_blanks_and_stays_json() {
        let (ring, held_ring) = tokio::sync::oneshot::channel();
        let answer = doorbell_of(7);
        let ringing = async move { held_ring.await.expect("it rings") };
        let response = held(ringing.boxed(), Duration::from_millis(5)).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let mut body = response.into_body().into_data_stream();
        let mut whole = Vec::new();
        for _ in 0..3 {
            let blank = body.next().await.expect("a blank").expect("a frame");
            assert_eq!(blank.as_ref(), b" ");
            whole.extend_from_slice(&blank);
        }
        ring.send(answer.clone()).expect("somebody waits");
        while let Some(piece) = body.next().await {
            whole.extend_from_slice(&piece.expect("a frame"));
        }
        assert_eq!(serde_json::from_slice::<Doorbell>(&whole).expect("JSON"), answer);
    }

    #[tokio::test]
    async fn an_answer_that_comes_soon_has_no_blanks() {
        let answer = doorbell_of(7);
        let ringing = std::future::ready(answer.clone());
        let response = held(ringing.boxed(), BLANK_EVERY).await;
        let body = axum::body::to_bytes(response.into_body(), 1000).await.expect("a body");
        assert_eq!(body, serde_json::to_vec(&answer).expect("JSON"));
    }
}
