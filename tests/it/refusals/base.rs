//! The branch that the work stands on changes while the lane runs: the pull request shows the
//! lane's change alone, or the work is refused by name.

use super::shop::Shop;
use crate::support::repo::git;

const README: &[(&str, &str)] = &[("README.md", "# shop\n")];
const EDIT: &str = "echo more >> README.md";

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_moved_on_adds_nothing_to_the_pull_request() {
    let shop = Shop::waiting(README, EDIT).await;
    shop.meanwhile(|| {
        shop.at
            .origin
            .commit("main", &[("theirs.txt", "x"), (".github/workflows/ci.yml", "on: x")]);
    });
    shop.assert_delivered(1, &["README.md"]);
    let branch = git(&shop.at.origin.bare, &["rev-list", "--count", "main..relay/process-edit-1"]);
    assert_eq!(branch, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rewritten_base_dropped_does_not_come_back_with_the_pull_request() {
    let shop = Shop::waiting(README, EDIT).await;
    shop.at.origin.commit("main", &[("secret.txt", "should never have been committed")]);
    shop.meanwhile(|| {
        let person = &shop.at.origin.person;
        git(person, &["reset", "-q", "--hard", "HEAD^"]);
        git(person, &["push", "-q", "-f", "origin", "HEAD:main"]);
        shop.at.origin.commit("main", &[("theirs.txt", "x")]);
    });
    shop.assert_delivered(1, &["README.md"]);
    let bare = &shop.at.origin.bare;
    let files = git(bare, &["ls-tree", "--name-only", "relay/process-edit-1"]);
    assert_eq!(files, "README.md\ntheirs.txt");
    assert_eq!(git(bare, &["log", "-1", "--format=%an", "relay/process-edit-1"]), "relay-agent");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_does_not_fit_on_a_rewritten_base_is_kept_for_a_person() {
    let shop = Shop::waiting(README, EDIT).await;
    let before = shop.at.origin.at("main").unwrap();
    let person = &shop.at.origin.person;
    let force = |what: &str| git(person, &["push", "-q", "-f", "origin", what]);
    shop.meanwhile(|| {
        std::fs::write(person.join("README.md"), "# another shop\n").unwrap();
        git(person, &["commit", "-q", "-a", "--amend", "-m", "rewritten"]);
        force("HEAD:main");
    });
    let bundle = shop.assert_refused("push_refused (base_rewritten)").expect("a bundle");
    assert_eq!(shop.in_bundle(&bundle), ["README.md"]);
    force(&format!("{before}:refs/heads/main"));
    shop.assert_retry_delivers(1, &["README.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_branch_of_any_name_and_one_renamed_after_the_link_is_worked_on() {
    let shop = Shop::new(README, EDIT).await;
    shop.at.shop.renames_default_branch("trunk");
    shop.work();
    shop.assert_delivered(1, &["README.md"]);
    assert_eq!(shop.at.shop.base_of(shop.detail()["task"]["pr"].as_u64().unwrap()), "trunk");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_branch_renamed_while_the_lane_ran_is_followed() {
    let shop = Shop::waiting(README, EDIT).await;
    shop.meanwhile(|| shop.at.shop.renames_default_branch("trunk"));
    shop.assert_delivered(1, &["README.md"]);
    assert_eq!(shop.at.shop.base_of(shop.detail()["task"]["pr"].as_u64().unwrap()), "trunk");
}
