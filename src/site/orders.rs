//! What people tell workers: written down, then told at the bell of whoever has the worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;

use super::answer::Json;
use super::caller::Caller;
use super::extract::Body;
use super::problem::Answer;
use super::sites::Notice;
use super::state::{Site, person};
use crate::api::OrderRequest;
use crate::model::{InstanceId, LeaseRef, Worker, WorkerId};
use crate::queue::QueueError;

/// Orders are written and told on one after another, so that no worker hears an older word last.
#[derive(Debug, Default)]
pub struct Turns {
    turn: tokio::sync::Mutex<()>,
    /// How many were written. A worker that was read before one was, and made known to the bell
    /// after, is read again.
    written: AtomicU64,
}

impl Turns {
    /// To be remembered before a worker is read for [`Site::registered`].
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }
}

pub(super) async fn order(
    State(site): State<Arc<Site>>,
    caller: Caller,
    Body(request): Body<OrderRequest>,
) -> Answer<Json<Worker>> {
    caller.order(&request.worker)?;
    site.hear_held();
    let inner = Arc::clone(&site);
    site.write(async move {
        let (site, by) = (inner, person(&request.by)?);
        let _turn = site.orders.turn.lock().await;
        let OrderRequest { worker, order, lanes, by: _ } = request;
        let worker = site.queue.order(&worker, order, &lanes, &by).await?;
        site.orders.written.fetch_add(1, Ordering::SeqCst);
        site.bell.ordered(&worker.id, worker.orders.clone());
        site.sites.tell(Notice::Ordered { worker: worker.id.clone() });
        Ok(Json(worker))
    })
    .await
}

impl Site {
    /// Makes a worker known to the bell as it was read when so many orders were `written`.
    pub(super) async fn registered(
        &self,
        worker: &Worker,
        instance: Option<InstanceId>,
        ended: &[LeaseRef],
        written: u64,
    ) -> Result<(), QueueError> {
        self.bell.registered(worker, instance, ended);
        if self.orders.written() == written { Ok(()) } else { self.reread_order(&worker.id).await }
    }

    /// Something was told to a worker elsewhere, or meanwhile: it is read, and told on here.
    pub(super) async fn reread_order(&self, worker: &WorkerId) -> Result<(), QueueError> {
        let _turn = self.orders.turn.lock().await;
        self.orders.written.fetch_add(1, Ordering::SeqCst);
        if let Some(known) = self.queue.worker(worker).await? {
            self.bell.ordered(worker, known.orders);
        }
        Ok(())
    }

    /// The same of every worker.
    pub(super) async fn reread_orders(&self, workers: &[WorkerId]) -> Result<(), QueueError> {
        let _turn = self.orders.turn.lock().await;
        self.orders.written.fetch_add(1, Ordering::SeqCst);
        let mut told = self.queue.orders().await?;
        for worker in workers {
            self.bell.ordered(worker, told.remove(worker).unwrap_or_default());
        }
        Ok(())
    }
}
