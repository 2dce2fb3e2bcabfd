//! Files that a tool may stumble over: of kinds, names, sizes and rights nobody expects.

use super::stage::Expect::{Harmless, Pushed, Refused};
use super::stage::{Row, play};

const ROWS: &[Row] = &[
    (
        "a nested repository",
        "git init -q sub/repo; git -C sub/repo config core.fsmonitor \"$CANARY\"; echo x > sub/repo/x
         fires git -C sub/repo status",
        Refused("nested_git", "sub/repo"),
    ),
    ("a nested .GIT", "mkdir -p sub/.GIT; echo x > sub/.GIT/HEAD", Refused("nested_git", "sub")),
    ("a .GIT at the top", "mkdir .GIT; echo x > .GIT/config", Refused("nested_git", ".GIT")),
    ("a nested gitfile", "mkdir sub; echo \"gitdir: $SECRET/.git\" > sub/.git", Refused("nested_git", "sub")),
    ("a nested link to a .git", "mkdir sub; ln -s \"$SECRET/.git\" sub/.git", Refused("nested_git", "sub")),
    ("git~1", "mkdir sub; echo x > sub/git~1", Refused("nested_git", "sub")),
    (
        "a .git that another disk reads so",
        "mkdir \"$(printf '.g\\342\\200\\214it')\"; echo x > \"$(printf '.g\\342\\200\\214it')/config\"",
        Refused("nested_git", ".g"),
    ),
    ("a link for .gitmodules", "ln -s README.md .gitmodules", Refused("unsafe_file", ".gitmodules")),
    ("a link into .git", "ln -s .git/config link", Refused("link_outside", "link")),
    ("a pipe", "mkfifo src/pipe", Refused("special_file", "src/pipe")),
    ("a pipe for .gitignore", "mkfifo src/.gitignore", Refused("special_file", "src/.gitignore")),
    ("a pipe for .gitattributes", "rm -f .gitattributes; mkfifo .gitattributes", Refused("special_file", ".gitattributes")),
    ("a pipe for a file", "rm README.md; mkfifo README.md", Refused("special_file", "README.md")),
    (
        "a socket",
        "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => \"socket\", Listen => 1) or die'",
        Refused("special_file", "socket"),
    ),
    (
        "a huge file with nothing in it",
        "truncate -s 300G huge 2>/dev/null || truncate -s 200M huge",
        Refused("file_too_large", "huge"),
    ),
    (
        "a file of the tree that grew",
        "truncate -s 200M README.md",
        Refused("file_too_large", "README.md"),
    ),
    (
        "names with newlines and control characters",
        "echo x > \"$(printf 'a\\nb')\"; echo x > \"$(printf 'c\\033[2Jd')\"; echo x > 'q\"uote'",
        Pushed(&["README.md", "\"a\\nb\"", "\"c\\033[2Jd\"", "\"q\\\"uote\""]),
    ),
    (
        "bytes that are not UTF-8",
        "echo x > \"$(printf 'n\\377\\376')\"",
        Pushed(&["README.md", "\"n\\377\\376\""]),
    ),
    (
        "the longest names",
        "n=$(printf 'x%.0s' $(seq 255)); mkdir \"$n\"; echo x > \"$n/$n\"; git rm -q --cached README.md",
        Harmless,
    ),
    (
        "names like options and pathspecs",
        "echo x > '--upload-pack=x'; echo x > -rf; echo x > ':(exclude)*'; echo x > ':!x'; mkdir -- --all
         echo x > --all/x; echo x > '*'",
        Pushed(&["*", "--all/x", "--upload-pack=x", "-rf", ":!x", ":(exclude)*", "README.md"]),
    ),
    (
        "folders deeper than any path",
        "perl -e 'for (1..2500) { mkdir \"d\"; chdir \"d\" }'",
        Refused("special_file", "d/d/d"),
    ),
    (
        "hostile .gitmodules",
        "printf '[submodule \"../../x\"]\\npath = ../x\\nurl = --upload-pack=%s\\n' \"$CANARY\" > .gitmodules",
        Refused("unsafe_file", ".gitmodules"),
    ),
    (
        "an encoding nobody knows",
        "echo '*.md working-tree-encoding=NOPE' > .gitattributes",
        Harmless,
    ),
    (
        "attributes that expand and convert",
        "echo '* ident eol=crlf text=auto export-subst' > .gitattributes; echo '$Id$' > id",
        Pushed(&[".gitattributes", "README.md", "id"]),
    ),
    (
        "an ignored heap of the above",
        "mkdir out; mkfifo out/pipe; git init -q out/repo; ln -s \"$SECRET\" out/link; truncate -s 200M out/huge",
        Pushed(&["README.md"]),
    ),
    ("everything is ignored", "echo '*' > .git/info/exclude; echo x > new", Pushed(&["README.md", "new"])),
    ("everything is gone", "rm -rf src README.md .gitignore", Pushed(&[".gitignore", "README.md", "src/main.rs"])),
];

/// To root no folder is closed, and only root makes devices.
const OF_ROOT: &[Row] = &[
    ("a device", "mknod null c 1 3", Refused("special_file", "null")),
    ("a disk", "mknod disk b 7 0", Refused("special_file", "disk")),
];

const OF_A_USER: &[Row] = &[
    (
        "a closed folder",
        "mkdir shut; echo x > shut/x; chmod 000 shut",
        Refused("checkout_failed", "shut"),
    ),
    ("a closed file", "echo x > shut; chmod 000 shut", Refused("checkout_failed", "shut")),
    ("a closed copy", "chmod 000 .", Refused("checkout_failed", "unreadable")),
];

#[tokio::test(flavor = "multi_thread")]
async fn full_odd_files_are_committed_or_refused_by_name() {
    play(ROWS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_what_only_root_or_only_a_user_can_leave_is_refused_by_name() {
    play(if rustix::process::geteuid().is_root() { OF_ROOT } else { OF_A_USER }).await;
}
