//! The intake between a GitHub with memory and a real queue: people do things there, relay looks.

mod asks;
mod ends;
mod pace;
mod tricks;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use relay::forge::github::{Accounts, Source};
use relay::intake::{Intake, IntakeConfig, Reconciled};
use relay::model::{
    ForgeKind, Ids, LeaseRef, Project, Secret, StopReason, Task, TaskState, Timestamp, WorkerId,
};
use relay::queue::{Claimant, NewTask, NewWorker, Queue, RunEnd, Store};

use crate::support::clock::{CountingIds, ManualClock};
use crate::support::fake_github::{FakeGitHub, FakeRepo};

/// acme/shop on GitHub, linked by an owner who is logged in as relay-bot. mona may write, the
/// stranger may not.
struct Bench {
    hub: FakeGitHub,
    shop: FakeRepo,
    queue: Queue,
    intake: Intake,
    clock: ManualClock,
    ids: Arc<CountingIds>,
    project: Project,
    _dir: tempfile::TempDir,
}

/// A claimed task.
struct Running {
    lease: LeaseRef,
    worker: WorkerId,
}

impl Bench {
    async fn start() -> Self {
        Self::with_senders(&[]).await
    }

    async fn with_senders(senders: &[&str]) -> Self {
        let clock = ManualClock::default();
        let hub = FakeGitHub::start(&clock).await;
        hub.person("relay-bot");
        let shop = hub.repo("acme/shop");
        shop.may("relay-bot", "write");
        shop.may("mona", "write");
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/relay.db", dir.path().display());
        let ids = Arc::new(CountingIds::new(3));
        let store = Store::open(&url).await.unwrap();
        let queue = Queue::new(store, Arc::new(clock.clone()), ids.clone());
        let project = Project {
            slug: shop.name(),
            forge: ForgeKind::Github,
            host: "github.com".to_owned(),
            remote: "https://github.com/acme/shop.git".to_owned(),
            api_base: Some(hub.base.clone()),
            default_branch: "main".to_owned(),
            linked_at: Timestamp(1),
        };
        queue.link(project.clone()).await.unwrap();
        let config = IntakeConfig {
            queue: queue.clone(),
            accounts: Arc::new(Accounts::new(Arc::new(Bot), Arc::new(clock.clone()))),
            clock: Arc::new(clock.clone()),
            host: "desk".to_owned(),
            allowed_senders: senders.iter().map(|login| (*login).to_owned()).collect(),
        };
        let intake = Intake::new(config);
        Self { hub, shop, queue, intake, clock, ids, project, _dir: dir }
    }

    fn later(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// One look that meets no problem.
    async fn look(&self) -> Reconciled {
        let looked = self.intake.reconcile(&self.project).await;
        assert!(looked.problem.is_none(), "{looked:?}");
        looked
    }

    async fn task(&self, id: &str) -> Task {
        self.queue.task(&id.parse().unwrap()).await.unwrap()
    }

    async fn state(&self, id: &str) -> TaskState {
        self.task(id).await.state
    }

    /// A person makes a task of an issue with `relay task create`.
    async fn make_by_hand(&self, number: u64) {
        use relay::model::Clock as _;
        let wish = NewTask {
            slug: self.shop.name(),
            lane: "claude".parse().unwrap(),
            number: Some(number),
            title: "By hand".to_owned(),
            body: String::new(),
            asked_by: "local".to_owned(),
            seen_at: self.clock.now(),
        };
        self.queue.add(wish).await.unwrap();
    }

    /// A worker takes the oldest task and starts.
    async fn run(&self, lanes: &[&str]) -> Running {
        let instance: relay::model::InstanceId = self.ids.uuid().parse().unwrap();
        let worker = NewWorker {
            name: "desk".parse().unwrap(),
            instance: instance.clone(),
            host: "desk".to_owned(),
            lanes: lanes.iter().map(|lane| lane.parse().unwrap()).collect(),
            labels: Vec::new(),
            forges: vec!["github.com".to_owned()],
            version: "0.1.0".to_owned(),
        };
        let worker = self.queue.register(worker).await.unwrap().worker.id;
        let claimant = Claimant {
            worker: worker.clone(),
            instance,
            claim_id: self.ids.uuid().parse().unwrap(),
            lanes: None,
            labels: None,
            except: Vec::new(),
        };
        let claimed = self.queue.claim(&claimant).await.unwrap().expect("work");
        let lease = claimed.lease.reference();
        self.queue.start(&lease, &worker, &claimed.branch).await.unwrap();
        Running { lease, worker }
    }

    async fn end(&self, run: &Running, reason: StopReason, pr: Option<u64>) {
        let end = RunEnd { pr, ..RunEnd::bare(reason) };
        self.queue.finish(&run.lease, &run.worker, end).await.unwrap();
    }

    /// A labelled issue, and the pull request that a run of it opened.
    async fn in_review(&self) -> (u64, u64) {
        let issue = self.shop.issue("mona", "Add a total", "Please.");
        self.shop.label(issue, "agent:claude", "mona");
        self.look().await;
        self.later(60);
        let run = self.run(&["claude"]).await;
        let pull =
            self.shop.pull("relay-bot", "claude: Add a total", &format!("relay/claude-{issue}"));
        self.end(&run, StopReason::Finished, Some(pull)).await;
        self.later(60);
        (issue, pull)
    }
}

fn ids(tasks: &[Task]) -> Vec<String> {
    tasks.iter().map(|task| task.id.to_string()).collect()
}

/// Logged in as relay-bot, everywhere.
#[derive(Debug)]
struct Bot;

#[async_trait]
impl Source for Bot {
    async fn token(&self, _host: &str) -> Option<Secret> {
        Some(Secret::new("token-of-relay-bot"))
    }
}
