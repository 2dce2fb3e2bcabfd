//! relay's git against real repositories: on a path, and over smart HTTP on loopback.

mod copy;
mod fence;
mod hostile;
mod mirror;
mod push;
mod snapshot;

use std::path::{Path, PathBuf};

use relay::git::{
    Commit, Copy, Fence, Git, GitError, Identity, Mirror, Push, Pushed, Remote, Snapshot,
    SnapshotRequest,
};
use relay::model::{Epoch, RepoName, Timestamp};
use tempfile::TempDir;

use crate::support::repo::{Origin, git, git_program, path_env};

const AT: Timestamp = Timestamp(1_700_000_000_000);

/// A person's repository, and relay's home on the same machine.
struct Bench {
    root: TempDir,
    origin: Origin,
    git: Git,
}

impl Bench {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let origin = Origin::new(root.path(), "shop", files);
        let cache = root.path().join("home/cache");
        let git = Git::new(git_program(), path_env(), cache);
        Self { root, origin, git }
    }

    /// A second machine with the same program.
    fn other_machine(&self) -> Git {
        Git::new(git_program(), path_env(), self.root.path().join("other/cache"))
    }

    fn cache(&self) -> PathBuf {
        self.root.path().join("home/cache")
    }

    fn local(&self) -> Remote {
        Remote { url: self.origin.bare.to_str().unwrap().to_owned(), token: None }
    }

    async fn mirror(&self) -> Mirror {
        self.at("main").await.unwrap()
    }

    /// The mirror, brought up to date for work that starts from `branch`.
    async fn at(&self, branch: &str) -> Result<Mirror, GitError> {
        self.git.mirror(&name(), &self.local(), branch).await
    }

    fn place(&self, name: &str) -> PathBuf {
        self.root.path().join("home/work").join(name)
    }

    /// The mirror, and a copy of the tip of `main`.
    async fn copy(&self) -> (Mirror, Copy) {
        let mirror = self.mirror().await;
        let base = mirror.tip("main").unwrap();
        let place = self.place("shop_1_a");
        let copy = mirror.checkout(&base, "relay/claude-1", &place, STUBS).await.unwrap();
        (mirror, copy)
    }
}

const STUBS: &[&str] = &[".bashrc", ".mcp.json", ".claude"];

fn name() -> RepoName {
    "acme/shop".parse().unwrap()
}

fn agent() -> Identity {
    Identity { name: "relay-agent".to_owned(), email: "relay-agent@localhost".to_owned() }
}

fn write(dir: &Path, path: &str, content: &str) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

async fn try_snapshot(mirror: &Mirror, copy: &Copy) -> Result<Snapshot, GitError> {
    let identity = agent();
    let request = SnapshotRequest { identity: &identity, message: "the work", at: AT };
    mirror.snapshot(copy, &request).await
}

async fn snapshot(mirror: &Mirror, copy: &Copy) -> Snapshot {
    try_snapshot(mirror, copy).await.unwrap()
}

async fn committed(mirror: &Mirror, copy: &Copy) -> Commit {
    match snapshot(mirror, copy).await {
        Snapshot::Commit { commit, .. } => commit,
        other => panic!("no commit: {other:?}"),
    }
}

/// Pushes `commit` to `relay/claude-1` under a claim.
async fn push(mirror: &Mirror, remote: &Remote, commit: &Commit, epoch: i64) -> Pushed {
    let identity = agent();
    // Two claims never push in the same millisecond.
    let at = Timestamp(AT.0 + epoch * 1000);
    let fence = Fence { remote, name: "claude-1", epoch: Epoch(epoch), identity: &identity, at };
    mirror.push(&Push { fence, commit, branch: "relay/claude-1", earlier: &[] }).await.unwrap()
}

const F: &str = "refs/relay/fence/claude-1";
const B: &str = "refs/heads/relay/claude-1";

/// A commit on top of `main` that nobody pushed yet, made in `mirror` through a copy of its own.
async fn work(bench: &Bench, mirror: &Mirror, label: &str) -> Commit {
    let base = mirror.tip("main").unwrap();
    let copy = mirror.checkout(&base, "relay/claude-1", &bench.place(label), STUBS).await.unwrap();
    write(copy.dir(), "done.txt", label);
    let commit = committed(mirror, &copy).await;
    copy.remove().await.unwrap();
    commit
}

/// The lines of `git <args>` in `dir`.
fn lines(dir: &Path, args: &[&str]) -> Vec<String> {
    git(dir, args).lines().map(str::to_owned).collect()
}
