//! The only room that spawns: supervise, kill the whole tree, cap, redact, time out.
//!
//! Two ways to run a program:
//! - [`run`] is for relay's own short, trusted commands (git, gh, probes): one process group,
//!   all its output in memory up to a limit.
//! - [`run_lane`] is for a lane: `relay __supervise` stands between the worker and the program,
//!   so that nothing the program started outlives its run, whoever dies first. `supervise` tells
//!   how, `tree` what holds on which system.
//!
//! A descriptor that the worker itself inherited without close-on-exec goes on to its children;
//! all that relay opens is closed on exec.
//!
//! Architecture invariant: imports nothing of relay but `model`, and knows no vendor.

mod door;
mod lane;
mod marked;
mod orphans;
mod private;
mod program;
mod redact;
mod run;
mod supervise;
mod tail;
mod tree;
mod wire;

pub use door::{
    DOOR, DOOR_PORT, KNOCK, MOST_NAMED, door_main, hand_over, knock_main, meet, named_address,
    take_over,
};
pub use lane::{EndedBy, LaneEnd, LaneLimits, LaneRun, run_lane};
pub use marked::{
    WORKS_FOR, kill_marked, kill_orphaned_commands, own_mark, wake_orphaned_supervisors,
};
pub use orphans::adopt_orphans;
pub use private::keep_private;
pub use program::{ProcessError, Program, check_executable, is_shortage};
pub use redact::{MASK, Redactor, RedactorStream, SHORTEST_SECRET};
pub use run::{Limits, Output, run};
pub use supervise::{SUPERVISE, supervisor_main};
pub use tail::CUT;
