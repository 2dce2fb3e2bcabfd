//! The push fence: whichever way an old claim and its successor interleave, the successor's work
//! is what stands in the end, and after it has claimed nothing of the old one lands.

use relay::git::{Commit, Fence, FenceClaim, Fenced, Git, Mirror, Pushed, Remote};
use relay::model::{Epoch, Timestamp};

use super::{AT, B, Bench, F, agent, name, push, work};
use crate::support::git_http::GitHttp;
use crate::support::repo::git;

/// Two workers on two machines: the one whose lease is gone, and the one that claimed after it.
struct Two {
    bench: Bench,
    host: GitHttp,
    zombie: Worker,
    owner: Worker,
}

struct Worker {
    mirror: Mirror,
    remote: Remote,
    commit: Commit,
    epoch: i64,
}

impl Worker {
    async fn new(bench: &Bench, git: &Git, host: &GitHttp, who: &str, epoch: i64) -> Self {
        host.allow(who, who);
        let remote = host.remote("shop", Some(who));
        let mirror = git.mirror(&name(), &remote, "main").await.unwrap();
        let commit = work(bench, &mirror, who).await;
        Self { mirror, remote, commit, epoch }
    }

    async fn push(&self) -> Pushed {
        push(&self.mirror, &self.remote, &self.commit, self.epoch).await
    }

    async fn fence(&self) -> FenceClaim {
        let (identity, at) = (agent(), Timestamp(AT.0 + self.epoch));
        let (remote, epoch) = (&self.remote, Epoch(self.epoch));
        let fence = Fence { remote, name: "claude-1", epoch, identity: &identity, at };
        self.mirror.fence(&fence).await.unwrap()
    }
}

impl Two {
    async fn new() -> Self {
        let bench = Bench::new(&[("a.txt", "x")]);
        let host = GitHttp::serve(bench.root.path()).await;
        let zombie = Worker::new(&bench, &bench.git, &host, "zombie", 1).await;
        let owner = Worker::new(&bench, &bench.other_machine(), &host, "owner", 2).await;
        Self { bench, host, zombie, owner }
    }

    fn branch(&self) -> Option<String> {
        self.bench.origin.at(B)
    }

    fn assert_owner_stands(&self) {
        assert_eq!(self.branch().as_deref(), Some(self.owner.commit.as_str()));
        let marker = git(&self.bench.origin.bare, &["show", "-s", "--format=%B|%P", F]);
        assert!(marker.contains("epoch: 2\n") && marker.ends_with('|'), "{marker}");
        assert!(marker.contains(&format!("pushed: {}\n", self.owner.commit)), "{marker}");
    }
}

fn done(worker: &Worker) -> Pushed {
    Pushed::Done { commit: worker.commit.clone(), fenced: Fenced::HiddenRef }
}

const STALE: Pushed = Pushed::Stale { epoch: Some(Epoch(2)) };

/// Where the zombie stands still: before it reads the refs its push is leased on, and after, when
/// only the server can still tell.
const STANDS: [&str; 2] = ["info/refs?service=git-receive-pack", "POST /shop.git/git-receive-pack"];

#[tokio::test]
async fn the_zombie_looked_first_and_the_owner_claims_first() {
    for stand in STANDS {
        let two = Two::new().await;
        let mut held = two.host.hold("zombie", stand);
        let (zombie, ()) = tokio::join!(two.zombie.push(), async {
            held.arrived().await;
            assert_eq!(two.owner.fence().await, FenceClaim::Held);
            held.release();
        });
        assert_eq!(zombie, STALE, "{stand}");
        assert_eq!(two.branch(), None, "nothing of the zombie landed");
        assert_eq!(two.owner.push().await, done(&two.owner));
        two.assert_owner_stands();
        assert_eq!(two.zombie.push().await, STALE);
        two.assert_owner_stands();
    }
}

#[tokio::test]
async fn the_zombie_looked_first_and_the_owner_pushes_first() {
    for stand in STANDS {
        let two = Two::new().await;
        let mut held = two.host.hold("zombie", stand);
        let (zombie, ()) = tokio::join!(two.zombie.push(), async {
            held.arrived().await;
            assert_eq!(two.owner.push().await, done(&two.owner));
            held.release();
        });
        assert_eq!(zombie, STALE, "{stand}");
        two.assert_owner_stands();
    }
}

#[tokio::test]
async fn the_owner_looked_first_and_the_zombie_lands_first() {
    for stand in STANDS {
        let two = Two::new().await;
        let mut held = two.host.hold("owner", stand);
        let (owner, ()) = tokio::join!(two.owner.push(), async {
            held.arrived().await;
            assert_eq!(two.zombie.push().await, done(&two.zombie));
            assert_eq!(two.branch().as_deref(), Some(two.zombie.commit.as_str()));
            held.release();
        });
        // The zombie's push is relay's own: it is replaced, not taken for a person's.
        assert_eq!(owner, done(&two.owner), "{stand}");
        two.assert_owner_stands();
    }
}

#[tokio::test]
async fn the_zombie_lands_between_the_owner_s_claim_and_push() {
    // The owner claimed with the zombie's work already on the branch.
    let two = Two::new().await;
    assert_eq!(two.zombie.push().await, done(&two.zombie));
    assert_eq!(two.owner.fence().await, FenceClaim::Held);
    assert_eq!(two.zombie.push().await, STALE, "also what it pushed before is not its any more");
    assert_eq!(two.zombie.fence().await, FenceClaim::Held, "a first claim has no fence");
    assert_eq!(two.owner.push().await, done(&two.owner));
    two.assert_owner_stands();
}

#[tokio::test]
async fn a_claim_that_is_not_the_newest_is_told_so() {
    let mut two = Two::new().await;
    two.owner.epoch = 3;
    two.zombie.epoch = 2;
    assert_eq!(two.owner.fence().await, FenceClaim::Held);
    assert_eq!(two.owner.fence().await, FenceClaim::Held);
    let fence = two.bench.origin.at(F);
    assert_eq!(two.zombie.fence().await, FenceClaim::Stale);
    assert_eq!(two.zombie.push().await, Pushed::Stale { epoch: Some(Epoch(3)) });
    assert_eq!((two.bench.origin.at(F), two.branch()), (fence, None));
    git(&two.bench.origin.bare, &["update-ref", "-d", F]);
    git(&two.bench.origin.bare, &["config", "receive.hideRefs", "refs/relay"]);
    assert_eq!(two.owner.fence().await, FenceClaim::Unsupported);
}

/// A person pushes while relay is about to: their commit stays.
#[tokio::test]
async fn a_person_pushes_between_relay_s_look_and_its_push() {
    for stand in STANDS {
        let two = Two::new().await;
        assert_eq!(two.zombie.push().await, done(&two.zombie));
        assert_eq!(two.owner.fence().await, FenceClaim::Held);
        let mut held = two.host.hold("owner", stand);
        let person = &two.bench.origin.person;
        let (owner, theirs) = tokio::join!(two.owner.push(), async {
            held.arrived().await;
            git(person, &["fetch", "-q", "origin", B]);
            git(person, &["checkout", "-q", "FETCH_HEAD"]);
            let theirs = two.bench.origin.commit("relay/claude-1", &[("mine.txt", "x")]);
            held.release();
            theirs
        });
        assert!(
            matches!(&owner, Pushed::Refused { why: relay::model::PushProblem::BranchMoved, .. }),
            "{stand}: {owner:?}"
        );
        assert_eq!(two.branch(), Some(theirs));
    }
}

/// The answer to a push is lost on its way: the next look tells that it landed.
#[tokio::test]
async fn a_push_whose_answer_is_lost_is_not_pushed_twice() {
    let two = Two::new().await;
    two.host.lose_answer("zombie", "POST /shop.git/git-receive-pack");
    assert_eq!(two.zombie.push().await, done(&two.zombie));
    let pushes = two
        .host
        .asked()
        .iter()
        .filter(|a| a.line.starts_with("POST") && a.line.contains("receive-pack"))
        .count();
    assert_eq!(pushes, 1);
}

/// A host whose hook refuses the hidden ref, so that each push goes twice: with the ref, then with
/// a trailer and without.
fn refuse_hidden_refs(two: &Two) {
    use std::os::unix::fs::PermissionsExt as _;
    let hook = two.bench.origin.bare.join("hooks/update");
    std::fs::write(&hook, "#!/bin/sh\ncase $1 in refs/relay/*) exit 1;; esac\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Does something while the push that carries the trailer is on its way.
async fn on_its_way<T>(
    two: &Two,
    who: &Worker,
    user: &str,
    happens: impl Future<Output = T>,
) -> (Pushed, T) {
    const POST: &str = "POST /shop.git/git-receive-pack";
    let mut with_the_ref = two.host.hold(user, POST);
    tokio::join!(who.push(), async {
        with_the_ref.arrived().await;
        let mut with_trailer = two.host.hold(user, POST);
        with_the_ref.release();
        with_trailer.arrived().await;
        let happened = happens.await;
        with_trailer.release();
        happened
    })
}

fn has_trailer(pushed: &Pushed) -> bool {
    matches!(pushed, Pushed::Done { fenced: Fenced::Trailer, .. })
}

#[tokio::test]
async fn without_the_hidden_ref_the_owner_s_push_shuts_the_zombie_out() {
    let two = Two::new().await;
    refuse_hidden_refs(&two);
    let (zombie, owner) = on_its_way(&two, &two.zombie, "zombie", two.owner.push()).await;
    assert!(has_trailer(&owner), "{owner:?}");
    assert_eq!(zombie, STALE);
    let Pushed::Done { commit, .. } = owner else { unreachable!() };
    assert_eq!(two.branch().as_deref(), Some(commit.as_str()));
}

#[tokio::test]
async fn without_the_hidden_ref_a_zombie_that_lands_first_is_replaced() {
    let two = Two::new().await;
    refuse_hidden_refs(&two);
    assert_eq!(two.owner.fence().await, FenceClaim::Unsupported);
    let mut with_trailer = two.host.hold("owner", "POST /shop.git/git-receive-pack");
    let (owner, zombie) = tokio::join!(two.owner.push(), async {
        with_trailer.arrived().await;
        let zombie = two.zombie.push().await;
        with_trailer.release();
        zombie
    });
    assert!(has_trailer(&zombie) && has_trailer(&owner), "{zombie:?} {owner:?}");
    let Pushed::Done { commit, .. } = owner else { unreachable!() };
    assert_eq!(two.branch().as_deref(), Some(commit.as_str()));
    assert_eq!(two.zombie.push().await, STALE);
}

#[tokio::test]
async fn without_the_hidden_ref_a_person_s_commit_stays_as_well() {
    let two = Two::new().await;
    refuse_hidden_refs(&two);
    let (zombie, theirs) = on_its_way(&two, &two.zombie, "zombie", async {
        two.bench.origin.commit("relay/claude-1", &[("mine.txt", "x")])
    })
    .await;
    assert!(
        matches!(&zombie, Pushed::Refused { why: relay::model::PushProblem::BranchMoved, .. }),
        "{zombie:?}"
    );
    assert_eq!(two.branch(), Some(theirs));
}

/// A later claim moves the hidden ref, then both: either answer may be lost, or both.
#[tokio::test]
async fn a_later_claim_s_lost_answers_are_found_to_have_landed() {
    let two = Two::new().await;
    assert_eq!(two.zombie.push().await, done(&two.zombie));
    for _ in 0..2 {
        two.host.lose_answer("owner", "POST /shop.git/git-receive-pack");
    }
    assert_eq!(two.owner.push().await, done(&two.owner));
    two.assert_owner_stands();
    let asked = two.host.asked();
    let lost = asked.iter().filter(|a| a.line.starts_with("POST") && a.status == 502).count();
    assert_eq!(lost, 2);
}
