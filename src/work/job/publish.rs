//! The second half of a job: push, pull request, comment. Each is looked for before it is done,
//! and recorded before the next.

use super::effects::Done;
use super::run::{Work, agent, git_stop, short};
use super::{Job, Report, Stop};
use crate::forge::{NewPull, Pull, Pulls, words};
use crate::git::{Commit, Push, Pushed};
use crate::model::{Effect, Passage, PushProblem, StopReason};
use crate::work::local_pulls::LocalPulls;
use crate::work::observer::Step;
use std::sync::Arc;

/// The longest diff kept with a local pull request, in bytes.
const DIFF_BYTES: usize = 256 * 1024;

impl Job {
    /// From the commit to a pull request with its comment.
    pub(super) async fn publish(
        &self,
        work: &Work,
        done: &mut Done,
        report: &mut Report,
    ) -> Result<(), Stop> {
        if done.is_pushed() {
            self.log.line("   already pushed by an earlier run");
        } else {
            let branch = &self.claim.branch;
            let note = |commit: &Commit| format!("{} to {branch}", short(commit));
            let commit = self
                .step(Step::Push, self.pass(Passage::Push, self.push(work)), note)
                .await?
                .to_string();
            done.pushed = Some(commit.clone());
            self.record(Effect::Pushed { commit, branch: self.claim.branch.clone() }).await?;
        }
        let pulls = self.pulls(work)?;
        let new = self.new_pull(work);
        let opening = self.pull_request(&*pulls, &new, work, done);
        let pull = self.step(Step::PullRequest, opening, pull_note).await?;
        report.pr = Some((pull.number, pull.url));
        if let Err(error) = work.mirror.forget(&work.commit) {
            tracing::debug!(task = %self.lease.task, %error, "the kept commit stays in the mirror");
        }
        Ok(())
    }

    async fn push(&self, work: &Work) -> Result<Commit, Stop> {
        let (identity, name) = (agent(), self.fence_name());
        let made = |effect: &Effect| match effect {
            Effect::Committed { commit, .. } | Effect::Pushed { commit, .. } => commit.parse().ok(),
            Effect::PullRequest { .. } | Effect::Commented { .. } => None,
        };
        let earlier: Vec<Commit> = self.claim.effects.iter().filter_map(made).collect();
        let push = Push {
            fence: self.fence(&work.remote, &name, &identity),
            commit: &work.commit,
            branch: &self.claim.branch,
            earlier: &earlier,
        };
        match self.signal.guard(Box::pin(work.mirror.push(&push))).await? {
            Ok(Pushed::Done { commit, .. }) => Ok(commit),
            Ok(Pushed::Stale { .. }) => Err(Stop::new(
                StopReason::LeaseLost,
                "another run of this task moved the branch while this one pushed",
            )),
            Ok(Pushed::Refused { why, text }) => {
                let kept = self.pass(Passage::Keep, self.keep_work(work)).await;
                Err(Stop::new(
                    StopReason::PushRefused { why },
                    format!("{}{kept}", push_words(why, &text)),
                ))
            }
            Err(error) => Err(git_stop(error)),
        }
    }

    /// Keeps the work of a refused push as a bundle, so that it is not lost with the mirror.
    async fn keep_work(&self, work: &Work) -> String {
        let name = format!("{}-{}.bundle", self.claim.branch.replace('/', "-"), self.lease.epoch);
        let path =
            self.shared.kept.join(self.lease.task.repo.to_string().replace('/', "_")).join(name);
        match work.mirror.bundle(&work.base, &work.commit, &self.claim.branch, &path).await {
            Ok(()) => format!(". The work is kept in {}", path.display()),
            Err(error) => {
                tracing::error!(task = %self.lease.task, %error, "the work could not be bundled");
                format!(". The work is commit {} in relay's own mirror", work.commit)
            }
        }
    }

    fn pulls(&self, work: &Work) -> Result<Arc<dyn Pulls>, Stop> {
        if self.is_local() {
            let diff = work.mirror.diff(&work.base, &work.commit, DIFF_BYTES).map_err(git_stop)?;
            return Ok(Arc::new(LocalPulls {
                client: self.shared.client.clone(),
                renewal: self.renewal.clone(),
                lease: self.lease.clone(),
                worker: self.shared.worker.clone(),
                head: work.commit.to_string(),
                diff,
                pull: self.new_pull(work),
            }));
        }
        Ok(Arc::clone(&self.login()?.github) as Arc<dyn Pulls>)
    }

    fn new_pull(&self, work: &Work) -> NewPull {
        let task = &self.claim.task;
        NewPull {
            branch: self.claim.branch.clone(),
            base: work.base_branch.clone(),
            title: words::pr_title(&task.lane, &task.title),
            body: words::pr_body(task),
        }
    }

    async fn pull_request(
        &self,
        pulls: &dyn Pulls,
        new: &NewPull,
        work: &Work,
        done: &Done,
    ) -> Result<Pull, Stop> {
        let repo = &self.lease.task.repo;
        let pull = match self
            .pass(Passage::FindPull, self.asking(pulls.find_pull(repo, &new.branch)))
            .await?
        {
            Some(found) => found,
            None => self.pass(Passage::OpenPull, self.asking(pulls.open_pull(repo, new))).await?,
        };
        if done.pull.as_ref().is_none_or(|(number, _)| *number != pull.number) {
            let url = pull.url.clone();
            self.record(Effect::PullRequest { number: pull.number, url }).await?;
        }
        if done.commented.is_none() {
            let run = &self.claim.run;
            let marker = words::run_marker(&self.lease.task, &work.commit.to_string());
            let id = match self.asking(pulls.find_comment(repo, pull.number, &marker)).await? {
                Some(found) => found,
                None => {
                    let body = words::result_comment(&words::Result {
                        task: &self.claim.task,
                        run,
                        marker: &marker,
                        summary: work.summary.as_deref(),
                        usage: work.usage.as_ref(),
                    });
                    let saying = self.asking(pulls.comment(repo, pull.number, &body));
                    self.pass(Passage::Comment, saying).await?
                }
            };
            self.record(Effect::Commented { id }).await?;
        }
        Ok(pull)
    }
}

fn pull_note(pull: &Pull) -> String {
    if pull.url.is_empty() {
        format!("#{}", pull.number)
    } else {
        format!("#{} {}", pull.number, pull.url)
    }
}

pub(super) fn push_words(why: PushProblem, text: &str) -> String {
    let hint = match why {
        PushProblem::NoPermission => "give the worker's login push rights, then `relay task retry`",
        PushProblem::Protected => {
            "a rule protects the branch `relay/*`: allow it, then `relay task retry`"
        }
        PushProblem::Workflow => {
            "the login may not change workflow files: `gh auth refresh -s workflow`"
        }
        PushProblem::FileTooLarge => "the host refuses a file by its size",
        PushProblem::BranchMoved => {
            "somebody else's commits are on the branch: merge or delete it, then `relay task retry`"
        }
        PushProblem::Unreachable | PushProblem::Other => "`relay task retry` pushes again",
    };
    // One line, since the task shows one; the remote's prefixes say nothing.
    let said: Vec<&str> = text
        .lines()
        .map(|line| line.trim_start_matches("remote:").trim())
        .filter(|line| !line.is_empty())
        .collect();
    format!("the push was refused: {} (hint: {hint})", said.join("; "))
}
