//! Of two sites that know the same repository one asks GitHub, and the other takes over.

use std::collections::BTreeMap;
use std::sync::Arc;

use relay::api::LinkProject;
use relay::forge::github::{Accounts, PersonsLogin, host_of};
use relay::model::{ForgeKind, Secret};
use relay::site::forges::KnownForges;
use relay::site::watch::Watch;

use super::pair::{BEAT, site_with};
use crate::site::fixture::{Home, until};
use crate::support::clock::ManualClock;
use crate::support::fake_github::FakeGitHub;
use crate::support::postgres::{Database, number, run};

async fn watching(hub: &FakeGitHub, url: &str) -> Home {
    let login = PersonsLogin {
        given: Some((host_of(&hub.base), Secret::new("token-of-ann"))),
        gh: None,
        env: BTreeMap::new(),
    };
    let clock = Arc::new(hub.clock.clone());
    let accounts = Arc::new(Accounts::new(Arc::new(login), clock));
    let base = hub.base.clone();
    let home = site_with(url, true, move |config| {
        config.forges = Arc::new(KnownForges::new(Arc::clone(&accounts), &base));
        config.watch =
            Some(Watch { accounts, host: "machine".to_owned(), allowed_senders: Vec::new() });
    });
    home.await.expect("a site")
}

fn looks(home: &Home) -> Option<relay::model::Timestamp> {
    home.owner.site().standing.all().first().and_then(|status| status.polled_at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_one_of_two_sites_asks_github_and_the_other_takes_over() {
    let Some(database) = Database::new().await else { return };
    let hub = FakeGitHub::start(&ManualClock::default()).await;
    hub.person("ann");
    let shop = hub.repo("ann/shop");
    let issue = shop.issue("ann", "Mend it", "It is broken.");
    shop.label(issue, "agent:claude", "ann");
    let a = watching(&hub, &database.url).await;
    let b = watching(&hub, &database.url).await;
    assert!(a.owner.site().sites.watches() && !b.owner.site().sites.watches());
    // Linked at the one, it is looked at by the other.
    let link = LinkProject {
        forge: ForgeKind::Github,
        slug: "ann/shop".parse().expect("a slug"),
        path: None,
        host: "machine".to_owned(),
    };
    b.client.link(&link).await.expect("a project");
    until(|| looks(&a).is_some()).await;
    // The other one goes over its list several times, and none of it is its own.
    for _ in 0..3 {
        // What it remembers of it is old, so that the list is read and it can be seen.
        b.owner.site().queue.written_elsewhere();
        let before = b.owner.site().queue.statements();
        b.owner.site().linked.notify_one();
        until(|| b.owner.site().queue.statements() > before).await;
    }
    assert_eq!(looks(&b), None, "it asked as well");
    a.owner.close().await;
    // At its next look round the other has it.
    b.clock.advance(BEAT);
    until(|| looks(&b).is_some()).await;
    assert!(b.owner.site().sites.watches());
    let queued = "select count(*) from events where kind = 'task.queued'";
    assert_eq!(number(&database.url, queued).await, 1);
    b.owner.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_site_whose_line_broke_watches_no_longer_than_it_has_one() {
    let Some(database) = Database::new().await else { return };
    let hub = FakeGitHub::start(&ManualClock::default()).await;
    hub.person("ann");
    let a = watching(&hub, &database.url).await;
    let b = watching(&hub, &database.url).await;
    // Whoever has its line again first has it now.
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity where datname = \
        current_database() and application_name like 'relay session %'";
    for _ in 0..3 {
        run(&database.url, cut).await;
        let (one, other) = (&a.owner.site().sites, &b.owner.site().sites);
        until(|| one.watches() != other.watches()).await;
    }
    a.owner.close().await;
    b.owner.close().await;
}
