//! What the vendors' lanes have in common: a program with a login, a model, and a home of the run's
//! own.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use relay_lanes::{VENDORS, Vendor, codex};
use relay_sandbox::{EnvRequest, clean_env};

use super::Lanes;
use crate::model::{
    LaneName, ModelName, RepoProblem, RunPreferences, Secret, StopReason, Timestamp,
};
use crate::work::job::Stop;
use crate::work::login::{Login, Logins, Place, Whose};
use crate::work::probe::missing;
use crate::work::quota::Marks;
use crate::work::rest::{Rests, says_nothing};

/// A vendor's program, as this machine has it.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Which.
    pub vendor: &'static Vendor,
    /// Where it is.
    pub program: Option<PathBuf>,
    /// The model it is asked for, where the environment names one (RELAY_MODEL_CLAUDE, …): it
    /// beats a preference.
    pub model: Option<String>,
    /// The model that the person's own settings of a program name that takes them from no run.
    pub chosen: Option<String>,
    /// Where its login is.
    pub place: Place,
    /// Where its homes of runs are made. `None` where its login is no file: claude's on macOS.
    pub logins: Option<Logins>,
}

impl Installed {
    /// The environment beats a preference, which beats the lane's own.
    #[must_use]
    pub fn model<'a>(&'a self, preferences: &'a RunPreferences) -> Option<&'a str> {
        let preferred = preferences.model.as_ref().map(ModelName::as_str);
        let own = self.chosen.as_deref().or(self.vendor.default_model);
        self.model.as_deref().or(preferred).or(own)
    }

    /// Whether the program is here, and what runs it, on this PATH, where it is a script.
    #[must_use]
    pub fn can_start(&self, path: Option<&OsStr>) -> bool {
        self.program.as_deref().is_some_and(|program| missing(program, path).is_none())
    }

    /// Whether there is a login that a run would get.
    #[must_use]
    pub fn has_login(&self) -> bool {
        self.logins.as_ref().is_none_or(Logins::are_there)
    }

    /// What a lane lacks whose program chooses no model, where nobody named one, and what helps.
    #[must_use]
    pub fn lacks_model(&self) -> Option<(&'static str, &'static str)> {
        let lacks =
            self.vendor.through().is_some() && self.model(&RunPreferences::default()).is_none();
        lacks.then_some(super::fx::NO_MODEL)
    }

    /// What is wrong with a login that the program says it has and that no run would find, and what
    /// helps. Of codex: the others can have theirs from the environment.
    #[must_use]
    pub fn out_of_reach(&self) -> Option<(&'static str, &'static str)> {
        let lost = self.logins.as_ref().is_some_and(|logins| !logins.are_there());
        (lost && self.vendor.program == codex::VENDOR.program).then_some(super::codex::OUT_OF_REACH)
    }

    /// Whether it was here as relay started and is not now: it is being updated, or was removed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.program.as_deref().is_some_and(|program| !program.exists())
    }

    pub(super) fn program(&self) -> Result<&Path, Stop> {
        self.program.as_deref().ok_or_else(|| {
            let text = format!("the program `{}` is not on PATH", self.vendor.program);
            Stop::new(StopReason::NotLoggedIn, text).hint("`relay doctor`")
        })
    }

    /// The home of the run that works in `copy`.
    pub(super) fn login(&self, copy: &Path) -> Result<Option<Login>, Stop> {
        let name = copy.file_name().unwrap_or_default().to_string_lossy();
        // A login that an earlier run could not bring back is newer than the person's.
        if let Some(logins) = &self.logins {
            logins.sweep();
        }
        let made = self.logins.as_ref().map(|logins| logins.take(&name)).transpose();
        made.map_err(|error| {
            let why = RepoProblem::Disk;
            let text = format!("a home for {}: {error}", self.vendor.program);
            Stop::new(StopReason::RepoUnusable { why }, text)
        })
    }
}

impl Lanes {
    /// The environment a vendor's program is asked for its login in: the person's own home.
    #[must_use]
    pub fn probe_env(&self, vendor: &Vendor) -> Vec<(OsString, OsString)> {
        self.vendor_env(vendor, None, ("", ""))
    }

    /// The vendor's program of a lane, where it is a vendor's.
    #[must_use]
    pub fn installed(&self, lane: &LaneName) -> Option<&Installed> {
        self.vendors.iter().find(|installed| installed.vendor.lane == lane.as_str())
    }

    /// Whose login a run of it would be under now.
    #[must_use]
    pub fn whose(&self, installed: &Installed) -> Whose {
        installed.place.whose(&self.parent_env, &self.pass_env)
    }

    /// Keeps what a run that began at `began` under `whose` showed of it. A login that the run
    /// refreshed has other tokens now: what the vendor said last, it said of these.
    pub fn heard(
        &self,
        lane: &LaneName,
        whose: &Whose,
        began: Timestamp,
        stop: Option<&StopReason>,
        now: Timestamp,
    ) {
        // A program that is not there said nothing.
        if let Some(installed) = self.installed(lane).filter(|known| known.program.is_some()) {
            let as_now = self.whose(installed);
            let whose = if as_now.key == whose.key { &as_now } else { whose };
            Marks::of(&self.relay_home).heard(installed.vendor, whose, began, stop, now);
            if !stop.is_some_and(says_nothing) {
                Rests::of(&self.relay_home).forget(lane);
            }
        }
    }

    pub(super) fn vendor_env(
        &self,
        vendor: &Vendor,
        login: Option<&Login>,
        agent: (&str, &str),
    ) -> Vec<(OsString, OsString)> {
        let request = EnvRequest::Vendor { names: &self.pass_env, agent };
        let mut env = clean_env(&self.parent_env, &request);
        let others: Vec<&str> = VENDORS
            .iter()
            .filter(|other| other.program != vendor.program)
            .flat_map(|other| other.keys.iter().copied())
            .collect();
        env.retain(|(name, _)| !others.iter().any(|key| name == key));
        env.extend(vendor.env.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
        if let (Some(login), Some(variable)) = (login, vendor.home.variable) {
            env.retain(|(name, _)| name != variable);
            env.push((variable.into(), login.home().into()));
        }
        env
    }

    /// The keys of its own that a vendor's lane is let through.
    pub(super) fn keys_in(&self, lane: &LaneName, env: &[(OsString, OsString)]) -> Vec<Secret> {
        let names = self.installed(lane).into_iter().flat_map(|known| known.vendor.secret_keys());
        let value =
            |key| env.iter().find(|(name, _)| name == key).and_then(|(_, key)| key.to_str());
        names.filter_map(value).map(Secret::new).collect()
    }

    /// Where in a hidden place parts of the program may stand.
    pub(super) fn parts(&self, vendor: &Vendor) -> Vec<PathBuf> {
        vendor.parts.iter().map(|part| self.home.join(part)).collect()
    }
}
