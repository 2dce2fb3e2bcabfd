//! Finding processes by a word of their command line, whatever namespace, session or group they
//! went to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// The processes that stand under one word, and their end when the test ends, however it does.
#[derive(Debug)]
pub struct Marked {
    /// A word that is also a number of seconds, so that `sleep 600 $MARK` carries it.
    pub mark: String,
}

impl Marked {
    /// A word that no other test of this run uses.
    pub fn new() -> Self {
        let unique = relay::system::SystemIds;
        let digits: String = relay::model::Ids::uuid(&unique)
            .bytes()
            .filter(u8::is_ascii_hexdigit)
            .map(|b| char::from(b'0' + b % 10))
            .collect();
        Self { mark: format!("0.{digits}") }
    }

    /// The processes that carry the mark and are alive.
    pub fn alive(&self) -> Vec<Pid> {
        self.all().into_iter().map(|p| p.pid).collect()
    }

    /// What they are called.
    pub fn names(&self) -> Vec<String> {
        let name = |p: Process| p.line.split('\0').next().unwrap_or_default().to_owned();
        self.all().into_iter().map(name).collect()
    }

    fn all(&self) -> Vec<Process> {
        let is_marked = |p: &Process| p.line.split('\0').any(|word| word == self.mark);
        all().into_iter().filter(is_marked).collect()
    }

    /// Waits until exactly this many are alive.
    pub async fn wait_for(&self, count: usize) {
        for _ in 0..PATIENCE.as_millis() / 10 {
            if self.alive().len() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} marked processes instead of {count}", self.alive().len());
    }

    /// The supervisor above the marked processes.
    pub fn supervisor(&self) -> Pid {
        let all: HashMap<Pid, Process> = all().into_iter().map(|p| (p.pid, p)).collect();
        let mut chains = self.alive().into_iter().map(|mut pid| {
            loop {
                let process = all.get(&pid)?;
                if process.line.ends_with("\0__supervise\0") {
                    return Some(pid);
                }
                pid = process.parent?;
            }
        });
        chains.find_map(|found| found).expect("no supervisor above the marked processes")
    }
}

/// Every kind of process that likes to outlive its run, all but the last holding standard output:
/// a child, one forked twice, one in a session of its own and one below that in yet another, one
/// that no polite signal ends, one in a process group of its own, and one in a session of its own
/// with another name (of [`innocent`], made in `folder`), no environment and no output.
pub fn kinds(folder: &Path) -> String {
    let innocent = innocent(folder);
    format!(
        r#"
sleep 600 $MARK &
( ( sleep 600 $MARK & ) & )
setsid sh -c 'sleep 600 $MARK & setsid sh -c "sleep 600 \$MARK & wait" & wait' &
sh -c 'trap "" HUP INT TERM; exec sleep 600 $MARK' &
bash -c 'set -m; sleep 600 $MARK & wait' &
setsid env -i {} 600 $MARK < /dev/null > /dev/null 2>&1 &
"#,
        innocent.display()
    )
}

/// How many marked processes [`kinds`] starts.
pub const KINDS: usize = 7;

/// How many of them left the session they were started in.
pub const IN_OTHER_SESSIONS: usize = 3;

/// A `sleep` of another name in `folder`, made where it is missing.
pub fn innocent(folder: &Path) -> PathBuf {
    let path = folder.join("innocent");
    if !path.exists() {
        std::os::unix::fs::symlink(tool("sleep").expect("sleep"), &path).expect("linked");
    }
    path
}

impl Drop for Marked {
    fn drop(&mut self) {
        for pid in self.alive() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

struct Process {
    pid: Pid,
    parent: Option<Pid>,
    /// Arguments, each ended by NUL; empty for the dead.
    line: String,
}

fn all() -> Vec<Process> {
    let read = |pid: i32| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let line = String::from_utf8_lossy(&bytes).into_owned();
        Some(Process { pid: Pid::from_raw(pid)?, parent: Pid::from_raw(parent), line })
    };
    std::fs::read_dir("/proc")
        .expect("a process table")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

/// Name, command line and environment of each process that this machine in a folder started.
pub fn with_environment(root: &Path) -> Vec<(String, String, Vec<u8>)> {
    let place = root.to_str().expect("utf-8");
    let read =
        |pid: Pid, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let mut found = Vec::new();
    for process in all() {
        let environment = read(process.pid, "environ");
        let is_here = |text: &str| text.contains(place);
        if is_here(&process.line) || is_here(&String::from_utf8_lossy(&environment)) {
            let name = String::from_utf8_lossy(&read(process.pid, "comm")).trim().to_owned();
            found.push((name, process.line, environment));
        }
    }
    found
}

/// The command lines of the processes whose working folder this is.
pub fn living_in(folder: &Path) -> Vec<String> {
    let here = |p: &Process| {
        std::fs::read_link(format!("/proc/{}/cwd", p.pid)).is_ok_and(|cwd| cwd == folder)
    };
    all().into_iter().filter(here).map(|process| process.line).collect()
}

/// The first of these names on the usual paths.
pub fn tool(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/sbin"]
        .iter()
        .map(|dir| PathBuf::from(dir).join(name))
        .find(|p| p.exists())
}
