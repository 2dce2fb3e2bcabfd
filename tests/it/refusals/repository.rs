//! The repository itself stands in the way: known before the lane costs anything, and worked on
//! once it is mended.

use super::shop::Shop;
use crate::support::repo::git;

const README: &[(&str, &str)] = &[("README.md", "# shop\n")];
const EDIT: &str = "echo more >> README.md";

/// Each in its turn, before the lane ran at all.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_repository_lacks_is_told_before_the_lane_runs() {
    let shop = Shop::new(README, EDIT).await;
    let refused = |reason: &str| {
        shop.work();
        assert_eq!(shop.assert_refused(reason), None, "there is no work yet");
        assert_eq!(shop.runs(), 0, "{reason}");
        shop.retry();
    };
    shop.at.shop.archive();
    refused("push_refused (archived)");
    shop.at.shop.unarchive();

    shop.at.shop.may("relay-bot", "read");
    refused("push_refused (no_permission)");
    shop.at.shop.may("relay-bot", "write");

    shop.at.hub.moves("acme/shop", "acme/store");
    refused("repo_unusable (moved)");
    shop.at.host.refuse("/acme/shop.git/", 301, "");
    refused("repo_unusable (moved)");
    shop.at.host.accept();
    shop.at.hub.moves("acme/store", "acme/shop");

    shop.at.host.refuse("/acme/shop.git/", 404, "Repository not found.");
    refused("repo_unusable (not_found)");
    shop.at.host.accept();

    shop.at.hub.revoke("relay-bot");
    refused("forge_refused (unauthorized)");
    shop.at.hub.person("relay-bot");

    let (bare, tip) = (&shop.at.origin.bare, shop.at.origin.at("main").unwrap());
    git(bare, &["symbolic-ref", "HEAD", "refs/heads/nowhere"]);
    refused("repo_unusable (no_branch)");
    git(bare, &["symbolic-ref", "HEAD", "refs/heads/main"]);
    git(bare, &["update-ref", "-d", "refs/heads/main"]);
    refused("repo_unusable (empty)");
    git(bare, &["update-ref", "refs/heads/main", &tip]);

    shop.work();
    shop.assert_delivered(1, &["README.md"]);
}

/// The same once the lane has run: nothing of its work is lost, nor done twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_a_repository_while_the_lane_runs_costs_no_second_run() {
    let shop = Shop::waiting(README, EDIT).await;
    shop.meanwhile(|| {
        shop.at.host.refuse("/acme/shop.git/", 404, "Repository not found.");
    });
    let bundle = shop.assert_refused("push_refused (not_found)").expect("a bundle");
    assert_eq!(shop.in_bundle(&bundle), ["README.md"]);
    shop.retry();
    shop.refused_and_kept("repo_unusable (not_found)", &["README.md"]);
    shop.at.host.accept();
    shop.at.shop.archive();
    shop.retry();
    shop.refused_and_kept("push_refused (archived)", &["README.md"]);
    shop.at.shop.unarchive();
    shop.assert_retry_delivers(1, &["README.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_that_may_be_written_is_worked_on_and_one_that_would_be_needed_is_asked_for() {
    let shop = Shop::new(README, EDIT).await;
    shop.at.shop.is_a_fork();
    shop.work();
    shop.assert_delivered(1, &["README.md"]);

    let theirs = shop.at.hub.repo("upstream/shop");
    theirs.may("relay-bot", "read");
    let linked = shop.at.house.relay(&["link", "upstream/shop"]);
    assert_ne!(linked.code, 0);
    assert!(linked.err.contains("may not push to `upstream/shop`"), "{}", linked.err);
    assert!(linked.err.contains("hint: ") && linked.err.contains("fork"), "{}", linked.err);
}
