//! When to look: every linked repository in its own rhythm, slower after trouble, and not at all
//! while a rate limit lasts.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::memo::Known;
use super::{Intake, IntakeError, Reconciled};
use crate::forge::ForgeError;
use crate::model::{ForgeProblem, Project, RepoName, Timestamp};

/// From one look at a repository to the next. An idle repository answers each of its lists with
/// "not modified", which costs no quota, so the interval is set by what a person will wait.
pub const INTERVAL: Duration = Duration::from_secs(30);
/// The longest pause after trouble.
const LONGEST: Duration = Duration::from_secs(300);

impl Intake {
    /// Looks at every linked repository when its time has come, until `stop`. `nudge` makes it
    /// look at the list of projects at once: one was linked, or `is_ours` says another thing. What
    /// is not ours another process looks at. `on_look` hears of each look.
    pub async fn poll(
        &self,
        stop: &CancellationToken,
        nudge: &Notify,
        is_ours: &(dyn Fn(&Project) -> bool + Send + Sync),
        on_look: &(dyn Fn(&Reconciled) + Send + Sync),
    ) {
        let mut due: HashMap<RepoName, Timestamp> = HashMap::new();
        loop {
            let wait = tokio::select! {
                () = stop.cancelled() => return,
                wait = self.turn(&mut due, is_ours, on_look) => wait,
            };
            let sleep = async {
                match wait {
                    Some(at) => self.clock.sleep_until(at).await,
                    // Nothing is linked: nothing to wake for.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = nudge.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// Looks at what is due; when to come back.
    async fn turn(
        &self,
        due: &mut HashMap<RepoName, Timestamp>,
        is_ours: &(dyn Fn(&Project) -> bool + Send + Sync),
        on_look: &(dyn Fn(&Reconciled) + Send + Sync),
    ) -> Option<Timestamp> {
        let mut projects = match self.projects().await {
            Ok(projects) => projects,
            Err(error) => {
                tracing::error!("the list of projects cannot be read: {error}");
                return Some(self.clock.now() + LONGEST);
            }
        };
        projects.retain(is_ours);
        due.retain(|slug, _| projects.iter().any(|project| project.slug == *slug));
        for project in &projects {
            // A look takes a while, in which it may have gone to another.
            if !is_ours(project) {
                continue;
            }
            let at = due.entry(project.slug.clone()).or_insert_with(|| self.clock.now());
            if *at <= self.clock.now() {
                let looked = self.reconcile(project).await;
                *at = looked.next;
                on_look(&looked);
            }
        }
        due.values().min().copied()
    }

    /// When to look again, after a look that ended with `problem`. A problem is told once.
    pub(super) async fn next_look(
        &self,
        project: &Project,
        known: &mut Known,
        problem: Option<&IntakeError>,
    ) -> Timestamp {
        let now = self.clock.now();
        let Some(problem) = problem else {
            known.failures = 0;
            known.problem = None;
            return now + jittered(INTERVAL, &project.slug, now);
        };
        if let IntakeError::Forge(ForgeError::RateLimited { until }) = problem {
            // Its time moves, the fact does not.
            tell(project, known, "rate limited", problem);
            return *until + jittered(INTERVAL, &project.slug, now) / 4;
        }
        tell(project, known, &problem.to_string(), problem);
        known.failures = known.failures.saturating_add(1);
        let pause = match problem {
            IntakeError::Forge(error) if error.problem() != ForgeProblem::Unreachable => LONGEST,
            _ => INTERVAL.saturating_mul(1 << known.failures.min(5)).min(LONGEST),
        };
        now + jittered(pause, &project.slug, now)
    }
}

fn tell(project: &Project, known: &mut Known, kind: &str, problem: &IntakeError) {
    if known.problem.as_deref() != Some(kind) {
        known.problem = Some(kind.to_owned());
        tracing::warn!(project = %project.slug, "cannot look: {problem}");
    }
}

/// Up to a tenth more or less, different for each project and time, so that many projects and
/// many machines do not ask in the same second.
fn jittered(pause: Duration, slug: &RepoName, now: Timestamp) -> Duration {
    let mut hasher = DefaultHasher::new();
    (slug, now).hash(&mut hasher);
    let part = hasher.finish() % 201;
    pause / 1000 * 900 + pause / 1000 * u32::try_from(part).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_spread_within_a_tenth() {
        let slug: RepoName = "acme/shop".parse().unwrap();
        let pauses: Vec<_> =
            (0..50).map(|t| jittered(INTERVAL, &slug, Timestamp(t * 1000))).collect();
        assert!(pauses.iter().all(|p| (27..=33).contains(&p.as_secs())), "{pauses:?}");
        assert!(pauses.iter().any(|p| *p != pauses[0]));
    }
}
