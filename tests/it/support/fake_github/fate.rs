//! What becomes of a repository as a whole, and of the files behind it.

use std::path::Path;

use super::{FakeGitHub, FakeRepo, Item, Repo};
use crate::support::repo::{git, git_succeeds};

impl FakeGitHub {
    /// A repository gets another name; the old one redirects.
    pub fn moves(&self, from: &str, to: &str) {
        let mut world = self.world();
        let repo = world.repos.remove(from).expect("a repository");
        world.repos.insert(to.to_owned(), repo);
        world.moved.remove(to);
        world.moved.insert(from.to_owned(), to.to_owned());
    }
}

impl FakeRepo {
    /// The bare repository behind it: from now on pull requests are about its branches.
    pub fn has_files(&self, bare: &Path) {
        self.with(|repo| repo.files = Some(bare.to_owned()));
    }

    pub fn unarchive(&self) {
        self.with(|repo| repo.archived = false);
    }

    pub fn is_a_fork(&self) {
        self.with(|repo| repo.fork = true);
    }

    /// As GitHub does it: the branch itself, HEAD, and the base of open pull requests.
    pub fn renames_default_branch(&self, name: &str) {
        self.with(|repo| {
            let bare = repo.files.as_ref().expect("files");
            git(bare, &["branch", "-m", &repo.default_branch, name]);
            for pull in repo.items.values_mut().filter_map(|item| item.pull.as_mut()) {
                pull.base = name.to_owned();
            }
            repo.default_branch = name.to_owned();
        });
    }

    /// Into which branch a pull request is to be merged.
    pub fn base_of(&self, number: u64) -> String {
        self.with(|repo| repo.items[&number].pull.as_ref().expect("a pull request").base.clone())
    }
}

impl Repo {
    pub(super) fn close(&mut self, number: u64) {
        let head = self.shown(&self.items[&number]);
        let item = self.items.get_mut(&number).expect("no such number");
        item.open = false;
        if let Some(pull) = &mut item.pull {
            pull.head = head;
        }
    }

    /// The commit that a pull request shows.
    pub(super) fn shown(&self, item: &Item) -> Option<String> {
        let pull = item.pull.as_ref()?;
        let branch = format!("refs/heads/{}", pull.branch);
        let bare = self.files.as_ref()?;
        let is_there = item.open && git_succeeds(bare, &["rev-parse", "-q", "--verify", &branch]);
        if is_there { Some(git(bare, &["rev-parse", &branch])) } else { pull.head.clone() }
    }

    /// Whether a branch is there, as far as is known.
    pub(super) fn has_branch(&self, name: &str) -> bool {
        let branch = format!("refs/heads/{name}");
        let is_there = |bare: &Path| git_succeeds(bare, &["rev-parse", "-q", "--verify", &branch]);
        !name.is_empty() && self.files.as_deref().is_none_or(is_there)
    }
}
