//! How a program can be brought to its end, and that all it started ends with it.

use relay::process::EndedBy;
use relay_lanes::process::AnswerError;

use super::program::{Bench, TIME};

#[tokio::test]
async fn a_daemon_that_is_left_behind_ends_with_the_answer() {
    let bench = Bench::new();
    let script = "mkfifo go; setsid -f sleep 600 $MARK < /dev/null > /dev/null 2>&1\n\
                  sleep 600 $MARK & (sleep 600 $MARK &)\n\
                  read -r word < go; echo \"$GOOD\"";
    let ((end, answer), ()) = tokio::join!(bench.script(script), async {
        bench.marked.wait_for(3).await;
        let go = bench.path().join("go");
        tokio::task::spawn_blocking(move || std::fs::write(go, "go\n")).await.unwrap().unwrap();
    });
    assert_eq!((end.ended_by, answer.unwrap().reply.as_deref()), (EndedBy::Itself, Some("ok")));
    assert_eq!(bench.marked.alive(), []);
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_ends_at_its_time() {
    let bench = Bench::new();
    // It has answered already: that does not count.
    let script = "trap '' TERM INT HUP; echo \"$GOOD\"; sleep 600 $MARK & exec sleep 600 $MARK";
    let ((end, answer), ()) = tokio::join!(bench.script(script), async {
        bench.marked.wait_for(2).await;
        bench.clock.advance(TIME);
    });
    assert_eq!(end.ended_by, EndedBy::TimedOut);
    assert_eq!(answer, Err(AnswerError::Killed(9)));
    assert_eq!(bench.marked.alive(), []);
}

#[tokio::test]
async fn a_program_that_is_called_off_ends_with_all_it_started() {
    let bench = Bench::new();
    let script = "trap '' TERM; setsid -f sleep 600 $MARK; sleep 600 $MARK & wait";
    let ((end, answer), ()) = tokio::join!(bench.script(script), async {
        bench.marked.wait_for(2).await;
        bench.stop.cancel();
    });
    assert_eq!(end.ended_by, EndedBy::Asked);
    assert!(answer.is_err());
    assert_eq!(bench.marked.alive(), []);
}

#[tokio::test]
async fn a_signal_is_a_crash_and_no_answer() {
    let (_, answer) = Bench::new().script("echo \"$GOOD\"; kill -SEGV $$").await;
    assert_eq!(answer, Err(AnswerError::Killed(11)));
}
