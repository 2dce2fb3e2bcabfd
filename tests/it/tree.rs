//! Nothing survives a run: real processes, real signals, `relay __supervise` as it is shipped.
//!
//! Every test builds the same tree, of every kind of process that likes to outlive its run. A fifo
//! keeps the script waiting until the test has seen them all. Whole workers: `survivors`.

mod output;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay::model::Secret;
use relay::process::{
    EndedBy, LaneEnd, LaneLimits, LaneRun, Limits, ProcessError, Program, Redactor, adopt_orphans,
    kill_marked, run, run_lane,
};
use relay::system::SystemClock;
use relay_sandbox::{Confinement, Tools, choose, wrap};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use crate::support::PATIENCE;
use crate::support::clock::ManualClock;
use crate::support::full::skip;
use crate::support::processes::{IN_OTHER_SESSIONS, KINDS, Marked, kinds, living_in, tool};

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

    /// The script of the tree.
    fn tree_script(&self) -> String {
        let kinds = kinds(self.dir.path());
        let end = "[ $word = much ] && exec yes\nexit 3";
        format!("mkfifo go || exit 90\n{kinds}\necho ready\nread word < go\n{end}\n")
    }

    /// Runs the tree, does `act` once it stands, and returns how it ended and that it is gone.
    async fn tree(&self, act: impl AsyncFnOnce(&Self)) -> LaneEnd {
        let (end, ()) = tokio::join!(self.go(self.run(&self.tree_script(), b"")), async {
            self.stands().await;
            act(self).await;
        });
        assert_eq!(self.marked.alive(), [], "alive after the run ended");
        assert_eq!(self.lines()[0], "ready");
        end.unwrap()
    }

    /// Waits until the tree is complete and its one line was read: a stall counts from there.
    async fn stands(&self) {
        self.marked.wait_for(KINDS).await;
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
        self.say("go\n").await;
    }

    async fn say(&self, word: &'static str) {
        let fifo = self.dir.path().join("go");
        tokio::task::spawn_blocking(move || std::fs::write(fifo, word)).await.unwrap().unwrap();
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

    let bench = at(LaneLimits { stdout_total: 1 << 10, ..LIMITS });
    let end = bench.tree(async |bench| bench.say("much\n").await).await;
    assert_eq!(end.ended_by, EndedBy::OutputLimit);

    let bench = at(LIMITS);
    // The clock stands still: it waits for no time to pass.
    let end = bench.tree(async |bench| bench.stop.cancel()).await;
    assert_eq!((end.ended_by, end.elapsed), (EndedBy::Asked, Duration::ZERO));
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
    let running = bench.go(bench.run(&bench.tree_script(), b""));
    tokio::select! {
        end = running => panic!("it ended: {end:?}"),
        () = bench.marked.wait_for(KINDS) => {}
    }
    bench.marked.wait_for(0).await;
}

#[tokio::test]
async fn nothing_survives_a_killed_worker() {
    killed_worker(Confinement::Bare { setpriv: None }).await;
}

async fn killed_worker(confinement: Confinement) {
    let bench = Bench::new(confinement);
    let mut worker = another_worker(&bench, &bench.tree_script());
    bench.marked.wait_for(KINDS).await;
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
    let (end, ()) = tokio::join!(bench.go(bench.run(&bench.tree_script(), b"")), async {
        bench.marked.wait_for(KINDS).await;
        kill_process(bench.marked.supervisor(), Signal::KILL).unwrap();
    });
    let error = end.unwrap_err();
    assert!(matches!(error, ProcessError::SupervisorLost { .. }), "{error}");
    assert!(error.to_string().contains("signal 9"), "{error}");
    assert_eq!(bench.marked.alive().len(), IN_OTHER_SESSIONS);
}

/// A worker that adopts orphans, as the shipped one does, ends those as well.
#[tokio::test]
async fn nothing_survives_a_killed_supervisor() {
    for setpriv in [None, tool("setpriv")] {
        let bench = Bench::new(Confinement::Bare { setpriv });
        let mut worker = another_worker(&bench, &bench.tree_script());
        bench.marked.wait_for(KINDS).await;
        kill_process(bench.marked.supervisor(), Signal::KILL).unwrap();
        bench.marked.wait_for(0).await;
        worker.wait().unwrap();
    }
}

/// Without adopting, nothing but this finds what moved to another session; it does not find what
/// took its environment off.
#[tokio::test]
async fn what_carries_the_mark_of_a_run_is_found_by_it() {
    let bench = Bench::bare();
    let (end, ()) = tokio::join!(bench.go(bench.run(&bench.tree_script(), b"")), async {
        bench.marked.wait_for(KINDS).await;
        kill_process(bench.marked.supervisor(), Signal::KILL).unwrap();
    });
    assert!(end.is_err(), "{end:?}");
    assert_eq!(kill_marked("MARK", "0.another".as_ref()), 0);
    assert!(kill_marked("MARK", bench.marked.mark.as_ref()) >= IN_OTHER_SESSIONS - 1);
    let left = [bench.dir.path().join("innocent").display().to_string()];
    assert_eq!(bench.marked.names(), left);
}

/// One that is stopped is woken; one that is stopped over and over is killed.
#[tokio::test]
async fn a_lane_cannot_hold_its_supervisor_up() {
    let bench = Bench::bare();
    let script = "kill -STOP $PPID; echo ready; sleep 600 $MARK & wait";
    let (end, ()) = tokio::join!(bench.script(script, b""), async {
        bench.marked.wait_for(1).await;
        bench.stop.cancel();
    });
    assert_eq!(end.ended_by, EndedBy::Asked);
    assert_eq!(bench.marked.alive(), []);

    let bench = Bench::bare();
    let script = "sleep 600 $MARK & while :; do kill -STOP $PPID; done";
    let (end, ()) = tokio::join!(bench.go(bench.run(script, b"")), async {
        bench.marked.wait_for(1).await;
        bench.stop.cancel();
        while bench.marked.alive().len() == 1 {
            // A supervisor that is held up long enough.
            bench.clock.advance(Duration::from_secs(31));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(matches!(end, Err(ProcessError::Survivors { .. }) | Ok(_)), "{end:?}");
    assert_eq!(living_in(bench.dir.path()), [""; 0]);
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
    let mut worker = another_worker(&bench, &bench.tree_script());
    bench.marked.wait_for(KINDS).await;
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
i=0; while kill -0 $(cat orphan) 2>/dev/null && [ $i -lt 30000 ]; do i=$((i+1)); sleep 0.01; done
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

/// The body of [`another_worker`]: runs what its folder says, and tells how it grew.
#[tokio::test]
#[ignore = "a part of other tests"]
async fn a_worker_of_its_own() {
    let Ok(asked) = std::fs::read("worker.json") else { return };
    adopt_orphans().unwrap();
    let asked: Asked = serde_json::from_slice(&asked).unwrap();
    let mut bench = Bench::bare();
    bench.limits.stdout_total = 1 << 30;
    let mut run = bench.run("", b"");
    (run.program.path, run.program.args, run.program.cwd) = (asked.path, asked.args, asked.cwd);
    // Not in the bench, which would end what carries it.
    run.program.env[1].1 = asked.mark.into();
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
