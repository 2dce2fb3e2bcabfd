//! What people and the forge do, and the sweep.

use relay::queue::{Added, QueueError};

use super::world::{World, id_of};
use crate::queue::bench::ann;

impl World {
    pub async fn ask(&mut self, number: u64) {
        let added = self.b.queue.add(self.b.wish(number)).await.expect("an answer");
        if matches!(added, Added::Again(_)) {
            let id = &added.task().id;
            assert!(!self.held.contains_key(id), "asked for again while a worker has it");
            self.lapsed.remove(id);
            self.deaths.remove(id);
        }
    }

    pub async fn cancel(&mut self, number: u64) {
        let id = id_of(number);
        match self.b.queue.cancel(&id, ann()).await {
            Ok(_) => self.ended(&id),
            Err(QueueError::NotFound { .. } | QueueError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    pub async fn retry(&mut self, number: u64) {
        let id = id_of(number);
        let before = self.b.queue.task(&id).await.ok();
        match self.b.queue.retry(&id, ann()).await {
            Ok(_) => {
                let queued = before.is_some_and(|task| task.state.as_str() == "queued");
                if !queued {
                    self.deaths.remove(&id);
                }
            }
            Err(QueueError::NotFound { .. } | QueueError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    pub async fn done(&mut self, number: u64) {
        let id = id_of(number);
        match self.b.queue.done(&id, ann()).await {
            Ok(_) => self.ended(&id),
            Err(QueueError::NotFound { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    pub async fn sweep(&mut self) {
        self.b.queue.sweep().await.expect("a sweep");
        let (now, spared) = (self.b.now(), self.spared());
        for task in self.b.queue.tasks(None).await.expect("tasks") {
            let Some(until) = task.expires_at else { continue };
            assert!(spared || until > now, "a sweep left {task:?}");
            assert!(until <= now + relay::model::LEASE, "held for longer than a lease: {task:?}");
        }
    }
}
