//! How it stands with this machine's logins at their vendors, as far as relay heard of it.

use serde::Serialize;

use super::context::Context;
use super::{machine, words};
use crate::model::{LaneName, Timestamp};
use crate::work::gate::{Shut, of_login};
use crate::work::login::Holder;
use crate::work::rest::Rests;

/// What keeps a worker from a lane. In JSON only what is so is there.
#[derive(Debug, Serialize)]
pub(super) struct LoginState {
    /// The lane.
    pub(super) lane: LaneName,
    /// Its quota is used up until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_quota_until: Option<Timestamp>,
    /// Its vendor refused it; it is tried again then.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_until: Option<Timestamp>,
    /// Its vendor did not answer; nothing is taken of it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    resting_until: Option<Timestamp>,
    /// Who runs under it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use_by: Option<Holder>,
    #[serde(skip)]
    why: Shut,
}

impl LoginState {
    /// To follow the lane's name and a colon.
    pub(super) fn words(&self, now: Timestamp) -> String {
        words::shut(&self.why, now)
    }
}

/// The logins that there is something to say of.
pub(super) fn login_states(context: &Context) -> Vec<LoginState> {
    let (config, now) = (&context.config, context.clock.now());
    let home = machine::without_links(&config.home);
    let state = |vendor| {
        let installed = machine::installed(config, vendor);
        let whose = installed.place.whose(&config.environment, &config.lane_env);
        let lane: LaneName = vendor.lane.parse().ok()?;
        let rests = Rests::of(&home).until(&lane, now).map(Shut::VendorAway);
        let why = rests.or_else(|| of_login(&home, &installed, &whose, now))?;
        let mut state = LoginState {
            lane,
            out_of_quota_until: None,
            refused_until: None,
            resting_until: None,
            in_use_by: None,
            why: why.clone(),
        };
        match why {
            Shut::OutOfQuota(until) => state.out_of_quota_until = Some(until),
            Shut::Refused { until, .. } => state.refused_until = Some(until),
            Shut::InUse(holder) => state.in_use_by = holder,
            Shut::VendorAway(until) => state.resting_until = Some(until),
            Shut::ForgeLimit(_) | Shut::NoLock(_) | Shut::Gone(_) => {}
        }
        Some(state)
    };
    relay_lanes::VENDORS.iter().copied().filter_map(state).collect()
}
