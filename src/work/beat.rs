//! Signs of life of the worker's loop, for a watchdog.

use std::pin::pin;

use super::observer::Observer;

/// Waits for `wait`, and beats as often as `observer` wants it meanwhile. Both are the loop's own
/// task: where that is stuck, nothing beats.
pub(super) async fn beating<T>(observer: &dyn Observer, wait: impl Future<Output = T>) -> T {
    let Some(every) = observer.beats() else { return wait.await };
    let mut wait = pin!(wait);
    loop {
        tokio::select! {
            biased;
            value = &mut wait => return value,
            () = tokio::time::sleep(every) => observer.beat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::sync::{Notify, oneshot};

    #[derive(Default)]
    struct Counted {
        beats: AtomicU32,
        beaten: Notify,
    }

    impl Observer for Counted {
        fn beats(&self) -> Option<Duration> {
            Some(Duration::from_millis(1))
        }
        fn beat(&self) {
            self.beats.fetch_add(1, Ordering::Relaxed);
            self.beaten.notify_one();
        }
    }

    #[tokio::test]
    async fn a_loop_that_waits_beats_and_is_not_asked_anew() {
        let watch = Arc::new(Counted::default());
        let (end, ended) = oneshot::channel();
        let asked = Arc::new(AtomicU32::new(0));
        let (of_loop, count) = (Arc::clone(&watch), Arc::clone(&asked));
        let waiting = tokio::spawn(async move {
            let wait = async {
                count.fetch_add(1, Ordering::Relaxed);
                ended.await
            };
            beating(&*of_loop, wait).await
        });
        for _ in 0..3 {
            watch.beaten.notified().await;
        }
        end.send(7).unwrap();
        assert_eq!(waiting.await.unwrap(), Ok(7));
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the bell is held on");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_loop_that_is_stuck_misses_its_beats() {
        let watch = Arc::new(Counted::default());
        let (stuck, is_stuck) = oneshot::channel();
        let (free, freed) = std::sync::mpsc::channel::<()>();
        let of_loop = Arc::clone(&watch);
        let waiting = tokio::spawn(async move {
            let wait = async move {
                stuck.send(()).unwrap();
                freed.recv().unwrap();
                tokio::task::yield_now().await;
                std::future::pending::<()>().await;
            };
            beating(&*of_loop, wait).await;
        });
        is_stuck.await.unwrap();
        // The rest of the process is alive for many times what a beat takes.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(watch.beats.load(Ordering::Relaxed), 0);
        free.send(()).unwrap();
        watch.beaten.notified().await;
        waiting.abort();
    }
}
