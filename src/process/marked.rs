//! What is left of a run whose supervisor and worker were both killed: found by a variable that
//! the run's program was given, and that what it started has inherited.

use std::ffi::OsStr;

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

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::time::Duration;

    use rustix::process::{Pid, Signal};

    use super::super::tree::{pidfd, processes, wait_readable};

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
        std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
            .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|one| one == mark))
    }
}
