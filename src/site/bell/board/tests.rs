//! The bell's rules on values.

mod any_order;
mod many;

use super::super::backlog::NEEDS;
use super::*;
use crate::model::{Epoch, ForgeKind, WorkerState};

const T0: Timestamp = Timestamp(1_000_000);

fn after(ms: u64) -> Timestamp {
    T0 + Duration::from_millis(ms)
}

fn id(n: u16) -> WorkerId {
    format!("00000000-0000-7000-8000-00000000{n:04x}").parse().expect("a worker id")
}

fn instance(n: u16) -> InstanceId {
    format!("00000000-0000-7000-9000-00000000{n:04x}").parse().expect("an instance id")
}

fn task(text: &str) -> TaskId {
    text.parse().expect("a task id")
}

fn lease(text: &str, epoch: i64) -> LeaseRef {
    LeaseRef { task: task(text), epoch: Epoch(epoch) }
}

fn need(text: &str) -> Need {
    Need {
        task: task(text),
        lane: "claude".parse().expect("a lane"),
        labels: Vec::new(),
        forge: ForgeKind::Github,
        host: "github.com".to_owned(),
    }
}

fn worker(n: u16) -> Worker {
    Worker {
        id: id(n),
        name: format!("w{n}").parse().expect("a name"),
        host: format!("machine{n}"),
        lanes: vec!["claude".parse().expect("a lane")],
        labels: Vec::new(),
        forges: vec!["github.com".to_owned()],
        version: "0".to_owned(),
        state: WorkerState::Online,
        last_seen: T0,
        interval_ms: None,
        leases: Vec::new(),
        ending: false,
        revoked: false,
        orders: Orders::default(),
    }
}

fn ask(n: u16, free: u32, since: i64) -> Ask {
    Ask {
        worker: Some(id(n)),
        instance: Some(instance(n)),
        lanes: vec!["claude".parse().expect("a lane")],
        free,
        since,
        except: Vec::new(),
        told: None,
    }
}

/// A board with workers 1 to `n` registered.
fn board(n: u16) -> Board {
    let mut board = Board::new(T0);
    for n in 1..=n {
        board.registered(&worker(n), Some(instance(n)), &[], T0);
    }
    board
}

/// A write and its reading, as the timers do it.
fn queue(board: &mut Board, tasks: &[&str], now: Timestamp) {
    board.moved(now);
    board.reading_begins();
    board.read(tasks.iter().map(|t| need(t)).collect(), now);
}

/// Who of `places` has an answer now.
fn answered(board: &mut Board, places: &[Place], now: Timestamp) -> Vec<Told> {
    places.iter().filter_map(|place| board.take(*place, now)).collect()
}

#[test]
fn a_long_queue_is_read_again_before_what_is_known_of_it_is_taken() {
    let mut board = board(1);
    let names: Vec<String> = (0..NEEDS).map(|n| format!("a/b#{}", n + 1)).collect();
    let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
    known.push("a/short#1");
    queue(&mut board, &known, T0);
    assert!(!board.claimed(&id(1), &task("a/short#1"), T0), "that was all of it");
    let low = names.iter().position(|name| board.claimed(&id(1), &task(name), T0));
    assert_eq!(low, Some(NEEDS / 2));
    // As many, but all there are.
    queue(&mut board, &known[1..], T0);
    assert!(names[1..].iter().all(|name| !board.claimed(&id(1), &task(name), T0)));
}

#[test]
fn one_task_wakes_one_worker_and_a_second_later_the_next() {
    let mut board = board(3);
    let places: Vec<Place> = (1..=3).map(|n| board.enter(ask(n, 1, 0), T0)).collect();
    assert_eq!(answered(&mut board, &places, T0), [], "nothing is queued");

    queue(&mut board, &["a/b#1"], T0);
    assert_eq!(board.woken(), [places[0]], "the one that waits longest");
    board.tick(T0);
    assert_eq!(board.woken(), [], "nobody else, also before it has its answer");
    assert_eq!(answered(&mut board, &places, T0).len(), 1);

    board.tick(after(999));
    assert_eq!(answered(&mut board, &places, after(999)).len(), 0, "its second is not over");
    assert_eq!(board.next(), Some(after(1000)));
    board.tick(after(1000));
    assert_eq!(board.woken(), [places[1]]);
    assert_eq!(answered(&mut board, &places, after(1000)).len(), 1);

    board.claimed(&id(2), &task("a/b#1"), after(1100));
    board.tick(after(3000));
    assert_eq!(answered(&mut board, &places, after(3000)).len(), 0, "it is claimed");
}

#[test]
fn two_tasks_wake_two_workers_before_one_with_two_slots() {
    let mut board = board(2);
    let places = [board.enter(ask(1, 2, 0), T0), board.enter(ask(2, 1, 0), T0)];
    queue(&mut board, &["a/b#1", "a/b#2"], T0);
    assert_eq!(answered(&mut board, &places, T0).len(), 2);
}

#[test]
fn after_one_of_two_tasks_was_claimed_the_other_rings_at_once() {
    let mut board = board(1);
    let place = board.enter(ask(1, 2, 0), T0);
    queue(&mut board, &["a/b#1", "a/b#2"], T0);
    let told = board.take(place, T0).expect("two tasks");
    assert_eq!(told.queued, 2);
    board.claimed(&id(1), &task("a/b#1"), T0);
    // The version was seen already; the second task must not wait for another change.
    let place = board.enter(ask(1, 1, told.version), T0);
    assert_eq!(board.take(place, T0).map(|t| t.queued), Some(1));
}

#[test]
fn a_busy_worker_is_not_woken_for_work() {
    let mut board = board(1);
    let place = board.enter(ask(1, 0, 0), T0);
    queue(&mut board, &["a/b#1"], T0);
    assert_eq!(board.take(place, T0), None);
    board.revoke(&id(1), lease("a/b#9", 3), T0);
    assert_eq!(board.woken(), [place]);
    assert_eq!(board.take(place, T0).map(|t| t.revoked), Some(vec![lease("a/b#9", 3)]));
}

#[test]
fn a_revoked_lease_is_told_until_the_answer_was_received() {
    let mut board = board(1);
    board.revoke(&id(1), lease("a/b#9", 3), T0);
    let first = board.enter(ask(1, 0, 5), T0);
    let told = board.take(first, T0).expect("it was revoked");
    assert_eq!(told.revoked.len(), 1);
    // That answer was lost: the worker still shows the version before it.
    let again = board.enter(ask(1, 0, 5), T0);
    let told = board.take(again, T0).expect("still not received");
    let received = board.enter(ask(1, 0, told.version), T0);
    assert_eq!(board.take(received, T0), None, "the receipt ends it");

    board.revoke(&id(1), lease("a/b#10", 1), T0);
    board.settled(&id(1), &lease("a/b#10", 1));
    assert_eq!(board.take(received, T0), None, "a heartbeat told it first");
}

#[test]
fn an_answer_that_was_lost_is_told_again_at_once_and_a_received_one_later() {
    let mut board = board(1);
    queue(&mut board, &["a/b#1"], T0);
    let lost = board.enter(ask(1, 1, 0), T0);
    let told = board.take(lost, T0).expect("there is work");
    let place = board.enter(ask(1, 1, told.version - 1), after(5));
    let told = board.take(place, after(5)).expect("it was not received");

    let held = board.enter(ask(1, 1, told.version), after(10));
    assert_eq!(board.take(held, after(10)), None, "it knows, and spins otherwise");
    board.tick(after(2000));
    let again = board.next().expect("a claim that failed must not lose the task");
    board.tick(again);
    assert!(board.take(held, again).is_some());
}

#[test]
fn work_the_claim_did_not_give_does_not_ring_until_something_changes() {
    let mut board = board(1);
    queue(&mut board, &["a/b#1"], T0);
    let place = board.enter(ask(1, 1, 0), T0);
    let told = board.take(place, T0).expect("there is work");
    let began = board.reading();
    assert!(board.declined(&id(1), None, &[], began, T0), "the board thought otherwise");
    let held = board.enter(ask(1, 1, told.version), T0);
    board.tick(after(60_000));
    assert_eq!(board.take(held, after(60_000)), None);
    queue(&mut board, &["a/b#1", "a/b#2"], after(60_000));
    assert_eq!(board.take(held, after(60_000)).map(|t| t.queued), Some(1));
}

#[test]
fn a_task_that_came_while_the_claim_looked_still_rings() {
    let mut board = board(1);
    let began = board.reading();
    queue(&mut board, &["a/b#1"], T0);
    assert!(!board.declined(&id(1), None, &[], began, T0));
    let place = board.enter(ask(1, 1, board.version()), T0);
    assert!(board.take(place, T0).is_some());
}

#[test]
fn needs_read_before_a_claim_do_not_bring_the_task_back() {
    let mut board = board(2);
    queue(&mut board, &["a/b#1"], T0);
    board.reading_begins();
    board.claimed(&id(1), &task("a/b#1"), T0);
    board.read(vec![need("a/b#1")], T0);
    let place = board.enter(ask(2, 1, 0), T0);
    assert_eq!(board.take(place, T0), None);
}

#[test]
fn a_line_that_breaks_hands_its_offer_on() {
    let mut board = board(2);
    let (first, second) = (board.enter(ask(1, 1, 0), T0), board.enter(ask(2, 1, 0), T0));
    queue(&mut board, &["a/b#1"], T0);
    board.leave(first, T0);
    assert!(board.take(second, T0).is_some());
}

#[test]
fn the_later_of_two_lines_of_one_worker_is_the_living_one() {
    let mut board = board(1);
    let (dead, living) = (board.enter(ask(1, 1, 0), T0), board.enter(ask(1, 1, 0), T0));
    queue(&mut board, &["a/b#1"], T0);
    assert_eq!(board.take(dead, T0), None);
    assert!(board.take(living, T0).is_some());
}

#[test]
fn labels_forges_hosts_and_lanes_are_matched() {
    let mut board = board(2);
    let mut able = worker(2);
    able.labels = vec!["gpu".parse().expect("a label")];
    board.registered(&able, Some(instance(2)), &[], T0);
    let mut wants = |change: fn(&mut Need)| {
        let mut need = need("a/b#1");
        change(&mut need);
        board.reading_begins();
        board.read(vec![need], T0);
        let places = [board.enter(ask(1, 1, i64::MAX), T0), board.enter(ask(2, 1, i64::MAX), T0)];
        let who: Vec<usize> =
            (0..2).filter(|i| board.take(places[*i], T0).is_some()).map(|i| i + 1).collect();
        places.iter().for_each(|place| board.leave(*place, T0));
        who
    };
    assert_eq!(wants(|n| n.labels = vec!["gpu".parse().expect("a label")]), [2]);
    assert_eq!(wants(|n| n.host = "ghe.example".to_owned()), [0; 0]);
    assert_eq!(wants(|n| n.lane = "codex".parse().expect("a lane")), [0; 0]);
    let local = |n: &mut Need| {
        n.forge = ForgeKind::Local;
        n.host = "machine2".to_owned();
    };
    assert_eq!(wants(local), [2]);
}

#[test]
fn a_new_instance_ends_the_old_ones_line_and_tells_it_its_leases() {
    let mut board = board(1);
    let old = board.enter(ask(1, 1, 0), T0);
    board.registered(&worker(1), Some(instance(7)), &[lease("a/b#1", 2)], T0);
    let told = board.take(old, T0).expect("it is ended");
    assert_eq!((told.queued, told.revoked), (0, vec![lease("a/b#1", 2)]));
    assert_eq!(board.knows(&id(1), Some(&instance(1))), Some(false));
    assert_eq!(board.knows(&id(1), Some(&instance(7))), Some(true));
}

#[test]
fn a_reader_sees_the_version_move_and_takes_no_wake() {
    let mut board = board(1);
    let reader = Ask { worker: None, instance: None, ..ask(1, 1, board.version()) };
    let reads = board.enter(reader, T0);
    let works = board.enter(ask(1, 1, board.version()), T0);
    assert_eq!(board.take(reads, T0), None);
    queue(&mut board, &["a/b#1"], T0);
    assert_eq!(board.take(reads, T0).map(|t| t.queued), Some(1));
    assert!(board.take(works, T0).is_some(), "the reader did not take the worker's wake");
}

#[test]
fn versions_only_grow_also_when_the_clock_is_set_back() {
    let mut board = Board::new(T0);
    let mut last = board.version();
    for now in [T0, after(5), T0 - Duration::from_secs(60), after(1)] {
        board.moved(now);
        assert!(board.version() > last);
        last = board.version();
    }
}

#[test]
fn a_renewed_lease_takes_its_task_out_of_the_queue() {
    let mut board = board(2);
    queue(&mut board, &["a/b#1"], T0);
    board.renewed(&id(1), &lease("a/b#1", 1), T0);
    let place = board.enter(ask(2, 1, 0), T0);
    assert_eq!(board.take(place, T0), None);
}

#[test]
fn a_lease_called_off_before_the_worker_was_known_again_is_told() {
    let mut board = board(0);
    board.revoke(&id(1), lease("a/b#9", 3), T0);
    board.registered(&worker(1), Some(instance(1)), &[], T0);
    let place = board.enter(ask(1, 0, 0), T0);
    assert_eq!(board.take(place, T0).map(|t| t.revoked.len()), Some(1));
    board.registered(&worker(1), Some(instance(2)), &[], T0);
    let place = board.enter(ask(1, 0, 0), T0);
    assert_eq!(board.take(place, T0), None, "the new instance never held it");
}
