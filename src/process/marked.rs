//! What is left of a run whose supervisor and worker were both killed, and of a command whose
//! worker was: found by a variable that the program was given, and that what it started has
//! inherited.

use std::ffi::{OsStr, OsString};

/// The variable by which a command of relay's own names the process it works for.
pub const WORKS_FOR: &str = "RELAY_PROCESS";

/// The same of a supervisor.
pub(super) const SUPERVISES_FOR: &str = "RELAY_SUPERVISES";

/// Kills every process of this user whose environment has `name=value`, and returns how many it
/// was. One that took the variable out is not found. Does nothing but on Linux.
pub fn kill_marked(name: &str, value: &OsStr) -> usize {
    #[cfg(target_os = "linux")]
    {
        linux::kill_marked(name, value)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (name, value);
        0
    }
}

/// This process as the value of [`WORKS_FOR`]: the same of no other one. `None` but on Linux.
#[must_use]
pub fn own_mark() -> Option<OsString> {
    #[cfg(target_os = "linux")]
    {
        linux::mark_of(rustix::process::getpid())
    }
    #[cfg(not(target_os = "linux"))]
    {
        None
    }
}

/// Kills every command whose process of relay is dead, and returns how many it was: git goes on
/// talking to its host after its worker was killed. Does nothing but on Linux.
pub fn kill_orphaned_commands() -> usize {
    #[cfg(target_os = "linux")]
    {
        linux::kill_orphaned_commands()
    }
    #[cfg(not(target_os = "linux"))]
    {
        0
    }
}

/// Wakes every supervisor whose worker is dead: where there is no namespace its lane can have
/// stopped it, and then it saw nothing of that death. Awake it ends what is left and itself.
/// Does nothing but on Linux.
pub fn wake_orphaned_supervisors() {
    #[cfg(target_os = "linux")]
    linux::wake_orphaned_supervisors();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::time::Duration;

    use rustix::process::{Pid, Signal};

    use super::super::tree::{pid_of, pidfd, processes, wait_readable};

    /// As in the room `orphans`.
    const ROUNDS: usize = 1000;

    pub(super) fn kill_marked(name: &str, value: &OsStr) -> usize {
        let mark = [name.as_bytes(), b"=", value.as_bytes()].concat();
        let own = rustix::process::getpid();
        let mut killed = HashSet::new();
        for _ in 0..ROUNDS {
            let mut found = false;
            for process in processes().filter(|p| p.alive && p.pid != own) {
                if !has(process.pid, &mark) {
                    continue;
                }
                // Looked at again once the number cannot become another's unnoticed.
                let Ok(fd) = pidfd(process.pid) else { continue };
                if has(process.pid, &mark)
                    && rustix::process::pidfd_send_signal(&fd, Signal::KILL).is_ok()
                {
                    found = true;
                    killed.insert(process.pid);
                    wait_readable(&fd, Duration::from_millis(50));
                }
            }
            if !found {
                break;
            }
        }
        killed.len()
    }

    fn has(pid: Pid, mark: &[u8]) -> bool {
        environ(pid).is_some_and(|environ| environ.split(|byte| *byte == 0).any(|one| one == mark))
    }

    fn environ(pid: Pid) -> Option<Vec<u8>> {
        std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()
    }

    /// `<process namespace> <number> <start>`. A number is given again, but not at the same time.
    pub(super) fn mark_of(pid: Pid) -> Option<OsString> {
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
        let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        // A zombie does no more work; the start is the 22nd field, the state the third.
        let start = fields.next().filter(|state| *state != "Z").and_then(|_| fields.nth(18))?;
        Some(format!("{} {} {start}", namespace.display(), pid.as_raw_nonzero()).into())
    }

    pub(super) fn kill_orphaned_commands() -> usize {
        let marks: HashSet<OsString> =
            orphaned(super::WORKS_FOR).into_iter().map(|(_, mark)| mark).collect();
        marks.iter().map(|mark| kill_marked(super::WORKS_FOR, mark)).sum()
    }

    pub(super) fn wake_orphaned_supervisors() {
        for (pid, _) in orphaned(super::SUPERVISES_FOR) {
            let _gone_already = rustix::process::kill_process(pid, Signal::CONT);
        }
    }

    /// The processes that name by the variable `name` a process of relay that is dead, with what
    /// they name.
    fn orphaned(name: &str) -> Vec<(Pid, OsString)> {
        let Some(own) = mark_of(rustix::process::getpid()) else { return Vec::new() };
        // Those of another namespace cannot be looked up here.
        let namespace = own.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        let name = [name.as_bytes(), b"="].concat();
        let mut orphaned = Vec::new();
        for process in processes().filter(|process| process.alive) {
            let environ = environ(process.pid).unwrap_or_default();
            let mark = environ.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(&*name));
            let Some(mark) = mark.filter(|mark| mark.starts_with(namespace)) else { continue };
            let parts = mark.split(|byte| *byte == b' ').nth(1);
            let owner =
                parts.and_then(|pid| std::str::from_utf8(pid).ok()?.parse().ok()).and_then(pid_of);
            let alive = owner.and_then(mark_of).is_some_and(|now| now.as_bytes() == mark);
            if !alive {
                orphaned.push((process.pid, OsString::from_vec(mark.to_vec())));
            }
        }
        orphaned
    }
}
