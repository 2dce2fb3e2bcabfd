//! The process lanes: programs of the operator's own, configured by one file each.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay_lanes::Reader;
use relay_lanes::process::{
    CONFIG_BYTES, Config, ConfigError, Request, TaskDetails, invocation, parse_config, reader,
};
use relay_sandbox::{EnvRequest, clean_env};
use rustix::fs::{Mode, OFlags};

use super::{Around, Described, Lanes, Prepared, TaskBrief};
use crate::model::{LaneName, StopReason};
use crate::process::{Redactor, check_executable};
use crate::work::job::Stop;

/// One job for a program of the operator's, whoever has it.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The lane.
    pub lane: &'a LaneName,
    /// The folder of the job, which is writable.
    pub folder: &'a Path,
    /// The time limit.
    pub time: Duration,
    /// What the program must not show.
    pub hidden: &'a Redactor,
}

impl Lanes {
    /// The program of a lane of the operator's, where it cannot be started now: nothing that can be
    /// run is in its place.
    #[must_use]
    pub fn gone_program(&self, lane: &LaneName) -> Option<PathBuf> {
        let config = process_config(&self.process_file(lane)?).ok()?;
        check_executable(&config.command).is_err().then_some(config.command)
    }

    fn process_file(&self, lane: &LaneName) -> Option<PathBuf> {
        Some(self.process_dir.join(format!("{}.json", lane.process_name()?)))
    }

    pub(super) fn prepare_process(&self, brief: &TaskBrief<'_>) -> Result<Prepared, Stop> {
        let lane = &brief.task.lane;
        let name = lane.process_name().unwrap_or_default();
        let path = self.process_dir.join(format!("{name}.json"));
        let config = process_config(&path).map_err(|error| {
            Stop::new(StopReason::ProtocolViolation, error.at(&path))
                .hint("`relay lane ls` shows every lane's configuration")
        })?;
        let job_key = brief.task.id.to_string();
        let repo = brief.task.id.repo.to_string();
        let task = TaskDetails {
            id: &job_key,
            repo: &repo,
            issue: brief.task.id.number,
            title: &brief.task.title,
            prompt: brief.prompt,
            branch: brief.branch,
            workdir: &brief.workdir.to_string_lossy(),
        };
        let request = Request {
            job_key: &job_key,
            runtime_id: brief.worker.as_str(),
            attempt: u64::try_from(brief.epoch.0).unwrap_or(0),
            payload: &task,
        };
        self.prepare_program(&brief.into(), &config, &request, reader(&job_key))
    }

    /// Prepares a program of the operator's for one job: what the job is about is in `request`,
    /// and `reader` takes the answer.
    ///
    /// # Errors
    /// When this machine cannot run it, with the reason and a hint.
    pub fn prepare_program(
        &self,
        place: &Place<'_>,
        config: &Config,
        request: &Request<'_>,
        reader: Box<dyn Reader>,
    ) -> Result<Prepared, Stop> {
        let cwd = config.cwd.as_deref().unwrap_or(place.folder);
        if !cwd.is_dir() {
            let stop = Stop::new(StopReason::VendorError, no_folder_text(cwd));
            return Err(stop.hint("`relay lane ls`"));
        }
        let invocation = invocation(config, request)
            .map_err(|error| Stop::new(StopReason::ProtocolViolation, error.to_string()))?;
        let lane = Described {
            program: &config.command,
            parts: config
                .args
                .iter()
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .collect(),
            given: &self.given,
            invocation,
            env: clean_env(&self.parent_env, &EnvRequest::Process { names: &config.env }),
            cwd,
            reader,
            login: None,
        };
        self.boxed(place, Around::Walls(&self.boxing.confinement), lane)
    }
}

/// Why a process lane's file is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LaneFileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It can be read once, or never ends: a pipe, a device, a folder.
    #[error("is not a file")]
    NoFile,
    /// What it says is refused.
    #[error(transparent)]
    Refused(#[from] ConfigError),
}

impl LaneFileError {
    /// As a sentence that names the file.
    #[must_use]
    pub fn at(&self, path: &Path) -> String {
        format!("{}: {self}", path.display())
    }
}

/// Reads one lane's configuration.
///
/// # Errors
/// What is wrong with it.
pub fn process_config(path: &Path) -> Result<Config, LaneFileError> {
    // Nobody may be at the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?.into();
    if !file.metadata()?.is_file() {
        return Err(LaneFileError::NoFile);
    }
    let mut bytes = Vec::new();
    file.take(CONFIG_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(parse_config(&bytes, never_given)?)
}

/// A folder to start in that is not there, in words.
pub fn no_folder_text(cwd: &Path) -> String {
    format!("`cwd` is no folder on this machine: {}", cwd.display())
}

fn never_given(name: &str) -> Option<&'static str> {
    relay_sandbox::refused(name).map(relay_sandbox::Refused::why)
}

/// The lanes configured under `dir` with their files, by name. A file whose name is no lane's is
/// among [`misnamed_lanes`].
#[must_use]
pub fn process_lanes(dir: &Path) -> Vec<(LaneName, PathBuf)> {
    configured(dir).filter_map(|(lane, path)| Some((lane?, path))).collect()
}

/// The files under `dir` that were meant for lanes, and whose name is none's; by name.
#[must_use]
pub fn misnamed_lanes(dir: &Path) -> Vec<PathBuf> {
    configured(dir).filter(|(lane, _)| lane.is_none()).map(|(_, path)| path).collect()
}

/// Every file under `dir` that says it is JSON, with the lane that its name makes it.
fn configured(dir: &Path) -> impl Iterator<Item = (Option<LaneName>, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_json = |path: &PathBuf| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let lane = |path: &Path| -> Option<LaneName> {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        format!("process:{name}").parse().ok()
    };
    let files = entries.map(|entry| entry.path()).filter(is_json);
    let mut found: Vec<_> = files.map(|path| (lane(&path), path)).collect();
    found.sort();
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_folder_of_lanes_is_one_or_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            ["edit.json", "My Lane.json", "edits.JSON", "_.json", "edit.sh", "old.json.bak"];
        for file in files {
            std::fs::write(dir.path().join(file), "{}").unwrap();
        }
        let edit: LaneName = "process:edit".parse().unwrap();
        assert_eq!(process_lanes(dir.path()), [(edit, dir.path().join("edit.json"))]);
        let misnamed = ["My Lane.json", "_.json", "edits.JSON"].map(|name| dir.path().join(name));
        assert_eq!(misnamed_lanes(dir.path()), misnamed);
        assert!(misnamed_lanes(&dir.path().join("nowhere")).is_empty());
    }
}
