//! Any order of workers, expiries, sleeps, new instances, retries, cancels, lost calls and answers,
//! sweeps at odd times and a clock that jumps an hour either way: at most one live epoch a task,
//! nothing of an old epoch lands, every task ends in a state a person can read.
//!
//! The test keeps its own book of what may happen, and never asks the queue what is right.

mod calls;
mod people;
mod rules;
mod world;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use world::World;

use super::bench::Bench;

const WORKERS: usize = 3;
const TASKS: u64 = 3;

/// What is tried. In the slowest case, a step is a write and three reads of a small database.
const CASES: u32 = 128;

/// The same where each case makes a database and each write waits for a disk.
const CASES_ON_A_SERVER: u32 = 24;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Asked, done, answered.
    Whole,
    /// Done, but the caller heard nothing and asks again some time later.
    AnswerLost,
    /// Never arrived; the caller asks again some time later.
    CallLost,
}

#[derive(Clone, Debug)]
enum Step {
    Claim {
        worker: usize,
        line: Line,
    },
    /// A process of the worker that was replaced asks for work.
    ZombieClaim {
        process: usize,
    },
    /// The worker's process is started anew; the old one goes on as a zombie.
    Restart {
        worker: usize,
        line: Line,
    },
    /// Some process that lives or should not writes under some lease, its own or not.
    Write {
        process: usize,
        lease: usize,
        what: Write,
        line: Line,
    },
    /// A process repeats the oldest call that it had no answer to.
    Again {
        process: usize,
    },
    Heartbeat {
        process: usize,
        line: Line,
    },
    Advance {
        seconds: u64,
    },
    /// The wall clock is set.
    SetClock {
        seconds: i64,
    },
    Sweep,
    /// Leases are left alone for a while: the site was away.
    Spare,
    Ask {
        task: u64,
    },
    Cancel {
        task: u64,
    },
    Retry {
        task: u64,
    },
    Done {
        task: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Start,
    Commit,
    Push,
    Finish(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finished,
    NoChanges,
    Crashed,
    Unreachable,
    Stopped,
    Refused,
    /// Until so many seconds from now.
    Quota(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (worker, task) = (0..WORKERS, 1..=TASKS);
    let any = || any::<prop::sample::Index>().prop_map(|index| index.index(64));
    let line = || prop_oneof![3 => Just(Line::Whole), 1 => Just(Line::AnswerLost), 1 => Just(Line::CallLost)];
    let end = prop_oneof![
        2 => Just(End::Finished),
        1 => Just(End::NoChanges),
        2 => Just(End::Crashed),
        1 => Just(End::Unreachable),
        1 => Just(End::Stopped),
        1 => Just(End::Refused),
        1 => prop_oneof![Just(0_u64), Just(7200)].prop_map(End::Quota),
    ];
    let what = prop_oneof![
        Just(Write::Start),
        Just(Write::Commit),
        Just(Write::Push),
        end.prop_map(Write::Finish),
    ];
    let seconds =
        prop_oneof![Just(1_u64), Just(15), Just(60), Just(300), Just(1799), Just(1800), Just(4000)];
    let step = prop_oneof![
        6 => (worker.clone(), line()).prop_map(|(worker, line)| Step::Claim { worker, line }),
        1 => any().prop_map(|process| Step::ZombieClaim { process }),
        2 => (worker, line()).prop_map(|(worker, line)| Step::Restart { worker, line }),
        9 => (any(), any(), what, line())
            .prop_map(|(process, lease, what, line)| Step::Write { process, lease, what, line }),
        2 => any().prop_map(|process| Step::Again { process }),
        4 => (any(), line()).prop_map(|(process, line)| Step::Heartbeat { process, line }),
        4 => seconds.prop_map(|seconds| Step::Advance { seconds }),
        1 => prop_oneof![Just(3600_i64), Just(-3600)].prop_map(|seconds| Step::SetClock { seconds }),
        2 => Just(Step::Sweep),
        1 => Just(Step::Spare),
        2 => task.clone().prop_map(|task| Step::Ask { task }),
        1 => task.clone().prop_map(|task| Step::Cancel { task }),
        2 => task.clone().prop_map(|task| Step::Retry { task }),
        1 => task.prop_map(|task| Step::Done { task }),
    ];
    prop::collection::vec(step, 1..60)
}

/// Each case has a database of its own, made by `bench`; without one, nothing is tried.
fn any_order_keeps_the_rules(cases: u32, bench: impl AsyncFn() -> Option<Bench>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            runtime.block_on(async {
                let Some(bench) = bench().await else { return };
                let mut world = World::on(bench).await;
                for number in 1..=2 {
                    world.ask(number).await;
                }
                for step in steps {
                    world.take(step).await;
                    world.check().await;
                }
                world.settle().await;
                world.b.queue.close().await;
            });
            Ok(())
        })
        .expect("a counterexample");
}

#[test]
fn any_order_of_things_keeps_the_rules() {
    any_order_keeps_the_rules(CASES, async || Some(Bench::in_memory().await));
}

#[test]
fn pg_any_order_of_things_keeps_the_rules() {
    any_order_keeps_the_rules(CASES_ON_A_SERVER, Bench::postgres);
}
