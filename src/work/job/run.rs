//! The first half of a job: from a fresh copy to one commit of what the lane left in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::effects::{Committed, Done};
use super::publish::push_words;
use super::{Job, Note, Report, Stop};
use crate::forge::words;
use crate::git::{
    Commit, Copy, Fence, FenceClaim, GitError, HostToken, Identity, Mirror, Remote, Snapshot,
    SnapshotRequest,
};
use crate::model::run::UsageText;
use crate::model::{
    DiskProblem, Effect, Epoch, LaneName, MAX_MINUTES, Outcome, Passage, PushProblem, RepoProblem,
    StopReason, Usage,
};
use crate::process::is_shortage;
use crate::work::beginning::beginning;
use crate::work::copies::CopyDir;
use crate::work::errand::Errand;
use crate::work::lane::{Prepared, TaskBrief};
use crate::work::observer::Step;
use crate::work::prompt;
use crate::work::room::{LOOK_AGAIN, Room};
use crate::work::verdict::LaneResult;

/// How long a finished run waits for room to commit its work.
const DISK_PATIENCE: Duration = Duration::from_secs(20 * 60);

/// The time limit of a run that nobody gave another (seed 002: "default 60").
const MAX_RUN: Duration = Duration::from_secs(60 * 60);

/// Who the commits are by (seed 002: "committed as relay-agent").
const AGENT: (&str, &str) = ("relay-agent", "relay-agent@users.noreply.relay.invalid");

/// The work, ready to be pushed.
pub(super) struct Work {
    pub(super) mirror: Mirror,
    pub(super) remote: Remote,
    pub(super) commit: Commit,
    pub(super) base: Commit,
    pub(super) base_branch: String,
    pub(super) summary: Option<String>,
    pub(super) usage: Option<Usage>,
}

impl Work {
    /// The journal's entry.
    pub(super) fn committed(&self) -> Effect {
        Effect::Committed {
            commit: self.commit.to_string(),
            base: self.base.to_string(),
            summary: self.summary.clone(),
            usage: self.usage.as_ref().map(|usage| Box::new(UsageText::keep(usage))),
        }
    }
}

impl Job {
    /// Brings the work of an earlier claim back, or runs the lane.
    pub(super) async fn produce(
        &mut self,
        done: &mut Done,
        report: &mut Report,
    ) -> Result<Work, Stop> {
        self.log_in().await?;
        let remote = self.remote();
        let (mirror, base_branch) = self
            .step(Step::Fetch, self.pass(Passage::Fetch, self.mirror(&remote)), |(_, branch)| {
                format!("the mirror of {} is up to date at {branch}", self.lease.task.repo)
            })
            .await?;
        if let Some(kept) = self.kept(&mirror, done).await? {
            let (commit, base, Committed { summary, usage, .. }) = kept;
            self.log.line(&format!("   going on with {}, made by an earlier run", short(&commit)));
            self.start().await?;
            return Ok(Work { mirror, remote, commit, base, base_branch, summary, usage });
        }
        // A bundle of work that is not gone on from stays for a person.
        report.kept = None;
        *done = Done::default();
        let base = mirror.tip(&base_branch).map_err(git_stop)?;
        let copy = self
            .shared
            .copies
            .take(&self.lease.task, &self.claim.run)
            .map_err(|e| disk_stop(self.shared.copies.root(), &e))?;
        let made = Box::pin(self.run_in(&copy, &mirror, &base, report)).await;
        if self.shared.keep {
            self.log.line(&format!("   the copy is kept: {}", copy.path.display()));
        }
        let path = copy.path.clone();
        let keep = self.shared.keep;
        let closing = tokio::task::spawn_blocking(move || copy.close(keep));
        match self.pass(Passage::Clean, closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "the lane's copy was not removed");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "removing the copy failed")
            }
        }
        if let Err(error) = mirror.forget_copy(&path).await {
            tracing::warn!(path = %path.display(), %error, "what was kept about the copy stays");
        }
        let (commit, result) = made?;
        let LaneResult { summary, usage, .. } = result;
        done.committed = Some(Committed {
            commit: commit.to_string(),
            base: base.to_string(),
            summary: summary.clone(),
            usage: Some(usage.clone()),
        });
        let usage = Some(usage);
        let work = Work { mirror, remote, commit, base, base_branch, summary, usage };
        self.record(work.committed()).await?;
        Ok(work)
    }

    /// The work of an earlier claim, where this machine can go on with it: its own commit, or
    /// what was pushed.
    async fn kept(
        &self,
        mirror: &Mirror,
        done: &Done,
    ) -> Result<Option<(Commit, Commit, Committed)>, Stop> {
        let Some(kept) = done.committed.clone() else { return Ok(None) };
        let Ok(base) = kept.base.parse::<Commit>() else { return Ok(None) };
        let ids = [Some(kept.commit.clone()), done.pushed.clone()];
        let ids = ids.into_iter().flatten().filter_map(|id| id.parse::<Commit>().ok());
        let ids: Vec<Commit> = ids.collect();
        for commit in &ids {
            if self.has(mirror, commit).await? {
                return Ok(Some((commit.clone(), base, kept)));
            }
        }
        self.bring_branch(mirror).await?;
        for commit in ids {
            if mirror.holds(&commit).map_err(git_stop)? {
                return Ok(Some((commit, base, kept)));
            }
        }
        Ok(None)
    }

    /// Fetches the task's branch: another machine may have pushed, and told nobody. What stands on
    /// that branch costs no task but its own.
    async fn bring_branch(&self, mirror: &Mirror) -> Result<(), Stop> {
        let fetching = Box::pin(mirror.refresh(&self.claim.branch));
        match self.signal.guard(fetching).await? {
            Ok(_) | Err(GitError::NoBranch(_)) => Ok(()),
            Err(GitError::Repo { why: RepoProblem::UnsafeHistory, text }) => {
                self.log.line(&format!("   {} is not looked at: {text}", self.claim.branch));
                Ok(())
            }
            Err(error) => Err(git_stop(error)),
        }
    }

    /// Where git fetches from and pushes to.
    fn remote(&self) -> Remote {
        let token = self
            .login
            .as_ref()
            .map(|login| HostToken { host: login.host.clone(), token: login.token.clone() });
        Remote { url: self.claim.project.remote.clone(), token }
    }

    /// Brings the mirror up to date, asks for the default branch, and shuts out older claims.
    async fn mirror(&self, remote: &Remote) -> Result<(Mirror, String), Stop> {
        let (git, repo) = (self.shared.git.guarding(self.hidden.clone()), &self.lease.task.repo);
        let fetching = Box::pin(async {
            // On a person's disk HEAD is what they look at just now, a branch in review perhaps:
            // work starts from the branch that was linked.
            let branch = if self.is_local() {
                self.claim.project.default_branch.clone()
            } else {
                git.remote_head(repo, remote).await?
            };
            Ok((git.mirror(repo, remote, &branch).await?, branch))
        });
        let asking = Box::pin(async { tokio::join!(fetching, self.standing()) });
        let (fetched, standing) = self.signal.guard(asking).await?;
        let (mirror, branch) = fetched.map_err(git_stop)?;
        standing?;
        if branch == self.claim.branch {
            let text = format!("`{branch}` is the default branch: relay's work never goes there");
            return Err(Stop::new(StopReason::PushRefused { why: PushProblem::Other }, text));
        }
        if self.lease.epoch > Epoch(1) {
            let shutting = self.shut_out_older_claims(&mirror, remote);
            self.pass(Passage::Fence, shutting).await?;
        }
        Ok((mirror, branch))
    }

    async fn shut_out_older_claims(&self, mirror: &Mirror, remote: &Remote) -> Result<(), Stop> {
        let (identity, name) = (agent(), self.fence_name());
        let fence = self.fence(remote, &name, &identity);
        match self.signal.guard(Box::pin(mirror.fence(&fence))).await?.map_err(git_stop)? {
            FenceClaim::Held | FenceClaim::Unsupported => Ok(()),
            FenceClaim::Stale => Err(self.outrun(remote).await),
            FenceClaim::Refused { why, text } => {
                Err(Stop::new(StopReason::PushRefused { why }, push_words(&text)))
            }
        }
    }

    pub(super) fn fence<'a>(
        &self,
        remote: &'a Remote,
        name: &'a str,
        identity: &'a Identity,
    ) -> Fence<'a> {
        Fence { remote, name, epoch: self.lease.epoch, identity, at: self.shared.clock.now() }
    }

    /// The task's name on the remote: `<lane>-<number>`, as in its branch.
    pub(super) fn fence_name(&self) -> String {
        self.claim.task.ref_name()
    }

    /// Everything that happens while the copy stands.
    async fn run_in(
        &mut self,
        dir: &CopyDir,
        mirror: &Mirror,
        base: &Commit,
        report: &mut Report,
    ) -> Result<(Commit, LaneResult), Stop> {
        let branch = self.claim.branch.clone();
        let copy = async {
            let stubs = stubs(&self.claim.task.lane);
            let checkout = Box::pin(mirror.checkout(base, &branch, &dir.path, stubs));
            self.signal.guard(checkout).await?.map_err(git_stop)
        };
        let copy = self
            .step(Step::Checkout, self.pass(Passage::Checkout, copy), |_| {
                format!("{} on branch {branch}", short(base))
            })
            .await?;
        self.step(Step::Start, self.start(), |()| "told the site".to_owned()).await?;
        let prepared = self
            .step(Step::Prompt, self.pass(Passage::Prompt, self.prepare(mirror, base, dir)), |p| {
                let minutes = p.time_limit().as_secs_f64() / 60.0;
                format!("{} bytes, for a run of at most {minutes} min", p.run_bytes())
            })
            .await?;
        let running = self.run_lane(prepared, || self.prepare(mirror, base, dir));
        let ran = self.step(Step::Run, self.pass(Passage::Run, running), lane_note).await;
        let stop = ran.as_ref().map_or_else(|stop| Some(&stop.reason), |ran| ran.stop.as_ref());
        self.leave_login(stop);
        let result = ran?;
        report.summary.clone_from(&result.summary);
        report.usage = Some(result.usage.clone());
        report.note.clone_from(&result.note);
        if let Some(reason) = result.stop {
            let filled = disk_filled(&reason, &dir.path);
            let stop = || Stop::of_lane(reason, result.error, result.hint);
            return Err(filled.unwrap_or_else(stop));
        }
        let identity = agent();
        let message = words::commit_message(&self.claim.task);
        let commit = async {
            let at = self.shared.clock.now();
            let request = SnapshotRequest { identity: &identity, message: &message, at };
            match self.snapshot(mirror, &copy, &request).await? {
                Snapshot::Commit { commit, .. } => Ok(commit),
                Snapshot::NoChanges => {
                    let filled = disk_filled(&StopReason::NoChanges, &dir.path);
                    Err(filled.unwrap_or_else(|| {
                        Stop::new(StopReason::NoChanges, "the lane made no changes")
                    }))
                }
                Snapshot::Refused { why, path } => {
                    let path = beginning(&self.hidden.text(&path));
                    let kept = self.rescue(mirror, &copy, &request).await;
                    let mut error = format!("what the lane left cannot be committed: {path}");
                    if let Some(kept) = &kept {
                        error = format!("{error}; the rest of the work is in {}", kept.display());
                    }
                    report.kept = kept;
                    Err(Stop::new(StopReason::RepoUnusable { why }, error))
                }
            }
        };
        let commit = self.step(Step::Commit, self.pass(Passage::Commit, commit), short).await?;
        Ok((commit, result))
    }

    /// Takes the snapshot. The lane's work is in the copy alone, so a full disk is waited for.
    async fn snapshot(
        &self,
        mirror: &Mirror,
        copy: &Copy,
        request: &SnapshotRequest<'_>,
    ) -> Result<Snapshot, Stop> {
        let deadline = self.shared.clock.uptime() + DISK_PATIENCE;
        let mut told = false;
        loop {
            let error = match self.signal.guard(Box::pin(mirror.snapshot(copy, request))).await? {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) => error,
            };
            let over = self.shared.clock.uptime() + LOOK_AGAIN >= deadline;
            let passes = matches!(error.problem(), RepoProblem::Disk | RepoProblem::Machine);
            if !passes || over {
                return Err(git_stop(error));
            }
            let stop = git_stop(error);
            if !std::mem::replace(&mut told, true) {
                let why = stop.told().unwrap_or_default();
                let text = format!("{}: the commit waits for the disk: {why}", self.lease.task);
                self.shared.observer.warning(&text);
                self.log.line(&text);
            }
            self.signal.guard(tokio::time::sleep(LOOK_AGAIN)).await?;
        }
    }

    async fn prepare(
        &self,
        mirror: &Mirror,
        base: &Commit,
        dir: &CopyDir,
    ) -> Result<Prepared, Stop> {
        let guide = mirror.file_at(base, "relay.md").map_err(git_stop)?;
        let prompt = prompt::compose(
            &self.claim.task,
            &self.claim.project,
            &self.claim.branch,
            guide.as_deref(),
        );
        let brief = TaskBrief {
            task: &self.claim.task,
            branch: &self.claim.branch,
            worker: &self.shared.worker,
            epoch: self.lease.epoch,
            prompt: &prompt,
            workdir: &dir.path,
            agent: AGENT,
            max_run: self.max_run(),
            preferences: &self.claim.preferences,
            hidden: &self.hidden,
        };
        self.lanes.prepare(&brief)
    }

    /// A flag beats a preference, which beats the seed's number.
    fn max_run(&self) -> Duration {
        time_limit(self.shared.max_run, self.claim.preferences.max_minutes)
    }

    async fn run_lane<P: Future<Output = Result<Prepared, Stop>>>(
        &self,
        prepared: Prepared,
        prepare: impl Fn() -> P,
    ) -> Result<LaneResult, Stop> {
        let log = self.log.clone();
        let errand = Errand {
            lane: &self.claim.task.lane,
            lanes: &self.lanes,
            supervisor: &self.shared.supervisor,
            clock: &*self.shared.clock,
            signal: &self.signal,
            say: Arc::new(move |line| log.line(line)),
            record: Some(self.transcript().await),
        };
        errand.run(prepared, prepare).await
    }
}

/// How long a run may take.
/// What the lane's own sandbox puts into a copy: claude's alone does.
fn stubs(lane: &LaneName) -> &'static [&'static str] {
    if *lane == LaneName::claude() { relay_sandbox::STUBS } else { &[] }
}

fn time_limit(flag: Option<Duration>, preferred: Option<u32>) -> Duration {
    let minutes = preferred.map(|minutes| minutes.clamp(1, MAX_MINUTES));
    let preferred = minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes)));
    flag.or(preferred).unwrap_or(MAX_RUN)
}

fn lane_note(result: &LaneResult) -> Note {
    let outcome = result.stop.as_ref().map_or(Outcome::Finished, StopReason::outcome);
    let how = result.stop.as_ref().map_or_else(|| "finished".to_owned(), ToString::to_string);
    let note = match result.usage.duration_ms {
        Some(ms) => {
            format!("{how} after {:.1} s", Duration::from_millis(ms).as_secs_f64())
        }
        None => how,
    };
    Note { note, outcome }
}

/// What a git error means for the task.
pub(super) fn git_stop(error: GitError) -> Stop {
    let stop = Stop::new(StopReason::RepoUnusable { why: error.problem() }, error.to_string());
    match error.hint() {
        Some(hint) => stop.hint(hint),
        None => stop,
    }
}

/// A commit's id as people read it.
pub(super) fn short(commit: &Commit) -> String {
    commit.as_str().chars().take(12).collect()
}

pub(super) fn agent() -> Identity {
    let (name, email) = AGENT;
    Identity { name: name.to_owned(), email: email.to_owned() }
}

fn disk_stop(path: &Path, error: &std::io::Error) -> Stop {
    if is_shortage(error) {
        return Stop::new(
            StopReason::RepoUnusable { why: RepoProblem::Machine },
            format!("{}: {error}", path.display()),
        );
    }
    let hint = DiskProblem::of(error)
        .map_or_else(|| "`relay doctor` shows the disk".to_owned(), |why| why.mend(path));
    Stop::new(
        StopReason::RepoUnusable { why: RepoProblem::Disk },
        format!("{}: {error}", path.display()),
    )
    .hint(hint)
}

/// A lane that could not write says whatever it says: where the disk under its copy is full, that
/// is why.
fn disk_filled(reason: &StopReason, copy: &Path) -> Option<Stop> {
    let may_be = matches!(
        reason,
        StopReason::Crashed
            | StopReason::VendorError
            | StopReason::ProtocolViolation
            | StopReason::NoChanges
    );
    if !may_be || !Room::of(copy).is_ok_and(Room::is_full) {
        return None;
    }
    let text = format!("the disk under {} filled up during the run", copy.display());
    let stop = Stop::new(StopReason::RepoUnusable { why: RepoProblem::Disk }, text);
    Some(stop.hint(DiskProblem::Full.mend(copy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_beats_a_preference_which_beats_the_hour() {
        let minutes = |n| Duration::from_secs(60 * n);
        assert_eq!(time_limit(Some(minutes(5)), Some(90)), minutes(5));
        assert_eq!(time_limit(None, Some(90)), minutes(90));
        assert_eq!(time_limit(None, None), minutes(60));
        assert_eq!(time_limit(None, Some(0)), minutes(1));
        assert_eq!(time_limit(None, Some(u32::MAX)), minutes(u64::from(MAX_MINUTES)));
    }
}
