//! GitHub with memory and a real git server behind it: one repository, one issue.

use super::clock::ManualClock;
use super::fake_github::{FakeGitHub, FakeRepo};
use super::git_http::GitHttp;
use super::repo::{Origin, git};

/// A repository `acme/shop` on GitHub that `bot` may push to, with one issue.
pub struct Shop {
    pub hub: FakeGitHub,
    pub repo: FakeRepo,
    pub host: GitHttp,
    pub origin: Origin,
    pub issue: u64,
    _root: tempfile::TempDir,
}

impl Shop {
    pub async fn open() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("acme")).unwrap();
        let origin = Origin::new(&root.path().join("acme"), "shop", &[("README.md", "# shop\n")]);
        let host = GitHttp::serve(root.path()).await;
        host.allow("token-of-bot", "bot");
        let hub = FakeGitHub::start(&ManualClock::default()).await;
        hub.person("acme");
        hub.person("bot");
        let repo = hub.repo("acme/shop");
        repo.may("bot", "write");
        repo.is_cloned_from(&format!("{}/acme/shop.git", host.url));
        let issue = repo.issue("acme", "Say more", "Please.");
        Self { hub, repo, host, origin, issue, _root: root }
    }

    /// The task's name, and its branch.
    pub fn task(&self) -> (String, String) {
        (format!("acme/shop#{}", self.issue), format!("relay/process-edit-{}", self.issue))
    }

    /// The branch has one commit of relay's, and there is one pull request with one comment.
    pub fn assert_one_of_each(&self, why: &str) {
        let (_, branch) = self.task();
        let heads = git(&self.origin.bare, &["for-each-ref", "--format=%(refname)", "refs/heads"]);
        assert_eq!(heads, format!("refs/heads/main\nrefs/heads/{branch}"), "{why}");
        let count = ["rev-list", "--count", &format!("main..{branch}")];
        assert_eq!(git(&self.origin.bare, &count), "1", "{why}");
        let pulls = self.repo.pulls();
        let titles: Vec<&str> = pulls.iter().map(|(_, title)| title.as_str()).collect();
        assert_eq!(titles, ["process:edit: Say more"], "{why}");
        let comments = self.repo.comments(pulls[0].0);
        assert_eq!(comments.len(), 1, "{why}: {comments:#?}");
        assert!(comments[0].1.contains("Added a line."), "{why}: {comments:#?}");
        assert_eq!(self.repo.comments(self.issue), [], "{why}");
    }
}
