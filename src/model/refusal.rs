//! What a repository, a push or a forge can be refused for, each with what mends it.
//!
//! One word stands for one cause. In a hint REPO and TASK stand for the project's and the task's
//! name; `docs/refusals.md` lists every word, and a test holds the page against these lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The words of one kind of refusal: the enum, the list of all, and what mends each.
macro_rules! refusals {
    ($(#[$about:meta])* $name:ident { $($(#[$when:meta])* $word:ident: $hint:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$when])* $word,)* }

        impl $name {
            /// Every word, in the order of the page.
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// What a person can do about it.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$word => $hint,)* }
            }
        }
    };
}

refusals! {
    /// What is wrong with a repository or with the copy a lane left behind.
    RepoProblem {
        /// It could not be reached, or the connection broke.
        Unreachable: "relay tries again by itself; `relay task retry 'TASK'` tries at once",
        /// It does not exist, or this login cannot see it.
        NotFound: "check that REPO exists and that the login of `gh auth status` can see it; then `relay task retry 'TASK'`",
        /// It answers under another name.
        Moved: "REPO has another name now: `relay link OWNER/NAME` with that name and set the label again, or give the old name back and `relay task retry 'TASK'`",
        /// The login is missing, wrong, or may not read it.
        NoAccess: "`gh auth login` as somebody who can read REPO, or set RELAY_GITHUB_TOKEN; then `relay task retry 'TASK'`",
        /// It has no commit.
        Empty: "push a first commit to the default branch of REPO, then `relay task retry 'TASK'`",
        /// The branch that work starts from is not there, or the repository names none.
        NoBranch: "give REPO a default branch on its forge, or `relay link PATH` a repository on this disk again; then `relay task retry 'TASK'`",
        /// The checkout failed on this disk.
        CheckoutFailed: "`relay task log 'TASK'` has git's own words; `relay task retry 'TASK'` starts with a fresh copy",
        /// The branch that work starts from has an object in its history that git's own check lets nobody fetch.
        UnsafeHistory: "`git clone --bare` REPO and `git fsck` there name the object as the message does; take it out of the history of that branch (`git filter-repo`), then `relay task retry 'TASK'`",
        /// The lane left a repository inside the copy.
        NestedGit: "have the lane leave no repository in its copy (say so in relay.md), or list its folder in .gitignore; then `relay task retry 'TASK'` runs the lane again",
        /// The lane touched a submodule, whose content is another repository's.
        SubmoduleChanged: "change the submodule in its own repository, and tell the lane in relay.md to leave it alone; then `relay task retry 'TASK'` runs the lane again",
        /// The lane left a link that leaves the copy: a symbolic one, or another name of a file outside.
        LinkOutside: "tell the lane in relay.md to link inside the repository only; then `relay task retry 'TASK'` runs the lane again",
        /// Two names differ only by case, which many disks cannot hold.
        CaseCollision: "tell the lane in relay.md to use another name; then `relay task retry 'TASK'` runs the lane again",
        /// A file is over the host's limit.
        FileTooLarge: "list the file in .gitignore, or store its kind with LFS; then `relay task retry 'TASK'` runs the lane again",
        /// Something that is neither a file, a link nor a folder.
        SpecialFile: "list it in .gitignore, or have the lane take it away; then `relay task retry 'TASK'` runs the lane again",
        /// A file that git's own check lets nobody fetch: a `.gitmodules` that is a link or has a command, an odd name or address; or a `.gitattributes` with a line of over 2,048 bytes.
        UnsafeFile: "tell the lane in relay.md to leave that `.gitmodules` or `.gitattributes` as it was; then `relay task retry 'TASK'` runs the lane again",
        /// The lane changed a workflow file, which could run with the repository's secrets.
        WorkflowChanged: "read the bundle; to let lanes change workflows there: `relay prefer push.workflows allow --scope project --scope-id REPO`, then `relay task retry 'TASK'`",
        /// The lane wrote a secret of the worker's into a file or a name.
        SecretInTree: "take the token out of what the lane can read, and give the login a new one (this one is known to the lane); then `relay task retry 'TASK'` runs the lane again",
        /// The repository stores files with LFS and git-lfs is missing.
        NeedsLfs: "install git-lfs on the worker's machine and start `relay work` again; then `relay task retry 'TASK'`",
        /// The repository's `.lfsconfig` names another host, which relay's token is not for.
        LfsElsewhere: "take the address out of .lfsconfig on the default branch of REPO (relay uses the LFS beside the repository), then `relay task retry 'TASK'`",
        /// A file's content is not in the repository's LFS.
        LfsMissing: "`git lfs push --all origin` from a clone that has the file, then `relay task retry 'TASK'`",
        /// The worker's machine has no more open files, processes or memory to give.
        Machine: "raise `ulimit -n` and `ulimit -u` for the worker, or start `relay work` with fewer `--jobs`; relay tries again by itself",
        /// The worker's disk refused: full or read-only.
        Disk: "make room (`relay doctor` shows the disk); relay tries again by itself",
    }
}

refusals! {
    /// Which rule refused a push.
    PushProblem {
        /// The login may not push here.
        NoPermission: "give the worker's login write access to REPO, or link a fork of your own with `relay link LOGIN/NAME`; then `relay task retry 'TASK'`",
        /// The repository is archived: nobody can write to it.
        Archived: "take REPO out of the archive (its settings on the forge), then `relay task retry 'TASK'`",
        /// The repository is gone, or this login cannot see it any more.
        NotFound: "check that REPO exists and that the login of `gh auth status` can see it; then `relay task retry 'TASK'`",
        /// The repository answers under another name.
        Moved: "REPO has another name now: `git fetch` the bundle in a clone and push it by hand, or give the old name back and `relay task retry 'TASK'`",
        /// The branch is protected (GH006).
        Protected: "take `relay/*` out of the branch protection of REPO, then `relay task retry 'TASK'`",
        /// A ruleset forbids it (GH013).
        Ruleset: "exclude `relay/*` from the ruleset that the message names, or let the worker's login bypass it; then `relay task retry 'TASK'`",
        /// The host found a secret in the work (push protection).
        SecretFound: "read the bundle before anything else; follow the message's link to allow the secret, or `relay task cancel 'TASK'`",
        /// A hook of the repository declined.
        Declined: "see to what the repository's hook says, then `relay task retry 'TASK'`",
        /// The host refuses changes to workflow files from this login.
        Workflow: "`gh auth refresh -s workflow`, or a token that may write workflows; start the worker again, then `relay task retry 'TASK'`",
        /// The host refuses a file by its size (GH001).
        FileTooLarge: "list the file in .gitignore, or store its kind with LFS; then `relay task cancel 'TASK'` and `relay task retry 'TASK'` run the lane again",
        /// The host's LFS did not take a file's content.
        LfsRefused: "see to what the message says (a quota of REPO's LFS, for one), then `relay task retry 'TASK'`",
        /// The branch holds commits that relay did not push.
        BranchMoved: "merge the branch, or delete or rename it on the forge; then `relay task retry 'TASK'`",
        /// Another home's relay, perhaps one that is gone, is ahead of this one on the branch.
        OtherHome: "see that no other relay works on REPO, delete the ref that the message names; then `relay task retry 'TASK'`",
        /// The default branch was rewritten meanwhile, and the work does not fit on the new one.
        BaseRewritten: "`git fetch` the bundle and rebase it by hand, or `relay task cancel 'TASK'` and `relay task retry 'TASK'` to run the lane on the new branch",
        /// The branch is checked out in the repository on this disk.
        CheckedOut: "check out another branch there (`git switch -`), then `relay task retry 'TASK'`",
        /// The repository on this disk cannot be written.
        ReadOnly: "make the repository writable for the worker's user, then `relay task retry 'TASK'`",
        /// The host could not be reached.
        Unreachable: "relay tries again by itself; `relay task retry 'TASK'` tries at once",
        /// Another refusal, in the run's error.
        Other: "see to what the message says, then `relay task retry 'TASK'`",
    }
}

refusals! {
    /// How a forge refused.
    ForgeProblem {
        /// The token is missing, wrong or revoked.
        Unauthorized: "`gh auth login`, or start the worker with another RELAY_GITHUB_TOKEN; then `relay task retry 'TASK'`",
        /// The login lacks a right.
        Forbidden: "let the login open pull requests and comment in REPO (a fine-grained token needs `Pull requests: write`); then `relay task retry 'TASK'`",
        /// What was named is not there.
        NotFound: "check that REPO exists and that the login of `gh auth status` can see it; then `relay task retry 'TASK'`",
        /// It answers under another name.
        Moved: "REPO has another name now: the branch is pushed, open its pull request by hand, or give the old name back and `relay task retry 'TASK'`",
        /// A primary or secondary rate limit.
        RateLimited: "relay tries again by itself once the limit has passed",
        /// The forge could not be reached or answered with a server error.
        Unreachable: "relay tries again by itself; `relay task retry 'TASK'` tries at once",
        /// The request was refused as invalid.
        Invalid: "see to what the message says, then `relay task retry 'TASK'`",
    }
}
