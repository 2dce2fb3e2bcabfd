//! Traps that lead git, or relay itself, to another place on the disk.

use super::stage::Expect::{Harmless, Pushed, Refused};
use super::stage::{Row, play};

const README: &[&str] = &["README.md"];

const ROWS: &[Row] = &[
    ("core.worktree", "git config core.worktree \"$SECRET\"", Pushed(README)),
    (
        "core.worktree, included",
        "printf '[core]\\nworktree = %s\\n' \"$SECRET\" > .git/more; git config include.path more",
        Pushed(README),
    ),
    ("a gitfile", "rm -rf .git; echo \"gitdir: $SECRET/.git\" > .git", Pushed(README)),
    ("a linked .git", "rm -rf .git; ln -s \"$SECRET/.git\" .git", Pushed(README)),
    (".git is a pipe", "rm -rf .git; mkfifo .git", Pushed(README)),
    ("no .git", "rm -rf .git", Pushed(README)),
    (
        "linked objects",
        "rm -rf .git/objects; ln -s \"$SECRET/.git/objects\" .git/objects
         git -C \"$SECRET\" rev-parse HEAD > .git/refs/heads/relay/$(ls .git/refs/heads/relay)",
        Pushed(README),
    ),
    (
        "alternates",
        "echo \"$SECRET/.git/objects\" > .git/objects/info/alternates
         theirs=$(git -C \"$SECRET\" rev-parse HEAD); git update-ref refs/heads/stolen $theirs
         git symbolic-ref HEAD refs/heads/stolen",
        Pushed(README),
    ),
    (
        "replaced objects",
        "echo \"$SECRET/.git/objects\" > .git/objects/info/alternates
         git update-ref refs/replace/$(git rev-parse HEAD) $(git -C \"$SECRET\" rev-parse HEAD)
         git update-ref refs/replace/$(git rev-parse HEAD:README.md) \
             $(git -C \"$SECRET\" rev-parse HEAD:password)",
        Pushed(README),
    ),
    (
        "skip-worktree and assume-unchanged",
        "git update-index --skip-worktree README.md; git update-index --assume-unchanged src/main.rs
         echo '// more' >> src/main.rs; [ -z \"$(git status --porcelain)\" ] || exit 9",
        Pushed(&["README.md", "src/main.rs"]),
    ),
    ("a poisoned index", "head -c 5000 /dev/zero > .git/index", Pushed(README)),
    (
        "an index with a file from outside",
        "id=$(git --git-dir=\"$SECRET/.git\" rev-parse HEAD:password)
         mkdir -p .git/objects/info; echo \"$SECRET/.git/objects\" > .git/objects/info/alternates
         git update-index --add --cacheinfo 100644,$id,stolen
         git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),linked",
        Pushed(README),
    ),
    ("an index that is a pipe", "rm .git/index; mkfifo .git/index .git/HEAD.lock", Pushed(README)),
    ("a link to a file", "ln -s \"$SECRET/password\" stolen", Refused("link_outside", "stolen")),
    (
        "a link that climbs",
        "ln -s ../../../../../../../../../etc/passwd src/up",
        Refused("link_outside", "src/up"),
    ),
    (
        "a chain of links",
        "ln -s two one; ln -s three two; ln -s \"$SECRET\" three",
        Refused("link_outside", "three"),
    ),
    (
        "a folder swapped for a link",
        "rm -rf src; ln -s \"$SECRET\" src",
        Refused("link_outside", "src"),
    ),
    (
        "a file swapped for a link",
        "rm README.md; ln -s \"$SECRET/password\" README.md",
        Refused("link_outside", "README.md"),
    ),
    (
        "another name of a file outside",
        "ln \"$SECRET/password\" src/stolen",
        Refused("link_outside", "src/stolen"),
    ),
    ("two names of a file inside", "ln README.md twin", Pushed(&["README.md", "twin"])),
    (
        "a process that goes on swapping",
        "echo fine > swap
         for n in 1 2 3; do
             setsid sh -c 'while :; do ln -sf \"$0/password\" swap; rm -f swap; echo fine > swap; done' \
                 \"$SECRET\" > /dev/null 2>&1 &
         done",
        Harmless,
    ),
    (
        "the copy is gone",
        "d=$(pwd); cd /; rm -rf \"$d\"",
        Refused("checkout_failed", "left no folder"),
    ),
    (
        "the copy became a link to another folder",
        "d=$(pwd); cd /; rm -rf \"$d\"; ln -s \"$SECRET\" \"$d\"",
        Refused("checkout_failed", "something else"),
    ),
    (
        "the copy became another repository",
        "d=$(pwd); cd /; rm -rf \"$d\"; cp -r \"$SECRET\" \"$d\"",
        Refused("checkout_failed", "something else"),
    ),
    (
        "the copy became a file",
        "d=$(pwd); cd /; rm -rf \"$d\"; echo x > \"$d\"",
        Refused("checkout_failed", "something else"),
    ),
];

/// The last thing such a machine sees: what follows would run in the folder of the lane's choice.
const PARENT: &[Row] = &[(
    "the folder above the copy is swapped for a link",
    "d=$(pwd); w=$(dirname \"$d\"); cd /; mv \"$w\" \"$w.away\"; mkdir \"$w.theirs\"
     cp -r \"$SECRET\" \"$w.theirs/$(basename \"$d\")\"; ln -s \"$w.theirs\" \"$w\"",
    Refused("checkout_failed", "something else"),
)];

#[tokio::test(flavor = "multi_thread")]
async fn full_no_byte_from_outside_the_copy_is_committed() {
    play(ROWS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_a_folder_above_the_copy_that_was_swapped_is_noticed() {
    play(PARENT).await;
}
