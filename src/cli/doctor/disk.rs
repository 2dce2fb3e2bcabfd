//! The disks: the home's, and the one for scratch files.

use std::path::Path;

use rustix::fs::{Access, access};

use super::Check;
use super::home::nearest;
use crate::model::DiskProblem;
use crate::model::disk::quoted;
use crate::work::room::{LEAST_INODES, Room};

/// Below this a large repository may not fit, in bytes.
const LITTLE: u64 = 5 << 30;

/// How much room there is for caches and copies. It fails where a worker claims nothing.
pub fn home(home: &Path) -> Check {
    let there = nearest(home);
    match Room::of(there) {
        Ok(room) => of(room, there),
        Err(error) => Check::warn("disk", error.to_string(), format!("df -h {}", quoted(there))),
    }
}

fn of(room: Room, there: &Path) -> Check {
    let inodes = room.inodes.map(|free| format!(", {free} inodes")).unwrap_or_default();
    let seen = format!("{:.1} GB free{inodes}", room.bytes as f64 / 1e9);
    let full = || DiskProblem::Full.mend(&there.join("relay.db"));
    if let Some(lacking) = room.lacking() {
        let seen = format!("no run is claimed: {lacking}");
        return Check::fail("disk", seen, lacking.mend(there));
    }
    if room.bytes < LITTLE || room.inodes.is_some_and(|free| free < LEAST_INODES * 100) {
        return Check::warn("disk", seen, full());
    }
    Check::ok("disk", seen)
}

/// The folder for scratch files, which lanes and the demo use.
pub fn scratch(folder: &Path) -> Option<Check> {
    let name = "TMPDIR";
    let shown = folder.display();
    if !folder.is_dir() {
        let mend = format!("mkdir -p {}", quoted(folder));
        return Some(Check::warn(name, format!("{shown} is no folder"), mend));
    }
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let seen = format!("{shown}: {}", std::io::Error::from(error));
        let mend = DiskProblem::of(&error.into()).unwrap_or(DiskProblem::Denied);
        return Some(Check::warn(name, seen, mend.mend(&folder.join("x"))));
    }
    let full = Room::of(folder).is_ok_and(Room::is_full);
    full.then(|| {
        Check::warn(name, format!("{shown} is full"), DiskProblem::Full.mend(&folder.join("x")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use crate::work::room::LEAST_BYTES;

    #[test]
    fn what_a_worker_would_not_claim_on_fails_and_little_room_warns() {
        let ample = Room { bytes: LITTLE, inodes: None, writable: true };
        let state = |room| of(room, Path::new("/srv")).state;
        assert_eq!(state(ample), State::Ok);
        assert_eq!(state(Room { bytes: LITTLE - 1, ..ample }), State::Warn);
        assert_eq!(state(Room { bytes: LEAST_BYTES - 1, ..ample }), State::Fail);
        assert_eq!(state(Room { inodes: Some(LEAST_INODES), ..ample }), State::Warn);
        assert_eq!(state(Room { inodes: Some(3), ..ample }), State::Fail);
        let read_only = of(Room { writable: false, ..ample }, Path::new("/srv"));
        assert!(read_only.state == State::Fail && read_only.seen.contains("read-only"));
    }
}
