//! The second half of a job: push, pull request, comment. Each is looked for before it is done,
//! and recorded before the next.

use super::effects::Done;
use super::run::{Work, agent, git_stop, short};
use super::{Job, PATIENCE, Report, Stop};
use crate::forge::{NewPull, Pull, PullState, Pulls, words};
use crate::git::{Commit, GitError, Onto, Push, Pushed, Remote};
use crate::model::disk::quoted;
use crate::model::{
    Effect, Passage, Preference, PreferenceKey, PushProblem, RepoProblem, StopReason,
};
use crate::work::beginning::beginning;
use crate::work::local_pulls::LocalPulls;
use crate::work::observer::Step;
use std::path::Path;
use std::sync::Arc;

/// The longest diff kept with a local pull request, in bytes.
const DIFF_BYTES: usize = 256 * 1024;

impl Job {
    /// From the commit to a pull request with its comment.
    pub(super) async fn publish(
        &self,
        work: &mut Work,
        done: &mut Done,
        report: &mut Report,
    ) -> Result<(), Stop> {
        if done.is_pushed() {
            self.log.line("   already pushed by an earlier run");
        } else {
            let stands = Box::pin(self.check_base(work)).await;
            self.keeping(work, report, async { stands }).await?;
            let branch = &self.claim.branch;
            let note = |commit: &Commit| format!("{} to {branch}", short(commit));
            let pushing = self.pass(Passage::Push, self.push(work));
            let pushing = self.keeping(work, report, pushing);
            let commit = self.step(Step::Push, pushing, note).await?.to_string();
            done.pushed = Some(commit.clone());
            self.record(Effect::Pushed { commit, branch: self.claim.branch.clone() }).await?;
        }
        let new = self.new_pull(work);
        let opening = async {
            let pulls = self.pulls(work)?;
            self.pull_request(&*pulls, &new, work, done).await
        };
        let opening = self.keeping(work, report, opening);
        let pull = self.step(Step::PullRequest, opening, pull_note).await?;
        report.pr = Some((pull.number, pull.url));
        Ok(())
    }

    /// Looks where the branch that the work stands on is by now. One that was renamed is followed;
    /// where it was rewritten, the work is put on top of what it is now, so that the pull request
    /// shows the lane's change and nothing else.
    async fn check_base(&self, work: &mut Work) -> Result<(), Stop> {
        let fetching = Box::pin(work.mirror.refresh(&work.base_branch));
        let mut fetched = self.signal.guard(fetching).await?;
        if matches!(fetched, Err(GitError::NoBranch(_))) && !self.is_local() {
            let asking = Box::pin(work.mirror.remote_head());
            work.base_branch = self.signal.guard(asking).await?.map_err(git_stop)?;
            self.log.line(&format!("   the default branch is {} now", work.base_branch));
            let fetching = Box::pin(work.mirror.refresh(&work.base_branch));
            fetched = self.signal.guard(fetching).await?;
        }
        let tip = match fetched {
            Ok(tip) => tip,
            Err(error @ GitError::NoBranch(_)) => return Err(git_stop(error)),
            Err(error) => {
                // What is wrong, the push is told as well, and in words about pushing.
                self.log.line(&format!("   the base was not looked at again: {error}"));
                return Ok(());
            }
        };
        match work.mirror.onto(&work.base, &work.commit, &tip).await.map_err(git_stop)? {
            Onto::AsItIs => Ok(()),
            Onto::Nothing => Err(Stop::new(
                StopReason::NoChanges,
                format!("`{}` has the same change already", work.base_branch),
            )),
            Onto::Conflict { path } => Err(Stop::new(
                StopReason::PushRefused { why: PushProblem::BaseRewritten },
                format!(
                    "`{}` was rewritten while the lane ran, and the work does not fit on it: {}",
                    work.base_branch,
                    beginning(&path)
                ),
            )),
            Onto::Commit(commit) => {
                let why = format!("`{}` was rewritten; the work now stands on", work.base_branch);
                self.log.line(&format!("   {why} {} as {}", short(&tip), short(&commit)));
                (work.commit, work.base) = (commit, tip);
                self.record(work.committed()).await
            }
        }
    }

    async fn push(&self, work: &Work) -> Result<Commit, Stop> {
        self.check_workflows(work).await?;
        // First what the branch will name.
        let uploading = Box::pin(work.mirror.upload_lfs(&work.remote, &work.base, &work.commit));
        if let Some((why, text)) = self.signal.guard(uploading).await?.map_err(git_stop)? {
            return Err(Stop::new(StopReason::PushRefused { why }, push_words(&text)));
        }
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
            Ok(Pushed::Stale { .. }) => Err(self.outrun(&work.remote).await),
            Ok(Pushed::Refused { why, text }) => {
                Err(Stop::new(StopReason::PushRefused { why }, push_words(&text)))
            }
            Err(error) => Err(git_stop(error)),
        }
    }

    /// The remote knows of a later claim than this one. Where this one's lease lives, its site gave
    /// none: the claim is another home's, and waiting for this one's end would help nobody.
    pub(super) async fn outrun(&self, remote: &Remote) -> Stop {
        if !self.renewal.is_alive().await {
            let text = "another run of this task moved the branch while this one pushed";
            return Stop::new(self.signal.reason().unwrap_or(StopReason::LeaseLost), text);
        }
        let (url, name) = (quoted(Path::new(&remote.url)), self.fence_name());
        Stop::new(
            StopReason::PushRefused { why: PushProblem::OtherHome },
            format!(
                "another relay's claim of `{}` is ahead of this one: \
                 `git push {url} --delete refs/relay/fence/{name}` makes it forget that",
                self.claim.branch
            ),
        )
    }

    /// A changed workflow could run with the repository's secrets as soon as it is pushed: it
    /// waits for a person who allows it.
    async fn check_workflows(&self, work: &Work) -> Result<(), Stop> {
        let changed = work.mirror.changed_workflow(&work.base, &work.commit).map_err(git_stop)?;
        let Some(path) = changed else { return Ok(()) };
        let preferences = self.tell(PATIENCE, || self.shared.client.preferences()).await?;
        let (repo, lane) = (&self.lease.task.repo, &self.claim.task.lane);
        let key = PreferenceKey::PushWorkflows;
        let preference = Preference::narrowest(&preferences, key, repo, lane);
        if preference.is_some_and(|preference| preference.value == "allow") {
            self.log.line(&format!("   {} is changed, as push.workflows allows", beginning(&path)));
            return Ok(());
        }
        Err(Stop::new(
            StopReason::RepoUnusable { why: RepoProblem::WorkflowChanged },
            format!("the lane changed the workflow {}", beginning(&path)),
        ))
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
        // One that is closed or merged is the end of earlier work, unless it shows this.
        let shows_this = |pull: &Pull| {
            pull.state == PullState::Open
                || done.pull.as_ref().is_some_and(|(number, _)| *number == pull.number)
                || pull.head.is_some() && pull.head == done.pushed
        };
        let finding = self.asking(pulls.find_pull(repo, &new.branch));
        let found = self.pass(Passage::FindPull, finding).await?;
        let pull = match found.filter(shows_this) {
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

/// What a remote said, in one line, since the task shows one; its prefixes say nothing.
pub(super) fn push_words(text: &str) -> String {
    let said: Vec<&str> = text
        .lines()
        .map(|line| line.trim_start_matches("remote:").trim())
        .filter(|line| !line.is_empty())
        .collect();
    format!("the push was refused: {}", said.join("; "))
}
