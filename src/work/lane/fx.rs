//! The lanes that fx serves on this machine.

use std::fs;
use std::path::Path;

use relay_lanes::{Vendor, fx};
use serde_json::Value;

use super::{Around, Described, Installed, Lanes, Prepared, TaskBrief, no_box};
use crate::model::{RepoProblem, StopReason};
use crate::work::job::Stop;
use crate::work::login::Login;

const NO_BOX: &str = "this machine cannot make the box that fx runs in, whose hosts have addresses \
                      of their own there: that takes walls, and a sandbox that can be made in them";

const NO_LOGIN: &str = "fx has no login of this vendor in its home";

/// Why a run of a lane whose model nobody named cannot be, and what helps.
pub(super) const NO_MODEL: (&str, &str) = (
    "fx has a login for it and no model was chosen in fx",
    "name one: RELAY_MODEL_CODEX, RELAY_MODEL_GROK, or in fx",
);

/// The most of its settings that is read.
const MOST: u64 = 1 << 20;

/// The model that the person chose in fx for the lane of `vendor`.
#[must_use]
pub fn chosen_model(home: &Path, vendor: &Vendor) -> Option<String> {
    let path = home.join(vendor.home.folder).join(fx::SETTINGS);
    let meta = fs::metadata(&path).ok().filter(|meta| meta.is_file() && meta.len() <= MOST)?;
    let text = fs::read(path).ok().filter(|text| text.len() as u64 <= meta.len().max(1))?;
    let settings: Value = serde_json::from_slice(&text).ok()?;
    fx::chosen_model(vendor.lane, &settings)
}

impl Lanes {
    pub(super) fn prepare_fx(
        &self,
        brief: &TaskBrief<'_>,
        installed: &Installed,
    ) -> Result<Prepared, Stop> {
        let (program, vendor) = (installed.program()?, installed.vendor);
        let around = self.box_of_fx().map_err(no_box)?;
        let Some(model) = installed.model(brief.preferences) else {
            return Err(Stop::new(StopReason::VendorError, NO_MODEL.0).hint(NO_MODEL.1));
        };
        let login = installed.login(brief.workdir)?.filter(Login::is_there).ok_or_else(|| {
            Stop::new(StopReason::NotLoggedIn, NO_LOGIN).hint(format!("`{}`", vendor.log_in))
        })?;
        login.put(fx::SETTINGS, &fx::settings(vendor.lane, model)).map_err(|error| {
            let why = RepoProblem::Disk;
            Stop::new(StopReason::RepoUnusable { why }, format!("a home for fx: {error}"))
        })?;
        let mut env = self.vendor_env(vendor, Some(&login), brief.agent);
        env.push((fx::MOST_STEPS.into(), brief.turns().to_string().into()));
        if let Around::Processes(_) = around {
            // Behind walls its folder stands in the place of the person's, whose home stays.
            env.retain(|(name, _)| name != "HOME");
            env.push(("HOME".into(), login.folder().into()));
        }
        let lane = Described {
            program,
            parts: self.parts(vendor),
            given: &[],
            invocation: fx::invocation(&fx::Brief { prompt: brief.prompt }),
            env,
            cwd: brief.workdir,
            reader: fx::reader(),
            login: Some(login),
        };
        self.prepared(brief, around, lane)
    }

    /// What stands around fx: walls in which its hosts can have doors, or what the operator asked
    /// for instead.
    pub(super) fn box_of_fx(&self) -> Result<Around<'_>, &'static str> {
        let wall = &self.boxing.confinement;
        let nests = || self.boxing.claude.as_ref().is_some_and(|nesting| nesting.has_walls());
        match wall {
            _ if !self.sandbox => Ok(Around::Processes(wall)),
            _ if wall.has_walls() && (wall.opens_low_ports() || nests()) => Ok(Around::Walls(wall)),
            _ => Err(NO_BOX),
        }
    }
}
