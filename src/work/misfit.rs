//! What a site gives is compared with what was asked, and with itself, before anything else is done
//! with it. A site is a server somebody else may run: it says which task is done, and not on which
//! branch, under whose name or by which lane of this machine.

use crate::api::{Claim, ClaimRequest, ReleaseRequest};
use crate::git::is_branch_name;
use crate::model::{ForgeKind, Project, StopReason};

/// What mends it.
pub const HINT: &str =
    "`relay doctor` shows the site; whoever runs it, or stands in front of it, changes its answers";

/// What does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the site's claim of `{task}` is refused: {what}")]
pub struct Misfit {
    task: String,
    what: String,
    /// Whether the lease itself names another's: nothing is said under it.
    is_foreign: bool,
}

/// Looks at a claim.
///
/// # Errors
/// What of it is not as it was asked for.
pub fn check(claim: &Claim, asked: &ClaimRequest) -> Result<(), Misfit> {
    let Claim { lease, task, project, branch, .. } = claim;
    let misfit = |is_foreign: bool, what: String| {
        Err(Misfit { task: task.id.to_string(), what, is_foreign })
    };
    if lease.task != task.id || lease.epoch != task.epoch {
        return misfit(true, format!("its lease is of `{}`, epoch {}", lease.task, lease.epoch));
    }
    if lease.worker != asked.worker_id {
        return misfit(true, format!("its lease is worker {}'s", lease.worker));
    }
    if asked.lanes.as_ref().is_none_or(|lanes| !lanes.contains(&task.lane)) {
        return misfit(false, format!("the lane {} was not asked for", task.lane));
    }
    if asked.except.contains(&task.id.repo) {
        return misfit(false, format!("of `{}` nothing was asked for", task.id.repo));
    }
    if project.slug != task.id.repo {
        return misfit(false, format!("its repository is `{}`", project.slug));
    }
    if !is_where_it_says(project) {
        return misfit(false, format!("its repository is at `{}`", start(&project.remote)));
    }
    let own = task.own_branch();
    if *branch != own {
        return misfit(false, format!("its branch is `{}`, not `{own}`", start(branch)));
    }
    let base = &project.default_branch;
    if !is_branch_name(base) || *base == own {
        return misfit(false, format!("its default branch is `{}`", start(base)));
    }
    Ok(())
}

/// Whether the address is of that very repository: on a forge its name stands in it, and only a local
/// one is a path. Whether this machine's login is for that forge is asked later.
fn is_where_it_says(project: &Project) -> bool {
    if project.forge == ForgeKind::Local {
        return project.slug.is_local() && project.remote.starts_with('/');
    }
    let rest = ["https://", "http://"].iter().find_map(|s| project.remote.strip_prefix(s));
    let Some((_, path)) = rest.and_then(|rest| rest.split_once('/')) else { return false };
    let path = path.strip_suffix(".git").unwrap_or(path);
    !project.slug.is_local() && path.eq_ignore_ascii_case(&project.slug.to_string())
}

impl Misfit {
    /// How the claim is given back: a person has to look, since the next one would be the same.
    #[must_use]
    pub fn release(&self, claim: &Claim) -> Option<ReleaseRequest> {
        (!self.is_foreign).then(|| ReleaseRequest {
            worker_id: claim.lease.worker.clone(),
            epoch: claim.lease.epoch,
            reason: StopReason::ProtocolViolation,
            pr: None,
            pr_url: None,
            summary: None,
            error: Some(format!("{self} (hint: {HINT})")),
            kept: None,
            usage: None,
            note: None,
        })
    }
}

/// A site's word may be as long as it likes, and steer a terminal.
fn start(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Claim;
    use serde_json::{Value, json};

    const WORKER: &str = "00000000-0000-7000-8000-000000000001";
    const OTHER: &str = "00000000-0000-7000-8000-000000000002";

    fn claim(path: &str, value: Value) -> Claim {
        let mut task = serde_json::to_value(crate::model::task::sample::task()).unwrap();
        task["epoch"] = json!(3);
        let mut claim = json!({
            "lease": {"task": "acme/shop#12", "epoch": 3, "worker": WORKER, "expires_at": 1},
            "run": WORKER, "task": task, "effects": [],
            "project": {
                "slug": "acme/shop", "forge": "github", "host": "github.com", "remote": "https://github.com/Acme/shop.git",
                "api_base": null, "default_branch": "main", "linked_at": 1
            },
            "branch": "relay/claude-12",
        });
        if let Some(at) = claim.pointer_mut(path) {
            *at = value;
        }
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_claim_is_refused_that_is_not_what_was_asked_for() {
        let asked: ClaimRequest = serde_json::from_value(json!({
            "worker_id": WORKER, "instance_id": WORKER, "claim_id": WORKER, "lanes": ["claude"],
        }))
        .unwrap();
        assert_eq!(check(&claim("/run", json!(OTHER)), &asked), Ok(()));
        for (path, value, is_foreign) in [
            ("/lease/task", json!("acme/shop#13"), true),
            ("/lease/epoch", json!(4), true),
            ("/lease/worker", json!(OTHER), true),
            ("/task/lane", json!("process:y"), false),
            ("/project/slug", json!("acme/other"), false),
            ("/project/remote", json!("/home/me/private"), false),
            ("/project/remote", json!("https://github.com/acme/secret.git"), false),
            ("/project/remote", json!("https://github.com/x/acme/shop.git"), false),
            ("/project/remote", json!("https://github.com/acme/shop.git?x"), false),
            ("/project/remote", json!("file:///acme/shop"), false),
            ("/project/remote", json!("https://acme"), false),
            ("/project/forge", json!("local"), false),
            ("/branch", json!("main"), false),
            ("/branch", json!("relay/claude-13"), false),
            ("/branch", json!("../../x"), false),
            ("/project/default_branch", json!("relay/claude-12"), false),
            ("/project/default_branch", json!("--upload-pack=x"), false),
            ("/project/default_branch", json!("a..b"), false),
            ("/project/default_branch", json!(""), false),
        ] {
            let claim = claim(path, value.clone());
            let misfit = check(&claim, &asked).expect_err(&format!("{path} {value}"));
            assert_eq!(misfit.release(&claim).is_none(), is_foreign, "{misfit}");
        }
        let full = ClaimRequest { except: vec!["acme/shop".parse().unwrap()], ..asked };
        assert!(check(&claim("/run", json!(OTHER)), &full).is_err(), "it has enough of those");
    }
}
