//! The network between one worker and the site is cut for longer than a lease, on a site whose clock
//! is years off: another worker takes the task, and nothing of the first one lands.

use std::path::Path;

use relay::api::LinkProject;
use relay::model::{ForgeKind, LEASE, TaskState};
use relay::site::owner::Owner;
use relay::work::linked::Linked;

use crate::site::fixture::Home;
use crate::support::PATIENCE;
use crate::support::house::{House, Working};
use crate::support::proxy::{Fate, Proxy};

const LANE: &str = "process:edit";

/// The real program as a worker with a home of its own, that comes through `proxy`.
fn worker(house: &House, proxy: &Proxy, name: &str) -> Working {
    let home = house.dir.path().join(name);
    std::fs::create_dir_all(&home).unwrap();
    std::os::unix::fs::symlink(house.home.join("lanes"), home.join("lanes")).unwrap();
    Linked::of(&home).add(house.repo.to_str().unwrap()).unwrap();
    let log = house.dir.path().join(format!("{name}.log"));
    let file = std::fs::File::create(&log).unwrap();
    let mut command = house.command(&["work", "--name", name, "--lanes", LANE]);
    command.env("RELAY_HOME", &home).env("RELAY_SITE", proxy.url());
    let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    Working { child, log }
}

fn proxy(owner: &Owner) -> Proxy {
    Proxy::of_socket(owner.socket())
}

/// Waits for what a real process does, while this runtime serves it.
async fn until(worker: &Working, what: &'static str, done: impl Fn() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 10 {
        if done() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{what} did not come:\n{}", worker.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cut_off_for_longer_than_its_lease_lands_nothing() {
    let home = Home::open().await;
    let house = House::new();
    let (begun, go) = (house.dir.path().join("begun"), house.dir.path().join("go"));
    let body = format!(
        "case \"$line\" in *'\"attempt\":1,'*|*'\"attempt\":1}}'*) touch {}; \
         while [ ! -e {} ]; do sleep 0.02; done; echo first >> README.md;; \
         *) echo second >> README.md;; esac",
        begun.display(),
        go.display()
    );
    house.process_lane("edit", &body, r#"{"reply":"Done."}"#);
    let request = LinkProject {
        forge: ForgeKind::Local,
        slug: "local/shop".parse().unwrap(),
        path: Some(house.repo.display().to_string()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let project = home.client.link(&request).await.unwrap();
    let task = home.add(&project, LANE).await;
    let (to_a, to_b) = (proxy(&home.owner), proxy(&home.owner));
    let a = worker(&house, &to_a, "a");
    until(&a, "the first lane", || begun.exists()).await;

    to_a.all(Fate::Silent);
    to_a.drop_silently();
    home.pass(LEASE + std::time::Duration::from_secs(1)).await;
    let b = worker(&house, &to_b, "b");
    until(&b, "the second run", || b.said().contains("the task is review")).await;
    let tip = |repo: &Path| {
        let branch = format!("relay/process-edit-{}", task.id.number);
        house.git(&["-C", repo.to_str().unwrap(), "rev-parse", &branch])
    };
    let landed = tip(&house.repo);

    std::fs::write(&go, "").unwrap();
    until(&a, "the first commit", || a.said().contains("commit")).await;
    to_a.all(Fate::Pass);
    to_a.cut();
    until(&a, "the first one's end", || a.said().contains("lease_lost")).await;
    assert_eq!(tip(&house.repo), landed);
    let branch = format!("relay/process-edit-{}:README.md", task.id.number);
    assert_eq!(house.in_repo(&["show", &branch]), "# shop\nsecond");
    let detail = home.client.task(&task.id).await.unwrap();
    assert_eq!((detail.task.state, detail.task.epoch.0), (TaskState::Review, 2));
    let kept = house.dir.path().join("a/results/worker-a");
    until(&a, "an empty outbox", || std::fs::read_dir(&kept).map_or(0, Iterator::count) == 0).await;
    drop((a, b));
    home.owner.close().await;
}
