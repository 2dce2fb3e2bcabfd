//! A GitHub with memory, on loopback: people, repositories, issues and pull requests that tests
//! talk to as a person would, and relay by REST and GraphQL. It can be told to fail.

mod answers;
mod fate;
mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use relay::forge::github::{GitHub, GitHubConfig, TIME_OUT};
use relay::model::{Clock, RepoName, Secret, Timestamp};

use super::clock::ManualClock;

/// The server. It ends with the runtime of its test.
#[derive(Clone)]
pub struct FakeGitHub {
    /// Its API's base URL.
    pub base: String,
    pub clock: ManualClock,
    world: Arc<Mutex<World>>,
}

/// One repository of it.
#[derive(Clone)]
pub struct FakeRepo {
    hub: FakeGitHub,
    name: String,
}

#[derive(Default)]
struct World {
    tokens: BTreeMap<String, String>,
    repos: BTreeMap<String, Repo>,
    faults: VecDeque<(String, String, Fault)>,
    calls: Vec<Call>,
    next_id: u64,
    no_graphql: bool,
    ahead_ms: i64,
    /// Old names, each with the new one.
    moved: BTreeMap<String, String>,
}

/// One request that reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: String,
    /// With its query.
    pub path: String,
    pub status: u16,
}

/// How a request goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing is done, and this is answered.
    Refuse(u16, Vec<(&'static str, String)>, &'static str),
    /// Nothing is done, and this JSON is answered with 200.
    Answer(&'static str),
    /// It is done, and this is answered all the same.
    LoseAnswer(u16),
    /// It is done, and no answer ever comes.
    Hang,
    /// It is done, and the answer is a page for people.
    Garble,
    /// It is done, and the connection breaks in the middle of the answer.
    Cut,
    /// It is done, and the answer does not end before a hundred megabytes.
    Giant,
}

#[derive(Default)]
struct Repo {
    default_branch: String,
    archived: bool,
    fork: bool,
    clone_url: String,
    /// The bare repository behind it, where a test has one.
    files: Option<std::path::PathBuf>,
    permissions: BTreeMap<String, String>,
    items: BTreeMap<u64, Item>,
}

/// An issue or a pull request.
struct Item {
    number: u64,
    title: String,
    body: String,
    by: String,
    open: bool,
    labels: Vec<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    last_edited_at: Option<Timestamp>,
    events: Vec<Happened>,
    comments: Vec<Comment>,
    pull: Option<PullPart>,
}

struct PullPart {
    branch: String,
    base: String,
    /// The commit it showed when it was closed; of an open one that is the branch's.
    head: Option<String>,
    merged_at: Option<Timestamp>,
}

struct Happened {
    what: &'static str,
    by: String,
    label: Option<String>,
    at: Timestamp,
}

struct Comment {
    id: u64,
    by: String,
    body: String,
    at: Timestamp,
}

impl FakeGitHub {
    pub async fn start(clock: &ManualClock) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let hub = Self { base, clock: clock.clone(), world: Arc::default() };
        serve::serve(listener, hub.clone());
        hub
    }

    /// A person with a token, which is `token-of-<login>`.
    pub fn person(&self, login: &str) {
        self.world().tokens.insert(format!("token-of-{login}"), login.to_owned());
    }

    /// A person's token does not work any more.
    pub fn revoke(&self, login: &str) {
        self.world().tokens.retain(|_, who| who != login);
    }

    pub fn repo(&self, name: &str) -> FakeRepo {
        let owner = name.split('/').next().unwrap();
        let repo = Repo {
            default_branch: "main".to_owned(),
            clone_url: format!("{}/{name}.git", self.base),
            permissions: BTreeMap::from([(owner.to_owned(), "admin".to_owned())]),
            ..Repo::default()
        };
        self.world().repos.insert(name.to_owned(), repo);
        FakeRepo { hub: self.clone(), name: name.to_owned() }
    }

    /// What relay uses, logged in as `login`.
    pub fn as_seen_by(&self, login: &str) -> GitHub {
        self.connection(login, TIME_OUT)
    }

    /// The same with little patience, for answers that never come. Those that do come may be slow.
    pub fn as_seen_in_a_hurry_by(&self, login: &str) -> GitHub {
        self.connection(login, std::time::Duration::from_secs(5))
    }

    fn connection(&self, login: &str, time_out: std::time::Duration) -> GitHub {
        GitHub::new(GitHubConfig {
            api_base: self.base.clone(),
            token: Secret::new(format!("token-of-{login}")),
            clock: Arc::new(self.clock.clone()),
            time_out,
            gate: Arc::default(),
        })
        .unwrap()
    }

    /// The next request of this method whose path holds `part` goes wrong.
    pub fn next_goes_wrong(&self, method: &str, part: &str, fault: Fault) {
        self.world().faults.push_back((method.to_owned(), part.to_owned(), fault));
    }

    /// Its clock is so far ahead of the one everybody else has.
    pub fn clock_is_ahead(&self, ms: i64) {
        self.world().ahead_ms = ms;
    }

    /// What its own clock shows.
    fn date(&self) -> Timestamp {
        Timestamp(self.clock.now().0 + self.world().ahead_ms)
    }

    /// There is no GraphQL endpoint.
    pub fn without_graphql(&self) {
        self.world().no_graphql = true;
    }

    /// Every request since the last time this was asked.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.world().calls)
    }

    /// How many requests since the last time cost quota.
    pub fn counted(&self) -> usize {
        self.calls().iter().filter(|call| call.status != 304).count()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
}

impl FakeRepo {
    pub fn name(&self) -> RepoName {
        self.name.parse().unwrap()
    }

    /// `login` may do this much: `admin`, `write`, `triage`, `read`.
    pub fn may(&self, login: &str, permission: &str) {
        self.with(|repo| repo.permissions.insert(login.to_owned(), permission.to_owned()));
    }

    /// Where git finds it.
    pub fn is_cloned_from(&self, url: &str) {
        self.with(|repo| url.clone_into(&mut repo.clone_url));
    }

    pub fn archive(&self) {
        self.with(|repo| repo.archived = true);
    }

    pub fn issue(&self, by: &str, title: &str, body: &str) -> u64 {
        self.item(by, title, body, None)
    }

    pub fn pull(&self, by: &str, title: &str, branch: &str) -> u64 {
        let base = self.with(|repo| repo.default_branch.clone());
        let pull = PullPart { branch: branch.to_owned(), base, head: None, merged_at: None };
        self.item(by, title, "", Some(pull))
    }

    pub fn label(&self, number: u64, label: &str, by: &str) {
        self.happens(number, "labeled", by, Some(label));
        self.change(number, |item| item.labels.push(label.to_owned()));
    }

    pub fn unlabel(&self, number: u64, label: &str, by: &str) {
        self.happens(number, "unlabeled", by, Some(label));
        self.change(number, |item| item.labels.retain(|have| have != label));
    }

    /// Somebody edits the issue's text.
    pub fn edit(&self, number: u64, body: &str) {
        let now = self.now();
        self.change(number, |item| {
            item.body = body.to_owned();
            item.last_edited_at = Some(now);
        });
    }

    pub fn rename(&self, number: u64, title: &str, by: &str) {
        self.happens(number, "renamed", by, None);
        self.change(number, |item| item.title = title.to_owned());
    }

    pub fn comment(&self, number: u64, by: &str, body: &str) {
        let now = self.now();
        let id = self.hub.world().new_id();
        let comment = Comment { id, by: by.to_owned(), body: body.to_owned(), at: now };
        self.change(number, |item| item.comments.push(comment));
    }

    pub fn comments(&self, number: u64) -> Vec<(String, String)> {
        self.with(|repo| {
            let comments = &repo.items[&number].comments;
            comments.iter().map(|c| (c.by.clone(), c.body.clone())).collect()
        })
    }

    pub fn close(&self, number: u64, by: &str) {
        self.happens(number, "closed", by, None);
        self.with(|repo| repo.close(number));
    }

    /// Merges a pull request, and closes the issues it says it closes.
    pub fn merge(&self, number: u64, by: &str) {
        let now = self.now();
        self.close(number, by);
        self.change(number, |item| item.pull.as_mut().unwrap().merged_at = Some(now));
        let body = self.with(|repo| repo.items[&number].body.clone());
        let closed = body
            .strip_prefix("Closes #")
            .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        if let Some(closed) = closed {
            self.close(closed, by);
        }
    }

    pub fn delete(&self, number: u64) {
        self.with(|repo| repo.items.remove(&number));
    }

    /// Numbers and titles of its pull requests.
    pub fn pulls(&self) -> Vec<(u64, String)> {
        self.with(|repo| {
            let pulls = repo.items.values().filter(|item| item.pull.is_some());
            pulls.map(|item| (item.number, item.title.clone())).collect()
        })
    }

    fn item(&self, by: &str, title: &str, body: &str, pull: Option<PullPart>) -> u64 {
        let now = self.now();
        self.with(|repo| repo.add(by, title, body, pull, now))
    }

    fn now(&self) -> Timestamp {
        seconds(self.hub.date())
    }

    fn happens(&self, number: u64, what: &'static str, by: &str, label: Option<&str>) {
        let at = self.now();
        let label = label.map(str::to_owned);
        let event = Happened { what, by: by.to_owned(), label, at };
        self.change(number, |item| item.events.push(event));
    }

    fn change(&self, number: u64, how: impl FnOnce(&mut Item)) {
        let now = self.now();
        self.with(|repo| {
            let item = repo.items.get_mut(&number).expect("no such number");
            item.updated_at = now;
            how(item);
        });
    }

    fn with<T>(&self, what: impl FnOnce(&mut Repo) -> T) -> T {
        what(self.hub.world().repos.get_mut(&self.name).unwrap())
    }
}

impl World {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        1000 + self.next_id
    }
}

impl Repo {
    fn add(
        &mut self,
        by: &str,
        title: &str,
        body: &str,
        pull: Option<PullPart>,
        now: Timestamp,
    ) -> u64 {
        let number = self.items.keys().max().copied().unwrap_or(0) + 1;
        let item = Item {
            number,
            title: title.to_owned(),
            body: body.to_owned(),
            by: by.to_owned(),
            open: true,
            labels: Vec::new(),
            created_at: now,
            updated_at: now,
            last_edited_at: None,
            events: Vec::new(),
            comments: Vec::new(),
            pull,
        };
        self.items.insert(number, item);
        number
    }
}

/// GitHub's times are whole seconds.
fn seconds(at: Timestamp) -> Timestamp {
    Timestamp(at.0 / 1000 * 1000)
}
