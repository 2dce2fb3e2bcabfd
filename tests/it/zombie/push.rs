//! The worker is held right before its push or right after it, on a host that takes the hidden ref
//! and on one that refuses it.

use rustix::process::Signal;

use super::stage::{LANE, Stage, assert_second_finished, held, wake, work};
use crate::support::house::{House, Working};
use crate::support::repo::git;
use crate::support::shop::Shop;

/// A shop, and two machines that work for it.
struct Play {
    shop: Shop,
    stage: Stage,
    one: House,
    two: House,
    task: String,
}

impl Play {
    async fn open(takes_the_hidden_ref: bool) -> Self {
        let shop = Shop::open().await;
        if !takes_the_hidden_ref {
            git(&shop.origin.bare, &["config", "receive.hideRefs", "refs/relay"]);
        }
        let stage = Stage::open(&shop.hub.base).await;
        let machine = |name: &str| {
            let mut house = stage.machine(&format!("echo {name} >> README.md"));
            house.set("RELAY_GITHUB_API", &shop.hub.base).set("RELAY_GITHUB_TOKEN", "token-of-bot");
            house
        };
        let (one, two) = (machine("one"), machine("two"));
        assert_eq!(one.relay(&["link", "acme/shop"]).ok(), "acme/shop");
        let issue = shop.issue.to_string();
        let made = ["task", "create", "--repo", "acme/shop", "--lane", LANE, "--issue", &issue];
        let task = one.relay(&made).ok();
        Self { shop, stage, one, two, task }
    }

    /// The first worker, held at a point while its lease runs out.
    async fn zombie(&self, point: &str) -> Working {
        let zombie = work(&self.one, "one", &format!("{point}:stop"));
        held(&zombie);
        self.stage.past_the_lease().await;
        zombie
    }

    fn wake(&self, zombie: &Working) {
        wake(zombie);
        zombie.until("the end of its job", || zombie.said().contains("lease_lost"));
    }

    fn in_review(&self, worker: &Working) {
        worker.until("the second worker's result", || self.one.state(&self.task) == "review");
    }

    fn shown(&self) -> String {
        let (_, branch) = self.shop.task();
        git(&self.shop.origin.bare, &["show", &format!("{branch}:README.md")])
    }

    async fn ends_with(self, file: &str, workers: [Working; 2]) {
        self.shop.assert_one_of_each(file);
        assert_second_finished(&self.one, &self.task);
        assert_eq!(self.shown(), file);
        drop(workers);
        self.stage.close().await;
    }
}

async fn held_before_its_push_until_the_second_is_done(takes_the_hidden_ref: bool) {
    let play = Play::open(takes_the_hidden_ref).await;
    let zombie = play.zombie("job.push.before").await;
    let second = work(&play.two, "two", "");
    play.in_review(&second);
    play.wake(&zombie);
    play.ends_with("# shop\ntwo", [zombie, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_held_before_its_push_is_refused_by_the_hidden_ref() {
    held_before_its_push_until_the_second_is_done(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_held_before_its_push_is_refused_where_there_is_no_hidden_ref() {
    held_before_its_push_until_the_second_is_done(false).await;
}

/// The first worker's push is on its way, and arrives when the second one has claimed and stands
/// before its own.
async fn on_its_way_while_the_second_claims(takes_the_hidden_ref: bool) {
    const PUSH: &str = "POST /acme/shop.git/git-receive-pack";
    let play = Play::open(takes_the_hidden_ref).await;
    let mut push = play.shop.host.hold("bot", PUSH);
    let zombie = work(&play.one, "one", "");
    push.arrived().await;
    zombie.signal(Signal::STOP);
    held(&zombie);
    play.stage.past_the_lease().await;
    let second = work(&play.two, "two", "job.push.before:stop");
    held(&second);
    let pushes = || play.shop.host.asked().iter().filter(|ask| ask.line == PUSH).count();
    let before = pushes();
    push.release();
    zombie.until("the late push", || pushes() > before);
    let landed = play.shop.origin.at(&format!("refs/heads/{}", play.shop.task().1)).is_some();
    // Without the hidden ref nothing is between the two: it lands, and is replaced.
    assert_eq!(landed, !takes_the_hidden_ref);
    play.wake(&zombie);
    assert_eq!(play.shop.repo.pulls(), []);
    wake(&second);
    play.in_review(&second);
    play.ends_with("# shop\ntwo", [zombie, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_on_its_way_while_another_claims_is_refused_by_the_hidden_ref() {
    on_its_way_while_the_second_claims(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_on_its_way_while_another_claims_is_replaced_where_there_is_no_hidden_ref() {
    on_its_way_while_the_second_claims(false).await;
}

/// The push landed, and nobody was told. Where it is found as what was committed, the second worker
/// goes on with it; where the host made it carry a trailer, the second one's lane runs as well.
async fn held_after_its_push(takes_the_hidden_ref: bool, file: &str) {
    let play = Play::open(takes_the_hidden_ref).await;
    let zombie = play.zombie("job.push.after").await;
    assert!(play.shop.origin.at(&format!("refs/heads/{}", play.shop.task().1)).is_some());
    let second = work(&play.two, "two", "");
    play.in_review(&second);
    play.wake(&zombie);
    play.ends_with(file, [zombie, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_pushed_by_a_zombie_that_could_not_record_it_ends_as_one_pull_request() {
    held_after_its_push(true, "# shop\none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_pushed_by_a_zombie_ends_as_one_pull_request_where_there_is_no_hidden_ref() {
    held_after_its_push(false, "# shop\ntwo").await;
}
