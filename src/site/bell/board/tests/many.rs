//! Ten thousand workers at one bell. What a change costs must not grow with those it does not touch:
//! where it does, each of these takes minutes, and the runner ends it.

use super::*;

const CROWD: u16 = 10_000;

/// Everybody waits, beside many tasks that nobody here can do.
fn crowded() -> (Board, Vec<Place>) {
    let mut board = board(CROWD);
    read(&mut board, None);
    let places: Vec<Place> = (1..=CROWD).map(|n| board.enter(ask(n, 1, 0), T0)).collect();
    assert_eq!(board.woken(), []);
    (board, places)
}

/// The needs as they are read: those of every time, and one that can be done.
fn read(board: &mut Board, one: Option<&str>) {
    let special = |n| Need {
        labels: vec!["gpu".parse().expect("a label")],
        ..need(&format!("special/shop#{}", n + 1))
    };
    let far = |n| Need {
        forge: ForgeKind::Local,
        host: format!("elsewhere{n}"),
        ..need(&format!("local/shop#{}", n + 1))
    };
    let needs = (0..NEEDS).map(special).chain((0..NEEDS).map(far)).chain(one.map(need));
    board.moved(T0);
    board.reading_begins();
    board.read(needs.collect(), T0);
}

#[test]
fn one_task_wakes_one_of_ten_thousand_and_its_claim_wakes_nobody() {
    let (mut board, places) = crowded();
    for round in 0..50_u16 {
        let task = format!("acme/shop#{}", round + 1);
        read(&mut board, Some(&task));
        let woken = board.woken();
        assert_eq!(woken.len(), 1, "round {round}");
        let n = u16::try_from(places.iter().position(|p| *p == woken[0]).expect("a place"))
            .expect("few");
        let told = board.take(woken[0], T0).expect("there is work");
        assert_eq!((n, told.queued), (round, 1), "who waits longest");
        board.claimed(&id(n + 1), &self::task(&task), T0);
        assert_eq!(board.woken(), [], "nobody else hears of it");
    }
    assert_eq!(board.present().len(), usize::from(CROWD) - 50);
}

#[test]
fn a_task_that_nobody_claims_goes_from_one_to_the_next_and_to_no_more() {
    let (mut board, _) = crowded();
    read(&mut board, Some("acme/shop#1"));
    let mut woken = board.woken();
    for second in 0..1000 {
        assert_eq!(woken.len(), 1, "second {second}");
        board.take(woken[0], after(second * 1000)).expect("it is told");
        assert_eq!(board.next(), Some(after(second * 1000 + 1000)));
        board.tick(after(second * 1000 + 1000));
        woken = board.woken();
    }
}

#[test]
fn a_thousand_tasks_wake_a_thousand_and_coming_and_going_wakes_nobody() {
    let (mut board, mut places) = crowded();
    let tasks: Vec<String> = (0..1000).map(|n| format!("shop{n}/shop#1")).collect();
    queue(&mut board, &tasks.iter().map(String::as_str).collect::<Vec<_>>(), T0);
    assert_eq!(board.woken(), places[..1000]);
    for (n, place) in (1..=CROWD).zip(&mut places).skip(1000) {
        board.leave(*place, T0);
        *place = board.enter(ask(n, 1, 0), T0);
    }
    assert_eq!(board.woken(), []);
    // All thousand hang up before they have their answer: a thousand others are woken.
    for place in &places[..1000] {
        board.leave(*place, T0);
    }
    let mut woken = board.woken();
    woken.sort_unstable();
    woken.dedup();
    assert_eq!(woken, places[1000..2000]);
    // And everybody goes, most of them never told of anything.
    for place in &places[1000..] {
        board.leave(*place, T0);
    }
    assert_eq!((board.present(), board.next()), (Vec::new(), None));
}

#[test]
fn ten_thousand_leases_called_off_are_told_to_their_holders_alone() {
    let mut board = board(CROWD);
    let places: Vec<Place> = (1..=CROWD).map(|n| board.enter(ask(n, 0, 0), T0)).collect();
    for (n, place) in (1..=CROWD).zip(&places) {
        board.revoke(&id(n), lease(&format!("a/b#{n}"), 1), T0);
        assert_eq!(board.woken(), [*place]);
    }
    for (n, place) in (1..=CROWD).zip(&places) {
        let told = board.take(*place, T0).expect("it lost its lease");
        assert_eq!(told.revoked, [lease(&format!("a/b#{n}"), 1)]);
    }
}
