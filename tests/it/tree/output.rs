//! What a run is given, what it writes, and how its start fails.

use std::path::Path;

use relay::model::Secret;
use relay::process::{CUT, EndedBy, LaneLimits, ProcessError};

use super::{Bench, LIMITS, another_worker};
use crate::support::PATIENCE;

#[tokio::test]
async fn the_program_gets_what_it_was_given_and_the_supervisor_shows_none_of_it() {
    let bench = Bench::bare();
    let script = r#"
cat
[ -t 0 ] || [ -e /dev/tty ] && (: < /dev/tty) 2>/dev/null && echo "has a terminal"
env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^OLDPWD= -e ^MARK=
tr '\0' ' ' < /proc/$PPID/cmdline | sed 's/.*relay/relay/'; echo
echo "$(tr '\0' '\n' < /proc/$PPID/environ 2>/dev/null | grep -v ^RELAY_SUPERVISES=)."
exit 7"#;
    let end = bench.script(script, b"some words\n").await;
    let lines = bench.lines();
    let expected = ["some words", "PATH=/usr/bin:/bin", "relay __supervise ", "."];
    assert_eq!(lines, expected);
    assert_eq!((end.code, end.signal), (Some(7), None));
}

#[tokio::test]
async fn what_the_worker_s_parent_left_open_is_closed_to_the_program() {
    let bench = Bench::bare();
    let outside = tempfile::tempdir().unwrap();
    let folder = std::fs::File::open(outside.path()).unwrap();
    // Not closed on exec, as a shell hands its own on.
    let left_open = rustix::io::dup(&folder).unwrap();
    let end = bench.script("ls -l /proc/$$/fd | sed -n 's/.* -> //p'", b"").await;
    assert_eq!(end.code, Some(0));
    let (lines, outside) = (bench.lines(), outside.path().display().to_string());
    assert!(lines.len() >= 3 && !lines.contains(&outside), "{lines:?}");
    drop(left_open);
}

#[tokio::test]
async fn a_signal_is_told_as_one() {
    let end = Bench::bare().script("kill -TERM $$", b"").await;
    assert_eq!((end.code, end.signal, end.ended_by), (None, Some(15), EndedBy::Itself));
}

#[tokio::test]
async fn a_start_that_fails_says_why_and_nobody_can_imitate_it() {
    let bench = Bench::bare();
    let plain = bench.dir.path().join("plain");
    std::fs::write(&plain, "text").unwrap();
    let at = |path: &Path, cwd: &Path| {
        let mut run = bench.run("", b"unread");
        run.program.path = path.to_owned();
        run.program.cwd = cwd.to_owned();
        run
    };
    let absent = bench.dir.path().join("absent");
    let error = bench.go(at(&absent, bench.dir.path())).await.unwrap_err();
    assert!(matches!(&error, ProcessError::NotFound(path) if *path == absent), "{error}");
    let error = bench.go(at(&plain, bench.dir.path())).await.unwrap_err();
    assert!(matches!(&error, ProcessError::NotExecutable(path) if *path == plain), "{error}");
    let error = bench.go(at(Path::new("/bin/sh"), &absent)).await.unwrap_err();
    assert!(matches!(&error, ProcessError::NoFolder(path) if *path == absent), "{error}");
    let mut run = bench.run("", b"");
    run.program.args.push("x".repeat(8 << 20).into());
    let error = bench.go(run).await.unwrap_err();
    assert!(matches!(&error, ProcessError::Start { .. }), "{error}");
    let mut run = bench.run("", b"");
    run.supervisor.clone_from(&absent);
    let error = bench.go(run).await.unwrap_err();
    assert!(matches!(&error, ProcessError::NotFound(path) if *path == absent), "{error}");

    // It writes the supervisor's words wherever it can.
    let script = r#"
for fd in 0 1 2 3 4 5 6 7 8 9; do
    echo '{"not_started":{"errno":2,"text":"no"}}' 2>/dev/null >&$fd
    echo '{"not_started":{"errno":2,"text":"no"}}' 2>/dev/null > /proc/$PPID/fd/$fd
done
exit 126"#;
    let end = bench.script(script, b"x").await;
    assert_eq!((end.code, end.ended_by), (Some(126), EndedBy::Itself));
}

#[tokio::test]
async fn a_stop_before_the_start_runs_nothing() {
    let bench = Bench::bare();
    bench.stop.cancel();
    // More than the socket holds, so that the message cannot be over before the stop.
    let end = bench.script("echo ran", &vec![b'x'; 4 << 20]).await;
    assert_eq!((end.code, end.signal, end.ended_by), (None, None, EndedBy::Asked));
    assert_eq!(bench.lines(), [""; 0]);
}

#[tokio::test]
async fn input_that_is_not_read_hangs_nothing() {
    let bench = Bench::bare();
    let much = vec![b'x'; 4 << 20];
    assert_eq!(bench.script("exit 5", &much).await.code, Some(5));
    assert_eq!(bench.script("exec <&-; exit 6", &much).await.code, Some(6));
    let end = bench.script("wc -c", &much).await;
    assert_eq!((end.code, bench.lines()), (Some(0), vec![(4 << 20).to_string()]));
}

#[tokio::test]
async fn a_program_may_close_its_output_and_live_on() {
    let bench = Bench::bare();
    let script = "mkfifo go; echo one; sleep 600 $MARK & exec >&- 2>&-; read word < go; exit 5";
    let (end, ()) = tokio::join!(bench.script(script, b""), async {
        bench.marked.wait_for(1).await;
        bench.release().await;
    });
    assert_eq!((end.code, end.ended_by), (Some(5), EndedBy::Itself));
    assert_eq!(bench.lines(), ["one"]);
}

#[tokio::test]
async fn output_over_a_limit_is_cut_or_ends_the_run() {
    let long = "echo first; head -c 3000 /dev/zero | tr '\\0' x; echo; printf last";
    let bench = Bench::bare();
    let end = bench.script(long, b"").await;
    let cut = format!("{}{CUT}", "x".repeat(LIMITS.stdout_line));
    assert_eq!(bench.lines(), ["first", cut.as_str(), "last"]);
    assert_eq!((end.code, end.ended_by, end.stdout_bytes), (Some(0), EndedBy::Itself, 3011));

    let limits = LaneLimits { stdout_total: 10, ..LIMITS };
    let bench = Bench { limits, ..Bench::bare() };
    assert_eq!(bench.script("printf 1234567890", b"").await.ended_by, EndedBy::Itself);
    let end = bench.script("printf 12345678901; sleep 600 $MARK", b"").await;
    assert_eq!(end.ended_by, EndedBy::OutputLimit);
    assert_eq!(bench.script("printf 12345678901", b"").await.ended_by, EndedBy::OutputLimit);
    assert_eq!(bench.lines(), ["1234567890"; 3]);

    let errors = "i=0; while [ $i -lt 500 ]; do echo line $i >&2; i=$((i+1)); done";
    let end = Bench::bare().script(errors, b"").await;
    assert_eq!(end.stderr.len(), 1 << 10);
    assert!(end.stderr.ends_with(b"line 499\n"));
    let limits = LaneLimits { stderr_over_kills: true, ..LIMITS };
    let end = Bench { limits, ..Bench::bare() }.script(errors, b"").await;
    assert_eq!(end.ended_by, EndedBy::OutputLimit);
}

#[tokio::test]
async fn a_secret_written_in_pieces_is_found_in_both_streams() {
    let bench = Bench { secrets: vec![Secret::new("ghp_0123456789")], ..Bench::bare() };
    let script = "
printf 'a ghp_0123'; sleep 0.05; printf '456789 b\n'
printf 'a ghp_0123' >&2; sleep 0.05; printf '456789 b\n' >&2";
    let end = bench.script(script, b"").await;
    assert_eq!(bench.lines(), ["a [redacted] b"]);
    assert_eq!(String::from_utf8_lossy(&end.stderr), "a [redacted] b\n");

    // What a limit cuts off does not leave the beginning of a secret behind.
    let limits = LaneLimits { stdout_total: 10, ..LIMITS };
    let bench = Bench { limits, secrets: vec![Secret::new("ghp_0123456789")], ..Bench::bare() };
    bench.script("printf 'a ghp_0123456789'", b"").await;
    assert_eq!(bench.lines(), ["a "]);
}

/// A hundred megabytes, once in one line and once in many, pass through in little memory.
#[tokio::test]
async fn much_output_does_not_grow_the_worker() {
    let script = "yes 0123456789012345678901234567890123456789 | head -c 50000000
        head -c 50000000 /dev/zero";
    let bench = Bench::bare();
    let mut worker = another_worker(&bench, script);
    let mut said = String::new();
    let mut out = worker.stdout.take().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        std::io::Read::read_to_string(&mut out, &mut said).unwrap();
        said
    });
    let said = tokio::time::timeout(PATIENCE, reading).await.unwrap().unwrap();
    worker.wait().unwrap();
    let grown = said.split_once("100000000 bytes, grown by ").expect(&said).1;
    let kib: u64 = grown.split_once(' ').unwrap().0.parse().unwrap();
    assert!(kib < 4096, "the worker grew by {kib} KiB");
}
