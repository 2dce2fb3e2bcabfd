//! One run of a lane, seen from the worker: its supervisor, its limits, its output.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, Command};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::marked::{SUPERVISES_FOR, own_mark};
use super::orphans::{self, Started};
use super::program::{ProcessError, Program};
use super::redact::{Redactor, RedactorStream};
use super::run::{drain, pid};
use super::supervise::SUPERVISE;
use super::tail::{Lines, Tail};
use super::tree;
use super::wire::{self, Report};
use crate::model::Clock;

/// How often the clock is looked at when nothing else happens. Also how late after a suspend a
/// deadline that passed meanwhile is noticed.
const TICK: Duration = Duration::from_millis(250);

/// How long a supervisor may take to kill its tree before it is killed itself. It gives up by
/// itself after five seconds, unless new processes keep coming or the lane holds it up.
const KILLING: Duration = Duration::from_secs(30);

/// How long a killed supervisor may take to die.
const DYING: Duration = Duration::from_secs(2);

/// The most of a lane's standard error that is kept.
const STDERR_KEPT: u64 = 64 << 10;

/// A lane's program and all that concerns one run of it.
#[derive(Clone, Debug)]
pub struct LaneRun {
    /// relay's own executable, which is started as `relay __supervise`.
    pub supervisor: PathBuf,
    /// What to run, already wrapped by crate `sandbox`.
    pub program: Program,
    /// What it may use.
    pub limits: LaneLimits,
    /// What is taken out of all it writes.
    pub redactor: Redactor,
}

/// What a lane's program may use. Times count on [`Clock::uptime`], so through suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLimits {
    /// How long it may run.
    pub time: Duration,
    /// How long its standard output may stay silent, where that means something.
    pub stall: Option<Duration>,
    /// Bytes of standard output in all; one more ends the run.
    pub stdout_total: u64,
    /// Bytes of one line of standard output; a longer line is cut and marked with [`super::CUT`].
    pub stdout_line: usize,
    /// Bytes of standard error in all. At most the last 64 KiB are kept.
    pub stderr_total: u64,
    /// Whether more standard error than that ends the run.
    pub stderr_over_kills: bool,
}

/// How a lane's program ended. Nothing of it is left when this exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneEnd {
    /// Its exit code, unless a signal ended it or it never started.
    pub code: Option<i32>,
    /// The signal that ended it, its supervisor's kill included.
    pub signal: Option<i32>,
    /// Whose doing the end was.
    pub ended_by: EndedBy,
    /// The end of its standard error, redacted.
    pub stderr: Vec<u8>,
    /// How much it wrote to standard output, as it wrote it.
    pub stdout_bytes: u64,
    /// How long it ran, by [`Clock::uptime`].
    pub elapsed: Duration,
}

/// What ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The program ended by itself, well or not.
    Itself,
    /// It ran into its time limit.
    TimedOut,
    /// It wrote nothing for too long.
    Stalled,
    /// It wrote too much.
    OutputLimit,
    /// The caller asked for it.
    Asked,
}

/// Runs a lane's program to its end and hands each line of its standard output, redacted and
/// without its `\n`, to `on_line`. When it returns, and soon after its future was dropped or the
/// worker killed, nothing that the program started is alive; `tree` says what holds on which system.
///
/// # Errors
/// Where the program cannot be started, the supervisor is lost, or processes withstand the kill.
pub async fn run_lane(
    run: LaneRun,
    clock: &dyn Clock,
    stop: CancellationToken,
    on_line: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<LaneEnd, ProcessError> {
    let program = run.program.path.clone();
    let cwd = run.program.cwd.clone();
    let lost = |why: String| ProcessError::SupervisorLost { program: program.clone(), why };
    let message = wire::message(&run.program).map_err(|error| lost(error.to_string()))?;
    let (mut supervisor, started, line) = start(&run.supervisor)?;
    let session = pid(&supervisor);
    let (back, forth) = line.into_split();
    let (Some(mut stdout), Some(mut stderr)) = (supervisor.stdout.take(), supervisor.stderr.take())
    else {
        return Err(lost("it has no output".to_owned()));
    };

    let mut life = Some(keep_alive(forth, message));
    let mut watch = Watch::new(run.limits, clock);
    let mut output = Output::new(&run, on_line);
    let (mut stdout_open, mut stderr_open) = (true, true);
    let (mut out_piece, mut err_piece) = (vec![0; 16 << 10], vec![0; 4 << 10]);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let status = loop {
        tokio::select! {
            status = supervisor.wait() => break status.map_err(|error| lost(error.to_string()))?,
            n = stdout.read(&mut out_piece), if stdout_open => match n {
                Ok(n @ 1..) => {
                    watch.spoke(clock);
                    output.stdout(&out_piece[..n]);
                }
                _ => stdout_open = false,
            },
            n = stderr.read(&mut err_piece), if stderr_open => match n {
                Ok(n @ 1..) => output.stderr(&err_piece[..n]),
                _ => stderr_open = false,
            },
            () = alive(&mut life) => {}
            () = stop.cancelled(), if watch.ended_by.is_none() => watch.end(EndedBy::Asked, clock),
            _ = ticks.tick() => {}
        }
        watch.look(clock, output.over);
        if watch.ended_by.is_some() {
            if life.take().is_some() {
                wake(session);
            }
            if watch.killing_for(clock) > KILLING {
                let _ = supervisor.start_kill();
                let _ = tokio::time::timeout(DYING, supervisor.wait()).await;
                end_what_it_left(session).await;
                return Err(ProcessError::Survivors { program, count: 1 });
            }
        }
    };
    drop(started);
    drain(&stdout, |piece| output.stdout(piece));
    drain(&stderr, |piece| output.stderr(piece));
    watch.look_at_output(output.over);
    let (stderr, stdout_bytes) = output.end();

    let Some(report) = read_report(back.as_ref()) else {
        end_what_it_left(session).await;
        return Err(lost(how(status)));
    };
    orphans::reap_orphans();
    let (code, signal) = match report {
        Report::Ended { code, signal, survivors: 0 } => (code, signal),
        Report::Ended { survivors, .. } => {
            return Err(ProcessError::Survivors { program, count: survivors });
        }
        Report::NotStarted { errno, text } => {
            let error = errno.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error);
            return Err(ProcessError::start(&program, &cwd, error));
        }
        Report::Unasked if watch.ended_by.is_some() => (None, None),
        Report::Unasked => return Err(lost("it did not understand what to run".to_owned())),
    };
    let ended_by = watch.ended_by.unwrap_or(EndedBy::Itself);
    let elapsed = clock.uptime().saturating_sub(watch.started);
    Ok(LaneEnd { code, signal, ended_by, stderr, stdout_bytes, elapsed })
}

/// A lane may have stopped its supervisor, which then does not see that it is to end.
fn wake(supervisor: Option<Pid>) {
    if let Some(pid) = supervisor {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
    }
}

/// Kills what a dead supervisor could not.
async fn end_what_it_left(supervisor: Option<Pid>) {
    let end = move || {
        orphans::kill_orphans();
        if let Some(session) = supervisor {
            tree::kill_session(session);
        }
    };
    // Out of the way of the runtime: it waits for the dead.
    let _ = tokio::task::spawn_blocking(end).await;
}

fn start(relay: &std::path::Path) -> Result<(Child, Started, UnixStream), ProcessError> {
    let cannot = |source| ProcessError::start(relay, "/".as_ref(), source);
    let (ours, theirs) = StdUnixStream::pair().map_err(cannot)?;
    ours.set_nonblocking(true).map_err(cannot)?;
    let line = UnixStream::from_std(ours).map_err(cannot)?;
    #[expect(clippy::disallowed_methods, reason = "this is the room that spawns")]
    let mut command = Command::new(relay);
    // No kill on drop: a supervisor that is killed cannot kill its tree. The end of the line
    // tells it, and the runtime waits for it.
    command
        .arg(SUPERVISE)
        .env_clear()
        .envs(own_mark().map(|mark| (SUPERVISES_FOR, mark)))
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (child, started) = orphans::spawn(&mut command).map_err(cannot)?;
    Ok((child, started, line))
}

/// Holds the worker's end of the line; dropping it is the word to stop.
type Life = Pin<Box<dyn Future<Output = ()> + Send>>;

fn keep_alive(mut forth: OwnedWriteHalf, message: Vec<u8>) -> Life {
    Box::pin(async move {
        // A supervisor that does not take it all ends by itself, and is asked why then.
        let _ = forth.write_all(&message).await;
        drop(message);
        std::future::pending::<()>().await;
        drop(forth);
    })
}

async fn alive(life: &mut Option<Life>) {
    match life {
        Some(life) => life.await,
        None => std::future::pending().await,
    }
}

/// The deadlines of a run, and which came first.
struct Watch {
    limits: LaneLimits,
    started: Duration,
    spoke_at: Duration,
    ended_by: Option<EndedBy>,
    ended_at: Duration,
}

impl Watch {
    fn new(limits: LaneLimits, clock: &dyn Clock) -> Self {
        let now = clock.uptime();
        Self { limits, started: now, spoke_at: now, ended_by: None, ended_at: now }
    }

    fn spoke(&mut self, clock: &dyn Clock) {
        self.spoke_at = clock.uptime();
    }

    fn end(&mut self, by: EndedBy, clock: &dyn Clock) {
        self.ended_by = Some(by);
        self.ended_at = clock.uptime();
    }

    fn look(&mut self, clock: &dyn Clock, over: bool) {
        if self.ended_by.is_some() {
            return;
        }
        let now = clock.uptime();
        if over {
            self.end(EndedBy::OutputLimit, clock);
        } else if now.saturating_sub(self.started) >= self.limits.time {
            self.end(EndedBy::TimedOut, clock);
        } else if self.limits.stall.is_some_and(|s| now.saturating_sub(self.spoke_at) >= s) {
            self.end(EndedBy::Stalled, clock);
        }
    }

    /// A limit that was broken with the program's last words.
    fn look_at_output(&mut self, over: bool) {
        if over && self.ended_by.is_none() {
            self.ended_by = Some(EndedBy::OutputLimit);
        }
    }

    fn killing_for(&self, clock: &dyn Clock) -> Duration {
        clock.uptime().saturating_sub(self.ended_at)
    }
}

/// What a run wrote: counted, redacted, cut into lines; little of it is kept.
struct Output<'a> {
    limits: LaneLimits,
    out: RedactorStream,
    err: RedactorStream,
    lines: Lines,
    tail: Tail,
    on_line: &'a mut (dyn FnMut(&[u8]) + Send),
    stdout_bytes: u64,
    stderr_bytes: u64,
    /// Whether a limit is broken that ends the run.
    over: bool,
}

impl<'a> Output<'a> {
    fn new(run: &LaneRun, on_line: &'a mut (dyn FnMut(&[u8]) + Send)) -> Self {
        let kept = run.limits.stderr_total.min(STDERR_KEPT);
        Self {
            limits: run.limits,
            out: run.redactor.stream(),
            err: run.redactor.stream(),
            lines: Lines::new(run.limits.stdout_line),
            tail: Tail::new(usize::try_from(kept).unwrap_or(usize::MAX)),
            on_line,
            stdout_bytes: 0,
            stderr_bytes: 0,
            over: false,
        }
    }

    fn stdout(&mut self, piece: &[u8]) {
        let room = self.limits.stdout_total.saturating_sub(self.stdout_bytes);
        self.stdout_bytes += piece.len() as u64;
        self.over |= piece.len() as u64 > room;
        let within = &piece[..piece.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let sure = self.out.push(within);
        self.lines.push(&sure, self.on_line);
    }

    fn stderr(&mut self, piece: &[u8]) {
        self.stderr_bytes += piece.len() as u64;
        self.over |= self.limits.stderr_over_kills && self.stderr_bytes > self.limits.stderr_total;
        self.tail.push(&self.err.push(piece));
    }

    /// The end of standard error, and how long standard output was.
    fn end(mut self) -> (Vec<u8>, u64) {
        // What is held back at the limit may be the beginning of a secret that was cut there.
        if self.stdout_bytes <= self.limits.stdout_total {
            self.lines.push(&self.out.end(), self.on_line);
        }
        self.lines.end(self.on_line);
        self.tail.push(&self.err.end());
        (self.tail.into_bytes(), self.stdout_bytes)
    }
}

/// What a supervisor that has ended left on the line.
fn read_report(line: &UnixStream) -> Option<Report> {
    let mut text = Vec::new();
    drain(line, |piece| text.extend_from_slice(piece));
    serde_json::from_slice(&text).ok()
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with code {code} and without a word"),
        (_, Some(signal)) => format!("signal {signal} ended it"),
        _ => "nothing is known of its end".to_owned(),
    }
}
