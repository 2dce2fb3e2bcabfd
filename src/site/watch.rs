//! The owner's watch over the linked repositories: the intake's poll, its news for the bell, and
//! how it stands with each repository for `GET /status`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::state::Site;
use crate::api::feed::ForgeStatus;
use crate::forge::ForgeError;
use crate::forge::github::Accounts;
use crate::intake::{Intake, IntakeConfig, IntakeError, Reconciled};
use crate::model::{ForgeKind, Project, RepoName, Timestamp};

/// What an owner needs to watch the linked repositories.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The person's logins.
    pub accounts: Arc<Accounts>,
    /// This machine: local repositories of another one are not looked at.
    pub host: String,
    /// Logins that may ask (RELAY_ALLOWED_SENDERS). Empty: whoever can write to the repository.
    pub allowed_senders: Vec<String>,
}

/// How it stands with each repository, as of the last look.
#[derive(Debug, Default)]
pub struct Standing {
    seen: Mutex<BTreeMap<RepoName, ForgeStatus>>,
}

impl Standing {
    /// One for each repository that was looked at.
    pub fn all(&self) -> Vec<ForgeStatus> {
        self.lock().values().cloned().collect()
    }

    /// What the last look at a repository came to, where that was no good.
    pub fn trouble(&self, slug: &RepoName) -> Option<String> {
        self.lock().get(slug).and_then(|status| status.error.clone())
    }

    fn note(&self, looked: &Reconciled, now: Timestamp) {
        let limited = matches!(
            looked.problem,
            Some(IntakeError::Forge(ForgeError::RateLimited { .. } | ForgeError::Unreachable(_)))
        );
        let status = ForgeStatus {
            slug: looked.slug.to_string(),
            polled_at: Some(now),
            cooling_until: limited.then_some(looked.next),
            error: looked.problem.as_ref().map(ToString::to_string),
        };
        self.lock().insert(looked.slug.clone(), status);
    }

    /// Each change is one insertion, so a panic elsewhere leaves the map whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RepoName, ForgeStatus>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches until `closing`.
pub(super) async fn watch(site: Arc<Site>, watch: Watch, closing: CancellationToken) {
    let Watch { accounts, host, allowed_senders } = watch;
    let intake = Intake::new(IntakeConfig {
        queue: site.queue.clone(),
        accounts,
        clock: Arc::clone(&site.clock),
        host,
        allowed_senders,
    });
    let told = |looked: &Reconciled| tell(&site, looked);
    // Of several sites one asks the forges; a repository on a disk is its machine's.
    let is_ours = |project: &Project| project.forge == ForgeKind::Local || site.sites.watches();
    intake.poll(&closing, &site.linked, &is_ours, &told).await;
}

/// Passes the news of one look on.
fn tell(site: &Site, looked: &Reconciled) {
    for refusal in &looked.refused {
        let (slug, number, lane) = (&looked.slug, refusal.number, &refusal.lane);
        tracing::warn!("{slug}#{number}: no task for `{lane}`: {}", refusal.why);
    }
    for changed in looked.cancelled.iter().chain(&looked.done) {
        site.called_off(changed);
    }
    if looked.is_change() {
        site.timers.changed();
    }
    site.standing.note(looked, site.clock.now());
}
