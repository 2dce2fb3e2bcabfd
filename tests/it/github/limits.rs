//! GitHub's limits: while one lasts nobody in the process asks, whoever met it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use relay::forge::github::{Accounts, Limit, Source};
use relay::forge::{ForgeError, Pulls};
use relay::model::{Clock, Secret};

use super::{hub, new_pull};
use crate::support::clock::START;
use crate::support::fake_github::{FakeGitHub, Fault};

/// Whoever asks is logged in as relay-bot.
#[derive(Debug)]
struct Bot;

#[async_trait]
impl Source for Bot {
    async fn token(&self, _host: &str) -> Option<Secret> {
        Some(Secret::new("token-of-relay-bot"))
    }
}

fn accounts(hub: &FakeGitHub) -> Accounts {
    Accounts::new(Arc::new(Bot), Arc::new(hub.clock.clone()))
}

const SECONDARY: &str = "You have exceeded a secondary rate limit. Please wait a few minutes.";

/// Each limit in GitHub's words and headers, how long it lasts, and what it is called.
fn limits(hub: &FakeGitHub) -> Vec<(Fault, u64, Limit)> {
    let left = |n: u64| ("x-ratelimit-remaining", n.to_string());
    let reset =
        |seconds: i64| ("x-ratelimit-reset", (hub.clock.now().0 / 1000 + seconds).to_string());
    let after = |seconds: u64| ("retry-after", seconds.to_string());
    vec![
        // The primary quota is full.
        (Fault::Refuse(403, vec![left(4990), reset(3000)], SECONDARY), 60, Limit::Secondary),
        (
            Fault::Refuse(403, vec![left(4990), reset(3000), after(120)], SECONDARY),
            120,
            Limit::Secondary,
        ),
        (Fault::Refuse(429, vec![after(90)], ""), 90, Limit::Secondary),
        (Fault::Refuse(429, vec![], "slow down"), 60, Limit::Unnamed),
        (Fault::Refuse(403, vec![left(0), reset(600)], "API rate limit"), 600, Limit::Primary),
        (Fault::Refuse(429, vec![left(0), reset(600), after(30)], ""), 600, Limit::Primary),
        // A reset that is over, or far away, is not believed.
        (Fault::Refuse(403, vec![left(0), reset(-9)], ""), 60, Limit::Primary),
        (Fault::Refuse(403, vec![left(0), reset(999_999)], ""), 7200, Limit::Primary),
    ]
}

#[tokio::test]
async fn a_limit_that_one_met_stops_all_who_share_the_login() {
    for n in 0..8 {
        let (hub, shop) = hub().await;
        let (fault, seconds, limit) = limits(&hub).remove(n);
        let accounts = accounts(&hub);
        // The owner's watch and the worker's job.
        let watch = accounts.at(&hub.base).await.unwrap();
        let job = accounts.login(&hub.base).await.unwrap().github;
        hub.next_goes_wrong("GET", "/issues", fault.clone());
        let limited =
            ForgeError::RateLimited { until: hub.clock.now() + Duration::from_secs(seconds) };
        let met = watch.labelled(&shop.name(), "agent:claude").await.unwrap_err();
        assert_eq!(met, limited, "{fault:?}");
        let (_, state) = accounts.hosts().remove(0);
        assert_eq!(state.shut.map(|(_, limit)| limit), Some(limit), "{fault:?}");
        hub.calls();

        hub.clock.advance(Duration::from_secs(seconds - 1));
        accounts.forget(&hub.base).await;
        let renewed = accounts.at(&hub.base).await.unwrap();
        for github in [&watch, &job, &renewed] {
            assert_eq!(github.open_pull(&shop.name(), &new_pull()).await.unwrap_err(), limited);
            assert_eq!(github.labelled(&shop.name(), "x").await.unwrap_err(), limited);
        }
        assert_eq!(hub.calls(), [], "a call inside the cool-down: {fault:?}");
        hub.clock.advance(Duration::from_secs(1));
        job.repository(&shop.name()).await.expect("the limit is over");
        assert_eq!(hub.calls().len(), 1);
    }
}

/// GraphQL tells its own limit in an answer that is none of an error's.
#[tokio::test]
async fn a_limit_that_graphql_tells_stops_everybody_for_a_minute() {
    let (hub, shop) = hub().await;
    let accounts = accounts(&hub);
    let github = accounts.at(&hub.base).await.unwrap();
    let number = shop.issue("stranger", "Add a total", "Please.");
    shop.label(number, "agent:claude", "mona");
    let history = github.label_history(&shop.name(), number, "agent:claude").await.unwrap();
    let answer =
        r#"{"data":null,"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}"#;
    hub.next_goes_wrong("POST", "/graphql", Fault::Answer(answer));
    let limited = ForgeError::RateLimited { until: hub.clock.now() + Duration::from_secs(60) };
    assert_eq!(github.wording(&shop.name(), number, &history).await.unwrap_err(), limited);
    let (_, state) = accounts.hosts().remove(0);
    assert_eq!(state.shut.map(|(_, limit)| limit), Some(Limit::Primary));
    hub.calls();
    hub.clock.advance(Duration::from_secs(59));
    assert_eq!(github.repository(&shop.name()).await.unwrap_err(), limited);
    assert_eq!(hub.calls(), [], "a call inside the cool-down");
    hub.clock.advance(Duration::from_secs(1));
    assert!(github.repository(&shop.name()).await.is_ok());
}

#[tokio::test]
async fn a_reset_is_a_time_of_githubs_clock() {
    for ahead in [3_600_000, -3_600_000] {
        let (hub, shop) = hub().await;
        hub.clock_is_ahead(ahead);
        let reset = (START.0 + ahead) / 1000 + 600;
        let headers = vec![
            ("x-ratelimit-remaining", "0".to_owned()),
            ("x-ratelimit-reset", reset.to_string()),
        ];
        hub.next_goes_wrong("GET", "/repos", Fault::Refuse(403, headers, "API rate limit"));
        let error = hub.as_seen_by("relay-bot").repository(&shop.name()).await.unwrap_err();
        let until = START + Duration::from_secs(600);
        assert_eq!(error, ForgeError::RateLimited { until }, "{ahead}");
    }
}

#[tokio::test]
async fn calls_are_counted_and_unchanged_answers_are_not() {
    let (hub, shop) = hub().await;
    let accounts = accounts(&hub);
    let github = accounts.at(&hub.base).await.unwrap();
    for _ in 0..3 {
        github.labelled(&shop.name(), "agent:claude").await.unwrap();
    }
    let (_, state) = accounts.hosts().remove(0);
    assert_eq!((state.calls, state.counted), (3, 1));
    assert_eq!((state.reached_at, state.shut), (Some(START), None));
}
