//! Two sites on one database, in this process.

use std::sync::Arc;
use std::time::Duration;

use relay::client::Client;
use relay::model::{Secret, TokenScope};
use relay::queue::{Queue, Store};
use relay::site::owner::{Access, OwnerConfig, OwnerError, Role, connect};
use relay::site::serve::Listen;
use relay::system::SystemIds;

use crate::site::fixture::{Home, TestWorker, config, instance, until};
use crate::site::tokens::{request, stranger};
use crate::support::PATIENCE;
use crate::support::clock::ManualClock;
use crate::support::postgres::{Database, number};

/// From one look round to the next.
pub const BEAT: Duration = Duration::from_secs(20);

pub struct Pair {
    pub a: Home,
    pub b: Home,
    pub database: Database,
}

impl Pair {
    /// Two sites that share a new database; `None` where there is no server.
    pub async fn new() -> Option<Self> {
        Some(Self::on(Database::new().await?).await)
    }

    pub async fn on(database: Database) -> Self {
        let url = database.url.clone();
        Self::over(database, &url).await
    }

    /// The same, where the second site reaches the database by this URL.
    pub async fn over(database: Database, there: &str) -> Self {
        let a = site(&database.url, true).await.expect("a site");
        let b = site(there, true).await.expect("another");
        // What each does as it starts is over.
        for home in [&a, &b] {
            look_round(home).await;
            home.rest().await;
        }
        Self { a, b, database }
    }

    /// Waits until `to` has taken up all that `from` has told so far: what is told is taken up in
    /// its order, and the last of it is a token.
    pub async fn heard(from: &Home, to: &Home) {
        let last = request(&[TokenScope::FeedRead], None);
        let token = from.client.create_token(&last).await.expect("a token").secret;
        let now = to.owner.site().clock.now();
        until(|| to.owner.site().bearers.find(token.secret().expose(), now).is_some()).await;
    }

    /// A queue over the same database that tells nobody what it does, like a site that dies before
    /// it could.
    pub async fn silent(&self) -> Queue {
        let store = Store::open(&self.database.url).await.expect("a store");
        let clock = store.clock(Arc::new(ManualClock::default())).await.expect("its clock");
        Queue::new(store, clock, Arc::new(SystemIds))
    }

    pub async fn close(self) {
        self.a.owner.close().await;
        self.b.owner.close().await;
    }
}

/// The time of the next look round comes, and what was found is taken up.
pub async fn look_round(home: &Home) {
    let before = home.owner.site().sites.looks();
    home.clock.advance(BEAT);
    until(|| home.owner.site().sites.looks() > before).await;
}

/// A site of its own home on this database.
pub async fn site(url: &str, many: bool) -> Result<Home, OwnerError> {
    site_with(url, many, |_| {}).await
}

pub async fn site_with(
    url: &str,
    many: bool,
    change: impl FnOnce(&mut OwnerConfig),
) -> Result<Home, OwnerError> {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = ManualClock::default();
    let mut config = config(folder.path(), Role::Serve, Arc::new(clock.clone()));
    config.database = Some(Secret::new(url));
    config.many = many;
    config.listen = Some(Listen::on(([127, 0, 0, 1], 0).into()));
    change(&mut config);
    let owner = match connect(config).await? {
        Access::Own(owner) => *owner,
        Access::Living(other) => panic!("somebody else owns the new home: {other:?}"),
    };
    let client = crate::site::fixture::client(owner.socket());
    Ok(Home { folder, clock, owner, client })
}

/// The same worker, which asks another site from now on.
pub fn moved(worker: &TestWorker, to: &Client) -> TestWorker {
    TestWorker { client: to.clone(), ..worker.clone() }
}

/// A worker's token, and a worker that speaks to `home` over TCP with it.
pub async fn with_token(home: &Home, name: &str) -> (relay::model::Token, Secret, TestWorker) {
    let scopes = [TokenScope::WorkClaim, TokenScope::MemoryRead, TokenScope::FeedRead];
    let made = home.client.create_token(&request(&scopes, Some(name))).await.expect("a token");
    let secret = made.secret.secret();
    let client = stranger(home).with_token(secret.clone());
    (made.token, secret, TestWorker::register(client, name, instance(name, 1)).await)
}

/// How many sites hold a place on the database.
pub async fn places(url: &str) -> i64 {
    let text = "select count(*) from pg_locks where locktype = 'advisory' and granted
        and objid = 491327873401 & 4294967295
        and database = (select oid from pg_database where datname = current_database())";
    number(url, text).await
}

/// Asks again and again, for what only another task's progress can make true.
pub async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let looks = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.expect("it never came true");
}
