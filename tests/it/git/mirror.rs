//! Fetching: incremental, healed when broken, and its failures told apart.

use relay::git::{Commit, GitError, HostToken, Remote};
use relay::model::{RepoProblem, Secret};

use super::{Bench, name};
use crate::support::git_http::GitHttp;
use crate::support::repo::git;

#[tokio::test]
async fn a_second_fetch_brings_only_what_is_new() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let first = bench.mirror().await.tip("main").unwrap();
    let packs = || std::fs::read_dir(bench.cache().join("acme/shop.git/objects/pack")).unwrap();
    let inode = |path: std::path::PathBuf| {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
    };
    let before: Vec<u64> = packs().map(|e| inode(e.unwrap().path())).collect();
    let new = bench.origin.commit("main", &[("a.txt", "two")]);
    bench.origin.commit("gone", &[("b.txt", "x")]);
    let mirror = bench.mirror().await;
    assert_eq!(mirror.tip("main").unwrap().as_str(), new);
    assert!(mirror.holds(&first).unwrap() && bench.at("gone").await.is_ok());
    let after: Vec<u64> = packs().map(|e| inode(e.unwrap().path())).collect();
    assert!(before.iter().all(|inode| after.contains(inode)), "the first pack was kept");

    git(&bench.origin.bare, &["update-ref", "-d", "refs/heads/gone"]);
    let gone = bench.at("gone").await;
    assert!(matches!(gone, Err(GitError::NoBranch(_))), "{gone:?}");
    let gone = mirror.refresh("gone").await;
    assert!(matches!(gone, Err(GitError::NoBranch(_))), "{gone:?}");
    assert_eq!(mirror.remote_head().await.unwrap(), "main");
    assert_eq!(mirror.file_at(&first, "a.txt").unwrap().unwrap(), b"one");
    assert_eq!(mirror.file_at(&first, "nothing").unwrap(), None);
}

#[tokio::test]
async fn the_default_branch_is_the_remote_s_own_word() {
    let bench = Bench::new(&[("a.txt", "one")]);
    bench.origin.commit("trunk", &[]);
    git(&bench.origin.bare, &["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    assert_eq!(bench.git.remote_head(&name(), &bench.local()).await.unwrap(), "trunk");
    let head = git(&bench.origin.bare, &["rev-parse", "HEAD"]);
    git(&bench.origin.bare, &["update-ref", "--no-deref", "HEAD", &head]);
    let detached = bench.git.remote_head(&name(), &bench.local()).await;
    assert!(matches!(detached, Err(GitError::NoDefaultBranch)), "{detached:?}");
    git(&bench.origin.bare, &["symbolic-ref", "HEAD", "refs/heads/nowhere"]);
    let nowhere = bench.git.remote_head(&name(), &bench.local()).await;
    assert!(matches!(nowhere, Err(GitError::NoDefaultBranch)), "{nowhere:?}");
}

#[tokio::test]
async fn an_ordinary_repository_is_fetched_by_its_path() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let remote = Remote { url: bench.origin.person.to_str().unwrap().to_owned(), token: None };
    let mirror = bench.git.mirror(&name(), &remote, "main").await.unwrap();
    assert_eq!(mirror.tip("main").unwrap().as_str(), bench.origin.at("main").unwrap());
}

/// Only root can give a repository to somebody else; elsewhere there is nothing to see.
#[tokio::test]
async fn a_repository_of_another_user_is_fetched_all_the_same() {
    let bench = Bench::new(&[("a.txt", "one")]);
    for repository in [bench.origin.bare.clone(), bench.origin.person.clone()] {
        let everything = walk(&repository);
        if everything.iter().any(|p| std::os::unix::fs::lchown(p, Some(23456), None).is_err()) {
            eprintln!("skipped: only root can make a repository of another user");
            return;
        }
        let remote = Remote { url: repository.to_str().unwrap().to_owned(), token: None };
        let mirror = bench.git.mirror(&name(), &remote, "main").await.unwrap();
        assert!(mirror.tip("main").is_ok());
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while at < found.len() {
        if found[at].is_dir() {
            found.extend(std::fs::read_dir(&found[at]).unwrap().map(|e| e.unwrap().path()));
        }
        at += 1;
    }
    found
}

#[tokio::test]
async fn a_broken_mirror_is_made_again() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let tip = bench.mirror().await.tip("main").unwrap();
    let mirror = bench.cache().join("acme/shop.git");
    let breaks: [&dyn Fn(); 5] = [
        &|| std::fs::remove_file(mirror.join("HEAD")).unwrap(),
        &|| std::fs::remove_dir_all(mirror.join("objects")).unwrap(),
        &|| {
            for pack in std::fs::read_dir(mirror.join("objects/pack")).unwrap() {
                let pack = pack.unwrap().path();
                std::fs::remove_file(&pack).unwrap();
                std::fs::write(&pack, "rubbish").unwrap();
            }
        },
        // What a worker that was killed in its fetch leaves behind.
        &|| std::fs::write(mirror.join("packed-refs.lock"), "").unwrap(),
        &|| {
            std::fs::create_dir_all(bench.cache().join("acme/shop.git.new/objects")).unwrap();
            std::fs::remove_dir_all(&mirror).unwrap();
        },
    ];
    for (nth, break_it) in breaks.iter().enumerate() {
        break_it();
        // Something new, so that the fetch has to write.
        let new = bench.origin.commit("main", &[("a.txt", &format!("{nth}"))]);
        let healed = bench.mirror().await;
        assert_eq!(healed.tip("main").unwrap().as_str(), new, "break {nth}");
        assert!(healed.holds(&tip).unwrap(), "break {nth}");
        git(&mirror, &["fsck", "--strict"]);
    }
}

#[tokio::test]
async fn a_mirror_of_another_remote_is_not_mixed_with_it() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let old = bench.mirror().await.tip("main").unwrap();
    let other = Bench::new(&[("b.txt", "two")]);
    let mirror = bench.git.mirror(&name(), &other.local(), "main").await.unwrap();
    assert!(!mirror.holds(&old).unwrap(), "objects of the first remote are gone");
}

#[tokio::test]
async fn many_packs_are_put_together_and_nothing_is_lost() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let mirror = bench.mirror().await;
    let kept = super::work(&bench, &mirror, "kept").await;
    let folder = bench.cache().join("acme/shop.git/objects/pack");
    let packs = || -> Vec<_> {
        let files = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
        files.filter(|path| path.extension() == Some("pack".as_ref())).collect()
    };
    let one = packs().remove(0);
    for n in 0..45 {
        for extension in ["pack", "idx"] {
            let twin = folder.join(format!("pack-{n:040}.{extension}"));
            std::fs::copy(one.with_extension(extension), twin).unwrap();
        }
    }
    let mirror = bench.mirror().await;
    assert!(packs().len() < 10, "{} packs", packs().len());
    assert!(mirror.holds(&kept).unwrap());
    git(&bench.cache().join("acme/shop.git"), &["fsck", "--strict"]);
    assert!(mirror.tip("main").is_ok());
}

/// A repository with objects that no git of today makes.
struct Odd<'a>(&'a Bench);

impl Odd<'_> {
    fn put(&self, kind: &str, content: &[u8]) -> String {
        let file = self.0.root.path().join("object");
        std::fs::write(&file, content).unwrap();
        let args = ["hash-object", "-w", "--literally", "-t", kind, file.to_str().unwrap()];
        git(&self.0.origin.bare, &args)
    }

    /// A branch at a commit of the tree `entries`, each a mode, a name and an object.
    fn branch_of(&self, branch: &str, entries: &[(&str, &str, &str)]) {
        let mut tree = Vec::new();
        for (mode, name, id) in entries {
            tree.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            tree.extend_from_slice(git2::Oid::from_str(id).unwrap().as_bytes());
        }
        let tree = self.put("tree", &tree);
        let commit = git(&self.0.origin.bare, &["commit-tree", "-m", "odd", &tree]);
        self.sets(branch, &commit);
    }

    fn sets(&self, branch: &str, commit: &str) {
        git(&self.0.origin.bare, &["update-ref", &format!("refs/heads/{branch}"), commit]);
    }

    fn id(&self, of: &str) -> String {
        git(&self.0.origin.bare, &["rev-parse", of])
    }
}

/// Old repositories have objects that a strict git would not make; what is not a way in is fetched.
#[tokio::test]
async fn an_honest_flaw_of_the_history_is_fetched() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let odd = Odd(&bench);
    let (tree, blob) = (odd.id("main^{tree}"), odd.id("main:a.txt"));
    for (name, author, message) in [
        ("zone", "A <a@b> 1 +051800", "old"),
        ("no-space", "A <a@b>1 +0000", "old"),
        ("zero-date", "A <a@b> 0123 +0000", "old"),
        ("no-name", "<a@b> 1 +0000", "old"),
        ("zero-byte", "A <a@b> 1 +0000", "old\0hidden"),
    ] {
        let commit = format!("tree {tree}\nauthor {author}\ncommitter {author}\n\n{message}\n");
        odd.sets(name, &odd.put("commit", commit.as_bytes()));
        let mirror = bench.at(name).await;
        assert!(mirror.is_ok(), "{name}: {:?}", mirror.err());
    }
    odd.branch_of("mode", &[("100664", "a.txt", &blob), ("040000", "sub", &tree)]);
    let mirror = bench.at("mode").await.unwrap();
    let copy = mirror
        .checkout(&mirror.tip("mode").unwrap(), "relay/claude-1", &bench.place("mode"), &[])
        .await
        .unwrap();
    assert_eq!(std::fs::read(copy.dir().join("sub/a.txt")).unwrap(), b"one");
}

/// One branch that git's check refuses, of whoever has a right to push, costs the tasks that start
/// from it and no other.
#[tokio::test]
async fn a_bad_branch_costs_only_the_tasks_that_start_from_it() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let odd = Odd(&bench);
    let (tree, blob) = (odd.id("main^{tree}"), odd.id("main:a.txt"));
    let url = odd.put("blob", b"[submodule \"x\"]\n\tpath = x\n\turl = -u./run\n");
    for (branch, entry, refused) in [
        ("relay/claude-2", &[("40000", ".GIT", &*tree)][..], "hasDotgit"),
        ("ada/wip", &[("100644", ".gitmodules", &url)], "gitmodulesUrl"),
        ("old", &[("100644", "x", &*blob), ("40000", "x", &tree)], "duplicateEntries"),
        ("up", &[("40000", "..", &*tree)], "hasDotdot"),
    ] {
        odd.branch_of(branch, entry);
        let error = bench.at(branch).await.unwrap_err();
        assert_eq!(error.problem(), RepoProblem::UnsafeHistory, "{branch}: {error}");
        assert!(error.to_string().contains(refused), "{branch}: {error}");
    }
    let mirror = bench.mirror().await;
    assert_eq!(mirror.tip("main").unwrap().as_str(), odd.id("main"), "a first fetch");
    let new = bench.origin.commit("main", &[("a.txt", "two")]);
    assert_eq!(bench.mirror().await.tip("main").unwrap().as_str(), new, "and one after it");
    assert_eq!(mirror.refresh("main").await.unwrap().as_str(), new);
    let commit = super::work(&bench, &mirror, "w").await;
    let pushed = super::push(&mirror, &bench.local(), &commit, 1).await;
    assert!(matches!(pushed, relay::git::Pushed::Done { .. }), "{pushed:?}");
}

/// A branch that stands where others stood before, or the other way round.
#[tokio::test]
async fn a_name_that_was_a_folder_of_branches_can_be_a_branch() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let kept = super::work(&bench, &bench.mirror().await, "kept").await;
    for (name, next) in [("main", "main/next/er"), ("main/next/er", "main/next")] {
        git(&bench.origin.bare, &["branch", "-m", name, "between"]);
        git(&bench.origin.bare, &["branch", "-m", "between", next]);
        let mirror = bench.at(next).await.unwrap();
        assert_eq!(mirror.tip(next).unwrap().as_str(), bench.origin.at(next).unwrap());
        assert!(mirror.holds(&kept).unwrap(), "the mirror was made again");
    }
}

#[tokio::test]
async fn failures_are_told_apart() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let host = GitHttp::serve(bench.root.path()).await;
    let problem = async |remote: &Remote| match bench.git.mirror(&name(), remote, "main").await {
        Err(error) => error.problem(),
        Ok(_) => panic!("no error"),
    };
    let empty = bench.root.path().join("empty.git");
    git(bench.root.path(), &["init", "-q", "--bare", empty.to_str().unwrap()]);
    assert_eq!(problem(&host.remote("empty", None)).await, RepoProblem::Empty);
    assert_eq!(problem(&host.remote("nothing", None)).await, RepoProblem::NotFound);
    let no_path = Remote { url: "/nonexistent/x".to_owned(), token: None };
    assert_eq!(problem(&no_path).await, RepoProblem::NotFound);
    let no_repository = Remote { url: bench.root.path().to_str().unwrap().into(), token: None };
    assert_eq!(problem(&no_repository).await, RepoProblem::NotFound);

    host.allow("right", "owner");
    assert_eq!(problem(&host.remote("shop", None)).await, RepoProblem::NoAccess);
    assert_eq!(problem(&host.remote("shop", Some("wrong"))).await, RepoProblem::NoAccess);
    assert!(bench.git.mirror(&name(), &host.remote("shop", Some("right")), "main").await.is_ok());

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let nobody = Remote { url: format!("http://127.0.0.1:{port}/shop.git"), token: None };
    assert_eq!(problem(&nobody).await, RepoProblem::Unreachable);
    let gone = bench.git.remote_head(&name(), &nobody).await.err().map(|e| e.problem());
    assert_eq!(gone, Some(RepoProblem::Unreachable));
}

#[tokio::test]
async fn the_token_is_sent_to_its_url_and_stands_nowhere() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let host = GitHttp::serve(bench.root.path()).await;
    let token = "ghp_s3cret";
    host.allow(token, "owner");
    let remote = host.remote("shop", Some(token));
    let mirror = bench.git.mirror(&name(), &remote, "main").await.unwrap();
    let base = mirror.tip("main").unwrap();
    let place = bench.place("shop_1_a");
    let copy = mirror.checkout(&base, "relay/claude-1", &place, &[]).await.unwrap();
    super::write(copy.dir(), "b.txt", "two");
    let commit = super::committed(&mirror, &copy).await;
    let pushed = super::push(&mirror, &remote, &commit, 2).await;
    assert!(matches!(pushed, relay::git::Pushed::Done { .. }), "{pushed:?}");
    assert!(host.asked().iter().all(|asked| asked.authorization.is_some() && asked.status == 200));
    let encoded = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        format!("x-access-token:{token}"),
    );
    for path in walk(&bench.root.path().join("home")) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        for secret in [token, &encoded] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "the token stands in {}", path.display());
        }
    }
    assert!(!format!("{mirror:?}{remote:?}").contains(token));
    // An answer of the host that no token can change does not show it either.
    let error =
        bench.git.mirror(&name(), &host.remote("nothing", Some(token)), "main").await.unwrap_err();
    assert!(!error.to_string().contains(token) && !format!("{error:?}").contains(token));
}

/// A git that writes its arguments down before it runs shows that no argument has the token.
#[tokio::test]
async fn no_argument_has_the_token() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let host = GitHttp::serve(bench.root.path()).await;
    host.allow("ghp_s3cret", "owner");
    let wrapper = bench.root.path().join("git");
    let log = bench.root.path().join("argv.log");
    let real = crate::support::repo::git_program();
    let script = format!(
        "#!/bin/sh\nfor arg; do printf '%s\\n' \"$arg\"; done >> '{}'\nexec '{}' \"$@\"\n",
        log.display(),
        real.display()
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let path = crate::support::repo::path_env();
    let git = relay::git::Git::new(wrapper, path, bench.cache());
    let remote = host.remote("shop", Some("ghp_s3cret"));
    let mirror = git.mirror(&name(), &remote, "main").await.unwrap();
    assert_eq!(git.version().await.unwrap().split('.').count(), 3);
    let commit = super::work(&bench, &mirror, "w").await;
    super::push(&mirror, &remote, &commit, 1).await;
    let argv = std::fs::read_to_string(log).unwrap();
    assert!(argv.contains("push") && argv.contains("fetch") && argv.contains(&remote.url));
    assert!(!argv.contains("ghp_") && !argv.to_lowercase().contains("authorization"), "{argv}");
}

#[tokio::test]
async fn two_runs_may_fetch_at_once() {
    let bench = Bench::new(&[("a.txt", "one")]);
    let tips = tokio::join!(bench.mirror(), bench.mirror(), bench.mirror());
    let tips: Vec<Commit> =
        [tips.0, tips.1, tips.2].iter().map(|mirror| mirror.tip("main").unwrap()).collect();
    assert!(tips.iter().all(|tip| *tip == tips[0]));
    let token = HostToken { host: "example.com".to_owned(), token: Secret::new("x") };
    let plain = Remote { url: "http://example.com/a".into(), token: Some(token) };
    assert!(matches!(
        bench.git.mirror(&name(), &plain, "main").await,
        Err(GitError::BadRemote { .. })
    ));
}
