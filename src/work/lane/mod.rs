//! From a task to a program that can be run: which lane, which arguments, which environment,
//! which box. The only place that chooses between lanes.

mod claude;
mod codex;
mod fx;
mod grok;
mod present;
mod process;
mod vendor;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay_lanes::{Invocation, Reader, Vendor};
use relay_sandbox::egress::AllowList;
use relay_sandbox::{Confinement, Network, PROXIES, TMPDIR, wall_in, wrap};

use super::boxing::Boxing;
use super::copies::COPY_MARK;
use super::egress::{Door, Egress};
use super::login::Login;
use super::probe::Versions;
use super::walls::{self, View};

pub use self::fx::chosen_model;
pub use self::present::Present;
pub(super) use self::process::no_folder_text;
pub use self::process::{LaneFileError, Place, misnamed_lanes, process_config, process_lanes};
pub use self::vendor::Installed;
use super::job::Stop;
use crate::model::{
    Epoch, LaneName, MAX_TURNS, RepoProblem, RunPreferences, Secret, StopReason, Task, WorkerId,
};
use crate::process::{LaneLimits, LaneRun, Program, Redactor, check_executable};

/// The turns of a run where no preference names a number: the seed's.
const TURNS: u32 = 40;

/// A vendor that streams events and says nothing for so long has stalled (issue: 10 minutes).
const STALL: Duration = Duration::from_secs(600);

/// What this machine has to run lanes with.
#[derive(Clone)]
pub struct Lanes {
    /// What serves the vendors' lanes, here or not: one each of `relay_lanes::VENDORS`.
    pub vendors: Vec<Installed>,
    /// Where process lanes are configured: `$RELAY_HOME/lanes`.
    pub process_dir: PathBuf,
    /// How a lane is confined on this machine.
    pub boxing: Boxing,
    /// False with `--no-sandbox`.
    pub sandbox: bool,
    /// The worker's own environment, from which a lane's is made.
    pub parent_env: BTreeMap<OsString, OsString>,
    /// Names the operator lets through to vendor lanes (RELAY_LANE_ENV).
    pub pass_env: Vec<String>,
    /// Hosts a sandboxed command may reach besides the table (RELAY_LANE_ALLOWED_DOMAINS).
    pub extra_domains: Vec<String>,
    /// The person's home folder.
    pub home: PathBuf,
    /// RELAY_HOME.
    pub relay_home: PathBuf,
    /// Package stores that a sandboxed command may write; made where they are missing, since the
    /// sandbox cannot.
    pub stores: Vec<PathBuf>,
    /// What a process lane keeps of this machine as it is outside (RELAY_LANE_PATHS).
    pub given: Vec<PathBuf>,
    /// What must never be seen in a lane's output.
    pub secrets: Vec<Secret>,
    /// The way out of the box.
    pub egress: Egress,
    /// The versions of the vendors' programs, as they were last asked.
    pub versions: Versions,
}

impl fmt::Debug for Lanes {
    /// Without the worker's environment: it may hold keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("process_dir", &self.process_dir).finish_non_exhaustive()
    }
}

/// One task, as a lane needs it.
#[derive(Clone, Copy, Debug)]
pub struct TaskBrief<'a> {
    /// The task.
    pub task: &'a Task,
    /// Its branch.
    pub branch: &'a str,
    /// The worker.
    pub worker: &'a WorkerId,
    /// Which attempt this is.
    pub epoch: Epoch,
    /// The whole prompt.
    pub prompt: &'a str,
    /// The lane's copy.
    pub workdir: &'a Path,
    /// Name and e-mail that commits made by the lane carry.
    pub agent: (&'a str, &'a str),
    /// The time limit.
    pub max_run: Duration,
    /// What the preferences say of the run.
    pub preferences: &'a RunPreferences,
    /// What the lane must not show. It learns what the lane's own login brings.
    pub hidden: &'a Redactor,
}

impl TaskBrief<'_> {
    /// How many turns of its model a vendor's program may take.
    fn turns(&self) -> u32 {
        self.preferences.max_turns.unwrap_or(TURNS).clamp(1, MAX_TURNS)
    }
}

impl<'a> From<&TaskBrief<'a>> for Place<'a> {
    fn from(brief: &TaskBrief<'a>) -> Self {
        Self {
            lane: &brief.task.lane,
            folder: brief.workdir,
            time: brief.max_run,
            hidden: brief.hidden,
        }
    }
}

/// A lane's program, ready to run.
pub struct Prepared {
    program: Program,
    own: PathBuf,
    limits: LaneLimits,
    redactor: Redactor,
    reader: Box<dyn Reader>,
    login: Option<Login>,
    door: Option<Door>,
}

/// A run and who reads it.
pub struct PreparedRun {
    /// What `process` runs.
    pub run: LaneRun,
    /// What reads its output.
    pub reader: Box<dyn Reader>,
    /// Its vendor's home, to be kept until the run is over.
    pub login: Option<Login>,
    /// Its way out, to be served until the run is over.
    pub door: Option<Door>,
    /// The lane's own program, within the box.
    pub program: PathBuf,
}

/// A lane's own part of a run.
struct Described<'a> {
    program: &'a Path,
    /// What it is made of besides, where that can stand in a hidden place.
    parts: Vec<PathBuf>,
    /// What it is given of this machine on top of the rest.
    given: &'a [PathBuf],
    invocation: Invocation,
    env: Vec<(OsString, OsString)>,
    cwd: &'a Path,
    reader: Box<dyn Reader>,
    login: Option<Login>,
}

/// What stands around one run.
#[derive(Clone, Copy)]
enum Around<'a> {
    /// The box, with walls where it can have them.
    Walls(&'a Confinement),
    /// The box without walls: the operator asked for it.
    Processes(&'a Confinement),
}

impl Lanes {
    /// Prepares the lane of `brief`.
    ///
    /// # Errors
    /// When this machine cannot run it, with the reason and a hint.
    pub fn prepare(&self, brief: &TaskBrief<'_>) -> Result<Prepared, Stop> {
        let lane = &brief.task.lane;
        if lane.process_name().is_some() {
            return self.prepare_process(brief);
        }
        match self.vendors.iter().find(|installed| installed.vendor.lane == lane.as_str()) {
            Some(fx) if fx.vendor.through().is_some() => self.prepare_fx(brief, fx),
            Some(claude) if claude.vendor.lane == relay_lanes::claude::VENDOR.lane => {
                self.prepare_claude(brief, claude)
            }
            Some(codex) if codex.vendor.lane == relay_lanes::codex::VENDOR.lane => {
                self.prepare_codex(brief, codex)
            }
            Some(grok) if grok.vendor.lane == relay_lanes::grok::VENDOR.lane => {
                self.prepare_grok(brief, grok)
            }
            _ => {
                let text = format!("this version of relay cannot run the lane `{lane}`");
                Err(Stop::new(StopReason::VendorError, text))
            }
        }
    }

    /// Whether this machine can make the box that a run of the vendor's is kept in.
    ///
    /// # Errors
    /// That it cannot, in words.
    pub fn keeps(&self, vendor: &Vendor) -> Result<(), &'static str> {
        match vendor.lane {
            _ if vendor.through().is_some() => self.box_of_fx().map(drop),
            lane if lane == relay_lanes::claude::VENDOR.lane => self.box_of_claude().map(drop),
            lane if lane == relay_lanes::codex::VENDOR.lane => self.box_of_codex().map(drop),
            _ => self.box_of_grok().map(drop),
        }
    }

    /// Takes what must never be seen out of a text.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        Redactor::new(self.secrets.iter().cloned())
    }

    fn prepared(
        &self,
        brief: &TaskBrief<'_>,
        around: Around<'_>,
        lane: Described<'_>,
    ) -> Result<Prepared, Stop> {
        self.boxed(&brief.into(), around, lane)
    }

    /// Puts the box around what a lane described.
    fn boxed(
        &self,
        place: &Place<'_>,
        around: Around<'_>,
        lane: Described<'_>,
    ) -> Result<Prepared, Stop> {
        // Behind a wall a program that is not there looks like one that failed.
        check_executable(lane.program).map_err(|error| {
            // An update takes a vendor's program away for a moment.
            let is_vendors = place.lane.process_name().is_none();
            let reason = if is_vendors { StopReason::Crashed } else { StopReason::VendorError };
            Stop::new(reason, error.to_string()).hint("`relay lane ls`")
        })?;
        let (path, args, cwd, door) = match around {
            Around::Walls(wall) if wall.has_walls() => {
                let door = self.door(place)?;
                let (path, args) = self.walled(place, wall, &lane, door.as_ref())?;
                // The box changes to the program's own folder, which may be hidden from what
                // makes it.
                (path, args, PathBuf::from("/"), door)
            }
            Around::Walls(wall) | Around::Processes(wall) => {
                let (path, args) = wrap(wall, lane.program, &lane.invocation.args);
                (path, args, lane.cwd.to_owned(), None)
            }
        };
        let own = lane.program.to_owned();
        let Described { invocation, mut env, reader, login, .. } = lane;
        let redactor = place.hidden.clone();
        redactor.add(self.keys_in(place.lane, &env));
        if let Some(login) = &login {
            redactor.add(login.secrets());
            redactor.ask(login.refreshes());
        }
        env.push((COPY_MARK.into(), place.folder.into()));
        if matches!(around, Around::Walls(wall) if wall.has_walls()) {
            env.retain(|(name, _)| name != "TMPDIR");
            env.push(("TMPDIR".into(), temporary(login.as_ref()).into()));
        }
        if let Some(door) = &door {
            // This machine's own proxy is not reached from there, and its login not for a lane.
            env.retain(|(name, _)| !PROXIES.iter().any(|proxy| name == proxy));
            env.extend(door.environment());
        }
        Ok(Prepared {
            program: Program { path, args, env, cwd, stdin: invocation.stdin },
            own,
            limits: LaneLimits {
                time: place.time,
                stall: invocation.streams_events.then_some(STALL),
                stdout_total: invocation.stdout_total,
                stdout_line: invocation.stdout_line,
                stderr_total: invocation.stderr_total,
                stderr_over_kills: invocation.stderr_over_kills,
            },
            redactor,
            reader,
            login,
            door,
        })
    }

    /// The run's way out, unless it has this machine's network.
    fn door(&self, place: &Place<'_>) -> Result<Option<Door>, Stop> {
        let lane = place.lane;
        if self.egress.shared && lane.process_name().is_some() {
            return Ok(None);
        }
        let mut folder = place.folder.as_os_str().to_owned();
        // Removed with the copy, as all that is named after it.
        folder.push(".door");
        let allowed = AllowList::of_lane(lane.as_str(), &self.extra_domains);
        let named = self.installed(lane).map_or(&[][..], |known| known.vendor.doors);
        let door = Door::open(folder.into(), allowed, &self.egress);
        door.and_then(|door| door.naming(named)).map(Some).map_err(|error| {
            let why = RepoProblem::Disk;
            Stop::new(StopReason::RepoUnusable { why }, format!("the door of the box: {error}"))
        })
    }

    /// The command line behind walls.
    fn walled(
        &self,
        place: &Place<'_>,
        wall: &Confinement,
        lane: &Described<'_>,
        door: Option<&Door>,
    ) -> Result<(PathBuf, Vec<OsString>), Stop> {
        let mut replaced = self.stores_of_run(place.folder).map_err(|error| {
            let why = RepoProblem::Disk;
            Stop::new(StopReason::RepoUnusable { why }, format!("the run's stores: {error}"))
        })?;
        replaced.extend(lane.login.iter().filter_map(Login::replaces));
        let stands_in = lane.login.iter().filter_map(|login| login.stands_in());
        // By neither of its names: what the program reads there are its rules.
        let mut fixed: Vec<_> = stands_in
            .flat_map(|(at, by)| [(at.clone(), by.clone()), (by.clone(), by.clone())])
            .collect();
        let mut own = vec![place.folder.to_owned()];
        own.extend(lane.login.iter().map(|login| login.folder().to_owned()));
        let mut programs = vec![lane.program];
        programs.extend(lane.parts.iter().map(PathBuf::as_path));
        for (place, _) in lane.login.iter().filter_map(Login::replaces) {
            fixed.extend(walls::within(&place, &programs).map(|part| (part.clone(), part)));
        }
        programs.push(&self.egress.relay);
        let view = View {
            home: &self.home,
            relay_home: &self.relay_home,
            environment: &self.parent_env,
            cwd: lane.cwd,
            own: &own,
            programs: &programs,
            given: lane.given,
            replaced: &replaced,
            fixed: &fixed,
        };
        let mut walls = view.walls();
        match door {
            Some(door) => door.stand_in(&mut walls),
            None => walls.network = Network::Shared,
        }
        let program = walls::at(lane.program);
        Ok(wall_in(wall, &walls, &program, &lane.invocation.args))
    }

    /// The stores of the package programs that are here, each with an empty one of the run's own:
    /// what a run leaves in a store would be installed by the next, or by a person.
    fn stores_of_run(&self, copy: &Path) -> std::io::Result<Vec<(PathBuf, PathBuf)>> {
        let mut name = copy.as_os_str().to_owned();
        // Removed with the copy, as all that is named after it.
        name.push(".stores");
        let there = self.stores.iter().filter(|store| store.is_dir()).enumerate();
        there
            .map(|(at, store)| {
                let own = Path::new(&name).join(at.to_string());
                std::fs::create_dir_all(&own)?;
                Ok((store.clone(), own))
            })
            .collect()
    }
}

/// What reads the output of a lane's program: of one that was asked for `model`, or, of a process
/// lane's, for the job `key`. `through` names a program that served another vendor's lane. `None`
/// for what this relay does not have.
#[must_use]
pub fn reader_of(
    lane: &LaneName,
    through: Option<&str>,
    model: Option<&str>,
    key: &str,
) -> Option<Box<dyn Reader>> {
    if lane.process_name().is_some() {
        return Some(relay_lanes::process::reader(key));
    }
    if let Some(program) = through {
        let fx = relay_lanes::fx::VENDORS.iter().find(|fx| fx.lane == lane.as_str());
        return fx.filter(|fx| fx.program == program).map(|_| relay_lanes::fx::reader());
    }
    match lane.as_str() {
        name if name == relay_lanes::claude::VENDOR.lane => Some(relay_lanes::claude::reader()),
        name if name == relay_lanes::codex::VENDOR.lane => Some(relay_lanes::codex::reader(model)),
        name if name == relay_lanes::grok::VENDOR.lane => Some(relay_lanes::grok::reader()),
        _ => None,
    }
}

fn no_box(why: &'static str) -> Stop {
    Stop::new(StopReason::SandboxUnavailable, why).hint("`relay doctor` says what is missing")
}

/// The folder for temporary files behind walls. codex makes no helpers in a home that is under it,
/// and then none of its commands run.
fn temporary(login: Option<&Login>) -> &'static str {
    match login {
        Some(login) if login.folder().starts_with(TMPDIR) => "/var/tmp",
        _ => TMPDIR,
    }
}

impl Prepared {
    /// How much the program is told, for the log.
    #[must_use]
    pub fn run_bytes(&self) -> usize {
        self.program.stdin.len()
    }

    /// How long the run may take.
    #[must_use]
    pub fn time_limit(&self) -> Duration {
        self.limits.time
    }

    /// The run, with `supervisor` (relay's own program) between worker and lane.
    #[must_use]
    pub fn into_run(self, supervisor: &Path) -> PreparedRun {
        let Self { program, own, limits, redactor, reader, login, door } = self;
        let run = LaneRun { supervisor: supervisor.to_owned(), program, limits, redactor };
        PreparedRun { run, reader, login, door, program: own }
    }
}
