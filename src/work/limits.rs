//! How many jobs may run at once of one lane and of one repository. A claim asks only for what there
//! is room for, so nothing that was claimed waits for another job, and what is full keeps nothing
//! else from being claimed.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use tokio::task::Id;

use crate::model::{LaneName, RepoName};

/// What a worker was told on its command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Jobs at once of these lanes; the others have the worker's own limit alone.
    pub lanes: BTreeMap<LaneName, usize>,
    /// Jobs at once of each repository.
    pub per_repo: Option<usize>,
}

/// The jobs that run.
#[derive(Debug, Default)]
pub struct Running(HashMap<Id, (LaneName, RepoName)>);

impl Running {
    /// A job began.
    pub fn began(&mut self, job: Id, lane: LaneName, slug: RepoName) {
        self.0.insert(job, (lane, slug));
    }

    /// It ended, however.
    pub fn ended(&mut self, job: Id) {
        self.0.remove(&job);
    }
}

impl Limits {
    /// Whether another job of the lane may begin.
    #[must_use]
    pub fn let_begin(&self, lane: &LaneName, running: &Running) -> bool {
        let jobs = running.0.values().filter(|(running, _)| running == lane).count();
        self.lanes.get(lane).is_none_or(|most| jobs < *most)
    }

    /// Those of `served` of which no other job may begin. None where none of any lane may, for which
    /// this is not why.
    #[must_use]
    pub fn full_lanes(&self, served: &[LaneName], running: &Running, jobs: usize) -> Vec<LaneName> {
        let full = |lane: &&LaneName| running.0.len() < jobs && !self.let_begin(lane, running);
        served.iter().filter(full).cloned().collect()
    }

    /// The repositories of which no other job may begin, by name.
    #[must_use]
    pub fn full(&self, running: &Running) -> Vec<RepoName> {
        let Some(most) = self.per_repo else { return Vec::new() };
        let jobs = counted(running.0.values().map(|(_, slug)| slug));
        let full = jobs.into_iter().filter(|(_, jobs)| *jobs >= most);
        let mut full: Vec<RepoName> = full.map(|(slug, _)| slug.clone()).collect();
        full.sort_unstable();
        full
    }
}

fn counted<T: Eq + Hash>(of: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for one in of {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs, each with an id of its own.
    async fn running(jobs: &[(&str, &str)]) -> Running {
        let mut running = Running::default();
        for (lane, slug) in jobs {
            let id = tokio::spawn(async { tokio::task::id() }).await.unwrap();
            running.began(id, lane.parse().unwrap(), slug.parse().unwrap());
        }
        running
    }

    #[tokio::test]
    async fn a_lane_is_full_at_its_own_limit_and_no_other_is() {
        let lane = |name: &str| name.parse::<LaneName>().unwrap();
        let lanes = [(lane("codex"), 1), (lane("claude"), 2)].into();
        let limits = Limits { lanes, per_repo: None };
        let mut jobs = running(&[("codex", "a/b"), ("claude", "a/b"), ("grok", "a/b")]).await;
        let may = |lane: &str, jobs: &Running| limits.let_begin(&lane.parse().unwrap(), jobs);
        assert!(!may("codex", &jobs) && may("claude", &jobs) && may("grok", &jobs));
        assert_eq!(limits.full(&jobs), []);
        let full = |most| limits.full_lanes(&[lane("claude"), lane("codex")], &jobs, most);
        assert_eq!(full(4), [lane("codex")]);
        assert_eq!(full(3), [], "there is no room for any");
        let ended = *jobs.0.iter().find(|(_, (lane, _))| lane.as_str() == "codex").unwrap().0;
        jobs.ended(ended);
        assert!(may("codex", &jobs));
    }

    #[tokio::test]
    async fn a_repository_is_full_whatever_its_jobs_lanes_are() {
        let limits = Limits { lanes: BTreeMap::new(), per_repo: Some(2) };
        let jobs = running(&[("codex", "a/b"), ("claude", "a/c"), ("grok", "a/b")]).await;
        assert_eq!(limits.full(&jobs), ["a/b".parse().unwrap()]);
    }
}
