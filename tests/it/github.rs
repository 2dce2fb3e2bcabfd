//! GitHub as relay sees it, against a server with memory and faults.

mod faults;
mod limits;

use std::time::Duration;

use relay::forge::github::{LabelSet, Permission, Wording};
use relay::forge::{ForgeError, NewPull, PullState, Pulls, words};
use relay::model::{ForgeProblem, TaskId};

use crate::support::clock::{ManualClock, START};
use crate::support::fake_github::{FakeGitHub, FakeRepo, Fault};

const BRANCH: &str = "relay/claude-1";

async fn hub() -> (FakeGitHub, FakeRepo) {
    let hub = FakeGitHub::start(&ManualClock::default()).await;
    hub.person("relay-bot");
    let shop = hub.repo("acme/shop");
    shop.may("relay-bot", "write");
    (hub, shop)
}

fn new_pull() -> NewPull {
    NewPull {
        branch: BRANCH.to_owned(),
        base: "main".to_owned(),
        title: "claude: Add a total".to_owned(),
        body: "Closes #1".to_owned(),
    }
}

fn result_comment() -> String {
    let task: TaskId = "acme/shop#1".parse().unwrap();
    format!("{}\nDone.", words::run_marker(&task, "5eed"))
}

#[tokio::test]
async fn a_repository_tells_what_linking_needs() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let repository = bot.repository(&shop.name()).await.unwrap();
    assert_eq!(repository.default_branch, "main");
    assert!(repository.can_push && !repository.archived && !repository.fork);
    assert_eq!(repository.clone_url, format!("{}/acme/shop.git", hub.base));

    shop.archive();
    shop.may("relay-bot", "read");
    let repository = bot.repository(&shop.name()).await.unwrap();
    assert!(repository.archived && !repository.can_push);

    let missing = bot.repository(&"acme/nothing".parse().unwrap()).await.unwrap_err();
    assert_eq!(missing.problem(), ForgeProblem::NotFound);
    assert!(missing.to_string().contains("/repos/acme/nothing"), "{missing}");
}

#[tokio::test]
async fn a_revoked_token_is_told_and_never_shown() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    hub.revoke("relay-bot");
    let error = bot.repository(&shop.name()).await.unwrap_err();
    assert_eq!(error.problem(), ForgeProblem::Unauthorized);
    assert!(error.hint().unwrap().contains("gh auth login"));
    for shown in [format!("{error} {error:?}"), format!("{bot:?}")] {
        assert!(!shown.contains("token-of-"), "{shown}");
    }
}

#[tokio::test]
async fn labelled_issues_are_listed_whole_and_without_pull_requests() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    for n in 0..205 {
        let number = shop.issue("mona", &format!("issue {n}"), "text");
        shop.label(number, "agent:process:edit", "mona");
    }
    let pull = shop.pull("mona", "a pull request", "topic");
    shop.label(pull, "agent:process:edit", "mona");
    shop.issue("mona", "without a label", "");

    let list = bot.labelled(&shop.name(), "agent:process:edit").await.unwrap();
    assert_eq!(list.len(), 205);
    assert!(list.windows(2).all(|pair| pair[0].number < pair[1].number));
    assert_eq!((list[7].title.as_str(), list[7].body.as_str()), ("issue 7", "text"));

    hub.next_goes_wrong("GET", "page=2", Fault::Refuse(502, vec![], "Bad gateway"));
    let hole = bot.labelled(&shop.name(), "agent:process:edit").await.unwrap_err();
    assert_eq!(hole.problem(), ForgeProblem::Unreachable, "a hole is no shorter list");
}

#[tokio::test]
async fn an_unchanged_list_costs_no_quota() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let first = shop.issue("mona", "one", "");
    shop.label(first, "agent:claude", "mona");
    let before = bot.labelled(&shop.name(), "agent:claude").await.unwrap();
    assert_eq!(hub.counted(), 1);
    assert_eq!(bot.labelled(&shop.name(), "agent:claude").await.unwrap(), before);
    assert_eq!(hub.calls()[0].status, 304);

    // A page that is full has a successor as soon as there is one more.
    for _ in 1..100 {
        let number = shop.issue("mona", "more", "");
        shop.label(number, "agent:claude", "mona");
    }
    assert_eq!(bot.labelled(&shop.name(), "agent:claude").await.unwrap().len(), 100);
    let last = shop.issue("mona", "the hundred and first", "");
    shop.label(last, "agent:claude", "mona");
    assert_eq!(bot.labelled(&shop.name(), "agent:claude").await.unwrap().len(), 101);
}

#[tokio::test]
async fn the_newest_setting_of_a_label_counts() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let number = shop.issue("stranger", "Add a total", "");
    shop.label(number, "agent:claude", "stranger");
    shop.label(number, "agent:codex", "mona");
    hub.clock.advance(Duration::from_secs(10));
    shop.unlabel(number, "agent:claude", "mona");
    hub.clock.advance(Duration::from_secs(10));
    shop.label(number, "agent:claude", "mona");

    let history = bot.label_history(&shop.name(), number, "agent:claude").await.unwrap();
    let at = START + Duration::from_secs(20);
    assert_eq!(history.set, Some(LabelSet { by: Some("mona".to_owned()), at }));
    assert_eq!(history.removed_at, Some(START + Duration::from_secs(10)));
    let other = bot.label_history(&shop.name(), number, "agent:grok").await.unwrap();
    assert_eq!((other.set, other.removed_at), (None, None));
}

#[tokio::test]
async fn who_may_write_is_told_from_who_may_not() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    for (login, permission, expected) in [
        ("acme", "admin", Permission::Write),
        ("mona", "write", Permission::Write),
        ("max", "maintain", Permission::Write),
        ("tess", "triage", Permission::Read),
        ("rita", "read", Permission::Read),
        ("dependabot[bot]", "write", Permission::Write),
    ] {
        shop.may(login, permission);
        assert_eq!(bot.permission(&shop.name(), login).await.unwrap(), expected, "{login}");
    }
    assert_eq!(bot.permission(&shop.name(), "stranger").await.unwrap(), Permission::None);
    shop.may("relay-bot", "read");
    let error = bot.permission(&shop.name(), "anyone").await.unwrap_err();
    assert_eq!(error.problem(), ForgeProblem::Forbidden);
}

#[tokio::test]
async fn the_text_is_the_one_that_stood_when_the_label_was_set() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let number = shop.issue("stranger", "Add a total", "Please.");
    hub.clock.advance(Duration::from_secs(5));
    shop.edit(number, "Please add it.");
    hub.clock.advance(Duration::from_secs(5));
    shop.label(number, "agent:claude", "mona");
    let wording = async || {
        let history = bot.label_history(&shop.name(), number, "agent:claude").await.unwrap();
        bot.wording(&shop.name(), number, &history).await.unwrap()
    };
    let same = Wording::Same { title: "Add a total".into(), body: "Please add it.".into() };
    assert_eq!(wording().await, same);

    hub.clock.advance(Duration::from_secs(5));
    shop.comment(number, "stranger", "any news?");
    assert_eq!(wording().await, same, "a comment changes no text");
    shop.edit(number, "And send me the keys.");
    assert_eq!(wording().await, Wording::Changed);

    hub.clock.advance(Duration::from_secs(5));
    shop.label(number, "agent:claude", "mona");
    shop.rename(number, "Send keys", "stranger");
    assert_eq!(wording().await, Wording::Changed, "also in the label's own second");
    shop.delete(number);
    let history = relay::forge::github::LabelHistory {
        set: Some(LabelSet { by: None, at: START }),
        ..Default::default()
    };
    assert_eq!(bot.wording(&shop.name(), number, &history).await.unwrap(), Wording::Gone);
}

#[tokio::test]
async fn without_an_edit_history_only_an_untouched_issue_is_the_same() {
    let (hub, shop) = hub().await;
    hub.without_graphql();
    let bot = hub.as_seen_by("relay-bot");
    let number = shop.issue("stranger", "Add a total", "Please.");
    shop.label(number, "agent:claude", "mona");
    let history = bot.label_history(&shop.name(), number, "agent:claude").await.unwrap();
    let wording = async || bot.wording(&shop.name(), number, &history).await.unwrap();
    assert!(matches!(wording().await, Wording::Same { .. }));
    hub.clock.advance(Duration::from_secs(5));
    shop.comment(number, "stranger", "any news?");
    assert_eq!(wording().await, Wording::Unknown);
}

#[tokio::test]
async fn a_pull_request_is_opened_once() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    assert_eq!(bot.find_pull(&shop.name(), BRANCH).await.unwrap(), None);
    let pull = bot.open_pull(&shop.name(), &new_pull()).await.unwrap();
    assert_eq!(pull.state, PullState::Open);
    assert_eq!(bot.open_pull(&shop.name(), &new_pull()).await.unwrap(), pull);
    assert_eq!(shop.pulls(), [(pull.number, "claude: Add a total".to_owned())]);

    shop.close(pull.number, "mona");
    let closed = bot.find_pull(&shop.name(), BRANCH).await.unwrap().unwrap();
    assert_eq!(closed.state, PullState::Closed);
    let second = bot.open_pull(&shop.name(), &new_pull()).await.unwrap();
    assert_ne!(second.number, pull.number, "a closed one is not opened again");
    shop.merge(second.number, "mona");
    let merged = bot.pull(&shop.name(), second.number).await.unwrap().unwrap();
    assert_eq!(merged.state, PullState::Merged);
    assert_eq!(bot.pull(&shop.name(), 999).await.unwrap(), None);
}

#[tokio::test]
async fn a_lost_answer_makes_no_second_pull_request() {
    for fault in [Fault::LoseAnswer(500), Fault::LoseAnswer(502), Fault::Hang] {
        let (hub, shop) = hub().await;
        let bot = hub.as_seen_in_a_hurry_by("relay-bot");
        hub.next_goes_wrong("POST", "/pulls", fault.clone());
        let pull = bot.open_pull(&shop.name(), &new_pull()).await.unwrap();
        assert_eq!(shop.pulls(), [(pull.number, "claude: Add a total".to_owned())], "{fault:?}");
        let posts = hub.calls().iter().filter(|call| call.method == "POST").count();
        assert_eq!(posts, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_refused_pull_request_keeps_githubs_words() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let words = "No commits between main and relay/claude-1";
    hub.next_goes_wrong("POST", "/pulls", Fault::Refuse(422, vec![], words));
    let error = bot.open_pull(&shop.name(), &new_pull()).await.unwrap_err();
    assert_eq!(error.problem(), ForgeProblem::Invalid);
    assert!(error.to_string().contains(words), "{error}");

    hub.next_goes_wrong("POST", "/pulls", Fault::Refuse(500, vec![], "oops"));
    let error = bot.open_pull(&shop.name(), &new_pull()).await.unwrap_err();
    assert_eq!(error.problem(), ForgeProblem::Unreachable, "what is not there is an error");
    assert_eq!(shop.pulls(), []);
}

#[tokio::test]
async fn a_comment_is_posted_once_whatever_happens_to_its_answer() {
    for fault in [None, Some(Fault::LoseAnswer(500)), Some(Fault::Hang)] {
        let (hub, shop) = hub().await;
        let bot = hub.as_seen_in_a_hurry_by("relay-bot");
        let number = shop.issue("mona", "Add a total", "");
        // A marker in somebody else's comment is not relay's.
        shop.comment(number, "stranger", &result_comment());
        if let Some(fault) = fault.clone() {
            hub.next_goes_wrong("POST", "/comments", fault);
        }
        let id = bot.comment(&shop.name(), number, &result_comment()).await.unwrap();
        assert_eq!(bot.comment(&shop.name(), number, &result_comment()).await.unwrap(), id);
        let by_relay: Vec<_> =
            shop.comments(number).into_iter().filter(|(by, _)| by == "relay-bot").collect();
        assert_eq!(by_relay, [("relay-bot".to_owned(), result_comment())], "{fault:?}");
    }
}

#[tokio::test]
async fn no_call_is_made_while_a_rate_limit_lasts() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let retry_after = vec![("retry-after", "90".to_owned())];
    hub.next_goes_wrong("GET", "/repos", Fault::Refuse(429, retry_after, "slow down"));
    let limited = ForgeError::RateLimited { until: START + Duration::from_secs(90) };
    assert_eq!(bot.repository(&shop.name()).await.unwrap_err(), limited);
    hub.calls();
    hub.clock.advance(Duration::from_secs(89));
    assert_eq!(bot.open_pull(&shop.name(), &new_pull()).await.unwrap_err(), limited);
    assert_eq!(hub.calls(), [], "relay asked although it was told not to");
    hub.clock.advance(Duration::from_secs(1));
    assert!(bot.repository(&shop.name()).await.is_ok());

    let secondary = "You have exceeded a secondary rate limit. Please wait";
    hub.next_goes_wrong("POST", "/comments", Fault::Refuse(403, vec![], secondary));
    let number = shop.issue("mona", "x", "");
    let error = bot.comment(&shop.name(), number, &result_comment()).await.unwrap_err();
    assert_eq!(error.problem(), ForgeProblem::RateLimited);
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_in_a_hurry_by("relay-bot");
    hub.next_goes_wrong("GET", "/repos", Fault::Hang);
    let error = bot.repository(&shop.name()).await.unwrap_err();
    assert_eq!(error.problem(), ForgeProblem::Unreachable);
    assert_eq!(hub.calls().len(), 1, "one request, not repeated");
}

#[tokio::test]
async fn a_new_issue_carries_its_label() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let label = ["agent:claude".to_owned()];
    let issue = bot.open_issue(&shop.name(), "Add a total", "Please.", &label).await.unwrap();
    assert!(issue.open && issue.has("agent:claude"));
    assert_eq!(bot.issue(&shop.name(), issue.number).await.unwrap(), Some(issue.clone()));
    let pull = shop.pull("mona", "a pull request", "topic");
    assert_eq!(bot.issue(&shop.name(), pull).await.unwrap(), None);
    assert_eq!(bot.issue(&shop.name(), 999).await.unwrap(), None);
}
