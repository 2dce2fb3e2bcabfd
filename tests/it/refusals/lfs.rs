//! A repository that stores files with LFS, without git-lfs and with it.

use std::fs;
use std::path::PathBuf;

use super::shop::{B, Shop};
use crate::support::full::skip;
use crate::support::lfs::{oid, place};
use crate::support::repo::git;

const CONTENT: &str = "the real thing";

fn pointer(content: &str) -> String {
    let (oid, size) = (oid(content.as_bytes()), content.len());
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n")
}

/// A shop whose `art.bin` is a pointer, its content at the host.
async fn shop(body: &str) -> Shop {
    let files = [
        (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n"),
        ("art.bin", &pointer(CONTENT)),
        ("README.md", "# shop\n"),
    ];
    let shop = Shop::new(&files, body).await;
    put(&shop, CONTENT);
    shop
}

fn put(shop: &Shop, content: &str) {
    let place = at_host(shop, content);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, content).unwrap();
}

fn at_host(shop: &Shop, content: &str) -> PathBuf {
    place(&shop.at.house.dir.path().join("host"), &oid(content.as_bytes()))
}

fn has_git_lfs() -> bool {
    let found = which::which("git-lfs").is_ok();
    if !found {
        skip("git-lfs is not installed");
    }
    found
}

/// A folder with every program of this machine but git-lfs.
#[expect(clippy::disallowed_methods, reason = "a test starts programs as they are installed")]
fn path_without_git_lfs(shop: &Shop) -> String {
    let folder = shop.at.house.dir.path().join("programs");
    fs::create_dir(&folder).unwrap();
    for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name != "git-lfs" && !folder.join(&name).exists() {
                let _twice = std::os::unix::fs::symlink(entry.path(), folder.join(name));
            }
        }
    }
    folder.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_git_lfs_it_is_refused_before_the_lane_runs() {
    let mut shop = shop("echo more >> README.md").await;
    let path = path_without_git_lfs(&shop);
    shop.at.house.set("PATH", &path);
    shop.work();
    assert_eq!(shop.assert_refused("repo_unusable (needs_lfs)"), None);
    assert_eq!(shop.runs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_with_git_lfs_the_lane_sees_contents_and_the_branch_holds_pointers() {
    if !has_git_lfs() {
        return;
    }
    let body = "git status --porcelain > .git/seen; mv .git/seen seen; cat art.bin >> seen; printf new > new.bin; \
                truncate -s 101M huge.bin; echo more >> README.md";
    let shop = shop(body).await;
    shop.work();
    shop.assert_delivered(1, &["README.md", "huge.bin", "new.bin", "seen"]);
    let bare = &shop.at.origin.bare;
    let shown = |file: &str| git(bare, &["show", &format!("{B}:{file}")]);
    assert_eq!(shown("seen"), CONTENT, "contents, and nothing changed in git's eyes");
    assert_eq!(format!("{}\n", shown("new.bin")), pointer("new"));
    assert_eq!(format!("{}\n", shown("art.bin")), pointer(CONTENT));
    assert!(shown("huge.bin").ends_with(&format!("size {}", 101 * 1024 * 1024)));
    assert_eq!(fs::read_to_string(at_host(&shop, "new")).unwrap(), "new");

    // The token went to the LFS beside the repository, and contents before the branch.
    let asked = shop.at.host.asked();
    let position = |part: &str| asked.iter().rposition(|asked| asked.line.contains(part)).unwrap();
    assert!(position("/info/lfs/objects/batch") < position("POST /acme/shop.git/git-receive-pack"));
    assert!(asked[position("/info/lfs/objects/batch")].authorization.is_some());
    let with_token = asked.iter().filter(|asked| asked.authorization.is_some());
    assert!(with_token.clone().all(|asked| asked.line.contains("/acme/shop.git/")));
}

#[tokio::test(flavor = "multi_thread")]
async fn full_contents_that_are_not_to_be_had_and_a_host_that_takes_none_are_told_apart() {
    if !has_git_lfs() {
        return;
    }
    let shop = shop("printf new > new.bin").await;
    fs::remove_file(at_host(&shop, CONTENT)).unwrap();
    shop.work();
    assert_eq!(shop.assert_refused("repo_unusable (lfs_missing)"), None);
    put(&shop, CONTENT);
    shop.at.origin.commit("main", &[(".lfsconfig", "[lfs]\n\turl = http://127.0.0.1:9/lfs\n")]);
    shop.retry();
    shop.work();
    assert_eq!(shop.assert_refused("repo_unusable (lfs_elsewhere)"), None);
    assert_eq!(shop.runs(), 0);
    shop.at.origin.commit("main", &[(".lfsconfig", "[lfs]\n\tfetchexclude = *\n")]);

    // From here on the contents are here, and the mirror may go.
    shop.at.host.refuse("/info/lfs/objects/batch", 422, "over the quota");
    shop.retry();
    shop.work();
    assert_eq!(shop.assert_refused("repo_unusable (lfs_missing)"), None);
    shop.at.host.accept();
    shop.hook("update", "exit 1");
    shop.retry();
    shop.refused_and_kept("push_refused (declined)", &["new.bin"]);
    shop.unhook("update");
    fs::remove_file(at_host(&shop, "new")).unwrap();
    fs::remove_dir_all(shop.at.house.home.join("cache/acme/shop.git")).unwrap();
    shop.at.host.refuse("/info/lfs/objects/batch", 422, "over the quota");
    shop.retry();
    shop.refused_and_kept("push_refused (lfs_refused)", &["new.bin"]);
    assert_eq!(shop.at.origin.at(B), None);
    shop.at.host.accept();
    shop.assert_retry_delivers(1, &["new.bin"]);
    assert!(at_host(&shop, "new").is_file());
}
