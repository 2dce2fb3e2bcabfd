//! The two refs of a task on the remote: reading them, and moving them under a lease.

use std::ffi::OsString;

use super::fence::{Marker, trailer_epoch};
use super::isolation::{ASK, Address, Command, TRANSFER};
use super::porcelain::{Refusal, Verdict, refusal, verdict};
use super::push::{Fence, Fenced, Push};
use super::snapshot::signature;
use super::{Commit, GitError, Identity, Mirror, check_branch, error, open};
use crate::model::{Epoch, PushProblem};
use crate::process::ProcessError;

/// The remote as it was read.
pub(super) struct Seen {
    /// The hidden ref.
    pub fence: Option<(Commit, Marker)>,
    /// The branch.
    pub branch: Option<Commit>,
    /// Where the hidden ref does not tell of what is on the branch: the claim named by the trailer
    /// of a commit of relay's that is there.
    trailer: Option<Epoch>,
}

impl Seen {
    /// The claim that pushed or claimed last.
    pub fn claim(&self) -> Option<Epoch> {
        self.fence.as_ref().map(|(_, marker)| marker.epoch).max(self.trailer)
    }

    /// What relay pushed last, as far as the remote tells.
    pub fn recorded(&self) -> Option<&Commit> {
        let fence = || self.fence.as_ref().and_then(|(_, marker)| marker.pushed.as_ref());
        self.branch.as_ref().filter(|_| self.trailer.is_some()).or_else(fence)
    }
}

impl Mirror {
    /// Reads the hidden ref of `fence`, and `branch`.
    pub(super) async fn see(
        &self,
        fence: &Fence<'_>,
        branch: Option<&str>,
        remote: &Address,
    ) -> Result<Result<Seen, Refusal>, GitError> {
        let hidden = hidden_ref(fence)?;
        let branch = branch.map(|branch| format!("refs/heads/{branch}"));
        let mut ask = Command::nowhere("ls-remote", ["--refs"]).talking_to(remote, ASK);
        ask.args.extend([remote.url.clone(), hidden.clone().into()]);
        ask.args.extend(branch.as_ref().map(OsString::from));
        let listed = match self.ask(ask).await? {
            Ok(listed) => listed,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let at = |name: &str| {
            let line = listed
                .lines()
                .find_map(|line| line.split_once('\t').filter(|(_, ref_name)| *ref_name == name));
            line.and_then(|(id, _)| id.parse::<Commit>().ok())
        };
        let mut seen = Seen { fence: None, branch: branch.as_deref().and_then(at), trailer: None };
        if let Some(mut id) = at(&hidden) {
            let mut message = self.message_of(&id, None)?;
            if message.is_none() {
                let local = format!("refs/relay/seen/{}", fence.name);
                if let Err(refusal) = self.bring(&hidden, &local, remote).await? {
                    return Ok(Err(refusal));
                }
                // The ref may have moved since it was listed.
                id = open(&self.paths.mirror)?.refname_to_id(&local)?.into();
                message = self.message_of(&id, None)?;
            }
            let Some(marker) = message.as_deref().and_then(Marker::read) else {
                let text = format!("{hidden} holds something that relay did not write");
                return Ok(Err(Refusal { why: PushProblem::Other, text }));
            };
            seen.fence = Some((id, marker));
        }
        if let (Some(id), Some(name)) = (&seen.branch, &branch)
            && seen.recorded() != Some(id)
        {
            if self.message_of(id, None)?.is_none()
                && let Err(refusal) = self.bring(name, name, remote).await?
            {
                return Ok(Err(refusal));
            }
            let message = self.message_of(id, Some(fence.identity))?;
            seen.trailer = message.as_deref().and_then(trailer_epoch);
        }
        Ok(Ok(seen))
    }

    /// Moves the hidden ref alone, leased on what was seen.
    pub(super) async fn move_fence(
        &self,
        fence: &Fence<'_>,
        seen: &Seen,
        remote: &Address,
    ) -> Result<Verdict, GitError> {
        let hidden = hidden_ref(fence)?;
        let marker = Marker { epoch: fence.epoch, pushed: seen.recorded().cloned() };
        let marker = self.marker(fence, &marker)?;
        let old = seen.fence.as_ref().map(|(id, _)| id);
        let push = push_command(&[(&hidden, old, &marker)], remote);
        self.verdict(push, Some(&hidden), None).await
    }

    /// Moves the branch to `commit`, and with a hidden ref both in one transaction, leased on
    /// what was seen of each. A lease on a ref that does not move is not checked by the server,
    /// so the hidden ref gets a new marker each time.
    pub(super) async fn move_both(
        &self,
        push: &Push<'_>,
        seen: &Seen,
        commit: &Commit,
        fenced: Fenced,
        remote: &Address,
    ) -> Result<Verdict, GitError> {
        let branch = format!("refs/heads/{}", push.branch);
        if fenced == Fenced::Trailer {
            let command = push_command(&[(&branch, seen.branch.as_ref(), commit)], remote);
            return self.verdict(command, None, Some(&branch)).await;
        }
        let hidden = hidden_ref(&push.fence)?;
        let marker = Marker { epoch: push.fence.epoch, pushed: Some(commit.clone()) };
        let marker = self.marker(&push.fence, &marker)?;
        let old = seen.fence.as_ref().map(|(id, _)| id);
        let moves = [(&*hidden, old, &marker), (&*branch, seen.branch.as_ref(), commit)];
        self.verdict(push_command(&moves, remote), Some(&hidden), Some(&branch)).await
    }

    /// Runs a push made by [`push_command`] and reads its answer.
    async fn verdict(
        &self,
        mut command: Command<'_>,
        hidden: Option<&str>,
        branch: Option<&str>,
    ) -> Result<Verdict, GitError> {
        let folder = super::isolation::joined("--git-dir=", &self.paths.mirror);
        command.args.insert(0, folder);
        match self.git.try_run(command).await {
            Ok(output) => Ok(verdict(&output, hidden, branch)),
            Err(GitError::Process { source: source @ ProcessError::TimedOut { .. }, .. }) => {
                Ok(Verdict::Broken(source.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Runs a command that only reads from the remote.
    async fn ask(&self, command: Command<'_>) -> Result<Result<String, Refusal>, GitError> {
        match self.git.try_run(command).await {
            Ok(output) if output.code == Some(0) => {
                Ok(Ok(String::from_utf8_lossy(&output.stdout).into_owned()))
            }
            Ok(output) => Ok(Err(refusal(&error::text_of(&output)))),
            Err(GitError::Process { source: source @ ProcessError::TimedOut { .. }, .. }) => {
                Ok(Err(Refusal { why: PushProblem::Unreachable, text: source.to_string() }))
            }
            Err(error) => Err(error),
        }
    }

    /// Fetches one ref into the mirror.
    async fn bring(
        &self,
        from: &str,
        to: &str,
        remote: &Address,
    ) -> Result<Result<(), Refusal>, GitError> {
        let args = ["--no-tags", "--no-write-fetch-head"];
        let mut fetch =
            Command::in_repo(&self.paths.mirror, "fetch", args).talking_to(remote, TRANSFER);
        fetch.args.extend([remote.url.clone(), format!("+{from}:{to}").into()]);
        Ok(self.ask(fetch).await?.map(drop))
    }

    /// The message of a commit, if the mirror has it and, where asked, `committer` committed it.
    pub(super) fn message_of(
        &self,
        id: &Commit,
        committer: Option<&Identity>,
    ) -> Result<Option<String>, GitError> {
        let repo = open(&self.paths.mirror)?;
        let Ok(commit) = repo.find_commit(id.oid()?) else { return Ok(None) };
        let by = commit.committer();
        let is_theirs = committer.is_none_or(|identity| {
            by.name_bytes() == identity.name.as_bytes()
                && by.email_bytes() == identity.email.as_bytes()
        });
        Ok(is_theirs.then(|| String::from_utf8_lossy(commit.message_bytes()).into_owned()))
    }

    /// Writes a marker's commit into the mirror.
    fn marker(&self, fence: &Fence<'_>, marker: &Marker) -> Result<Commit, GitError> {
        let repo = open(&self.paths.mirror)?;
        let tree = repo.find_tree(repo.treebuilder(None)?.write()?)?;
        let by = signature(fence.identity, fence.at)?;
        let message = marker.message(fence.name, fence.at.0);
        Ok(repo.commit(None, &by, &by, &message, &tree, &[])?.into())
    }
}

/// The task's hidden ref.
pub(super) fn hidden_ref(fence: &Fence<'_>) -> Result<String, GitError> {
    check_branch(fence.name)?;
    Ok(format!("refs/relay/fence/{}", fence.name))
}

/// `git push` of commits to refs, each leased on the value it had; an absent one must stay absent.
fn push_command<'a>(
    moves: &[(&str, Option<&Commit>, &Commit)],
    remote: &'a Address,
) -> Command<'a> {
    let args = ["--porcelain", "--no-verify", "--no-follow-tags"];
    let mut command = Command::anywhere("push", args).talking_to(remote, TRANSFER);
    if moves.len() > 1 {
        command.args.push("--atomic".into());
    }
    for (name, old, _) in moves {
        let old = old.map_or("", Commit::as_str);
        command.args.push(format!("--force-with-lease={name}:{old}").into());
    }
    command.args.push(remote.url.clone());
    command.args.extend(moves.iter().map(|(name, _, new)| format!("{new}:{name}").into()));
    command
}
