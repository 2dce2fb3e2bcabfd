//! A queue on a database of its own with a clock that moves when told, and short ways to say what
//! tests say often.

use std::sync::Arc;
use std::time::Duration;

use relay::model::{
    Actor, ClaimId, Effect, ForgeKind, InstanceId, Label, LaneName, LeaseRef, Project, StopReason,
    Task, TaskId, Timestamp, Worker,
};
use relay::queue::{
    Claimant, Claimed, LocalPullRow, NewTask, NewWorker, Queue, QueueError, RunEnd, Store,
};

use crate::support::clock::{CountingIds, ManualClock};
use crate::support::postgres::Database;

/// A queue with the projects `acme/shop` (github.com) and `local/scratch` (on the machine `desk`).
pub struct Bench {
    pub queue: Queue,
    pub clock: ManualClock,
    pub ids: Arc<CountingIds>,
    /// What a new process would open again.
    pub url: String,
    _place: Place,
}

/// What goes when the test is over.
#[derive(Debug)]
enum Place {
    Folder(#[expect(dead_code, reason = "kept for its end")] tempfile::TempDir),
    Database(#[expect(dead_code, reason = "kept for its end")] Database),
}

impl Bench {
    /// On a new SQLite file.
    pub async fn sqlite() -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder")).await
    }

    /// On a file in memory where there is such a disk: for many short lives.
    pub async fn in_memory() -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self::in_folder(made.expect("a folder")).await
    }

    async fn in_folder(dir: tempfile::TempDir) -> Self {
        let url = format!("sqlite://{}/relay.db", dir.path().display());
        Self::on(url, Place::Folder(dir)).await
    }

    /// On a new database of the Postgres server, where there is one.
    pub async fn postgres() -> Option<Self> {
        let database = Database::new().await?;
        Some(Self::on(database.url.clone(), Place::Database(database)).await)
    }

    async fn on(url: String, place: Place) -> Self {
        let clock = ManualClock::default();
        let ids = Arc::new(CountingIds::new(1));
        let store = Store::open(&url).await.expect("a store");
        let queue = Queue::new(store, Arc::new(clock.clone()), ids.clone());
        let bench = Self { queue, clock, ids, url, _place: place };
        bench.queue.link(github("acme/shop")).await.expect("a project");
        bench.queue.link(local("local/scratch", "desk")).await.expect("a project");
        bench
    }

    /// Another process on the same database and the same clock.
    pub async fn another_process(&self) -> Queue {
        let store = Store::open(&self.url).await.expect("a store");
        Queue::new(store, Arc::new(self.clock.clone()), Arc::new(CountingIds::new(9)))
    }

    pub fn now(&self) -> Timestamp {
        use relay::model::Clock as _;
        self.clock.now()
    }

    pub fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// A worker on `desk` with the lanes, the label `gpu` and a login of github.com.
    pub async fn worker(&self, name: &str, lanes: &[&str]) -> Hand {
        let new = new_worker(name, lanes);
        let instance = new.instance.clone();
        let worker = self.queue.register(new).await.expect("a worker").worker;
        Hand { worker, instance }
    }

    /// Asks for a task of `acme/shop` for claude, now.
    pub async fn task(&self, number: u64) -> TaskId {
        self.queue.add(self.wish(number)).await.expect("a task").task().id.clone()
    }

    pub fn wish(&self, number: u64) -> NewTask {
        NewTask {
            slug: "acme/shop".parse().expect("a slug"),
            lane: lane("claude"),
            number: Some(number),
            title: format!("Issue {number}"),
            body: "text".to_owned(),
            asked_by: "ann".to_owned(),
            seen_at: self.now(),
        }
    }

    pub fn claim_id(&self) -> ClaimId {
        use relay::model::Ids as _;
        self.ids.uuid().parse().expect("a claim id")
    }

    pub fn claimant(&self, hand: &Hand) -> Claimant {
        Claimant {
            worker: hand.worker.id.clone(),
            instance: hand.instance.clone(),
            claim_id: self.claim_id(),
            lanes: None,
            labels: None,
            except: Vec::new(),
        }
    }

    pub async fn claim(&self, hand: &Hand) -> Option<Claimed> {
        self.queue.claim(&self.claimant(hand)).await.expect("a claim")
    }

    /// Adds a task, claims and starts it.
    pub async fn running(&self, number: u64, hand: &Hand) -> LeaseRef {
        self.task(number).await;
        let lease = self.claim(hand).await.expect("work").lease.reference();
        self.queue.start(&lease, &hand.worker.id, "relay/claude-1").await.expect("a start");
        lease
    }

    pub async fn finish(
        &self,
        lease: &LeaseRef,
        hand: &Hand,
        reason: StopReason,
    ) -> Result<Task, QueueError> {
        self.queue.finish(lease, &hand.worker.id, RunEnd::bare(reason)).await
    }

    /// The kinds of a task's events, oldest first.
    pub async fn told(&self, id: &TaskId) -> Vec<String> {
        let events = self.queue.events(0, Some(id), 1000).await.expect("events");
        events.iter().map(|e| e.kind.to_string()).collect()
    }
}

/// A worker as its own process knows itself.
pub struct Hand {
    pub worker: Worker,
    pub instance: InstanceId,
}

pub fn new_worker(name: &str, lanes: &[&str]) -> NewWorker {
    use relay::model::Ids as _;
    // Each start has an instance of its own, also where one name starts twice.
    static STARTS: std::sync::LazyLock<CountingIds> =
        std::sync::LazyLock::new(|| CountingIds::new(2));
    NewWorker {
        name: name.parse().expect("a name"),
        instance: STARTS.uuid().parse().expect("an instance"),
        host: "desk".to_owned(),
        lanes: lanes.iter().map(|l| lane(l)).collect(),
        labels: vec![label("gpu")],
        forges: vec!["github.com".to_owned()],
        version: "0.1.0".to_owned(),
    }
}

pub fn github(slug: &str) -> Project {
    Project {
        slug: slug.parse().expect("a slug"),
        forge: ForgeKind::Github,
        host: "github.com".to_owned(),
        remote: format!("https://github.com/{slug}.git"),
        api_base: Some("https://api.github.com".to_owned()),
        default_branch: "main".to_owned(),
        linked_at: Timestamp(1),
    }
}

pub fn local(slug: &str, host: &str) -> Project {
    Project {
        slug: slug.parse().expect("a slug"),
        forge: ForgeKind::Local,
        host: host.to_owned(),
        remote: "/srv/scratch".to_owned(),
        api_base: None,
        default_branch: "master".to_owned(),
        linked_at: Timestamp(2),
    }
}

pub fn lane(text: &str) -> LaneName {
    text.parse().expect("a lane")
}

pub fn label(text: &str) -> Label {
    text.parse().expect("a label")
}

pub fn ann() -> Actor {
    Actor::user("ann")
}

pub fn committed(commit: &str) -> Effect {
    Effect::Committed {
        commit: commit.to_owned(),
        base: "base".to_owned(),
        summary: Some("did it".to_owned()),
        usage: None,
    }
}

pub fn pushed(commit: &str) -> Effect {
    Effect::Pushed { commit: commit.to_owned(), branch: "relay/claude-1".to_owned() }
}

/// Asserts that the answer is a lost lease.
pub fn assert_lost<T: std::fmt::Debug>(answer: Result<T, QueueError>) {
    assert!(matches!(answer, Err(QueueError::LeaseLost(_))), "not a lost lease: {answer:?}");
}

/// A pull request of a local repository's first task.
pub fn pull() -> LocalPullRow {
    LocalPullRow {
        number: 1,
        title: "claude: Issue 1".to_owned(),
        body: "Closes #1".to_owned(),
        branch: "relay/claude-1".to_owned(),
        base: "main".to_owned(),
        head: "abc".to_owned(),
        diff: "+1".to_owned(),
        comment: Some("said".to_owned()),
    }
}
