//! The lane's copy: complete, its own, and known to the worker by a warm index.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use relay::git::{Git, GitError};
use relay::model::RepoProblem;

use super::{Bench, STUBS, lines, write};
use crate::support::repo::{git, git_program, git_succeeds};

#[tokio::test]
async fn a_copy_is_a_complete_repository_of_its_own() {
    let bench = Bench::new(&[("a.txt", "one"), ("run.sh", "#!/bin/sh\n")]);
    let script = bench.origin.person.join("run.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("a.txt", bench.origin.person.join("link")).unwrap();
    bench.origin.commit("main", &[("deep/er/b.txt", "two")]);
    let (_, copy) = bench.copy().await;
    let dir = copy.dir();

    assert_eq!(std::fs::read_to_string(dir.join("deep/er/b.txt")).unwrap(), "two");
    assert_eq!(std::fs::metadata(dir.join("run.sh")).unwrap().mode() & 0o111, 0o111);
    assert_eq!(std::fs::metadata(dir.join("a.txt")).unwrap().mode() & 0o111, 0);
    assert_eq!(std::fs::read_link(dir.join("link")).unwrap().to_str(), Some("a.txt"));
    assert_eq!(std::fs::metadata(dir).unwrap().mode() & 0o077, 0, "nobody else looks in");

    // The lane's own git is content with it, and has nothing of relay's.
    assert_eq!(lines(dir, &["status", "--porcelain"]), [""; 0]);
    assert_eq!(git(dir, &["branch", "--show-current"]), "relay/claude-1");
    assert_eq!(git(dir, &["rev-parse", "HEAD"]), copy.base().as_str());
    assert_eq!(lines(dir, &["log", "--format=%an"]), ["Ada", "Ada"]);
    git(dir, &["fsck", "--strict"]);
    assert_eq!(git(dir, &["remote"]), "");
    let config = std::fs::read_to_string(dir.join(".git/config")).unwrap();
    assert!(!config.contains(bench.root.path().to_str().unwrap()), "{config}");
    assert!(!dir.join(".git/objects/info/alternates").exists());
    git(dir, &["commit", "-q", "--allow-empty", "-m", "the lane may commit"]);
}

#[tokio::test]
async fn a_copy_shares_no_file_with_the_mirror() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let (_, copy) = bench.copy().await;
    let mut folders = vec![copy.dir().to_owned()];
    let mut objects = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                assert_eq!(entry.metadata().unwrap().nlink(), 1, "{}", path.display());
                objects += usize::from(path.components().any(|c| c.as_os_str() == "objects"));
            }
        }
    }
    assert!(objects >= 2, "a pack and its index");
}

#[tokio::test]
async fn the_sandbox_s_stubs_are_not_seen_by_the_lane_s_git() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let (_, copy) = bench.copy().await;
    for stub in STUBS {
        write(copy.dir(), stub, "");
    }
    write(copy.dir(), "sub/.bashrc", "not a stub");
    assert_eq!(lines(copy.dir(), &["status", "--porcelain", "-uall"]), ["?? sub/.bashrc"]);
}

#[tokio::test]
async fn a_checkout_that_fails_leaves_nothing() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let mirror = bench.mirror().await;
    let base = mirror.tip("main").unwrap();
    let used = bench.place("used");
    write(&used, "mine.txt", "a person's");
    let refused = mirror.checkout(&base, "b", &used, &[]).await;
    assert!(matches!(refused, Err(GitError::Disk { .. })), "{refused:?}");
    assert!(used.join("mine.txt").exists());

    for branch in ["", "-x", "a..b", "a b", "x.lock", "/x"] {
        let refused = mirror.checkout(&base, branch, &bench.place("b"), &[]).await;
        assert!(matches!(refused, Err(GitError::BadBranch(_))), "{branch}");
    }
    let nowhere = "a".repeat(40).parse().unwrap();
    let refused = mirror.checkout(&nowhere, "b", &bench.place("n"), &[]).await.unwrap_err();
    assert_eq!(refused.problem(), RepoProblem::CheckoutFailed);
    assert!(!bench.place("n").exists());
    // A commit the mirror lacks makes it suspect; the next fetch makes it again.
    assert!(bench.mirror().await.tip("main").is_ok());
}

#[tokio::test]
async fn a_copy_is_removed_whatever_the_lane_did_to_it() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let (mirror, copy) = bench.copy().await;
    write(copy.dir(), "locked/in/x", "");
    std::os::unix::fs::symlink(&bench.origin.bare, copy.dir().join("locked/out")).unwrap();
    let locked = copy.dir().join("locked");
    std::fs::set_permissions(locked, std::fs::Permissions::from_mode(0o000)).unwrap();
    let dir = copy.dir().to_owned();
    copy.remove().await.unwrap();
    assert!(!dir.exists() && bench.origin.bare.join("HEAD").exists());
    let runs = bench.cache().join("acme/shop.git.runs");
    assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 0);

    // A worker that was killed removes the copy at its next start; the rest goes with the fetch.
    let base = mirror.tip("main").unwrap();
    let copy = mirror.checkout(&base, "b", &dir, &[]).await.unwrap();
    assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 1);
    std::fs::remove_dir_all(copy.dir()).unwrap();
    bench.mirror().await;
    assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 0);
}

#[tokio::test]
async fn files_in_lfs_are_refused_by_name_where_there_is_no_git_lfs() {
    let bench = Bench::new(&[(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")]);
    // The rule alone is no file in LFS.
    let (_, copy) = bench.copy().await;
    copy.remove().await.unwrap();
    bench.origin.commit("main", &[("art/big.bin", "version https://git-lfs.github.com/spec/v1\n")]);
    // A machine whose PATH has no git-lfs.
    let bare_machine = Git::new(git_program(), "/nowhere".into(), bench.root.path().join("bare"));
    let mirror = bare_machine.mirror(&super::name(), &bench.local(), "main").await.unwrap();
    let base = mirror.tip("main").unwrap();
    let error = mirror.checkout(&base, "b", &bench.place("l"), &[]).await.unwrap_err();
    assert_eq!(error.problem(), RepoProblem::NeedsLfs);
    assert!(error.to_string().contains("art/big.bin"), "{error}");
    assert!(!bench.place("l").exists());
}

#[tokio::test]
async fn a_submodule_is_an_empty_folder() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let id = bench.origin.at("main").unwrap();
    let entry = format!("160000,{id},sub");
    git(&bench.origin.person, &["update-index", "--add", "--cacheinfo", &entry]);
    git(&bench.origin.person, &["commit", "-q", "-m", "a submodule"]);
    git(&bench.origin.person, &["push", "-q", "origin", "main"]);
    let (_, copy) = bench.copy().await;
    assert!(copy.dir().join("sub").is_dir());
    assert_eq!(lines(copy.dir(), &["status", "--porcelain"]), [""; 0]);
    assert!(git_succeeds(copy.dir(), &["ls-files", "--error-unmatch", "sub"]));
}
