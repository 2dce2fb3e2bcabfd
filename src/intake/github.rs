//! One look at a GitHub project: which tasks ended, and which issues ask for one.

use std::collections::{BTreeSet, HashMap};

use super::memo::Known;
use super::{Intake, IntakeError, Reconciled};
use crate::forge::github::{GitHub, Issue};
use crate::forge::{ForgeError, Pull, PullState, Pulls, words};
use crate::model::{
    Actor, EventKind, ForgeProblem, LaneName, Project, RepoName, Task, TaskState, Timestamp,
};

/// Lanes whose labels are always looked for; those of process lanes are known from the workers.
const LANES: [&str; 3] = ["claude", "codex", "grok"];

impl Intake {
    pub(super) async fn reconcile_github(
        &self,
        project: &Project,
        known: &mut Known,
        out: &mut Reconciled,
    ) -> Result<(), IntakeError> {
        let Some(api_base) = &project.api_base else {
            let text = format!("{}: linked without an API address", project.slug);
            return Err(ForgeError::BadAnswer(text).into());
        };
        let forge = self.accounts.at(api_base).await?;
        let result = self.look(&forge, &project.slug, known, out).await;
        if let Err(IntakeError::Forge(ForgeError::Refused {
            why: ForgeProblem::Unauthorized,
            ..
        })) = &result
        {
            // The person may have logged in anew since the token was asked for.
            self.accounts.forget(api_base).await;
        }
        result
    }

    async fn look(
        &self,
        forge: &GitHub,
        slug: &RepoName,
        known: &mut Known,
        out: &mut Reconciled,
    ) -> Result<(), IntakeError> {
        // Read before the lists, so that a task made meanwhile is not missed in an older list.
        let open = self.open_tasks(slug).await?;
        let mut hits: HashMap<LaneName, Vec<Issue>> = HashMap::new();
        for lane in self.lanes(&open).await? {
            let issues = forge.labelled(slug, &words::agent_label(&lane)).await?;
            hits.insert(lane, issues);
        }
        // Wishes first: a label set again after a pull request was closed asks for another run,
        // and the task must not be ended before it is heard.
        for (lane, issues) in &hits {
            for issue in issues {
                match self.consider(forge, slug, lane, issue, known, out).await {
                    Err(error) if error.is_of_one_issue() => {
                        let wish = (issue.number, lane.clone());
                        out.refuse_once(wish, None, error.to_string(), known);
                    }
                    other => other?,
                }
            }
        }
        for task in &open {
            if out.added.iter().any(|added| added.id == task.id) {
                continue;
            }
            let labelled = hits
                .get(&task.lane)
                .is_some_and(|issues| issues.iter().any(|issue| issue.number == task.id.number));
            match self.follow(forge, task, labelled, known, out).await {
                // It is tried again at the next look; the others are not to wait for it.
                Err(error) if error.is_of_one_issue() => {
                    tracing::debug!(task = %task.id, "not followed: {error}");
                }
                other => other?,
            }
        }
        known.forget_unmet();
        Ok(())
    }

    /// The lanes whose labels may stand in this project.
    async fn lanes(&self, open: &[Task]) -> Result<BTreeSet<LaneName>, IntakeError> {
        let mut lanes: BTreeSet<LaneName> = LANES.iter().filter_map(|l| l.parse().ok()).collect();
        lanes.extend(self.served().await?);
        lanes.extend(open.iter().map(|task| task.lane.clone()));
        Ok(lanes)
    }

    /// Ends a task whose pull request or issue says so. The pull request is looked at first:
    /// merging it closes the issue, and that is no calling off.
    async fn follow(
        &self,
        forge: &GitHub,
        task: &Task,
        labelled: bool,
        known: &mut Known,
        out: &mut Reconciled,
    ) -> Result<(), IntakeError> {
        let in_review = task.state == TaskState::Review;
        if in_review || !labelled {
            match self.pull_of(forge, task).await?.map(|pull| pull.state) {
                Some(PullState::Merged) => {
                    out.done.push(self.queue.done(&task.id, Actor::site()).await?);
                    return Ok(());
                }
                Some(PullState::Closed) if in_review => {
                    out.cancelled.push(self.queue.cancel(&task.id, Actor::site()).await?);
                    return Ok(());
                }
                _ => {}
            }
        }
        if !labelled && self.is_called_off(forge, task, known).await? {
            out.cancelled.push(self.queue.cancel(&task.id, Actor::site()).await?);
        }
        Ok(())
    }

    async fn pull_of(&self, forge: &GitHub, task: &Task) -> Result<Option<Pull>, ForgeError> {
        match (task.pr, &task.branch) {
            (Some(number), _) => forge.pull(&task.id.repo, number).await,
            (None, Some(branch)) => forge.find_pull(&task.id.repo, branch).await,
            (None, None) => Ok(None),
        }
    }

    /// Whether the issue of a task that is in no list asks for it no longer.
    async fn is_called_off(
        &self,
        forge: &GitHub,
        task: &Task,
        known: &mut Known,
    ) -> Result<bool, IntakeError> {
        let (repo, number) = (&task.id.repo, task.id.number);
        let label = words::agent_label(&task.lane);
        let issue = match forge.issue(repo, number).await? {
            Some(issue) if issue.open => issue,
            _ => return Ok(true),
        };
        if issue.has(&label) {
            return Ok(false);
        }
        // A task made by hand never had the label: only one that was taken off says something.
        let wish = (number, task.lane.clone());
        if known.is_unlabelled(&wish, issue.updated_at) {
            return Ok(false);
        }
        let history = forge.label_history(repo, number, &label).await?;
        let asked_at = self.asked_at(task).await?;
        if history.removed_at.is_some_and(|removed| forge.here(removed) >= asked_at) {
            return Ok(true);
        }
        known.leave_unlabelled(wish, issue.updated_at);
        Ok(false)
    }

    /// When somebody last asked for the task: a retry by hand outlives a label taken off before.
    async fn asked_at(&self, task: &Task) -> Result<Timestamp, IntakeError> {
        let events = self.queue.events(0, Some(&task.id), u32::MAX).await?;
        let asked = events
            .iter()
            .filter(|e| matches!(e.kind, EventKind::TaskQueued | EventKind::TaskRetried))
            .map(|e| e.at);
        Ok(asked.max().unwrap_or(task.created_at))
    }
}
