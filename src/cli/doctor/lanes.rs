//! The lanes: each program, its version and its login.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use super::super::context::Context;
use super::super::lane::{MISNAMED, RENAME};
use super::super::machine;
use super::Check;
use super::gather::MORE_TIME;
use crate::work::boxing::Boxing;
use crate::work::lane::misnamed_lanes;
use crate::work::probe::{LaneState, LaneStatus, probe_within};

/// The lanes, asked while the box is tried.
pub async fn found(
    context: &Context,
    boxing: impl Future<Output = Boxing>,
    patience: Duration,
) -> Vec<LaneStatus> {
    let lanes = machine::lanes_with(context, Boxing::untried(), true, Vec::new());
    probe_within(&lanes, boxing, patience).await
}

/// One check a file that was meant for a lane, and whose name is none's.
pub fn misnamed(context: &Context) -> Vec<Check> {
    let check = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let seen = format!("{}: {MISNAMED}", path.display());
        Check::warn(format!("lanes/{name}"), seen, RENAME)
    };
    misnamed_lanes(&context.config.lanes_folder()).into_iter().map(check).collect()
}

/// One check a lane.
pub fn checks(lanes: &[LaneStatus]) -> Vec<Check> {
    lanes.iter().map(check).collect()
}

/// What they come to. A machine whose `relay serve` other machines work for needs none, and in that
/// home `relay work` is refused.
pub fn together(lanes: &[LaneStatus], serves_others: bool) -> Check {
    let served: Vec<&str> =
        lanes.iter().filter(|lane| lane.served).map(|lane| lane.lane.as_str()).collect();
    match (served.is_empty(), serves_others) {
        (false, false) => {
            Check::ok("lanes", format!("`relay work` would serve {}", served.join(", ")))
        }
        (false, true) => {
            let served = served.join(", ");
            let seen = format!(
                "a worker with a home of its own would serve {served}; `relay serve` has this one"
            );
            Check::ok("lanes", seen)
        }
        (true, true) => {
            Check::ok("lanes", "none can be served here; this site's tasks are its workers'")
        }
        (true, false) => {
            let seen = "none can be served, so `relay work` has nothing to do";
            Check::fail("lanes", seen, "relay lane ls")
        }
    }
}

fn check(lane: &LaneStatus) -> Check {
    let name = format!("lane {}", lane.lane);
    let version = match (lane.version.as_deref(), lane.measured) {
        (Some(version), Some(measured)) if version != measured => {
            format!("{version} (relay was measured with {measured}): ")
        }
        (Some(version), _) => format!("{version}: "),
        (None, _) => String::new(),
    };
    let seen = match lane.state {
        LaneState::Served | LaneState::Missing | LaneState::NotThere | LaneState::Unfit => {
            lane.detail.clone()
        }
        state => format!("{}: {}", state.words(), lane.detail),
    };
    let mut seen = format!("{version}{seen}");
    for remark in &lane.remarks {
        seen.push_str("; ");
        seen.push_str(remark);
    }
    let hint = match lane.state {
        LaneState::Silent => MORE_TIME,
        _ => lane.hint.as_deref().unwrap_or("docs/doctor.md says what was measured"),
    };
    match lane.served && lane.remarks.is_empty() {
        true => Check::ok(name, seen),
        false => Check::warn(name, seen, hint),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn lane(name: &str, served: bool) -> LaneStatus {
        LaneStatus {
            lane: name.parse().expect("valid"),
            served,
            state: if served { LaneState::Served } else { LaneState::NotLoggedIn },
            program: None,
            version: Some("2.1.332".to_owned()),
            through: None,
            measured: Some("2.1.332"),
            model: None,
            detail: "seen".to_owned(),
            hint: None,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn one_lane_is_enough_and_none_is_a_failure() {
        let states = |lanes: &[LaneStatus]| -> Vec<State> {
            checks(lanes).iter().map(|check| check.state).collect()
        };
        let all = |lanes: &[LaneStatus], serves_others| together(lanes, serves_others).state;
        let (claude, edit) = (lane("claude", false), lane("process:edit", true));
        assert_eq!(states(&[claude.clone(), edit.clone()]), [State::Warn, State::Ok]);
        assert_eq!(all(&[claude.clone(), edit.clone()], false), State::Ok);
        let beside = together(&[edit], true);
        assert!(!beside.seen.contains("`relay work` would serve"), "it is refused: {beside:?}");
        assert!(beside.seen.contains("process:edit") && beside.state == State::Ok, "{beside:?}");
        assert_eq!(all(std::slice::from_ref(&claude), false), State::Fail);
        assert_eq!(all(&[claude], true), State::Ok, "others work for it");
        let mut changed = lane("codex", true);
        changed.remarks.push("does otherwise".to_owned());
        let told = &checks(&[changed])[0];
        assert_eq!(
            (told.state, told.seen.as_str()),
            (State::Warn, "2.1.332: seen; does otherwise")
        );
    }
}
