//! What a supervisor leaves behind that is killed itself, where no pid namespace dies with it.
//!
//! A lane without such a wall runs as the worker's user and can kill its supervisor. So the worker
//! is a child subreaper as well: whatever loses its supervisor becomes the worker's child, in
//! whatever session or group it is. Which of its children are its own the worker knows, since each
//! is started by [`spawn`]; every other is an orphan.
//!
//! What escapes: a process of another user, work handed to a daemon, and what is left when a lane
//! kills its supervisor and then its worker: for that there is the room `marked`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tokio::process::{Child, Command};

use super::run::pid;

/// The children that this process started and still watches.
static STARTED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Whether this process has [`adopt_orphans`] behind it.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// From now on what loses its supervisor comes to this process. For a worker, once.
///
/// # Errors
/// Where the system refuses. It can do without: what is missing then is told above.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    ADOPTS.store(true, Ordering::Relaxed);
    Ok(())
}

/// A child that is no orphan, for as long as this lives. It is dropped after the child.
#[derive(Debug)]
pub(super) struct Started(Option<Pid>);

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            started().retain(|started| *started != pid);
        }
    }
}

/// Starts a child. Whoever looks for orphans meanwhile waits, so that it is never taken for one.
pub(super) fn spawn(command: &mut Command) -> io::Result<(Child, Started)> {
    let mut started = started();
    let child = command.spawn()?;
    let pid = pid(&child);
    started.extend(pid);
    Ok((child, Started(pid)))
}

fn started() -> MutexGuard<'static, Vec<Pid>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the orphans of a lane, and those that come from them, until there are none.
#[cfg(target_os = "linux")]
pub(super) fn kill_orphans() {
    use super::tree::{Process, pidfd, wait_readable};
    use rustix::process::{Signal, WaitOptions};
    /// Each round ends what was found in the one before; a lane that forks faster than this for so
    /// many rounds is left to the machine's owner.
    const ROUNDS: usize = 1000;
    const PATIENCE: std::time::Duration = std::time::Duration::from_millis(50);
    for _ in 0..ROUNDS {
        let orphans = orphans();
        for orphan in &orphans {
            // Until it is reaped its number is its own; that it is still a child is seen once the
            // number can no more become another's.
            let Ok(fd) = pidfd(orphan.pid) else { continue };
            if Process::read(orphan.pid).is_none_or(|now| now.parent != orphan.parent) {
                continue;
            }
            let _ = rustix::process::pidfd_send_signal(&fd, Signal::KILL);
            // As the supervisor does: a chain of forks within one group does not outrun this.
            if let Some(group) = Process::read(orphan.pid).and_then(|orphan| orphan.group) {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            wait_readable(&fd, PATIENCE);
            let _ = rustix::process::waitpid(Some(orphan.pid), WaitOptions::NOHANG);
        }
        if orphans.is_empty() {
            return;
        }
    }
}

/// Waits for orphans that have ended by themselves, which nobody else does.
#[cfg(target_os = "linux")]
pub(super) fn reap_orphans() {
    if !ADOPTS.load(Ordering::Relaxed) {
        return;
    }
    let own = rustix::process::getpid();
    let started = started();
    for dead in super::tree::processes().filter(|p| p.parent == Some(own) && !p.alive) {
        if !started.contains(&dead.pid) {
            let _ = rustix::process::waitpid(Some(dead.pid), rustix::process::WaitOptions::NOHANG);
        }
    }
}

/// The children that this process did not start and that come from a lane: a supervisor leaves the
/// worker's session before it starts anything, and nothing comes back into a session.
#[cfg(target_os = "linux")]
fn orphans() -> Vec<super::tree::Process> {
    if !ADOPTS.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let own = rustix::process::getpid();
    let session = super::tree::Process::read(own).and_then(|own| own.session);
    let started = started();
    super::tree::processes()
        .filter(|p| p.parent == Some(own) && p.session != session && !started.contains(&p.pid))
        .collect()
}

/// There are none here: they go to the first process of the system.
#[cfg(not(target_os = "linux"))]
pub(super) fn kill_orphans() {}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(super) fn reap_orphans() {}
