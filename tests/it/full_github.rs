//! GitHub's client against the bench: another implementation of GitHub's REST than the one the
//! fast tests are written with, behind a real web server, and git's own smart HTTP.

use relay::forge::github::{Permission, Wording};
use relay::forge::{NewPull, PullState, Pulls, words};
use relay::model::{ForgeProblem, RepoName, TaskId};
use serde_json::json;

use crate::support::bench::Bench;

fn shop() -> RepoName {
    "acme/shop".parse().unwrap()
}

#[tokio::test]
async fn full_a_label_is_seen_with_its_sender_and_its_text() {
    let Some(bench) = Bench::start() else { return };
    let bot = bench.as_seen_with("ghp_relay_bot");
    let repository = bot.repository(&shop()).await.unwrap();
    assert_eq!(repository.default_branch, "main");
    assert_eq!(repository.clone_url, format!("{}/acme/shop.git", bench.url));
    let refused = bench.as_seen_with("ghp_nobody").repository(&shop()).await.unwrap_err();
    assert_eq!(refused.problem(), ForgeProblem::Unauthorized);

    let opened = bot.open_issue(&shop(), "Add a total", "Please.", &[]).await.unwrap();
    assert_eq!(bot.labelled(&shop(), "agent:process:edit").await.unwrap(), []);
    let path = format!("issues/{}/labels", opened.number);
    bench.rest("ghp_acme", "POST", &path, json!({ "labels": ["agent:process:edit"] })).await;

    let list = bot.labelled(&shop(), "agent:process:edit").await.unwrap();
    assert_eq!(list.iter().map(|issue| issue.number).collect::<Vec<_>>(), [opened.number]);
    let history = bot.label_history(&shop(), opened.number, "agent:process:edit").await.unwrap();
    assert_eq!(history.set.as_ref().unwrap().by.as_deref(), Some("acme"));
    let wording = bot.wording(&shop(), opened.number, &history).await.unwrap();
    assert_eq!(wording, Wording::Same { title: "Add a total".into(), body: "Please.".into() });

    for (login, expected) in
        [("acme", Permission::Write), ("relay-bot", Permission::Write), ("who", Permission::None)]
    {
        assert_eq!(bot.permission(&shop(), login).await.unwrap(), expected, "{login}");
    }
    let path = format!("issues/{}", opened.number);
    bench.rest("ghp_acme", "PATCH", &path, json!({ "state": "closed" })).await;
    assert_eq!(bot.labelled(&shop(), "agent:process:edit").await.unwrap(), []);
    assert!(!bot.issue(&shop(), opened.number).await.unwrap().unwrap().open);
    assert_eq!(bot.issue(&shop(), 999).await.unwrap(), None);
}

#[tokio::test]
async fn full_a_pushed_branch_gets_one_pull_request_and_one_comment() {
    let Some(bench) = Bench::start() else { return };
    let bot = bench.as_seen_with("ghp_relay_bot");
    let issue = bot.open_issue(&shop(), "Add a total", "", &[]).await.unwrap();

    let place = tempfile::tempdir().unwrap();
    let git = |token: &str, args: &[&str]| bench.git(token, place.path(), args);
    assert!(git("ghp_relay_bot", &["clone", "-q", "bench:acme/shop.git", "."]).0);
    std::fs::write(place.path().join("total"), "1\n").unwrap();
    assert!(git("ghp_relay_bot", &["add", "."]).0);
    assert!(git("ghp_relay_bot", &["commit", "-qm", "a total"]).0);
    let branch = format!("relay/claude-{}", issue.number);
    let pushed =
        git("ghp_relay_bot", &["push", "-q", "origin", &format!("HEAD:refs/heads/{branch}")]);
    assert!(pushed.0 && !pushed.1.contains("bench:"), "{}", pushed.1);
    let protected = git("ghp_relay_bot", &["push", "origin", "HEAD:refs/heads/main"]);
    assert!(!protected.0 && protected.1.contains("GH006"), "{}", protected.1);
    let denied = git("ghp_stranger", &["push", "origin", "HEAD:refs/heads/topic"]);
    assert!(!denied.0 && denied.1.contains("denied to stranger"), "{}", denied.1);

    let task: TaskId = format!("acme/shop#{}", issue.number).parse().unwrap();
    let new = NewPull {
        branch: branch.clone(),
        base: "main".to_owned(),
        title: words::pr_title(&"claude".parse().unwrap(), "Add a total"),
        body: format!("Closes #{}", issue.number),
    };
    let pull = bot.open_pull(&shop(), &new).await.unwrap();
    assert_eq!(bot.open_pull(&shop(), &new).await.unwrap(), pull, "it is found the second time");
    let body = format!("{}\nDone.", words::run_marker(&task, "5eed"));
    let id = bot.comment(&shop(), pull.number, &body).await.unwrap();
    assert_eq!(bot.comment(&shop(), pull.number, &body).await.unwrap(), id);
    let comments = bench
        .rest("ghp_acme", "GET", &format!("issues/{}/comments", pull.number), json!(null))
        .await;
    assert_eq!(comments.as_array().map(Vec::len), Some(1), "{comments}");

    bench.rest("ghp_acme", "PUT", &format!("pulls/{}/merge", pull.number), json!({})).await;
    let merged = bot.pull(&shop(), pull.number).await.unwrap().unwrap();
    assert_eq!(merged.state, PullState::Merged);
    assert_eq!(bot.find_pull(&shop(), &branch).await.unwrap(), Some(merged));
    assert!(bench.repository().join("HEAD").is_file());
}
