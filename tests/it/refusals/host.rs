//! What a host refuses: each answer of GitHub's is its own reason, the work is kept, and once the
//! cause is mended it is delivered without another run.

use super::shop::Shop;

const README: &[(&str, &str)] = &[("README.md", "# shop\n")];
const EDIT: &str = "echo more >> README.md";

/// Each in its turn, over one run of the lane.
#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_of_a_push_has_its_name_and_the_same_work_lands_in_the_end() {
    let shop = Shop::new(README, EDIT).await;
    let of_the_branch = |text: &str| {
        format!("case $1 in refs/heads/*) printf '%s\\n' \"{text}\" >&2; exit 1;; esac")
    };
    for (why, text) in [
        (
            "protected",
            "error: GH006: Protected branch update failed for refs/heads/relay/process-edit-1.",
        ),
        (
            "ruleset",
            "error: GH013: Repository rule violations found for refs/heads/relay/process-edit-1.",
        ),
        (
            "secret_found",
            "error: GH013: Repository rule violations found.\n- GITHUB PUSH PROTECTION\n- Push cannot contain secrets",
        ),
        (
            "workflow",
            "refusing to allow an OAuth App to create or update workflow .github/workflows/ci.yml without \\`workflow\\` scope",
        ),
        (
            "file_too_large",
            "error: GH001: Large files detected.\nerror: File big.bin is 120.00 MB; this exceeds GitHub's file size limit of 100.00 MB",
        ),
        ("declined", "no push on a Friday"),
    ] {
        shop.hook("update", &of_the_branch(text));
        shop.refused_and_kept(&format!("push_refused ({why})"), &["README.md"]);
        let error = shop.detail()["runs"][0]["error"].as_str().unwrap().to_owned();
        assert!(error.contains(&text.lines().next().unwrap().replace('\\', "")), "{error}");
        assert_eq!(shop.at.origin.at("refs/heads/relay/process-edit-1"), None);
        shop.retry();
    }
    shop.unhook("update");
    for (why, status, text) in [
        ("no_permission", 403, "Permission to acme/shop.git denied to relay-bot."),
        ("archived", 403, "This repository was archived so it is read-only."),
        ("not_found", 404, "Repository not found."),
        ("moved", 301, ""),
    ] {
        shop.at.host.refuse("git-receive-pack", status, text);
        shop.refused_and_kept(&format!("push_refused ({why})"), &["README.md"]);
        shop.at.host.accept();
        shop.retry();
    }
    shop.work();
    shop.assert_delivered(1, &["README.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_is_refused_keeps_the_work_and_is_opened_later() {
    use crate::support::fake_github::Fault;
    let shop = Shop::new(README, EDIT).await;
    let refuse = |status, said| {
        let fault = Fault::Refuse(status, Vec::new(), said);
        shop.at.hub.next_goes_wrong("POST", "/pulls", fault);
    };
    for (why, status, said) in [
        ("forbidden", 403, "Resource not accessible by personal access token"),
        ("not_found", 404, "Not Found"),
        ("moved", 307, "Moved"),
        ("invalid", 422, "Validation Failed"),
        ("unauthorized", 401, "Bad credentials"),
    ] {
        refuse(status, said);
        shop.refused_and_kept(&format!("forge_refused ({why})"), &["README.md"]);
        shop.retry();
    }
    shop.work();
    shop.assert_delivered(1, &["README.md"]);
}

/// The mirror is a cache: work that could not be delivered outlives it.
#[tokio::test(flavor = "multi_thread")]
async fn kept_work_is_delivered_also_where_the_mirror_was_lost() {
    let shop = Shop::new(README, EDIT).await;
    shop.hook("update", "exit 1");
    shop.refused_and_kept("push_refused (declined)", &["README.md"]);
    shop.unhook("update");
    std::fs::remove_dir_all(shop.at.house.home.join("cache")).unwrap();
    shop.assert_retry_delivers(1, &["README.md"]);
}

/// As another machine finds it: a branch, and neither the mirror nor the bundle of the one that pushed.
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_was_pushed_is_gone_on_from_where_nothing_else_is_left() {
    use crate::support::fake_github::Fault;
    let shop = Shop::new(README, EDIT).await;
    let fault = Fault::Refuse(422, Vec::new(), "Validation Failed");
    shop.at.hub.next_goes_wrong("POST", "/pulls", fault);
    shop.refused_and_kept("forge_refused (invalid)", &["README.md"]);
    for left in ["cache", "kept"] {
        std::fs::remove_dir_all(shop.at.house.home.join(left)).unwrap();
    }
    shop.retry();
    shop.work();
    shop.assert_delivered(1, &["README.md"]);
}
