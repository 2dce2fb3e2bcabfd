//! What a lane left behind becomes one commit, or is refused by name.

use relay::git::{Commit, HOST_FILE_LIMIT, Snapshot, SnapshotRequest};
use relay::model::RepoProblem;

use super::{AT, Bench, STUBS, agent, committed, lines, snapshot, try_snapshot, write};
use crate::support::repo::git;

/// A person committed CRLF files and only then the attributes that would normalise them, as old
/// repositories do.
fn with_crlf() -> Bench {
    let bench = Bench::new(&[("first.md", "x")]);
    git(&bench.origin.person, &["config", "core.autocrlf", "false"]);
    let names: Vec<String> = (0..50).map(|n| format!("crlf/{n}.txt")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "a\r\nb\r\n")).collect();
    bench.origin.commit("main", &files);
    std::fs::write(bench.origin.person.join(".gitattributes"), "*.txt text\n").unwrap();
    git(&bench.origin.person, &["add", ".gitattributes"]);
    git(&bench.origin.person, &["commit", "-q", "-m", "attributes"]);
    git(&bench.origin.person, &["push", "-q", "origin", "main"]);
    bench
}

#[tokio::test]
async fn a_file_that_nobody_touched_is_not_a_change() {
    let bench = with_crlf();
    let (mirror, copy) = bench.copy().await;
    assert_eq!(snapshot(&mirror, &copy).await, Snapshot::NoChanges);
    write(copy.dir(), "new.md", "hello\n");
    let commit = committed(&mirror, &copy).await;
    let mirror_dir = bench.cache().join("acme/shop.git");
    let range = format!("{}..{commit}", copy.base());
    assert_eq!(lines(&mirror_dir, &["diff", "--name-only", &range]), ["new.md"]);
}

#[tokio::test]
async fn one_commit_has_everything_the_lane_changed() {
    let bench = Bench::new(&[("a.txt", "one"), ("gone.txt", "x"), (".gitignore", "out/\n")]);
    let (mirror, copy) = bench.copy().await;
    let dir = copy.dir();
    write(dir, "a.txt", "two");
    // The same size and time as before: the change is seen all the same.
    let old = std::fs::metadata(dir.join(".gitignore")).unwrap().modified().unwrap();
    write(dir, ".gitignore", "Out/\n");
    std::fs::File::options()
        .write(true)
        .open(dir.join(".gitignore"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    std::fs::remove_file(dir.join("gone.txt")).unwrap();
    write(dir, "new/deep.txt", "n");
    write(dir, "Out/ignored.o", "x");
    write(dir, "odd\nname", "x");
    std::os::unix::fs::symlink("a.txt", dir.join("link")).unwrap();
    for stub in STUBS {
        write(dir, stub, "");
    }
    // The lane's own commits, index and configuration do not count.
    git(dir, &["add", "-A", "-f"]);
    git(dir, &["commit", "-q", "-m", "the lane's own"]);
    git(dir, &["update-index", "--assume-unchanged", "a.txt"]);
    let commit = committed(&mirror, &copy).await;

    let mirror_dir = bench.cache().join("acme/shop.git");
    let range = format!("{}..{commit}", copy.base());
    assert_eq!(
        lines(&mirror_dir, &["diff", "--name-status", "--no-renames", &range]),
        [
            "M\t.gitignore",
            "M\ta.txt",
            "D\tgone.txt",
            "A\tlink",
            "A\tnew/deep.txt",
            "A\t\"odd\\nname\""
        ]
    );
    let format = "--format=%an|%ae|%cn|%at|%ct|%P|%B";
    assert_eq!(
        git(&mirror_dir, &["show", "-s", format, commit.as_str()]),
        format!(
            "relay-agent|relay-agent@localhost|relay-agent|1700000000|1700000000|{}|the work",
            copy.base()
        )
    );
    git(&mirror_dir, &["fsck", "--strict"]);

    let diff = mirror.diff(copy.base(), &commit, 100_000).unwrap();
    assert!(diff.contains("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n"), "{diff}");
    let cut = mirror.diff(copy.base(), &commit, 60).unwrap();
    assert!(cut.ends_with("(the diff was cut after 60 bytes)\n") && cut.len() < 110, "{cut}");

    // Held by the mirror: gone copies and other machines' repacks do not matter to it.
    copy.remove().await.unwrap();
    assert!(bench.mirror().await.holds(&commit).unwrap());
    mirror.forget(&commit).unwrap();
    mirror.forget(&commit).unwrap();
    assert_eq!(lines(&mirror_dir, &["for-each-ref", "refs/relay"]), [""; 0]);
}

/// A sandbox covers these names, and one that is killed leaves empty files there.
#[tokio::test]
async fn what_a_lane_wrote_under_the_name_of_a_stub_is_its_work() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let (mirror, copy) = bench.copy().await;
    let dir = copy.dir();
    write(dir, ".bashrc", "");
    write(dir, ".mcp.json", "{}");
    write(dir, ".claude/commands/review.md", "Look at it.");
    write(dir, ".claude/empty", "");
    let commit = committed(&mirror, &copy).await;
    let mirror_dir = bench.cache().join("acme/shop.git");
    let range = format!("{}..{commit}", copy.base());
    let named = |range: &str| lines(&mirror_dir, &["diff", "--name-only", range]);
    assert_eq!(named(&range), [".claude/commands/review.md", ".claude/empty", ".mcp.json"]);

    // A second look finds what is there then.
    write(dir, ".mcp.json", "");
    write(dir, ".bashrc", "export A=1");
    std::fs::remove_file(dir.join(".claude/commands/review.md")).unwrap();
    let commit = committed(&mirror, &copy).await;
    assert_eq!(named(&format!("{}..{commit}", copy.base())), [".bashrc"]);

    // What is no file is left to the rules, and a link is something.
    std::fs::remove_file(dir.join(".mcp.json")).unwrap();
    std::os::unix::fs::symlink("a.txt", dir.join(".mcp.json")).unwrap();
    let commit = committed(&mirror, &copy).await;
    assert_eq!(named(&format!("{}..{commit}", copy.base())), [".bashrc", ".mcp.json"]);
}

#[tokio::test]
async fn what_must_not_be_committed_is_refused_by_name() {
    type Make = fn(&std::path::Path);
    let cases: [(&str, RepoProblem, Make); 12] = [
        ("sub", RepoProblem::NestedGit, |dir| {
            git(dir, &["init", "-q", "sub"]);
        }),
        ("deep/er", RepoProblem::NestedGit, |dir| write(dir, "deep/er/.GiT/HEAD", "x")),
        ("sub", RepoProblem::NestedGit, |dir| write(dir, "sub/.git", "gitdir: /elsewhere")),
        (".GIT", RepoProblem::NestedGit, |dir| write(dir, ".GIT/hooks/pre-commit", "x")),
        ("pipe", RepoProblem::SpecialFile, |dir| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(
                rustix::fs::CWD,
                dir.join("pipe"),
                rustix::fs::FileType::Fifo,
                mode,
                0,
            )
            .unwrap();
        }),
        ("link", RepoProblem::LinkOutside, |dir| link(dir, "/etc/passwd", "link")),
        ("a/link", RepoProblem::LinkOutside, |dir| link(dir, "../../x", "a/link")),
        ("old", RepoProblem::LinkOutside, |dir| {
            std::fs::remove_file(dir.join("old")).unwrap();
            link(dir, "../elsewhere", "old");
        }),
        ("README.md", RepoProblem::CaseCollision, |dir| write(dir, "README.md", "x")),
        ("SRC/main.rs", RepoProblem::CaseCollision, |dir| write(dir, "SRC/main.rs", "x")),
        ("huge", RepoProblem::FileTooLarge, |dir| {
            std::fs::File::create(dir.join("huge")).unwrap().set_len(HOST_FILE_LIMIT + 1).unwrap();
        }),
        ("GIT~1", RepoProblem::NestedGit, |dir| write(dir, "GIT~1", "x")),
    ];
    for (expected, expected_why, make) in cases {
        let bench = Bench::new(&[
            ("readme.md", "x"),
            ("src/main.rs", "x"),
            ("a/b.txt", "x"),
            (".github/workflows/ci.yml", "on: push"),
        ]);
        link(&bench.origin.person, "a/b.txt", "old");
        bench.origin.commit("main", &[]);
        let (mirror, copy) = bench.copy().await;
        write(copy.dir(), "fine.txt", "fine");
        make(copy.dir());
        let refused = snapshot(&mirror, &copy).await;
        let expected = Snapshot::Refused { why: expected_why, path: expected.to_owned() };
        assert_eq!(refused, expected);
        // Nothing of it reached the mirror, from where other runs' copies are made.
        let mirror_dir = bench.cache().join("acme/shop.git");
        let objects = git(&mirror_dir, &["count-objects", "-v"]);
        assert!(objects.contains("count: 0\n") && objects.contains("packs: 1\n"), "{objects}");
    }
}

/// Each of these, pushed, would fail the first fetch of every other machine.
#[tokio::test]
async fn what_git_lets_nobody_fetch_is_refused_by_name() {
    let long = format!("# {}\n*.txt text\n", "a".repeat(3_000));
    for (path, content) in [
        (".gitmodules", COMMAND),
        (".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = -x\n"),
        ("sub/.gitmodules", "[submodule \"../x\"]\n\tpath = x\n\turl = a\n"),
        (".gitattributes", long.as_str()),
    ] {
        let bench = Bench::new(&[("a.txt", "one")]);
        let (mirror, copy) = bench.copy().await;
        write(copy.dir(), "fine.txt", "fine");
        write(copy.dir(), path, content);
        // Also where it is asked again.
        for _ in 0..2 {
            let (why, path) = (RepoProblem::UnsafeFile, path.to_owned());
            assert_eq!(snapshot(&mirror, &copy).await, Snapshot::Refused { why, path });
        }
        let mirror_dir = bench.cache().join("acme/shop.git");
        let objects = git(&mirror_dir, &["count-objects", "-v"]);
        assert!(objects.contains("count: 0\n") && objects.contains("packs: 1\n"), "{objects}");
        std::fs::remove_file(copy.dir().join(path)).unwrap();
        committed(&mirror, &copy).await;
    }
}

const COMMAND: &str = "[submodule \"x\"]\n\tpath = x\n\turl = a\n\tupdate = !true\n";

/// Its mirror is from before git's check had the rule.
#[tokio::test]
async fn a_base_that_has_such_a_file_is_worked_on() {
    let bench = Bench::new(&[("a.txt", "one")]);
    bench.mirror().await;
    bench.origin.commit("main", &[(".gitmodules", COMMAND)]);
    let mirror_dir = bench.cache().join("acme/shop.git");
    let bare = bench.origin.bare.to_str().unwrap();
    git(&mirror_dir, &["fetch", "-q", bare, "+refs/heads/*:refs/heads/*"]);
    let (mirror, copy) = bench.copy().await;
    write(copy.dir(), "a.txt", "two");
    committed(&mirror, &copy).await;
    write(copy.dir(), "sub/.gitmodules", &format!("{COMMAND}\tbranch = b\n"));
    let (why, path) = (RepoProblem::UnsafeFile, "sub/.gitmodules".to_owned());
    assert_eq!(snapshot(&mirror, &copy).await, Snapshot::Refused { why, path });
    std::fs::remove_file(copy.dir().join("sub/.gitmodules")).unwrap();
    std::fs::remove_file(copy.dir().join(".gitmodules")).unwrap();
    committed(&mirror, &copy).await;
}

fn link(dir: &std::path::Path, to: &str, name: &str) {
    std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(to, dir.join(name)).unwrap();
}

#[tokio::test]
async fn what_was_there_before_or_is_ignored_is_let_be() {
    let bench = Bench::new(&[("readme.md", "x"), (".gitignore", "node_modules/\n*.sock\n")]);
    link(&bench.origin.person, "/etc/hosts", "outside");
    bench.origin.commit("main", &[("README.md", "twins of the person's own")]);
    let (mirror, copy) = bench.copy().await;
    let dir = copy.dir();
    write(dir, "node_modules/x/.git", "gitdir: /elsewhere");
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("a.sock")).unwrap();
    write(dir, "readme.md", "changed");
    write(dir, "new.md", "new");
    let commit = committed(&mirror, &copy).await;
    let range = format!("{}..{commit}", copy.base());
    let mirror_dir = bench.cache().join("acme/shop.git");
    assert_eq!(lines(&mirror_dir, &["diff", "--name-only", &range]), ["new.md", "readme.md"]);
}

#[tokio::test]
async fn a_commit_tells_whether_it_changes_workflows() {
    type Make = fn(&std::path::Path);
    let cases: [(Option<&str>, Make); 4] = [
        (Some(".github/workflows/new.yml"), |dir| {
            write(dir, ".github/workflows/new.yml", "on: push");
        }),
        (Some(".github/workflows/ci.yml"), |dir| {
            std::fs::remove_file(dir.join(".github/workflows/ci.yml")).unwrap();
        }),
        (Some(".github/workflows/ci.yml"), |dir| {
            std::fs::rename(dir.join(".github/workflows/ci.yml"), dir.join("ci.yml")).unwrap();
        }),
        (None, |dir| write(dir, ".github/CODEOWNERS", "* @mona")),
    ];
    for (expected, make) in cases {
        let bench = Bench::new(&[(".github/workflows/ci.yml", "on: push")]);
        let (mirror, copy) = bench.copy().await;
        make(copy.dir());
        let identity = agent();
        let message = "\0\u{1b}]0;title\u{7}\n";
        let request = SnapshotRequest { identity: &identity, message, at: AT };
        let made = mirror.snapshot(&copy, &request).await.unwrap();
        let Snapshot::Commit { commit, .. } = made else { panic!("{made:?}") };
        let found = mirror.changed_workflow(copy.base(), &commit).unwrap();
        assert_eq!(found.as_deref(), expected);
        let mirror_dir = bench.cache().join("acme/shop.git");
        assert_eq!(git(&mirror_dir, &["show", "-s", "--format=%B", commit.as_str()]), "]0;title");
    }
}

#[tokio::test]
async fn a_bundle_is_read_by_plain_git() {
    let bench = Bench::new(&[("a.txt", "x")]);
    let (mirror, copy) = bench.copy().await;
    write(copy.dir(), "a.txt", "kept");
    let commit = committed(&mirror, &copy).await;
    let kept = bench.root.path().join("home/kept/shop-1.bundle");
    mirror.bundle(copy.base(), &commit, "relay/claude-1", &kept).await.unwrap();
    let person = &bench.origin.person;
    git(person, &["fetch", "-q", kept.to_str().unwrap(), "relay/claude-1"]);
    assert_eq!(git(person, &["rev-parse", "FETCH_HEAD"]), commit.as_str());
    assert_eq!(git(person, &["show", "FETCH_HEAD:a.txt"]), "kept");
    let absent: Commit = "b".repeat(40).parse().unwrap();
    assert!(mirror.bundle(copy.base(), &absent, "b", &kept).await.is_err());
    assert!(kept.exists(), "the earlier one is still there");
}

#[tokio::test]
async fn a_lane_that_changed_nothing_or_vanished_is_told_apart() {
    let bench = Bench::new(&[("a.txt", "x")]);
    let (mirror, copy) = bench.copy().await;
    let touched = std::fs::File::options().write(true).open(copy.dir().join("a.txt")).unwrap();
    touched.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(snapshot(&mirror, &copy).await, Snapshot::NoChanges);
    std::fs::remove_dir_all(copy.dir()).unwrap();
    let error = try_snapshot(&mirror, &copy).await.unwrap_err();
    assert_eq!(error.problem(), RepoProblem::CheckoutFailed);
}
