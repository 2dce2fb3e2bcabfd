//! The process lanes: programs of the operator's own, configured by one file each.

use std::path::{Path, PathBuf};

use relay_lanes::process::{Config, TaskDetails, TaskRequest, invocation, parse_config, reader};
use relay_sandbox::{EnvRequest, clean_env};

use super::{Around, Described, Lanes, Prepared, TaskBrief};
use crate::model::{LaneName, StopReason};
use crate::work::job::Stop;

impl Lanes {
    pub(super) fn prepare_process(&self, brief: &TaskBrief<'_>) -> Result<Prepared, Stop> {
        let lane = &brief.task.lane;
        let name = lane.process_name().unwrap_or_default();
        let path = self.process_dir.join(format!("{name}.json"));
        let config = process_config(&path).map_err(|error| {
            Stop::new(StopReason::ProtocolViolation, error)
                .hint("`relay lane ls` shows every lane's configuration")
        })?;
        let job_key = brief.task.id.to_string();
        let repo = brief.task.id.repo.to_string();
        let request = TaskRequest {
            job_key: &job_key,
            runtime_id: brief.worker.as_str(),
            attempt: u64::try_from(brief.epoch.0).unwrap_or(0),
            task: TaskDetails {
                id: &job_key,
                repo: &repo,
                issue: brief.task.id.number,
                title: &brief.task.title,
                prompt: brief.prompt,
                branch: brief.branch,
                workdir: &brief.workdir.to_string_lossy(),
            },
        };
        let env = clean_env(&self.parent_env, &EnvRequest::Process { names: &config.env });
        let lane = Described {
            program: &config.command,
            parts: config
                .args
                .iter()
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .collect(),
            given: &self.given,
            invocation: invocation(&config, &request),
            env,
            cwd: config.cwd.as_deref().unwrap_or(brief.workdir),
            reader: reader(&job_key),
            login: None,
        };
        self.prepared(brief, Around::Walls(&self.boxing.confinement), lane)
    }
}

/// Reads one lane's configuration.
///
/// # Errors
/// What is wrong with it, naming the file.
pub fn process_config(path: &Path) -> Result<Config, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse_config(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// The lanes configured under `dir` with their files, by name. A file whose name is no lane's is
/// passed over.
#[must_use]
pub fn process_lanes(dir: &Path) -> Vec<(LaneName, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut lanes: Vec<(LaneName, PathBuf)> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| {
            let name = path.file_stem()?.to_str()?;
            Some((format!("process:{name}").parse().ok()?, path))
        })
        .collect();
    lanes.sort();
    lanes
}
