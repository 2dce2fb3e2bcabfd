//! A machine whose repository is on GitHub: the real program, GitHub's REST from the fake, and
//! git's own smart HTTP behind a token.

use super::clock::ManualClock;
use super::fake_github::{FakeGitHub, FakeRepo};
use super::git_http::GitHttp;
use super::house::House;
use super::repo::Origin;

/// The token of the worker's login, `relay-bot`.
pub const TOKEN: &str = "token-of-relay-bot";

/// All of it; it ends with the runtime of its test, which must have several threads.
pub struct Hosted {
    pub house: House,
    pub hub: FakeGitHub,
    /// `acme/shop` as GitHub's REST knows it.
    pub shop: FakeRepo,
    /// Serves it to git.
    pub host: GitHttp,
    /// Its files.
    pub origin: Origin,
}

impl Hosted {
    /// `acme/shop` with these files, linked, and `relay-bot` who may write to it.
    pub async fn new(files: &[(&str, &str)]) -> Self {
        let mut house = House::new();
        let root = house.dir.path().join("host");
        std::fs::create_dir_all(root.join("acme")).unwrap();
        let origin = Origin::new(&root.join("acme"), "shop", files);
        let host = GitHttp::serve(&root).await;
        host.allow(TOKEN, "relay-bot");
        let hub = FakeGitHub::start(&ManualClock::default()).await;
        hub.person("relay-bot");
        let shop = hub.repo("acme/shop");
        shop.may("relay-bot", "write");
        shop.is_cloned_from(&format!("{}/acme/shop.git", host.url));
        house.set("RELAY_GITHUB_API", &hub.base).set("RELAY_GITHUB_TOKEN", TOKEN);
        assert_eq!(house.relay(&["link", "acme/shop"]).ok(), "acme/shop");
        Self { house, hub, shop, host, origin }
    }

    /// Opens an issue, makes it a task of `lane`, and gives the task's id.
    pub fn task(&self, lane: &str, title: &str) -> String {
        let issue = self.shop.issue("relay-bot", title, "Please.").to_string();
        self.house
            .relay(&["task", "create", "--repo", "acme/shop", "--lane", lane, "--issue", &issue])
            .ok()
    }
}
