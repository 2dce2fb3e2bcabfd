//! The lanes: each program, its version and its login.

use super::super::context::Context;
use super::super::machine;
use super::Check;
use crate::work::probe::{LaneStatus, probe};

/// One check a lane, and one more where none can be served.
pub async fn lanes(context: &Context) -> Vec<Check> {
    checks(&probe(&machine::lanes(context, true, Vec::new()).await).await)
}

fn checks(lanes: &[LaneStatus]) -> Vec<Check> {
    let mut checks: Vec<Check> = lanes.iter().map(check).collect();
    if !lanes.iter().any(|lane| lane.served) {
        let seen = "none can be served, so `relay work` has nothing to do";
        checks.push(Check::fail("lanes", seen, "relay lane ls"));
    }
    checks
}

fn check(lane: &LaneStatus) -> Check {
    let name = format!("lane {}", lane.lane);
    let seen = match &lane.version {
        Some(version) => format!("{version}: {}", lane.detail),
        None => lane.detail.clone(),
    };
    match (lane.served, &lane.hint) {
        (true, _) => Check::ok(name, seen),
        (false, hint) => Check::warn(name, seen, hint.as_deref().unwrap_or("relay lane ls")),
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
            program: None,
            version: Some("2.1.332".to_owned()),
            model: None,
            detail: "seen".to_owned(),
            hint: None,
        }
    }

    #[test]
    fn one_lane_is_enough_and_none_is_a_failure() {
        let states = |lanes: &[LaneStatus]| -> Vec<State> {
            checks(lanes).iter().map(|check| check.state).collect()
        };
        let (claude, edit) = (lane("claude", false), lane("process:edit", true));
        assert_eq!(states(&[claude.clone(), edit]), [State::Warn, State::Ok]);
        assert_eq!(states(&[claude]), [State::Warn, State::Fail]);
    }
}
