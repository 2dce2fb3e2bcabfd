//! Everything one program started, and its end.
//!
//! On Linux the supervisor is a *child subreaper*: whoever loses its parent below it becomes its
//! child, whatever sessions and groups it moved to. So killing one's own children over and over,
//! until there are none, empties the tree. Only own children are ever killed by their number:
//! it cannot become somebody else's before we have waited for them.
//!
//! What escapes: a process that another user owns (a set-uid program), and work handed to a
//! daemon outside (cron, systemd, docker). A pid namespace around the program (crate `sandbox`)
//! takes the first along as well, and ends also when the supervisor is killed. Without one,
//! that death ends the program itself where `setpriv --pdeathsig` stood before it, and the worker
//! ends the rest (the room `orphans`); a worker that adopts nobody ends by [`kill_session`] what
//! did not move to another session.
//!
//! On macOS there is no subreaper: the program's process group is killed, and no more.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use super::private::keep_private;

/// Makes this process fit to supervise, before it starts anything.
///
/// # Errors
/// Where the system refuses one of the steps.
pub(super) fn prepare() -> io::Result<()> {
    // Leaves the worker's session: no terminal to read from or to be interrupted by, and no
    // process of the tree can move into a group of the worker or its shell, which are then
    // out of reach of a kill by group.
    rustix::process::setsid()?;
    #[cfg(target_os = "linux")]
    {
        // Any pid but none means yes.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    keep_private()
}

/// The started program and what came of it.
pub(super) struct Tree {
    program: Pid,
    status: Option<WaitStatus>,
    /// Readable once the program has ended.
    #[cfg(target_os = "linux")]
    exit: Option<std::os::fd::OwnedFd>,
}

impl Tree {
    /// Takes charge of a child that leads its own process group.
    pub(super) fn new(program: Pid) -> Self {
        Self {
            program,
            status: None,
            #[cfg(target_os = "linux")]
            exit: pidfd(program).ok(),
        }
    }

    /// What becomes readable when the program ends.
    #[cfg(target_os = "linux")]
    pub(super) fn exit(&self) -> Option<&std::os::fd::OwnedFd> {
        self.exit.as_ref()
    }

    /// What becomes readable when the program ends: nothing, so the waiting is short.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn exit(&self) -> Option<&std::os::fd::OwnedFd> {
        None
    }

    /// Waits for every child that has ended, and says whether others are left.
    pub(super) fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program => self.status = Some(status),
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// How the program ended, once it was reaped.
    pub(super) fn status(&self) -> Option<WaitStatus> {
        self.status
    }

    /// Kills all that is left, and returns how many processes withstood it for five seconds.
    pub(super) fn kill(&mut self) -> usize {
        /// How often nothing may happen for [`PATIENCE`].
        const ROUNDS: u32 = 100;
        const PATIENCE: Duration = Duration::from_millis(50);
        let mut quiet = 0;
        while self.reap() {
            let children = self.kill_children();
            if !wait_for_one(&children, PATIENCE) {
                quiet += 1;
                if quiet == ROUNDS {
                    return children.len().max(1);
                }
            }
        }
        0
    }

    #[cfg(target_os = "linux")]
    fn kill_children(&self) -> Vec<Pid> {
        let own = rustix::process::getpid();
        let children: Vec<Pid> = processes()
            .filter(|process| process.parent == Some(own))
            .map(|process| process.pid)
            .collect();
        for child in &children {
            let _ = rustix::process::kill_process(*child, Signal::KILL);
            // The kill comes first: a dying process moves to no other group, and until it is
            // reaped its group's number stays taken. A group dies at once, so a chain of forks
            // within one cannot outrun this.
            let group = Process::read(*child).and_then(|child| child.group);
            if let Some(group) = group.filter(|group| *group != own) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        children
    }

    #[cfg(not(target_os = "linux"))]
    fn kill_children(&self) -> Vec<Pid> {
        // Once the leader was reaped its number may be another's.
        if self.status.is_none() {
            let _ = kill_process_group(self.program, Signal::KILL);
        }
        vec![self.program]
    }
}

/// Kills every process of a session whose leader, a supervisor, is dead.
#[cfg(target_os = "linux")]
pub(super) fn kill_session(leader: Pid) {
    // Each round sees at least one process die or finds none; a process that forks faster than
    // this for a thousand rounds is left to the machine's owner.
    for _ in 0..1000 {
        // A leader that lives is another process that was given the dead one's number.
        if Process::read(leader).is_some_and(|process| process.alive) {
            return;
        }
        let mut found = false;
        for process in processes().filter(|p| p.session == Some(leader) && p.alive) {
            // The number is checked again once it cannot change its owner unnoticed.
            let Ok(fd) = pidfd(process.pid) else { continue };
            if Process::read(process.pid).is_some_and(|p| p.session == Some(leader) && p.alive) {
                found |= rustix::process::pidfd_send_signal(&fd, Signal::KILL).is_ok();
                wait_readable(&fd, Duration::from_millis(50));
            }
        }
        if !found {
            return;
        }
    }
}

/// Sessions cannot be listed here.
#[cfg(not(target_os = "linux"))]
pub(super) fn kill_session(_leader: Pid) {}

#[cfg(target_os = "linux")]
fn wait_for_one(children: &[Pid], patience: Duration) -> bool {
    // Every child was sent its signal, so that the first is as good as any.
    let fd = children.first().and_then(|child| pidfd(*child).ok());
    fd.map_or_else(|| pause(patience), |fd| wait_readable(&fd, patience))
}

#[cfg(not(target_os = "linux"))]
fn wait_for_one(_children: &[Pid], patience: Duration) -> bool {
    pause(patience)
}

fn pause(time: Duration) -> bool {
    let _ = rustix::event::poll(&mut [], rustix::time::Timespec::try_from(time).ok().as_ref());
    false
}

#[cfg(target_os = "linux")]
pub(super) use linux::{Process, pid_of, pidfd, processes, wait_readable};

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    pub(in crate::process) fn pidfd(pid: Pid) -> rustix::io::Result<OwnedFd> {
        pidfd_open(pid, PidfdFlags::empty())
    }

    pub(in crate::process) fn wait_readable(fd: &OwnedFd, patience: Duration) -> bool {
        let timeout = rustix::time::Timespec::try_from(patience).ok();
        poll(&mut [PollFd::new(fd, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// A line of the process table. A parent, a group's or a session's leader outside this pid
    /// namespace is `None`: so it is in a container for whatever was started from without.
    pub(in crate::process) struct Process {
        pub(in crate::process) pid: Pid,
        pub(in crate::process) parent: Option<Pid>,
        pub(in crate::process) group: Option<Pid>,
        pub(in crate::process) session: Option<Pid>,
        pub(in crate::process) alive: bool,
    }

    impl Process {
        pub(in crate::process) fn read(pid: Pid) -> Option<Self> {
            let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
            Self::parse(pid, &stat)
        }

        fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
            // The program's name stands in brackets and may hold brackets and blanks itself.
            let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
            let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
            let mut fields = rest.split_ascii_whitespace();
            let state = fields.next()?;
            let mut number = || Some(pid_of(fields.next()?.parse().ok()?));
            let (parent, group, session) = (number()?, number()?, number()?);
            Some(Self { pid, parent, group, session, alive: !matches!(state, "Z" | "X") })
        }
    }

    /// A number as a process, if it is one: the table has 0 for what is outside the namespace, and
    /// -1 for what is just being taken away.
    pub(in crate::process) fn pid_of(number: i32) -> Option<Pid> {
        if number > 0 { Pid::from_raw(number) } else { None }
    }

    /// The process table.
    pub(in crate::process) fn processes() -> impl Iterator<Item = Process> {
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(pid_of)
            .filter_map(Process::read)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_process_whose_session_began_outside_the_namespace_is_in_the_table() {
            let pid = Pid::from_raw(7).unwrap();
            let line = b"7 (a) b) S 0 0 0 0 -1 4194560 1 2";
            let process = Process::parse(pid, line).unwrap();
            assert_eq!((process.parent, process.group, process.session), (None, None, None));
            assert!(process.alive);
            let leaving = Process::parse(pid, b"7 (sh) X 0 -1 -1 0").unwrap();
            assert_eq!((leaving.group, leaving.session), (None, None));
            let inside = Process::parse(pid, b"7 (sh) Z 1 5 4 0").unwrap();
            assert_eq!(inside.session.map(Pid::as_raw_pid), Some(4));
            assert!(!inside.alive);
        }
    }
}
