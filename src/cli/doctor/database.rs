//! The database: whether it opens, whether it is sound, whether the clock agrees with it, and which
//! repositories it has.

use std::time::Duration;

use super::super::context::Context;
use super::super::error::hint_of;
use super::super::site::Site;
use super::super::time::{date, span};
use super::{Check, repositories};
use crate::api::HealthAnswer;
use crate::client::{ClientError, Endpoint};
use crate::model::Timestamp;
use crate::work::linked::Linked;

/// An event further ahead than this was told by another clock.
const AHEAD: Duration = Duration::from_secs(5 * 60);
/// Two clocks that are kept by the network agree to a second; the answer takes its time.
const APART: Duration = Duration::from_secs(60);

/// Opens the database, or asks its owner, and has it read through. Also whether this home's owner is
/// a `relay serve`, which other machines work for.
pub async fn checks(context: &Context) -> (Vec<Check>, bool) {
    let failed = |error: anyhow::Error| {
        let mend = hint_of(&error).unwrap_or_else(|| "relay work status".to_owned());
        (vec![Check::fail("database", format!("{error:#}"), mend)], false)
    };
    let asking = async |site: &Site| {
        let owner = (site.is_for_a_moment(), site.kept_by(), site.serves_others());
        let asked = tokio::join!(site.status(), site.health(), site.projects());
        Ok::<_, ClientError>((owner, asked.0?, asked.1?, asked.2))
    };
    let ((moment, kept_by, serves_others), status, health, projects) =
        match context.ask(asking).await {
            Ok(answers) => answers,
            Err(error) => return failed(error),
        };
    let far = matches!(context.config.site, Some(Endpoint::Http(_)));
    let owner = if let Some(site) = &context.config.site {
        format!("of {site}")
    } else if moment {
        "no `relay work` runs on this home".to_owned()
    } else {
        format!("held by `{}`, pid {}", kept_by.unwrap_or("relay work"), status.pid)
    };
    let sound = if health.read_through { "sound" } else { "too large to read through" };
    let seen = format!("{owner}; {:.1} MB, {sound}", health.bytes as f64 / 1e6);
    let mut checks = vec![Check::ok("database", seen)];
    checks.push(clock(&health, status.ts, context.clock.now()));
    match projects {
        Ok(projects) => {
            checks.extend(repositories::checks(
                &projects,
                &status.forges,
                &context.host(),
                far.then(|| Linked::of(&context.config.home)).as_ref(),
                status.ts,
            ));
        }
        Err(error) => {
            checks.push(Check::fail("repositories", error.to_string(), "relay work status"));
        }
    }
    (checks, context.config.site.is_none() && serves_others)
}

/// Where the clock was set back, leases and parked tasks wait for times that come late; where it is
/// another than the site's, what a worker tells of its runs is told of other times.
fn clock(health: &HealthAnswer, site: Timestamp, here: Timestamp) -> Check {
    const NAME: &str = "clock";
    const MEND: &str = "timedatectl (is the time right, and kept by the network?)";
    let ahead = health.newest_event.map(|newest| newest.since(site)).unwrap_or_default();
    let apart = site.since(here).max(here.since(site));
    if ahead > AHEAD {
        let seen =
            format!("the newest event is {} in the future: the clock was set back", span(ahead));
        return Check::warn(NAME, seen, MEND);
    }
    if apart > APART {
        let seen = format!("{}, {} from the site's", date(here), span(apart));
        return Check::warn(NAME, seen, MEND);
    }
    Check::ok(NAME, date(here))
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn an_event_of_the_future_tells_of_a_clock_that_was_set_back() {
        let at = |newest| HealthAnswer { bytes: 0, read_through: true, newest_event: newest };
        let now = Timestamp(10_000_000);
        assert_eq!(clock(&at(None), now, now).state, State::Ok);
        assert_eq!(clock(&at(Some(now + AHEAD)), now, now).state, State::Ok);
        let check = clock(&at(Some(now + Duration::from_secs(7200))), now, now);
        assert_eq!(check.state, State::Warn);
        assert!(check.seen.contains("2h"), "{}", check.seen);
        let there = now + Duration::from_secs(90);
        for check in [clock(&at(None), now, there), clock(&at(None), there, now)] {
            assert_eq!(check.state, State::Warn);
            assert!(check.seen.ends_with("1m 30s from the site's"), "{}", check.seen);
        }
    }
}
