//! A copy whose lane wrote whatever it liked into it. Each way makes the plain git program run
//! something or read something elsewhere; relay's git does neither, and pushes to the right place.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use relay::git::{Copy, Pushed, Snapshot};
use relay::model::RepoProblem;

use super::{B, Bench, committed, lines, push, snapshot, try_snapshot, write};
use crate::support::PATIENCE;
use crate::support::repo::{git, git_succeeds};

/// A program that leaves a trace when it is run.
struct Canary {
    program: String,
    trace: std::path::PathBuf,
}

impl Canary {
    fn new(bench: &Bench) -> Self {
        let (program, trace) = (bench.root.path().join("canary"), bench.root.path().join("trace"));
        std::fs::write(&program, format!("#!/bin/sh\ntouch '{}'\ncat\n", trace.display())).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { program: program.to_str().unwrap().to_owned(), trace }
    }

    /// Whether it was run since it was last asked.
    fn sang(&self) -> bool {
        std::fs::remove_file(&self.trace).is_ok()
    }
}

fn config(copy: &Copy, key: &str, value: &str) {
    git(copy.dir(), &["config", key, value]);
}

/// What a worker that trusted the copy would run.
fn plain_git(dir: &Path) {
    for args in [&["status"][..], &["add", "-A"], &["commit", "-q", "-m", "x"], &["diff", "HEAD~1"]]
    {
        git_succeeds(dir, args);
    }
}

#[tokio::test]
async fn nothing_in_the_copy_s_own_git_is_run() {
    type Arm = fn(&Copy, &str);
    let ways: [(&str, Arm); 6] = [
        ("hooks", |copy, canary| {
            for hook in ["pre-commit", "post-index-change", "reference-transaction", "pre-push"] {
                let path = copy.dir().join(".git/hooks").join(hook);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(canary, path).unwrap();
            }
        }),
        ("hooksPath", |copy, canary| {
            std::fs::create_dir(copy.dir().join(".git/h")).unwrap();
            std::os::unix::fs::symlink(canary, copy.dir().join(".git/h/pre-commit")).unwrap();
            config(copy, "core.hooksPath", ".git/h");
        }),
        ("fsmonitor", |copy, canary| config(copy, "core.fsmonitor", canary)),
        ("filter", |copy, canary| {
            config(copy, "filter.any.clean", canary);
            config(copy, "filter.any.smudge", canary);
            config(copy, "filter.any.required", "true");
            write(copy.dir(), ".gitattributes", "* filter=any\n");
        }),
        ("info/attributes", |copy, canary| {
            config(copy, "filter.any.clean", canary);
            write(copy.dir(), ".git/info/attributes", "* filter=any\n");
        }),
        ("signing and external diff", |copy, canary| {
            config(copy, "commit.gpgSign", "true");
            config(copy, "gpg.program", canary);
            config(copy, "diff.external", canary);
        }),
    ];
    for (way, arm) in ways {
        let bench = Bench::new(&[("a.txt", "one")]);
        let canary = Canary::new(&bench);
        let (mirror, copy) = bench.copy().await;
        write(copy.dir(), "a.txt", "two");
        arm(&copy, &canary.program);
        canary.sang();
        let commit = committed(&mirror, &copy).await;
        let pushed = push(&mirror, &bench.local(), &commit, 2).await;
        assert!(matches!(pushed, Pushed::Done { .. }), "{way}: {pushed:?}");
        assert!(!canary.sang(), "{way} was run");
        plain_git(copy.dir());
        assert!(canary.sang(), "{way} is no attack on plain git: the test shows nothing");
    }
}

#[tokio::test]
async fn the_push_goes_where_it_was_told() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let thief = bench.root.path().join("thief.git");
    let thief_url = thief.to_str().unwrap();
    git(bench.root.path(), &["init", "-q", "--bare", thief_url]);
    let (mirror, copy) = bench.copy().await;
    let canary = Canary::new(&bench);
    let url = bench.origin.bare.to_str().unwrap();
    for (key, value) in [
        (format!("url.{thief_url}.insteadOf"), url),
        (format!("url.{thief_url}.pushInsteadOf"), url),
        (format!("remote.{url}.url"), thief_url),
        ("remote.origin.url".into(), url),
        ("remote.origin.pushurl".into(), thief_url),
        ("remote.origin.receivepack".into(), &canary.program),
        ("core.sshCommand".into(), &canary.program),
        ("credential.helper".into(), &canary.program),
        ("include.path".into(), "/dev/null"),
    ] {
        config(&copy, &key, value);
    }
    write(copy.dir(), "a.txt", "two");
    let commit = committed(&mirror, &copy).await;
    push(&mirror, &bench.local(), &commit, 2).await;
    assert_eq!(bench.origin.at(B).as_deref(), Some(commit.as_str()));
    assert_eq!(lines(&thief, &["for-each-ref"]), [""; 0]);
    assert!(!canary.sang());
    git_succeeds(copy.dir(), &["push", url, "HEAD:refs/heads/x"]);
    assert_ne!(lines(&thief, &["for-each-ref"]), [""; 0], "plain git is misled by it");
}

#[tokio::test]
async fn what_lies_elsewhere_on_the_disk_is_not_read() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let secrets = bench.root.path().join("secrets");
    write(&secrets, "password", "SECRET");
    git(&secrets, &["init", "-q"]);
    git(&secrets, &["add", "-A"]);
    git(&secrets, &["commit", "-q", "-m", "SECRET"]);
    let secret_git = secrets.join(".git");
    type Arm = fn(&Copy, &Path);
    let ways: [(&str, Arm); 4] = [
        ("core.worktree", |copy, secret_git| {
            config(copy, "core.worktree", secret_git.parent().unwrap().to_str().unwrap());
        }),
        ("gitfile", |copy, secret_git| {
            std::fs::remove_dir_all(copy.dir().join(".git")).unwrap();
            write(copy.dir(), ".git", &format!("gitdir: {}\n", secret_git.display()));
        }),
        ("link", |copy, secret_git| {
            std::fs::remove_dir_all(copy.dir().join(".git")).unwrap();
            std::os::unix::fs::symlink(secret_git, copy.dir().join(".git")).unwrap();
        }),
        ("alternates and replacements", |copy, secret_git| {
            let objects = format!("{}/objects\n", secret_git.display());
            write(copy.dir(), ".git/objects/info/alternates", &objects);
            let theirs = git(secret_git, &["rev-parse", "HEAD"]);
            git(copy.dir(), &["update-ref", &format!("refs/replace/{}", copy.base()), &theirs]);
            git(copy.dir(), &["update-ref", "refs/heads/relay/claude-1", &theirs]);
        }),
    ];
    for (way, arm) in ways {
        let bench = Bench::new(&[("a.txt", "one")]);
        let (mirror, copy) = bench.copy().await;
        write(copy.dir(), "a.txt", "two");
        arm(&copy, &secret_git);
        let commit = committed(&mirror, &copy).await;
        push(&mirror, &bench.local(), &commit, 1).await;
        let bare = &bench.origin.bare;
        assert_eq!(lines(bare, &["ls-tree", "-r", "--name-only", B]), ["a.txt"], "{way}");
        assert_eq!(git(bare, &["show", &format!("{B}:a.txt")]), "two", "{way}");
        assert_eq!(git(bare, &["rev-parse", &format!("{B}^")]), copy.base().as_str(), "{way}");
        let objects = git(bare, &["cat-file", "--batch-check", "--batch-all-objects"]);
        let theirs = git(&secret_git, &["rev-parse", "HEAD:password"]);
        assert!(!objects.contains(&theirs), "{way}: another repository's object was pushed");
    }
}

/// The first may be one that the lane cannot read, the second all of another folder.
#[tokio::test]
async fn another_name_of_a_file_and_another_folder_in_the_copy_s_place_are_refused() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let outside = bench.root.path().join("outside");
    write(&outside, "password", "SECRET");
    let (mirror, copy) = bench.copy().await;
    std::fs::hard_link(outside.join("password"), copy.dir().join("stolen")).unwrap();
    let (why, path) = (RepoProblem::LinkOutside, "stolen".to_owned());
    assert_eq!(snapshot(&mirror, &copy).await, Snapshot::Refused { why, path });
    std::fs::remove_file(outside.join("password")).unwrap();
    std::fs::hard_link(copy.dir().join("stolen"), copy.dir().join("twin")).unwrap();
    assert!(matches!(snapshot(&mirror, &copy).await, Snapshot::Commit { .. }), "both are inside");

    let above = copy.dir().parent().unwrap();
    std::fs::rename(above, bench.root.path().join("away")).unwrap();
    let theirs = bench.root.path().join("theirs");
    write(&theirs.join(copy.dir().file_name().unwrap()), "password", "SECRET");
    std::os::unix::fs::symlink(&theirs, above).unwrap();
    let refused = try_snapshot(&mirror, &copy).await.unwrap_err();
    assert_eq!(refused.problem(), RepoProblem::CheckoutFailed);
    assert!(refused.to_string().contains("something else"), "{refused}");
}

/// A repository inside the copy that would run the canary when git looks into it.
fn trap(dir: &Path, canary: &Canary) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q"]);
    write(dir, "x", "x");
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "-m", "x"]);
    git(dir, &["config", "core.fsmonitor", &canary.program]);
    write(dir, "x", "changed");
    canary.sang();
}

#[tokio::test]
async fn a_nested_repository_is_refused_and_not_looked_into() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let canary = Canary::new(&bench);
    let (mirror, copy) = bench.copy().await;
    trap(&copy.dir().join("sub/repo"), &canary);
    for _ in 0..2 {
        let refused = snapshot(&mirror, &copy).await;
        let path = "sub/repo".to_owned();
        assert_eq!(refused, Snapshot::Refused { why: RepoProblem::NestedGit, path });
    }
    assert!(!canary.sang());
    git_succeeds(copy.dir(), &["add", "-A"]);
    git_succeeds(copy.dir(), &["status"]);
    assert!(canary.sang(), "plain git looks into it");
}

/// Submodules, and what a package manager cloned into a folder the repository ignores, are let
/// be: the work counts. git must not look into them either.
#[tokio::test]
async fn submodules_and_ignored_repositories_are_not_looked_into() {
    let bench = Bench::new(&[("a.txt", "one"), (".gitignore", "node_modules/\n")]);
    let id = bench.origin.at("main").unwrap();
    let person = &bench.origin.person;
    git(person, &["update-index", "--add", "--cacheinfo", &format!("160000,{id},sub")]);
    git(person, &["commit", "-q", "-m", "a submodule"]);
    git(person, &["push", "-q", "origin", "main"]);
    let canary = Canary::new(&bench);
    let (mirror, copy) = bench.copy().await;
    trap(&copy.dir().join("sub"), &canary);
    trap(&copy.dir().join("node_modules/dep"), &canary);
    write(copy.dir(), "a.txt", "two");
    let commit = committed(&mirror, &copy).await;
    assert!(!canary.sang());
    let mirror_dir = bench.cache().join("acme/shop.git");
    let range = format!("{}..{commit}", copy.base());
    assert_eq!(lines(&mirror_dir, &["diff", "--name-only", &range]), ["a.txt"]);
    git_succeeds(copy.dir(), &["status"]);
    assert!(canary.sang(), "plain git looks into a submodule");
}

fn pipe(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).unwrap();
}

/// git opens these files to learn what to ignore and how to read the others, and waits for ever
/// where one is a pipe that nobody writes to.
#[tokio::test]
async fn a_pipe_in_place_of_a_file_that_git_reads_holds_nobody_up() {
    for (place, ignored) in [("sub/.gitignore", ""), ("sub/.gitattributes", ".gitattributes")] {
        let bench = Bench::new(&[("a.txt", "one"), (".gitignore", ignored)]);
        let (mirror, copy) = bench.copy().await;
        pipe(&copy.dir().join(place));
        let refused = tokio::time::timeout(PATIENCE, snapshot(&mirror, &copy)).await;
        let (why, path) = (RepoProblem::SpecialFile, place.to_owned());
        assert_eq!(refused.expect("git waits"), Snapshot::Refused { why, path });
    }
}

/// More than is looked at: what comes after may be anything.
#[tokio::test]
async fn a_crowd_of_ignored_pipes_hides_nothing() {
    let bench = Bench::new(&[("a.txt", "one"), (".gitignore", "heap/\n")]);
    let (mirror, copy) = bench.copy().await;
    for n in 0..10_000 {
        pipe(&copy.dir().join(format!("heap/{n}")));
    }
    let refused = snapshot(&mirror, &copy).await;
    assert!(
        matches!(refused, Snapshot::Refused { why: RepoProblem::SpecialFile, .. }),
        "{refused:?}"
    );
}

/// A person's home can be a repository, and a lane may have made one of relay's. Its settings
/// would lead a question about the remote, and the token with it, elsewhere.
#[tokio::test]
async fn a_repository_around_relays_own_folders_has_no_say() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let elsewhere = bench.root.path().join("elsewhere.git");
    git(bench.root.path(), &["clone", "-q", "--bare", "shop.git", "elsewhere.git"]);
    git(&elsewhere, &["branch", "-m", "main", "theirs"]);
    let rewrite = format!("url.{}.insteadOf", elsewhere.display());
    let mirror = bench.mirror().await;
    for around in [bench.root.path().to_owned(), bench.cache().join(".home")] {
        git(&around, &["init", "-q", "."]);
        git(&around, &["config", &rewrite, bench.origin.bare.to_str().unwrap()]);
        assert_eq!(mirror.remote_head().await.unwrap(), "main", "{}", around.display());
        let plain = git(&around, &["ls-remote", "--symref", &bench.local().url, "HEAD"]);
        assert!(plain.contains("theirs"), "plain git is led away: {plain}");
    }
}

/// Such folders also killed a worker that removed them by a function that calls itself.
#[tokio::test]
async fn folders_deeper_than_any_path_are_refused_and_removed() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let (mirror, copy) = bench.copy().await;
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let (all, none) = (rustix::fs::Mode::RWXU, rustix::fs::Mode::empty());
    let mut at = std::os::fd::OwnedFd::from(std::fs::File::open(copy.dir()).unwrap());
    for _ in 0..2_500 {
        rustix::fs::mkdirat(&at, "d", all).unwrap();
        at = rustix::fs::openat(&at, "d", flags, none).unwrap();
    }
    let refused = snapshot(&mirror, &copy).await;
    assert!(
        matches!(refused, Snapshot::Refused { why: RepoProblem::SpecialFile, .. }),
        "{refused:?}"
    );
    let dir = copy.dir().to_owned();
    copy.remove().await.unwrap();
    assert!(!dir.exists());
}
