//! The forge under a job: its login, and what each of its refusals means for the task.

use std::path::Path;

use super::{Job, Stop};
use crate::forge::github::{Login, host_of};
use crate::forge::{ForgeError, Pulls as _, Standing};
use crate::model::disk::quoted;
use crate::model::{ForgeProblem, PushProblem, RepoProblem, StopReason};

impl Job {
    /// Takes this machine's login for the task's forge. A repository on this disk needs none; where
    /// a far site names it, somebody has to have linked it here.
    pub(super) async fn log_in(&mut self) -> Result<(), Stop> {
        if self.is_local() {
            return match &self.shared.linked {
                Some(linked) if !linked.holds(&self.claim.project.remote) => {
                    Err(not_linked(&self.claim.project.remote))
                }
                _ => Ok(()),
            };
        }
        own_forge(self.api_base()?, &self.shared.forge_api)?;
        let login = self.shared.accounts.login(&self.shared.forge_api).await;
        let login = login.map_err(forge_stop)?;
        self.hidden.add([login.token.clone()]);
        self.login = Some(login);
        Ok(())
    }

    pub(super) fn login(&self) -> Result<&Login, Stop> {
        self.login
            .as_ref()
            .ok_or_else(|| StopReason::ForgeRefused { why: ForgeProblem::Unauthorized }.into())
    }

    /// Asks the forge, unless the job is stopped meanwhile.
    pub(super) async fn asking<T>(
        &self,
        asking: impl Future<Output = Result<T, ForgeError>>,
    ) -> Result<T, Stop> {
        let answer = if self.is_local() {
            // Its pull request is a row on the site.
            self.while_the_site_is_itself(asking).await?
        } else {
            self.signal.guard(asking).await?
        };
        answer.map_err(|error| match self.signal.reason() {
            // A pull request that is a row is written under the lease.
            Some(reason) => reason.into(),
            None => forge_stop(error),
        })
    }

    /// What the forge would refuse is told before the lane costs anything. A forge that does not
    /// answer now may answer later: that stops nothing.
    pub(super) async fn standing(&self) -> Result<(), Stop> {
        if self.is_local() {
            return Ok(());
        }
        let repo = &self.lease.task.repo;
        let stop = |reason, text: String| Err(Stop::new(reason, text));
        let push =
            |why, text: &str| stop(StopReason::PushRefused { why }, format!("{repo} {text}"));
        let moved = StopReason::RepoUnusable { why: RepoProblem::Moved };
        match self.login()?.github.standing(repo).await {
            Ok(Standing::Writable) => Ok(()),
            Ok(Standing::Archived) => push(PushProblem::Archived, "is archived"),
            Ok(Standing::ReadOnly) => {
                push(PushProblem::NoPermission, "can be read by this login, and not pushed to")
            }
            Ok(Standing::Moved(name)) => stop(moved, format!("{repo} is called {name} now")),
            Err(error @ ForgeError::Refused { why: ForgeProblem::Moved, .. }) => {
                stop(moved, error.to_string())
            }
            Err(error @ ForgeError::Refused { .. }) => Err(forge_stop(error)),
            Err(error) => {
                tracing::debug!(task = %self.lease.task, %error, "the forge did not say what may be done");
                Ok(())
            }
        }
    }

    /// After a job that the login was refused to: the next one asks for a token anew, since the
    /// person may have logged in again.
    pub(super) async fn forget_refused_login(&self, stop: &Stop) {
        let refused = matches!(
            stop.reason,
            StopReason::ForgeRefused { why: ForgeProblem::Unauthorized }
                | StopReason::PushRefused { .. }
                | StopReason::RepoUnusable { why: RepoProblem::NoAccess | RepoProblem::NotFound }
        );
        if refused && self.login.is_some() {
            self.shared.accounts.forget(&self.shared.forge_api).await;
        }
    }

    fn api_base(&self) -> Result<&str, Stop> {
        let slug = &self.claim.project.slug;
        self.claim.project.api_base.as_deref().ok_or_else(|| {
            Stop::new(
                StopReason::ForgeRefused { why: ForgeProblem::Invalid },
                format!("`{slug}` is linked without a forge"),
            )
            .hint(format!("`relay link {slug}` mends it"))
        })
    }
}

/// A site names the forge of a task; the login was made for one, and goes to that one alone.
fn own_forge(asked: &str, own: &str) -> Result<(), Stop> {
    let (asked, own) = (host_of(asked), host_of(own));
    if asked == own {
        return Ok(());
    }
    let why = StopReason::ForgeRefused { why: ForgeProblem::Unauthorized };
    Err(Stop::new(why, format!("this machine's login is for {own}, not for {asked}")))
}

fn not_linked(path: &str) -> Stop {
    let why = StopReason::RepoUnusable { why: RepoProblem::NoAccess };
    Stop::new(why, format!("{path} was not linked from this worker's RELAY_HOME")).hint(format!(
        "`relay link {}` there, as the worker's user with its RELAY_HOME; then `relay task retry`",
        quoted(Path::new(path))
    ))
}

/// A limit parks the task until it is over and costs it nothing; the rest is a refusal.
fn forge_stop(error: ForgeError) -> Stop {
    let reason = match &error {
        ForgeError::RateLimited { until } => StopReason::ForgeLimited { until: *until },
        error => StopReason::ForgeRefused { why: error.problem() },
    };
    Stop::new(reason, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Disposition, Timestamp};

    #[test]
    fn a_site_does_not_choose_who_gets_the_login() {
        let github = "https://api.github.com";
        assert!(own_forge("https://api.github.com/", github).is_ok());
        for other in ["https://evil.example/api/v3", "https://github.com.evil.example", ""] {
            let stop = own_forge(other, github).expect_err(other);
            assert!(stop.told().is_some_and(|text| text.contains("for github.com")), "{other}");
        }
    }

    #[test]
    fn a_limit_parks_and_a_lost_login_says_what_to_do() {
        let until = Timestamp(5);
        let limited = forge_stop(ForgeError::RateLimited { until });
        assert_eq!(limited.reason.disposition(), Disposition::Park(until));
        let refused = ForgeError::Refused {
            why: ForgeProblem::Unauthorized,
            text: "GET /x: 401 Bad credentials".to_owned(),
        };
        let said = forge_stop(refused).hinted(&"acme/shop#1".parse().unwrap()).told().unwrap();
        assert!(said.contains("gh auth login") && said.contains("relay task retry"), "{said}");
    }
}
