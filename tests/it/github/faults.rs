//! Answers that break: lost, cut, unreadable, endless, or sent elsewhere.

use std::sync::{Arc, Mutex};

use relay::forge::{ForgeError, Pulls};
use relay::model::ForgeProblem;

use super::{hub, new_pull, result_comment};
use crate::support::fake_github::{FakeGitHub, Fault};

/// What was done on GitHub, and nobody here heard of it.
const LOST: [Fault; 6] = [
    Fault::LoseAnswer(500),
    Fault::LoseAnswer(502),
    Fault::Hang,
    Fault::Garble,
    Fault::Cut,
    Fault::Giant,
];

fn posts(hub: &FakeGitHub) -> usize {
    hub.calls().iter().filter(|call| call.method == "POST").count()
}

#[tokio::test]
async fn an_answer_that_was_lost_makes_nothing_twice() {
    for fault in LOST {
        let (hub, shop) = hub().await;
        let bot = hub.as_seen_in_a_hurry_by("relay-bot");
        hub.next_goes_wrong("POST", "/pulls", fault.clone());
        let pull = bot.open_pull(&shop.name(), &new_pull()).await.unwrap();
        assert_eq!(shop.pulls(), [(pull.number, "claude: Add a total".to_owned())], "{fault:?}");
        assert_eq!(posts(&hub), 1, "{fault:?}");

        hub.next_goes_wrong("POST", "/comments", fault.clone());
        bot.comment(&shop.name(), pull.number, &result_comment()).await.unwrap();
        assert_eq!(shop.comments(pull.number).len(), 1, "{fault:?}");
        assert_eq!(posts(&hub), 1, "{fault:?}");

        // The same words were there before: that is another issue.
        shop.issue("relay-bot", "Add a total", "Please.");
        hub.clock.advance(std::time::Duration::from_secs(3600));
        hub.next_goes_wrong("POST", "/issues", fault.clone());
        let issue = bot.open_issue(&shop.name(), "Add a total", "Please.", &[]).await.unwrap();
        assert_eq!(issue.number, pull.number + 2, "{fault:?}");
        assert_eq!(posts(&hub), 1, "{fault:?}");
        let none = bot.issue(&shop.name(), issue.number + 1).await.unwrap();
        assert_eq!(none, None, "{fault:?}: a second issue was opened");
    }
}

#[tokio::test]
async fn what_was_not_done_is_not_said_to_be() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let oops = || Fault::Refuse(500, vec![], "oops");
    hub.next_goes_wrong("POST", "/issues", oops());
    let error = bot.open_issue(&shop.name(), "Add a total", "", &[]).await.unwrap_err();
    assert_eq!(error.problem(), ForgeProblem::Unreachable);
    assert_eq!(posts(&hub), 1);
    // It cannot be looked for either.
    hub.next_goes_wrong("POST", "/issues", oops());
    hub.next_goes_wrong("GET", "/issues", oops());
    let error = bot.open_issue(&shop.name(), "Add a total", "", &[]).await.unwrap_err();
    assert!(error.to_string().contains("look before you try again"), "{error}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_outage_and_bounded() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    for (fault, said) in
        [(Fault::Garble, "expected value"), (Fault::Giant, "more than 32 MiB"), (Fault::Cut, "")]
    {
        hub.next_goes_wrong("GET", "/repos", fault.clone());
        let error = bot.repository(&shop.name()).await.unwrap_err();
        assert_eq!(error.problem(), ForgeProblem::Unreachable, "{fault:?}: {error}");
        assert!(error.to_string().contains(said), "{fault:?}: {error}");
        assert!(!format!("{error:?}").contains("token-of-"), "{error:?}");
    }
    assert_eq!(hub.calls().len(), 3, "nothing is asked twice");
}

/// A server on loopback that writes down whatever reaches it.
async fn elsewhere() -> (String, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback({
        let seen = seen.clone();
        move |request: axum::extract::Request| async move {
            seen.lock().unwrap().push(format!("{request:?}"));
            "{}"
        }
    });
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, seen)
}

#[tokio::test]
async fn a_redirect_takes_the_token_nowhere() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let (url, seen) = elsewhere().await;
    for status in [301, 302, 307, 308] {
        let to = || vec![("location", format!("{url}/repos/acme/shop"))];
        hub.next_goes_wrong("GET", "/repos", Fault::Refuse(status, to(), "Moved"));
        let error = bot.repository(&shop.name()).await.unwrap_err();
        assert!(matches!(error, ForgeError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains("link it under its new name"), "{error}");
        hub.next_goes_wrong("POST", "/pulls", Fault::Refuse(status, to(), "Moved"));
        assert!(bot.open_pull(&shop.name(), &new_pull()).await.is_err());
    }
    assert_eq!(*seen.lock().unwrap(), [""; 0]);
    assert_eq!(shop.pulls(), []);
}

#[tokio::test]
async fn an_app_knows_its_own_comments_and_believes_no_strangers() {
    let (hub, shop) = hub().await;
    hub.person("relay[bot]");
    shop.may("relay[bot]", "write");
    let number = shop.issue("mona", "Add a total", "");
    let marker = result_comment();
    let marker = marker.lines().next().unwrap();
    shop.comment(number, "stranger", &result_comment());
    shop.comment(number, "other[bot]", &result_comment());
    let app = || Fault::Refuse(403, vec![], "Resource not accessible by integration");
    hub.next_goes_wrong("GET", "/user", app());
    let bot = hub.as_seen_by("relay[bot]");
    assert_eq!(bot.find_comment(&shop.name(), number, marker).await.unwrap(), None);
    let id = bot.comment(&shop.name(), number, &result_comment()).await.unwrap();
    assert_eq!(bot.find_comment(&shop.name(), number, marker).await.unwrap(), Some(id));

    // A server that does not say who asks: no person's comment is an App's.
    hub.without_graphql();
    hub.next_goes_wrong("GET", "/user", app());
    let nameless = hub.as_seen_by("relay[bot]");
    let other = shop.issue("mona", "Another", "");
    shop.comment(other, "stranger", &result_comment());
    assert_eq!(nameless.find_comment(&shop.name(), other, marker).await.unwrap(), None);
}

#[tokio::test]
async fn a_marker_in_the_middle_of_relays_own_comment_is_a_quotation() {
    let (hub, shop) = hub().await;
    let bot = hub.as_seen_by("relay-bot");
    let number = shop.issue("mona", "Add a total", "");
    let marker = result_comment();
    let marker = marker.lines().next().unwrap();
    shop.comment(number, "relay-bot", &format!("the lane wrote: {marker}"));
    assert_eq!(bot.find_comment(&shop.name(), number, marker).await.unwrap(), None);
}
