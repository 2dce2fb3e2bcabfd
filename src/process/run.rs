//! One short, trusted command: git, gh, a probe.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::orphans::{self, Started};
use super::program::{ProcessError, Program};
use super::tail::Tail;

/// What a short command may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long it may run. Time during which the machine sleeps does not count.
    pub time: Duration,
    /// Bytes of standard output; one more is an error.
    pub stdout: usize,
    /// Bytes of standard error that are kept; of more the end is kept.
    pub stderr: usize,
}

/// How a short command ended, and what it wrote. Not redacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// The end of its standard error.
    pub stderr: Vec<u8>,
}

/// Runs a short, trusted command in a process group of its own, and kills the group when the
/// command ends, when its time is up, when it writes too much, and when the future is dropped.
/// A process that leaves the group is not followed: for that there is [`super::run_lane`].
///
/// # Errors
/// Where it cannot be started, breaks its time, or writes more to standard output than it may.
/// An exit code other than zero is not an error.
pub async fn run(program: &Program, limits: &Limits) -> Result<Output, ProcessError> {
    let mut group = Group::spawn(program)?;
    if let Ok(result) = tokio::time::timeout(limits.time, talk(&mut group, program, limits)).await {
        return result;
    }
    group.kill();
    // So that its locks and files are free when this returns; a process stuck in the kernel
    // does not hold up the caller.
    let _ = tokio::time::timeout(Duration::from_secs(2), group.child.wait()).await;
    Err(ProcessError::TimedOut { program: program.path.clone(), limit: limits.time })
}

async fn talk(
    group: &mut Group,
    program: &Program,
    limits: &Limits,
) -> Result<Output, ProcessError> {
    let lost = |source| ProcessError::Start { program: program.path.clone(), source };
    let over = || ProcessError::OutputLimit { program: program.path.clone(), limit: limits.stdout };
    let (stdin, stdout, stderr) =
        (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
    let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) = (stdin, stdout, stderr) else {
        return Err(lost(std::io::ErrorKind::BrokenPipe.into()));
    };
    let mut feed = pin!(async move {
        // A program that does not read all of its input is none of our business.
        let _ = stdin.write_all(&program.stdin).await;
    });
    let (mut fed, mut stdout_open, mut stderr_open) = (false, true, true);
    let (mut out_piece, mut err_piece) = ([0; 8192], [0; 8192]);
    let (mut out, mut err) = (Vec::new(), Tail::new(limits.stderr));
    {
        let mut ended = pin!(group.ended());
        loop {
            tokio::select! {
                () = &mut feed, if !fed => fed = true,
                n = stdout.read(&mut out_piece), if stdout_open => match n {
                    Ok(n @ 1..) => {
                        out.extend_from_slice(&out_piece[..n]);
                        if out.len() > limits.stdout {
                            return Err(over());
                        }
                    }
                    _ => stdout_open = false,
                },
                n = stderr.read(&mut err_piece), if stderr_open => match n {
                    Ok(n @ 1..) => err.push(&err_piece[..n]),
                    _ => stderr_open = false,
                },
                result = &mut ended => break result.map_err(lost)?,
            }
        }
    }
    group.kill();
    drain(&stdout, |piece| out.extend_from_slice(piece));
    drain(&stderr, |piece| err.push(piece));
    if out.len() > limits.stdout {
        return Err(over());
    }
    let status = group.child.wait().await.map_err(lost)?;
    let (code, signal) = (status.code(), status.signal());
    Ok(Output { code, signal, stdout: out, stderr: err.into_bytes() })
}

/// Takes what lies ready in a pipe whose writer has ended, without waiting for the pipe's end:
/// a process that got away may hold it open.
pub(super) fn drain(pipe: &impl AsFd, mut take: impl FnMut(&[u8])) {
    /// The most that a pipe can hold (`/proc/sys/fs/pipe-max-size`), so all the program wrote.
    const PIPE: usize = 1 << 20;
    let mut piece = [0; 8192];
    let mut taken = 0;
    while taken < PIPE {
        match rustix::io::read(pipe, &mut piece) {
            Ok(n @ 1..) => {
                take(&piece[..n]);
                taken += n;
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// A child that leads its own process group, which dies with this value.
struct Group {
    child: Child,
    /// Behind the child: what is not watched any more is dropped first.
    _started: Started,
    /// Readable once the child has ended. Waiting on it leaves the zombie in place, so that the
    /// group's number cannot become somebody else's before the group is killed.
    #[cfg(target_os = "linux")]
    exit: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Group {
    fn spawn(program: &Program) -> Result<Self, ProcessError> {
        let start = |source| ProcessError::start(&program.path, &program.cwd, source);
        let mut command = Command::from(program.command());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let (child, started) = orphans::spawn(&mut command).map_err(start)?;
        #[cfg(target_os = "linux")]
        #[expect(deprecated, reason = "unsound only for a type that lies about its descriptor")]
        let exit = pid(&child)
            .and_then(|pid| {
                rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
            })
            .and_then(|fd| tokio::io::unix::AsyncFd::new(fd).ok());
        Ok(Self {
            child,
            _started: started,
            #[cfg(target_os = "linux")]
            exit,
        })
    }

    async fn ended(&mut self) -> std::io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(exit) = &self.exit {
            return exit.readable().await.map(|_| ());
        }
        self.child.wait().await.map(|_| ())
    }

    /// Kills every member. Does nothing once the child was reaped.
    fn kill(&self) {
        if let Some(pid) = pid(&self.child) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The child's number, until it was reaped.
pub(super) fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { time: Duration::from_secs(300), stdout: 1 << 20, stderr: 1 << 10 };

    fn sh(script: &str) -> Program {
        Program {
            path: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("MARK".into(), "kept".into())],
            cwd: "/".into(),
            stdin: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_command_gets_exactly_what_it_was_given() {
        let mut program =
            sh("cat; pwd; env | grep -v -e ^_= -e ^PWD= | sort; echo oops >&2; exit 7");
        program.stdin = b"words\n".to_vec();
        let output = run(&program, &LIMITS).await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "words\n/\nMARK=kept\nPATH=/usr/bin:/bin\n"
        );
        assert_eq!((output.code, output.signal), (Some(7), None));
        assert_eq!(output.stderr, b"oops\n");
    }

    #[tokio::test]
    async fn a_signal_is_no_exit_code() {
        let output = run(&sh("kill -TERM $$"), &LIMITS).await.unwrap();
        assert_eq!((output.code, output.signal), (None, Some(15)));
    }

    #[tokio::test]
    async fn standard_error_keeps_its_end_and_standard_output_has_a_limit() {
        let script = "i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done";
        let output = run(&sh(script), &LIMITS).await.unwrap();
        assert_eq!(output.stderr.len(), 1 << 10);
        assert!(output.stderr.ends_with(b"line 1999\n"));
        let small = Limits { stdout: 10, ..LIMITS };
        assert!(run(&sh("printf 1234567890"), &small).await.is_ok());
        let error = run(&sh("printf 12345678901; exec sleep 60"), &small).await.unwrap_err();
        assert!(matches!(error, ProcessError::OutputLimit { limit: 10, .. }), "{error}");
    }

    #[tokio::test]
    async fn input_that_is_not_read_hangs_nothing() {
        let mut program = sh("exit 0");
        program.stdin = vec![b'x'; 4 << 20];
        assert_eq!(run(&program, &LIMITS).await.unwrap().code, Some(0));
    }

    #[tokio::test]
    async fn a_background_child_does_not_hold_the_output_open() {
        let output = run(&sh("sleep 600 & echo started"), &LIMITS).await.unwrap();
        assert_eq!(output.stdout, b"started\n");
    }

    #[tokio::test]
    async fn time_is_limited_and_the_group_dies() {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let mut program = sh("sleep 600 & echo $! > tmp && mv tmp pid; wait");
        program.cwd = dir.path().to_owned();
        let mut limits = Limits { time: Duration::from_millis(500), ..LIMITS };
        // A loaded machine may need all of that for the start alone.
        while !pid_file.exists() {
            let error = run(&program, &limits).await.unwrap_err();
            assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
            limits.time *= 2;
        }
        wait_until_gone(&pid_file).await;
    }

    #[tokio::test]
    async fn a_dropped_future_takes_its_group_along() {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let mut program = sh("sleep 600 & echo $! > tmp && mv tmp pid; wait");
        program.cwd = dir.path().to_owned();
        let running = tokio::spawn(async move { run(&program, &LIMITS).await });
        let mut waited = 0;
        while !pid_file.exists() {
            waited += 1;
            assert!(waited < 30_000, "the command did not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        running.abort();
        wait_until_gone(&pid_file).await;
    }

    #[tokio::test]
    async fn a_start_that_fails_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "text").unwrap();
        let at = |path: &std::path::Path| Program { path: path.to_owned(), ..sh("") };
        let error = run(&at(&dir.path().join("absent")), &LIMITS).await.unwrap_err();
        assert!(matches!(error, ProcessError::NotFound(_)), "{error}");
        let error = run(&at(&plain), &LIMITS).await.unwrap_err();
        assert!(matches!(error, ProcessError::NotExecutable(_)), "{error}");
        let nowhere = Program { cwd: dir.path().join("gone"), ..sh("true") };
        let error = run(&nowhere, &LIMITS).await.unwrap_err();
        assert!(matches!(error, ProcessError::NoFolder(_)), "{error}");
    }

    async fn wait_until_gone(pid_file: &std::path::Path) {
        let pid = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        for _ in 0..30_000 {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if rustix::process::test_kill_process(pid).is_err() || stat.contains(") Z ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("process {pid} is still there");
    }
}
