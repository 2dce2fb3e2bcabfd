//! A pull request that is there already.

use super::shop::{B, Shop};

const README: &[(&str, &str)] = &[("README.md", "# shop\n")];
const EDIT: &str = "echo more >> README.md";

#[tokio::test(flavor = "multi_thread")]
async fn an_open_one_of_a_persons_for_the_branch_is_taken_over() {
    let shop = Shop::new(README, EDIT).await;
    let theirs = shop.at.shop.pull("mona", "I was about to", B);
    shop.work();
    shop.assert_delivered(1, &["README.md"]);
    assert_eq!(shop.at.shop.pulls(), [(theirs, "I was about to".to_owned())]);
    assert_eq!(shop.detail()["task"]["pr"].as_u64(), Some(theirs));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_one_is_left_closed_and_a_new_one_opened() {
    let shop = Shop::new(README, EDIT).await;
    let old = shop.at.shop.pull("relay-bot", "an earlier try", B);
    shop.at.shop.close(old, "mona");
    shop.work();
    shop.assert_delivered(1, &["README.md"]);
    assert_ne!(shop.detail()["task"]["pr"].as_u64(), Some(old));
    assert_eq!(shop.at.shop.comments(old), []);
    assert_eq!(shop.at.shop.pulls().len(), 2);
}

/// The pull request was opened, the comment refused, and a person closed it before the retry: no
/// second one is pushed on them.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_shows_this_very_work_is_not_opened_twice() {
    use crate::support::fake_github::Fault;
    let shop = Shop::new(README, EDIT).await;
    let fault = Fault::Refuse(403, Vec::new(), "Resource not accessible");
    shop.at.hub.next_goes_wrong("POST", "/comments", fault);
    shop.refused_and_kept("forge_refused (forbidden)", &["README.md"]);
    let number = shop.at.shop.pulls()[0].0;
    shop.at.shop.close(number, "mona");
    shop.retry();
    shop.work();
    assert_eq!(shop.at.shop.pulls().len(), 1);
    assert_eq!(shop.runs(), 1);
}
