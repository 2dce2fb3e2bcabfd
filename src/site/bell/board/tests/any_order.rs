//! Whatever happens around a bell, in whatever order.

use std::collections::HashMap;

use super::*;

/// One thing that happens around a bell.
#[derive(Clone, Debug)]
enum Step {
    Queue(u8),
    Ring { worker: u16, free: u32, received: bool },
    Look(u16),
    Claim(u16),
    Empty(u16),
    HangUp(u16),
    Pass(u64),
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let worker = 1..=3_u16;
    let step = prop_oneof![
        (1..=5_u8).prop_map(Step::Queue),
        (worker.clone(), 0..=2_u32, any::<bool>())
            .prop_map(|(worker, free, received)| Step::Ring { worker, free, received }),
        worker.clone().prop_map(Step::Look),
        worker.clone().prop_map(Step::Claim),
        worker.clone().prop_map(Step::Empty),
        worker.prop_map(Step::HangUp),
        (0..2000_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest::proptest! {
    /// Whatever happened: once the clock has passed every offer, a free worker that waits beside
    /// work it can do, and did not decline, is woken.
    #[test]
    fn no_wake_is_lost(steps in steps()) {
        let mut board = board(3);
        let mut now = T0;
        let mut tasks: Vec<String> = Vec::new();
        let mut places: HashMap<u16, Place> = HashMap::new();
        let mut seen: HashMap<u16, i64> = HashMap::new();
        let read = |board: &mut Board, tasks: &[String], now| {
            queue(board, &tasks.iter().map(String::as_str).collect::<Vec<_>>(), now);
        };
        for step in steps {
            match step {
                Step::Queue(n) => {
                    let name = format!("a/b#{n}");
                    if !tasks.contains(&name) {
                        tasks.push(name);
                    }
                    read(&mut board, &tasks, now);
                }
                Step::Ring { worker, free, received } => {
                    let since = if received { seen.get(&worker).copied().unwrap_or(0) } else { 0 };
                    places.insert(worker, board.enter(ask(worker, free, since), now));
                }
                Step::Look(worker) => {
                    if let Some(told) = places.get(&worker).and_then(|p| board.take(*p, now)) {
                        seen.insert(worker, told.version);
                    }
                }
                Step::Claim(worker) => {
                    if !tasks.is_empty() {
                        let task = tasks.remove(0);
                        board.claimed(&id(worker), &self::task(&task), now);
                    }
                }
                Step::Empty(worker) => {
                    let began = board.reading();
                    board.declined(&id(worker), None, &[], began, now);
                }
                Step::HangUp(worker) => {
                    if let Some(place) = places.remove(&worker) {
                        board.leave(place, now);
                    }
                }
                Step::Pass(ms) => now = now + Duration::from_millis(ms),
            }
        }
        // The timer wakes whenever the board says so, until it has nothing more to say.
        while let Some(at) = board.next() {
            now = now.max(at);
            board.tick(now);
            let open: Vec<Place> = board.crowd.all().map(|(place, _)| place).collect();
            for place in open {
                board.take(place, now);
            }
        }
        board.tick(now);
        let open: Vec<Place> = board.crowd.all().map(|(place, _)| place).collect();
        for place in open {
            board.take(place, now);
        }
        for (_, waiter) in board.crowd.all().filter(|(_, w)| !w.superseded && w.ask.free > 0) {
            let worker = waiter.ask.worker.as_ref().expect("a worker");
            let left = board.backlog.all().find(|(_, q)| {
                !q.declined.contains(worker)
                    && q.offer.as_ref().is_none_or(|o| o.until <= now)
                    && q.told.get(worker).is_none_or(|(_, again)| *again <= now)
            });
            proptest::prop_assert!(left.is_none(), "{worker} sleeps beside {left:?}");
        }
    }
}
