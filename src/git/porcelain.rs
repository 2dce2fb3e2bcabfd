//! What a push's answer means. The exit code alone does not tell: it is read ref by ref, and the
//! reasons are those of git and of GitHub under `LC_ALL=C`.

use super::error::{problem_in, text_of};
use crate::model::{PushProblem, RepoProblem};
use crate::process::Output;

/// Why the remote refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub why: PushProblem,
    pub text: String,
}

/// What a push came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every ref is where it was meant to go.
    Landed,
    /// A ref was not where it was seen; nothing landed.
    Moved(String),
    /// The connection broke; whether it landed is not known.
    Broken(String),
    /// The host refuses the hidden ref.
    FenceRefused {
        /// Some hosts refuse it so early that the rest of the transaction lands.
        branch_landed: bool,
        text: String,
    },
    /// The host refuses the branch or its content.
    Refused(Refusal),
}

/// What one ref's line says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said<'a> {
    Landed,
    /// It would have landed, but another ref of the same push did not.
    WithTheOther,
    Stale,
    No(&'a str),
    Nothing,
}

/// Reads the answer to a push of `hidden` or `branch` or both.
pub(super) fn verdict(output: &Output, hidden: Option<&str>, branch: Option<&str>) -> Verdict {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let said = |name: Option<&str>| name.map_or(Said::Landed, |name| said_of(&stdout, name));
    let (fence, head) = (said(hidden), said(branch));
    let mut text = text_of(output);
    if let Some(reason) = [fence, head].iter().find_map(|said| match said {
        Said::No(reason) => Some(*reason),
        _ => None,
    }) {
        text = format!("{reason}\n{text}");
    }
    match (fence, head) {
        (Said::Landed, Said::Landed) => Verdict::Landed,
        (Said::Stale, _) | (_, Said::Stale) => Verdict::Moved(text),
        (Said::No(_), Said::Landed) if branch.is_some() => {
            Verdict::FenceRefused { branch_landed: true, text }
        }
        (Said::No(_), Said::WithTheOther) => Verdict::FenceRefused { branch_landed: false, text },
        (Said::WithTheOther, Said::WithTheOther) => Verdict::Moved(text),
        (Said::No(_), Said::Landed) => match refusal(&text) {
            Refusal {
                why:
                    PushProblem::Other
                    | PushProblem::Protected
                    | PushProblem::Ruleset
                    | PushProblem::Declined,
                text,
            } => Verdict::FenceRefused { branch_landed: false, text },
            known => Verdict::Refused(known),
        },
        (Said::No(_), Said::No(_)) => match refusal(&text) {
            // One word for both: asking again with the branch alone tells which was meant.
            Refusal { why: PushProblem::Other | PushProblem::Declined, text } => {
                Verdict::FenceRefused { branch_landed: false, text }
            }
            known => Verdict::Refused(known),
        },
        (_, Said::No(_)) => Verdict::Refused(refusal(&text)),
        _ if text.contains("does not support --atomic") => {
            Verdict::FenceRefused { branch_landed: false, text }
        }
        _ => match refusal(&text) {
            Refusal { why: PushProblem::Unreachable, text } => Verdict::Broken(text),
            known => Verdict::Refused(known),
        },
    }
}

/// The line of one ref: `<flag>\t<from>:<to>\t<summary> (<reason>)`.
fn said_of<'a>(stdout: &'a str, name: &str) -> Said<'a> {
    let line = stdout.lines().find_map(|line| {
        let mut parts = line.splitn(3, '\t');
        let (flag, refs, summary) = (parts.next()?, parts.next()?, parts.next()?);
        let (_, to) = refs.split_once(':')?;
        (to == name).then_some((flag, summary))
    });
    match line {
        None => Said::Nothing,
        Some((" " | "+" | "*" | "=", _)) => Said::Landed,
        Some((_, summary)) => reason(summary),
    }
}

fn reason(summary: &str) -> Said<'_> {
    let says = |words: &[&str]| words.iter().any(|word| summary.contains(word));
    if says(&[
        "stale info",
        "fetch first",
        "failed to update ref",
        "incorrect old value",
        "reference already exists",
        "cannot lock ref",
        "remote ref updated since checkout",
    ]) {
        Said::Stale
    } else if says(&["atomic push failed", "atomic push failure", "atomic transaction failed"]) {
        Said::WithTheOther
    } else {
        Said::No(summary)
    }
}

/// Which rule a host's words name.
pub(super) fn refusal(text: &str) -> Refusal {
    let lower = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // The sure words stand first: a host says several of them at once.
    let why = if says(&["archived so it is read-only", "repository is archived"]) {
        PushProblem::Archived
    } else if says(&["`workflow` scope", "without `workflow", "workflows` permission"]) {
        PushProblem::Workflow
    } else if says(&["gh001", "file size limit", "large files detected"]) {
        PushProblem::FileTooLarge
    } else if says(&["push cannot contain secrets", "push protection"]) {
        PushProblem::SecretFound
    } else if says(&["gh013", "rule violations"]) {
        PushProblem::Ruleset
    } else if says(&["gh006", "protected branch"]) {
        PushProblem::Protected
    } else if says(&["branch is currently checked out", "refusing to update checked out branch"]) {
        PushProblem::CheckedOut
    } else if says(&["hook declined"]) {
        PushProblem::Declined
    } else if says(&[
        "read-only file system",
        "unable to create temporary object directory",
        "insufficient permission for adding an object",
    ]) {
        PushProblem::ReadOnly
    } else if says(&["permission to ", "denied to ", "write access to repository"]) {
        PushProblem::NoPermission
    } else {
        match problem_in(text) {
            Some(RepoProblem::NoAccess) => PushProblem::NoPermission,
            Some(RepoProblem::NotFound) => PushProblem::NotFound,
            Some(RepoProblem::Moved) => PushProblem::Moved,
            Some(RepoProblem::Unreachable) => PushProblem::Unreachable,
            _ => PushProblem::Other,
        }
    };
    Refusal { why, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: &str = "refs/relay/fence/claude-1";
    const B: &str = "refs/heads/relay/claude-1";

    fn read(fence: &str, branch: &str, stderr: &str) -> Verdict {
        let line = |said: &str, name: &str| match said.split_once(' ') {
            Some((flag, rest)) => format!("{}\tabc:{name}\t{rest}\n", flag.replace('_', " ")),
            None => String::new(),
        };
        let stdout = format!("To x\n{}{}Done\n", line(fence, F), line(branch, B)).into_bytes();
        let stderr = stderr.as_bytes().to_vec();
        let output = Output { code: Some(1), signal: None, stdout, stderr };
        verdict(&output, Some(F), Some(B))
    }

    /// Lines as git 2.47 printed them.
    #[test]
    fn each_answer_is_read_ref_by_ref() {
        let stale = "! [rejected] (stale info)";
        let lost_race = "! [remote rejected] (atomic transaction failed)";
        let unmoved = "! [rejected] (atomic push failed)";
        let hidden = "! [remote rejected] (deny updating a hidden ref)";
        let declined = "! [remote rejected] (pre-receive hook declined)";
        assert_eq!(read("* [new reference]", "* [new branch]", ""), Verdict::Landed);
        assert_eq!(read("_ a..b", "+ a...b (forced update)", ""), Verdict::Landed);
        assert!(matches!(read(stale, unmoved, ""), Verdict::Moved(_)));
        assert!(matches!(read(lost_race, lost_race, ""), Verdict::Moved(_)));
        assert!(matches!(
            read(hidden, "* [new branch]", ""),
            Verdict::FenceRefused { branch_landed: true, .. }
        ));
        assert!(matches!(
            read(hidden, lost_race, ""),
            Verdict::FenceRefused { branch_landed: false, .. }
        ));
        let Verdict::Refused(Refusal { why, text }) =
            read(declined, declined, "remote: GH006: Protected branch update failed")
        else {
            panic!("not refused")
        };
        assert_eq!(why, PushProblem::Protected);
        assert!(text.contains("pre-receive hook declined") && text.contains("GH006"), "{text}");
        // An answer that does not name the refs is never a success.
        assert!(matches!(read("", "", "fatal: early EOF"), Verdict::Broken(_)));
        assert!(matches!(read("", "", "?"), Verdict::Refused(_)));
    }

    #[test]
    fn hosts_words_are_known() {
        for (text, why) in [
            (
                "refusing to allow a Personal Access Token to create or update workflow `.github/workflows/ci.yml` without `workflow` scope",
                PushProblem::Workflow,
            ),
            (
                "refusing to allow a GitHub App to create or update workflow `.github/workflows/ci.yml` without `workflows` permission",
                PushProblem::Workflow,
            ),
            ("remote: error: GH001: Large files detected.", PushProblem::FileTooLarge),
            (
                "remote: error: GH013: Repository rule violations found for refs/heads/x.",
                PushProblem::Ruleset,
            ),
            (
                "remote: error: GH013: Repository rule violations found for refs/heads/x.\nremote: - GITHUB PUSH PROTECTION\nremote: - Push cannot contain secrets",
                PushProblem::SecretFound,
            ),
            (
                "[remote rejected] (protected branch hook declined)\nremote: error: GH006: Protected branch update failed",
                PushProblem::Protected,
            ),
            ("[remote rejected] (pre-receive hook declined)", PushProblem::Declined),
            (
                "remote: Permission to a/b.git denied to bob.\nfatal: unable to access 'https://h/a/b.git/': The requested URL returned error: 403",
                PushProblem::NoPermission,
            ),
            (
                "remote: This repository was archived so it is read-only.\nfatal: unable to access 'https://h/a/b.git/': The requested URL returned error: 403",
                PushProblem::Archived,
            ),
            (
                "remote: Repository not found.\nfatal: repository 'https://h/a/b.git/' not found",
                PushProblem::NotFound,
            ),
            (
                "fatal: unable to access 'https://h/a/b.git/': The requested URL returned error: 301",
                PushProblem::Moved,
            ),
            (
                "! refs/heads/relay/x [remote rejected] (branch is currently checked out)",
                PushProblem::CheckedOut,
            ),
            (
                "error: remote unpack failed: unable to create temporary object directory",
                PushProblem::ReadOnly,
            ),
            (
                "error: insufficient permission for adding an object to repository database ./objects",
                PushProblem::ReadOnly,
            ),
            (
                "fatal: unable to access 'https://h/': Could not resolve host: h",
                PushProblem::Unreachable,
            ),
            ("something else", PushProblem::Other),
        ] {
            assert_eq!(refusal(text).why, why, "{text}");
        }
    }
}
