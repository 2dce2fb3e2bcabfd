//! Nothing survives a run: real processes, real signals, `relay __supervise` as it is shipped.
//!
//! Every test builds the same tree: a foreground `sleep`, a background one, one that was forked
//! twice, one in a session of its own and one below that in yet another, all holding standard
//! output. A fifo keeps the script waiting until the test has seen them all.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay::model::{Clock, Secret};
use relay::process::{
    CUT, EndedBy, LaneEnd, LaneLimits, LaneRun, Limits, ProcessError, Program, Redactor, run,
    run_lane,
};
use relay::system::SystemClock;
use relay_sandbox::{Confinement, Tools, choose, wrap};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use crate::support::clock::ManualClock;
use crate::support::full::skip;
use crate::support::processes::{Marked, PATIENCE, living_in, tool};

const TREE: &str = r#"
mkfifo go || exit 90
sleep 600 $MARK &
( ( sleep 600 $MARK & ) & )
setsid sh -c 'sleep 600 $MARK & setsid sh -c "sleep 600 \$MARK & wait" & wait' &
echo ready
read word < go
exit 3
"#;

/// How many marked processes the script starts.
const SLEEPERS: usize = 4;

const LIMITS: LaneLimits = LaneLimits {
    time: Duration::from_secs(3600),
    stall: None,
    stdout_total: 1 << 20,
    stdout_line: 1 << 10,
    stderr_total: 1 << 10,
    stderr_over_kills: false,
};

/// A script, its folder, and how it is to be run.
struct Bench {
    dir: tempfile::TempDir,
    marked: Marked,
    confinement: Confinement,
    limits: LaneLimits,
    secrets: Vec<Secret>,
    clock: ManualClock,
    stop: CancellationToken,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new(confinement: Confinement) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            marked: Marked::new(),
            confinement,
            limits: LIMITS,
            secrets: Vec::new(),
            clock: ManualClock::default(),
            stop: CancellationToken::new(),
            lines: Arc::default(),
        }
    }

    fn bare() -> Self {
        Self::new(Confinement::Bare { setpriv: None })
    }

    fn run(&self, script: &str, stdin: &[u8]) -> LaneRun {
        let args: [OsString; 2] = ["-c".into(), script.into()];
        let (path, args) = wrap(&self.confinement, Path::new("/bin/sh"), &args);
        LaneRun {
            supervisor: env!("CARGO_BIN_EXE_relay").into(),
            program: Program {
                path,
                args,
                env: vec![
                    ("PATH".into(), "/usr/bin:/bin".into()),
                    ("MARK".into(), self.marked.mark.clone().into()),
                ],
                cwd: self.dir.path().to_owned(),
                stdin: stdin.to_vec(),
            },
            limits: self.limits,
            redactor: Redactor::new(self.secrets.clone()),
        }
    }

    async fn go(&self, run: LaneRun) -> Result<LaneEnd, ProcessError> {
        let lines = Arc::clone(&self.lines);
        let mut on_line =
            move |line: &[u8]| lines.lock().unwrap().push(String::from_utf8_lossy(line).into());
        let running = run_lane(run, &self.clock, self.stop.clone(), &mut on_line);
        tokio::time::timeout(PATIENCE, running).await.expect("the run hangs")
    }

    /// Runs a script to its end.
    async fn script(&self, script: &str, stdin: &[u8]) -> LaneEnd {
        self.go(self.run(script, stdin)).await.unwrap()
    }

    /// Runs the tree, does `act` once it stands, and returns how it ended and that it is gone.
    async fn tree(&self, act: impl AsyncFnOnce(&Self)) -> LaneEnd {
        let (end, ()) = tokio::join!(self.go(self.run(TREE, b"")), async {
            self.stands().await;
            act(self).await;
        });
        assert_eq!(self.marked.alive(), [], "alive after the run ended");
        assert_eq!(self.lines(), ["ready"]);
        end.unwrap()
    }

    /// Waits until the tree is complete and its one line was read: a stall counts from there.
    async fn stands(&self) {
        self.marked.wait_for(SLEEPERS).await;
        for _ in 0..PATIENCE.as_millis() / 10 {
            if !self.lines().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no line was read");
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Lets the script go on to its end.
    async fn release(&self) {
        let fifo = self.dir.path().join("go");
        tokio::task::spawn_blocking(move || std::fs::write(fifo, "go\n")).await.unwrap().unwrap();
    }
}

async fn every_end(confinement: &Confinement) {
    let at = |limits| Bench { limits, ..Bench::new(confinement.clone()) };

    let bench = at(LIMITS);
    let end = bench.tree(Bench::release).await;
    assert_eq!((end.code, end.signal, end.ended_by), (Some(3), None, EndedBy::Itself));
    assert_eq!(end.stdout_bytes, 6);

    let bench = at(LIMITS);
    let end = bench.tree(async |bench| bench.clock.advance(LIMITS.time)).await;
    assert_eq!((end.ended_by, end.elapsed), (EndedBy::TimedOut, LIMITS.time));
    assert!(end.signal == Some(9) || end.code == Some(137), "{end:?}");

    let stall = Duration::from_secs(600);
    let bench = at(LaneLimits { stall: Some(stall), ..LIMITS });
    let end = bench.tree(async |bench| bench.clock.advance(stall)).await;
    assert_eq!(end.ended_by, EndedBy::Stalled);

    let bench = at(LIMITS);
    let asked = Mutex::new(Duration::ZERO);
    let end = bench
        .tree(async |bench| {
            *asked.lock().unwrap() = SystemClock.uptime();
            bench.stop.cancel();
        })
        .await;
    let took = SystemClock.uptime() - *asked.lock().unwrap();
    assert_eq!(end.ended_by, EndedBy::Asked);
    assert!(took < Duration::from_secs(2), "stopping took {took:?}");
}

#[tokio::test]
async fn nothing_survives_any_end() {
    every_end(&Confinement::Bare { setpriv: None }).await;
}

/// Processes that fork and end without pause, one chain in a group, one that takes a new
/// session each time.
#[tokio::test]
async fn a_chain_of_forks_is_outrun() {
    let bench = Bench::bare();
    let script = r#"
mkfifo go
echo 'setsid sh chain &' > chain
chain() { chain & }
chain
sh chain
sleep 600 $MARK &
echo ready
read word < go"#;
    let (end, ()) = tokio::join!(bench.script(script, b""), async {
        bench.marked.wait_for(1).await;
        assert!(!living_in(bench.dir.path()).is_empty());
        bench.release().await;
    });
    assert_eq!(living_in(bench.dir.path()), [""; 0]);
    assert_eq!((end.code, end.ended_by), (Some(0), EndedBy::Itself));
}

#[tokio::test]
async fn nothing_survives_a_dropped_future() {
    let bench = Bench::bare();
    let running = bench.go(bench.run(TREE, b""));
    tokio::select! {
        end = running => panic!("it ended: {end:?}"),
        () = bench.marked.wait_for(SLEEPERS) => {}
    }
    bench.marked.wait_for(0).await;
}

#[tokio::test]
async fn nothing_survives_a_killed_worker() {
    killed_worker(Confinement::Bare { setpriv: None }).await;
}

async fn killed_worker(confinement: Confinement) {
    let bench = Bench::new(confinement);
    let mut worker = another_worker(&bench, TREE);
    bench.marked.wait_for(SLEEPERS).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
    bench.marked.wait_for(0).await;
}

/// Without a namespace this is what a supervisor's own death leaves: what moved to another
/// session. The program itself dies by its parent-death signal, and the worker ends the rest.
#[tokio::test]
async fn a_killed_supervisor_is_told_and_its_session_dies() {
    let Some(setpriv) = tool("setpriv") else { return skip("setpriv is not installed") };
    let bench = Bench::new(Confinement::Bare { setpriv: Some(setpriv) });
    let (end, ()) = tokio::join!(bench.go(bench.run(TREE, b"")), async {
        bench.marked.wait_for(SLEEPERS).await;
        kill_process(bench.marked.supervisor(), Signal::KILL).unwrap();
    });
    let error = end.unwrap_err();
    assert!(matches!(error, ProcessError::SupervisorLost { .. }), "{error}");
    assert!(error.to_string().contains("signal 9"), "{error}");
    assert_eq!(bench.marked.alive().len(), 2, "those in sessions of their own");
}

#[tokio::test]
async fn full_box_nothing_survives_any_end() {
    if let Some(confinement) = the_box().await {
        every_end(&confinement).await;
    }
}

#[tokio::test]
async fn full_box_nothing_survives_a_killed_worker() {
    if let Some(confinement) = the_box().await {
        killed_worker(confinement).await;
    }
}

/// The worker stands still meanwhile, so that it is the wall alone that ends everything.
#[tokio::test]
async fn full_box_nothing_survives_a_killed_supervisor() {
    let Some(confinement) = the_box().await else { return };
    let bench = Bench::new(confinement);
    let mut worker = another_worker(&bench, TREE);
    bench.marked.wait_for(SLEEPERS).await;
    let pid = Pid::from_raw(worker.id().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    kill_process(bench.marked.supervisor(), Signal::KILL).unwrap();
    bench.marked.wait_for(0).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
}

/// The first process of the namespace is an init: it reaps orphans, and the program is killed
/// by its own `kill -9` like anywhere else.
#[tokio::test]
async fn full_box_the_program_is_not_the_first_process() {
    let Some(confinement) = the_box().await else { return };
    let bench = Bench::new(confinement);
    let script = r#"
( sh -c 'echo $$ > orphan; exec sleep 0.1' & )
until [ -s orphan ]; do sleep 0.01; done
i=0; while kill -0 $(cat orphan) 2>/dev/null && [ $i -lt 500 ]; do i=$((i+1)); sleep 0.01; done
kill -0 $(cat orphan) 2>/dev/null || echo reaped
kill -9 $$
echo alive"#;
    let end = bench.script(script, b"").await;
    assert_eq!(bench.lines(), ["reaped"]);
    assert_eq!((end.code, end.ended_by), (Some(137), EndedBy::Itself));
}

/// The wall that this user gets, where it works.
async fn the_box() -> Option<Confinement> {
    let tools = Tools { bwrap: tool("bwrap"), unshare: tool("unshare"), setpriv: tool("setpriv") };
    let confinement = choose(&tools, rustix::process::geteuid().is_root());
    if matches!(confinement, Confinement::Bare { .. }) {
        skip("neither bubblewrap nor unshare is of use to this user");
        return None;
    }
    let (path, args) = wrap(&confinement, Path::new("/bin/true"), &[]);
    let program = Program { path, args, env: Vec::new(), cwd: "/".into(), stdin: Vec::new() };
    let limits = Limits { time: PATIENCE, stdout: 0, stderr: 1 << 10 };
    let output = run(&program, &limits).await.unwrap();
    if output.code != Some(0) {
        skip(&format!("no box here: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(confinement)
}

#[tokio::test]
async fn the_program_gets_what_it_was_given_and_the_supervisor_shows_none_of_it() {
    let bench = Bench::bare();
    let script = r#"
cat
[ -t 0 ] || [ -e /dev/tty ] && (: < /dev/tty) 2>/dev/null && echo "has a terminal"
env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^OLDPWD= -e ^MARK=
tr '\0' ' ' < /proc/$PPID/cmdline | sed 's/.*relay/relay/'; echo
echo "$(cat /proc/$PPID/environ 2>/dev/null | tr '\0' ' ')."
exit 7"#;
    let end = bench.script(script, b"some words\n").await;
    let lines = bench.lines();
    let expected = ["some words", "PATH=/usr/bin:/bin", "relay __supervise ", "."];
    assert_eq!(lines, expected);
    assert_eq!((end.code, end.signal), (Some(7), None));
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
    let said = tokio::time::timeout(PATIENCE * 2, reading).await.unwrap().unwrap();
    worker.wait().unwrap();
    let grown = said.split_once("100000000 bytes, grown by ").expect(&said).1;
    let kib: u64 = grown.split_once(' ').unwrap().0.parse().unwrap();
    assert!(kib < 4096, "the worker grew by {kib} KiB");
}

/// The body of [`another_worker`]: runs what its folder says, and tells how it grew.
#[tokio::test]
#[ignore = "a part of other tests"]
async fn a_worker_of_its_own() {
    let Ok(asked) = std::fs::read("worker.json") else { return };
    let asked: Asked = serde_json::from_slice(&asked).unwrap();
    let mut bench = Bench::bare();
    bench.limits.stdout_total = 1 << 30;
    bench.marked.mark = asked.mark;
    let mut run = bench.run("", b"");
    (run.program.path, run.program.args, run.program.cwd) = (asked.path, asked.args, asked.cwd);
    run.program.env[1].1 = bench.marked.mark.clone().into();
    let mut on_line = |_: &[u8]| {};
    // Once with little, so that what any run needs is there.
    let little = bench.run("echo", b"");
    run_lane(little, &SystemClock, CancellationToken::new(), &mut on_line).await.unwrap();
    let before = peak_kib();
    let end = run_lane(run, &SystemClock, CancellationToken::new(), &mut on_line).await.unwrap();
    println!("{} bytes, grown by {} KiB", end.stdout_bytes, peak_kib() - before);
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Asked {
    path: PathBuf,
    args: Vec<OsString>,
    cwd: PathBuf,
    mark: String,
}

/// This test program once more, as a process that can be killed.
fn another_worker(bench: &Bench, script: &str) -> Child {
    let Program { path, args, cwd, .. } = bench.run(script, b"").program;
    let asked = Asked { path, args, cwd, mark: bench.marked.mark.clone() };
    std::fs::write(bench.dir.path().join("worker.json"), serde_json::to_vec(&asked).unwrap())
        .unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test kills it, and not its children")]
    let mut worker = Command::new(std::env::current_exe().unwrap());
    worker
        .args(["--exact", "tree::a_worker_of_its_own", "--ignored", "--nocapture"])
        .current_dir(bench.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The most memory this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
