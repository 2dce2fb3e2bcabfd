//! What lands on the remote, and what the remote's refusals are called.

use std::os::unix::fs::PermissionsExt as _;

use relay::git::{Commit, Fenced, Pushed, Remote};
use relay::model::PushProblem;

use super::{B, Bench, F, push, work};
use crate::support::git_http::GitHttp;
use crate::support::repo::git;

fn done(commit: &Commit) -> Pushed {
    Pushed::Done { commit: commit.clone(), fenced: Fenced::HiddenRef }
}

fn why(pushed: &Pushed) -> (PushProblem, &str) {
    match pushed {
        Pushed::Refused { why, text } => (*why, text),
        other => panic!("not refused: {other:?}"),
    }
}

fn hook(bench: &Bench, name: &str, script: &str) {
    let path = bench.origin.bare.join("hooks").join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_push_lands_once_and_a_later_claim_replaces_it() {
    let bench = Bench::new(&[("a.txt", "x")]);
    let mirror = bench.mirror().await;
    let (one, two) = (work(&bench, &mirror, "one").await, work(&bench, &mirror, "two").await);
    let remote = bench.local();
    assert_eq!(push(&mirror, &remote, &one, 1).await, done(&one));
    assert_eq!(bench.origin.at(B).as_deref(), Some(one.as_str()));
    let fence = bench.origin.at(F);
    // Asked again, as after a crash: nothing moves.
    assert_eq!(push(&mirror, &remote, &one, 1).await, done(&one));
    assert_eq!(bench.origin.at(F), fence);

    assert_eq!(push(&mirror, &remote, &two, 2).await, done(&two));
    assert_eq!(bench.origin.at(B).as_deref(), Some(two.as_str()));
    assert_ne!(bench.origin.at(F), fence);
    // A branch that a person deleted comes back.
    git(&bench.origin.bare, &["update-ref", "-d", B]);
    assert_eq!(push(&mirror, &remote, &two, 2).await, done(&two));
    assert_eq!(bench.origin.at(B).as_deref(), Some(two.as_str()));
    // Another machine's worker knows all this from the remote alone.
    let other = bench.other_machine().mirror(&super::name(), &remote, "main").await.unwrap();
    let three = work(&bench, &other, "three").await;
    assert_eq!(push(&other, &remote, &three, 3).await, done(&three));
}

/// A worker was killed while it pushed: nobody else would ever take the lock away.
#[tokio::test]
async fn the_lock_of_a_killed_push_is_let_go_and_that_of_a_living_one_is_not() {
    let bench = Bench::new(&[("a.txt", "x")]);
    let mirror = bench.mirror().await;
    let one = work(&bench, &mirror, "one").await;
    let remote = bench.local();
    let pushed_at = std::time::UNIX_EPOCH
        + std::time::Duration::from_millis(u64::try_from(super::AT.0).unwrap() + 1000);
    let locked = |name: &str, seconds: u64| {
        let lock = bench.origin.bare.join(format!("{name}.lock"));
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        let file = std::fs::File::create(&lock).unwrap();
        file.set_modified(pushed_at - std::time::Duration::from_secs(seconds)).unwrap();
        lock
    };
    for name in [B, F] {
        let lock = locked(name, 59);
        let refused = push(&mirror, &remote, &one, 1).await;
        assert!(why(&refused).1.contains("cannot lock ref"), "{refused:?}");
        assert!(lock.exists(), "somebody may be at work");
        std::fs::remove_file(lock).unwrap();
    }
    let others = locked("refs/heads/main", 3600);
    locked(B, 61);
    locked(F, 61);
    assert_eq!(push(&mirror, &remote, &one, 1).await, done(&one));
    assert!(others.exists(), "no lock of a ref that is not relay's");
}

#[tokio::test]
async fn a_person_s_commits_on_the_branch_are_never_overwritten() {
    let bench = Bench::new(&[("a.txt", "x")]);
    let mirror = bench.mirror().await;
    let (one, two) = (work(&bench, &mirror, "one").await, work(&bench, &mirror, "two").await);
    let remote = bench.local();
    push(&mirror, &remote, &one, 1).await;
    git(&bench.origin.person, &["fetch", "-q", "origin", B]);
    git(&bench.origin.person, &["checkout", "-q", "FETCH_HEAD"]);
    let theirs = bench.origin.commit("relay/claude-1", &[("fix.txt", "by hand")]);
    for epoch in [1, 2] {
        let pushed = push(&mirror, &remote, &two, epoch).await;
        let (why, text) = why(&pushed);
        assert_eq!(why, PushProblem::BranchMoved);
        assert!(text.contains(&theirs) && text.contains("relay/claude-1"), "{text}");
        assert_eq!(bench.origin.at(B), Some(theirs.clone()));
    }
}

#[tokio::test]
async fn a_branch_relay_never_pushed_is_a_person_s() {
    let bench = Bench::new(&[("a.txt", "x")]);
    let mirror = bench.mirror().await;
    let one = work(&bench, &mirror, "one").await;
    // At the commit the work stands on, nothing would be lost.
    git(&bench.origin.bare, &["update-ref", B, "refs/heads/main"]);
    assert_eq!(push(&mirror, &bench.local(), &one, 1).await, done(&one));

    let bench = Bench::new(&[("a.txt", "x")]);
    let mirror = bench.mirror().await;
    let one = work(&bench, &mirror, "one").await;
    let theirs = bench.origin.commit("relay/claude-1", &[("mine.txt", "x")]);
    let pushed = push(&mirror, &bench.local(), &one, 1).await;
    assert_eq!(why(&pushed).0, PushProblem::BranchMoved);
    assert_eq!((bench.origin.at(B), bench.origin.at(F)), (Some(theirs), None));
}

#[tokio::test]
async fn a_host_s_refusal_is_named_and_nothing_lands() {
    let refusals = [
        ("echo 'error: GH006: Protected branch update failed' >&2; exit 1", PushProblem::Protected),
        ("echo 'error: GH013: Repository rule violations found' >&2; exit 1", PushProblem::Ruleset),
        ("echo 'error: GH001: Large files detected.' >&2; exit 1", PushProblem::FileTooLarge),
        (
            "echo 'refusing to allow an OAuth App to create or update workflow without `workflow` scope' >&2; exit 1",
            PushProblem::Workflow,
        ),
    ];
    let bench = Bench::new(&[("a.txt", "x")]);
    let mirror = bench.mirror().await;
    let one = work(&bench, &mirror, "one").await;
    for (script, expected) in refusals {
        hook(&bench, "pre-receive", script);
        let pushed = push(&mirror, &bench.local(), &one, 1).await;
        let (why, text) = why(&pushed);
        assert_eq!(why, expected, "{text}");
        assert!(text.contains("hook declined"), "{text}");
        assert_eq!((bench.origin.at(B), bench.origin.at(F)), (None, None));
    }
    std::fs::remove_file(bench.origin.bare.join("hooks/pre-receive")).unwrap();
    hook(&bench, "update", "case $1 in refs/heads/*) exit 1;; esac");
    assert_eq!(why(&push(&mirror, &bench.local(), &one, 1).await).0, PushProblem::Declined);
    assert_eq!((bench.origin.at(B), bench.origin.at(F)), (None, None));
    std::fs::remove_file(bench.origin.bare.join("hooks/update")).unwrap();
    // A branch `relay` leaves no room for `relay/…`.
    git(&bench.origin.bare, &["update-ref", "refs/heads/relay", "refs/heads/main"]);
    let pushed = push(&mirror, &bench.local(), &one, 1).await;
    let (why, text) = why(&pushed);
    assert_eq!(why, PushProblem::Other);
    assert!(text.contains("refs/heads/relay"), "{text}");
}

#[tokio::test]
async fn a_login_without_the_right_and_a_host_that_is_gone() {
    let bench = Bench::new(&[("a.txt", "x")]);
    let host = GitHttp::serve(bench.root.path()).await;
    host.allow("right", "owner");
    let mirror = bench.mirror().await;
    let one = work(&bench, &mirror, "one").await;
    let wrong = push(&mirror, &host.remote("shop", Some("wrong")), &one, 1).await;
    assert_eq!(why(&wrong).0, PushProblem::NoPermission);
    git(&bench.origin.bare, &["config", "http.receivepack", "false"]);
    let read_only = push(&mirror, &host.remote("shop", Some("right")), &one, 1).await;
    assert_eq!(why(&read_only).0, PushProblem::NoPermission);
    let gone = push(&mirror, &host.remote("nothing", Some("right")), &one, 1).await;
    assert_eq!(why(&gone).0, PushProblem::NotFound);

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let nobody = Remote { url: format!("http://127.0.0.1:{port}/shop.git"), token: None };
    assert_eq!(why(&push(&mirror, &nobody, &one, 1).await).0, PushProblem::Unreachable);
    assert_eq!((bench.origin.at(B), bench.origin.at(F)), (None, None));
}

/// Ways in which a host may refuse the hidden ref.
#[tokio::test]
async fn where_the_hidden_ref_is_refused_a_trailer_stands_in() {
    type Refuse = fn(&Bench);
    let ways: [Refuse; 4] = [
        |bench| drop(git(&bench.origin.bare, &["config", "receive.hideRefs", "refs/relay"])),
        |bench| hook(bench, "update", "case $1 in refs/relay/*) exit 1;; esac"),
        // One word for the whole push: which ref was meant shows when it is sent without the other.
        |bench| {
            let script = "while read -r _ _ ref; do case $ref in refs/relay/*) exit 1;; esac; done";
            hook(bench, "pre-receive", script);
        },
        |bench| drop(git(&bench.origin.bare, &["config", "receive.advertiseAtomic", "false"])),
    ];
    for refuse in ways {
        let bench = Bench::new(&[("a.txt", "x")]);
        refuse(&bench);
        let mirror = bench.mirror().await;
        let (one, two) = (work(&bench, &mirror, "one").await, work(&bench, &mirror, "two").await);
        let remote = bench.local();
        let trailer =
            async |commit: &Commit, epoch: i64| match push(&mirror, &remote, commit, epoch).await {
                Pushed::Done { commit, fenced: Fenced::Trailer } => commit,
                other => panic!("no trailer: {other:?}"),
            };
        let first = trailer(&one, 1).await;
        assert_eq!(bench.origin.at(B).as_deref(), Some(first.as_str()));
        assert_eq!(bench.origin.at(F), None);
        let show = |commit: &Commit| {
            git(&bench.origin.bare, &["show", "-s", "--format=%B|%T|%an", commit.as_str()])
        };
        assert!(show(&first).starts_with("the work\n\nRelay-Epoch: 1\n"), "{}", show(&first));
        assert_eq!(trailer(&one, 1).await, first, "the same push is the same commit");
        // A later claim replaces it, and the older one then stops.
        let second = trailer(&two, 2).await;
        assert_eq!(bench.origin.at(B).as_deref(), Some(second.as_str()));
        let zombie = push(&mirror, &remote, &one, 1).await;
        assert!(matches!(zombie, Pushed::Stale { .. }), "{zombie:?}");
        // A person who amends it makes it theirs.
        git(&bench.origin.person, &["fetch", "-q", "origin", B]);
        git(&bench.origin.person, &["checkout", "-q", "-B", "relay/claude-1", "FETCH_HEAD"]);
        git(&bench.origin.person, &["commit", "-q", "--amend", "--no-edit", "--allow-empty"]);
        git(&bench.origin.person, &["push", "-q", "-f", "origin", "relay/claude-1"]);
        let pushed = push(&mirror, &remote, &two, 3).await;
        assert_eq!(why(&pushed).0, PushProblem::BranchMoved);
    }
}
