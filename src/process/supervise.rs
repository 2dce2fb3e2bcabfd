//! The body of `relay __supervise`: a small process with one thread that stands between the
//! worker and a lane's program, and that outlives both by the moment it takes to kill the rest.
//!
//! ```text
//! worker ──socket──► supervisor ──► (wrapper of crate sandbox) ──► program ──► …
//!    ▲                                                               │
//!    └────────────── standard output and standard error ◄────────────┘
//! ```
//!
//! - The end of the socket means that the worker wants to stop or is dead: all are killed.
//!   (The kernel's parent-death signal would follow the worker's spawning *thread*.)
//! - The program's end, whatever it is, means that all it left behind is killed as well.
//! - It exits with the program's exit code, or 128 and the signal. The report on the socket is
//!   what counts: the program cannot write there.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;
use rustix::time::Timespec;

use super::program::Program;
use super::tree::{self, Tree};
use super::wire::{self, Report};

/// The hidden subcommand that the program's `main` looks for before anything else.
pub const SUPERVISE: &str = "__supervise";

/// Supervises one program. What to run comes on standard input, so that nothing of it stands in
/// this process's own arguments or environment.
#[must_use]
pub fn supervisor_main() -> ExitCode {
    // What the worker's own parent left open (a shell's lock file, an editor's folder) was handed
    // on to here: through an open folder a program reaches what is around it, walls or not.
    close_fds::set_fds_cloexec(3, &[]);
    // A copy, closed on exec: the program gets a standard input of its own.
    let Ok(mut line) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    let report = match wire::read(&mut line) {
        Ok(program) => supervise(program, &line),
        Err(_) => Report::Unasked,
    };
    // Nobody may be left to read it.
    let _ = line.write_all(&serde_json::to_vec(&report).unwrap_or_default());
    let code = match report {
        Report::Ended { code, signal, .. } => code.or(signal.map(|signal| 128 + signal)),
        Report::NotStarted { .. } => Some(126),
        Report::Unasked => None,
    };
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn supervise(program: Program, line: &UnixStream) -> Report {
    let not_started =
        |e: io::Error| Report::NotStarted { errno: e.raw_os_error(), text: e.to_string() };
    let mut child = match tree::prepare().and_then(|()| start(&program)) {
        Ok(child) => child,
        Err(error) => return not_started(error),
    };
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return not_started(io::ErrorKind::InvalidData.into());
    };
    let mut tree = Tree::new(pid);
    watch(&mut tree, line, child.stdin.take(), program.stdin);
    let survivors = tree.kill();
    let status = tree.status();
    Report::Ended {
        code: status.and_then(rustix::process::WaitStatus::exit_status),
        signal: status.and_then(rustix::process::WaitStatus::terminating_signal),
        survivors,
    }
}

fn start(program: &Program) -> io::Result<Child> {
    let stdin = if program.stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
    program.command().stdin(stdin).spawn()
}

/// Feeds the program's standard input until the program ends or the line does.
fn watch(tree: &mut Tree, line: &UnixStream, stdin: Option<ChildStdin>, text: Vec<u8>) {
    // How long an orphan that has ended, and that nobody else waits for, may stay in the
    // process table. Where the program's end wakes nobody, it is also how late it is noticed.
    let tick = Duration::from_millis(if cfg!(target_os = "linux") { 1000 } else { 20 });
    let tick = Timespec::try_from(tick).ok();
    let mut feed = stdin.and_then(|pipe| Feed::new(pipe, text));
    loop {
        let mut wanted = vec![PollFd::new(line, PollFlags::IN)];
        wanted.extend(tree.exit().map(|exit| PollFd::new(exit, PollFlags::IN)));
        wanted.extend(feed.as_ref().map(|feed| PollFd::new(&feed.pipe, PollFlags::OUT)));
        let _ = poll(&mut wanted, tick.as_ref());
        // The message was read to its end, so anything that comes now is the end.
        let line_ended = !wanted.first().is_some_and(|line| line.revents().is_empty());
        let children_left = tree.reap();
        if line_ended || !children_left || tree.status().is_some() {
            return;
        }
        feed = feed.and_then(Feed::go_on);
    }
}

/// A text on its way into a pipe that may be full.
struct Feed {
    pipe: ChildStdin,
    text: Vec<u8>,
    written: usize,
}

impl Feed {
    fn new(pipe: ChildStdin, text: Vec<u8>) -> Option<Self> {
        rustix::io::ioctl_fionbio(&pipe, true).ok()?;
        Self { pipe, text, written: 0 }.go_on()
    }

    /// Writes what fits. `None`, and the pipe closed, once all is written or nobody reads.
    fn go_on(mut self) -> Option<Self> {
        while self.written < self.text.len() {
            match self.pipe.write(&self.text[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(self),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        None
    }
}
