//! The door, tried: a box is made with one, and relay's own program knocks at it from inside.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use relay_sandbox::egress::AllowList;
use relay_sandbox::{Confinement, wall_in};

use super::{Door, Egress};
use crate::process::{KNOCK, Program, run};
use crate::work::boxing::LIMITS;
use crate::work::walls::View;

/// Why nobody answered at a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDoor {
    /// The box did not get as far as its door.
    Untried(String),
    /// It did, and no proxy was behind it.
    Shut(String),
}

/// Whether a run has a network of its own here, with a proxy that answers at its door.
///
/// # Errors
/// What came instead, in words.
pub async fn try_door(
    confinement: &Confinement,
    view: &View<'_>,
    egress: &Egress,
) -> Result<(), NoDoor> {
    let untried = |why: String| NoDoor::Untried(why);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(view.relay_home);
    let name = format!("relay-door-{}", std::process::id());
    let door = made
        .and_then(|()| Door::open(view.relay_home.join(name), AllowList::of_lane("", &[]), egress));
    let door = door.map_err(|error| untried(error.to_string()))?;
    let mut walls = View { programs: &[&egress.relay], ..*view }.walls();
    door.stand_in(&mut walls);
    let (path, args) = wall_in(confinement, &walls, &egress.relay, &[OsString::from(KNOCK)]);
    let program =
        Program { path, args, env: Vec::new(), cwd: PathBuf::from("/"), stdin: Vec::new() };
    let (ran, _) = door.beside(run(&program, &LIMITS), Box::new(|_| {})).await;
    let ran = ran.map_err(|error| untried(error.to_string()))?;
    let [said, complaint] =
        [&ran.stdout, &ran.stderr].map(|b| String::from_utf8_lossy(b).into_owned());
    let last = complaint.lines().next_back().unwrap_or("the box said nothing").to_owned();
    match said.lines().next() {
        Some(line) if line.starts_with("HTTP/1.1 403 ") => Ok(()),
        Some(line) => Err(NoDoor::Shut(line.to_owned())),
        None if last.starts_with("relay: ") => Err(NoDoor::Shut(last)),
        None => Err(NoDoor::Untried(last)),
    }
}
