//! The owner, its clock, and the machines that work for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use relay::client::VERSION;
use relay::forge::github::{Accounts, Source};
use relay::model::{LEASE, NoFaults, Secret};
use relay::site::forges::KnownForges;
use relay::site::owner::{Access, Owner, OwnerConfig, Role, connect};
use relay::system::SystemIds;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::clock::ManualClock;
use crate::support::house::{House, Working};

pub const LANE: &str = "process:edit";
pub const DONE: &str = r#"{"reply":"Added a line."}"#;

/// An owner in this process, at a socket that real processes reach.
pub struct Stage {
    pub clock: ManualClock,
    owner: Owner,
    _folder: tempfile::TempDir,
}

/// The login of the site, which reads issues with it.
#[derive(Debug)]
struct Bot;

#[async_trait]
impl Source for Bot {
    async fn token(&self, _: &str) -> Option<Secret> {
        Some(Secret::new("token-of-bot"))
    }
}

impl Stage {
    /// `api_base`: where GitHub is, for a test that has one.
    pub async fn open(api_base: &str) -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
        let accounts = Arc::new(Accounts::new(Arc::new(Bot), Arc::new(clock.clone())));
        let config = OwnerConfig {
            home: folder.path().join("home"),
            role: Role::Work,
            database: None,
            many: false,
            listen: None,
            version: VERSION.to_owned(),
            revision: relay::api::REVISION,
            clock: Arc::new(clock.clone()),
            ids: Arc::new(SystemIds),
            faults: Arc::new(NoFaults),
            forges: Arc::new(KnownForges::new(accounts, api_base)),
            watch: None,
        };
        match connect(config).await.unwrap() {
            Access::Own(owner) => Self { clock, owner: *owner, _folder: folder },
            Access::Living(other) => panic!("somebody else owns the new home: {other:?}"),
        }
    }

    /// A machine of its own, with its own RELAY_HOME, whose lane does `body`.
    pub fn machine(&self, body: &str) -> House {
        let mut house = House::new();
        house.process_lane("edit", body, DONE);
        house.set("RELAY_SITE", &format!("unix:{}", self.owner.socket().display()));
        house
    }

    /// Every lease that is live now and not renewed runs out, while the owner is there.
    pub async fn past_the_lease(&self) {
        let minutes = LEASE.as_secs() / 60 + 1;
        for _ in 0..minutes {
            self.clock.advance(Duration::from_secs(60));
            self.owner.site().timers.sweep_if_due().await.unwrap();
        }
    }

    pub async fn close(self) {
        self.owner.close().await;
    }
}

pub fn work(house: &House, name: &str, fault: &str) -> Working {
    let worker = house.work_with_fault(fault, &["--name", name, "--lanes", LANE]);
    worker.until("its registration", || {
        house.relay(&["work", "status"]).out.lines().any(|line| line.starts_with(name))
    });
    worker
}

/// Waits until the process is held.
pub fn held(worker: &Working) {
    let stat = format!("/proc/{}/stat", worker.child.id());
    worker.until("its stop", || {
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
}

pub fn wake(worker: &Working) {
    worker.signal(Signal::CONT);
}

pub fn detail(house: &House, task: &str) -> Value {
    house.json(&["task", "get", task, "--json"])
}

/// The events of a task, with `(kind, epoch)` of each. A lease that was brought back is no claim: the
/// clock jumps here, so a claim that was under way meanwhile is given a lease that has run out, and
/// its worker renews it.
pub fn events(house: &House, task: &str) -> Vec<(String, i64)> {
    let said = house.json(&["events", "--task", task, "--last", "1000", "--json"]);
    let read = |event: &Value| {
        let epoch = event["data"]["epoch"].as_i64().unwrap_or(0);
        let renewed = event["data"]["renewed"] == true;
        let kind = if renewed { "lease.renewed" } else { event["kind"].as_str().unwrap() };
        (kind.to_owned(), epoch)
    };
    said["events"].as_array().unwrap().iter().map(read).collect()
}

/// Epoch 1 ran out, epoch 2 finished, and epoch 1 said nothing after its end.
pub fn assert_second_finished(house: &House, task: &str) {
    let events = events(house, task);
    let end = ("lease.expired".to_owned(), 1);
    let ended = events.iter().position(|event| *event == end).expect("the first lease ran out");
    assert!(events[ended..].iter().skip(1).all(|(_, epoch)| *epoch != 1), "{events:?}");
    let claims: Vec<i64> =
        events.iter().filter(|(kind, _)| kind == "run.claimed").map(|(_, epoch)| *epoch).collect();
    assert_eq!(claims, [1, 2], "{events:?}");
    let detail = detail(house, task);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}");
    assert_eq!(detail["task"]["epoch"], 2);
}
