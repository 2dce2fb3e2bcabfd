//! `docs/refusals.md` against the closed lists, and the lists against themselves.

use std::collections::HashMap;

use relay::model::{
    Disposition, ForgeProblem, PushProblem, RepoProblem, StopReason, TaskId, Timestamp,
};

/// Every reason with every detail.
fn all() -> Vec<StopReason> {
    let repo = RepoProblem::ALL.iter().map(|&why| StopReason::RepoUnusable { why });
    let push = PushProblem::ALL.iter().map(|&why| StopReason::PushRefused { why });
    let forge = ForgeProblem::ALL.iter().map(|&why| StopReason::ForgeRefused { why });
    repo.chain(push).chain(forge).collect()
}

fn task() -> TaskId {
    "acme/shop#12".parse().unwrap()
}

/// The rows of the page: the detail under its heading, and what mends it.
fn page() -> HashMap<String, String> {
    let text = include_str!("../../../docs/refusals.md");
    let (mut rows, mut heading) = (HashMap::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("## `") {
            heading = rest.split('`').next().unwrap().to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [word, _, mends] = cells[..] else { panic!("{line}") };
            let word = format!("{heading} ({})", word.trim_end_matches('`'));
            let twice = rows.insert(word, mends.trim_end_matches(" |").to_owned());
            assert_eq!(twice, None, "{line}");
        }
    }
    rows
}

#[test]
fn the_page_has_each_reason_with_what_mends_it_and_no_other() {
    let mut page = page();
    for reason in all() {
        let hint = match &reason {
            StopReason::RepoUnusable { why } => why.hint(),
            StopReason::PushRefused { why } => why.hint(),
            StopReason::ForgeRefused { why } => why.hint(),
            _ => unreachable!(),
        };
        let row = page.remove(&reason.to_string());
        assert_eq!(row.as_deref(), Some(hint), "{reason}: docs/refusals.md");
    }
    assert_eq!(page, HashMap::new(), "docs/refusals.md has rows that nothing stands for");
}

#[test]
fn no_two_reasons_have_one_name_and_each_that_stops_a_task_has_a_hint() {
    let mut reasons = all();
    let task = task();
    reasons.extend([
        StopReason::NoChanges,
        StopReason::MaxTurns,
        StopReason::TimedOut,
        StopReason::Stalled,
        StopReason::Quota { until: Timestamp(0) },
        StopReason::ForgeLimited { until: Timestamp(0) },
        StopReason::Budget,
        StopReason::NotLoggedIn,
        StopReason::PermissionRefused,
        StopReason::SandboxUnavailable,
        StopReason::VendorUnreachable,
        StopReason::VendorError,
        StopReason::ProtocolViolation,
        StopReason::Crashed,
        StopReason::Quarantined,
    ]);
    let mut names = HashMap::new();
    for reason in &reasons {
        let twice = names.insert(reason.to_string(), reason);
        assert_eq!(twice, None, "{reason}");
        let hint = reason.hint(&task).unwrap_or_else(|| panic!("{reason} has no hint"));
        assert!(!hint.contains("TASK") && !hint.contains("REPO"), "{hint}");
        let is_by_itself = !matches!(reason.disposition(), Disposition::Fail);
        let says_what_to_do = hint.contains('`');
        assert!(says_what_to_do || is_by_itself, "{reason} names no command: {hint}");
    }
}

#[test]
fn a_refusal_waits_for_a_person_unless_it_passes_by_itself() {
    let by_themselves: Vec<String> = all()
        .into_iter()
        .filter(|reason| reason.disposition() != Disposition::Fail)
        .map(|reason| reason.to_string())
        .collect();
    assert_eq!(
        by_themselves,
        [
            "repo_unusable (unreachable)",
            "repo_unusable (machine)",
            "repo_unusable (disk)",
            "push_refused (unreachable)",
            "forge_refused (rate_limited)",
            "forge_refused (unreachable)",
        ]
    );
}
