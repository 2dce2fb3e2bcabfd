//! Every look at the machine, side by side, and none longer than it may be.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;

use super::{Check, State};

/// One look: what it is called, what it means that it did not come to an end, and the look itself.
pub struct Look<'a> {
    name: &'static str,
    silent: State,
    checks: Pin<Box<dyn Future<Output = Vec<Check>> + 'a>>,
}

impl<'a> Look<'a> {
    /// A look without which it is not known whether tasks can be done.
    pub fn vital(name: &'static str, checks: impl Future<Output = Vec<Check>> + 'a) -> Self {
        Self { name, silent: State::Fail, checks: Box::pin(checks) }
    }

    /// A look at something that relay can do without.
    pub fn minor(name: &'static str, checks: impl Future<Output = Vec<Check>> + 'a) -> Self {
        Self { name, silent: State::Warn, checks: Box::pin(checks) }
    }
}

/// Takes every look at once. One that does not end within `most` is dropped, with all it started,
/// and told by its name; the others are not kept waiting by it.
pub async fn side_by_side(looks: Vec<Look<'_>>, most: Duration) -> Vec<Check> {
    let taken =
        looks.into_iter().map(async |look| match tokio::time::timeout(most, look.checks).await {
            Ok(checks) => checks,
            Err(_) => vec![silent(look.name, look.silent, most)],
        });
    join_all(taken).await.into_iter().flatten().collect()
}

/// What helps where it is only slow: the first call of a large program after a start of the machine.
pub const MORE_TIME: &str = "relay doctor --patience 30";

fn silent(name: &str, state: State, most: Duration) -> Check {
    let seen = format!("no answer within {:.1} s", most.as_secs_f64());
    Check { state, ..Check::warn(name, seen, MORE_TIME) }
}

/// A look at the disk, which may be one that does not answer: kept off the thread of all others.
pub async fn apart(look: impl FnOnce() -> Vec<Check> + Send + 'static) -> Vec<Check> {
    match tokio::task::spawn_blocking(look).await {
        Ok(checks) => checks,
        Err(error) => vec![Check::warn("doctor", error.to_string(), "relay doctor")],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn a_look_that_never_ends_is_told_by_its_name_and_no_other_is_lost() {
        let most = Duration::from_millis(100);
        let mut looks: Vec<Look<'_>> =
            ["a", "b", "c"].map(|name| Look::minor(name, std::future::pending())).into();
        looks.push(Look::vital("d", std::future::pending()));
        looks.push(Look::vital("e", async { vec![Check::ok("e", "seen")] }));
        let checks = side_by_side(looks, most).await;
        let told: Vec<_> = checks.iter().map(|check| (check.name.as_str(), check.state)).collect();
        let (warn, fail) = (State::Warn, State::Fail);
        assert_eq!(told, [("a", warn), ("b", warn), ("c", warn), ("d", fail), ("e", State::Ok)]);
        assert_eq!(checks[0].seen, "no answer within 0.1 s");
        assert_eq!(checks[0].mend.as_deref(), Some("relay doctor --patience 30"));
    }

    /// Each waits for all the others, so that one after the other none would end.
    #[tokio::test]
    async fn every_look_is_taken_at_once() {
        let all = Arc::new(Barrier::new(3));
        let look = |name| {
            let all = Arc::clone(&all);
            Look::vital(name, async move {
                all.wait().await;
                vec![Check::ok(name, "seen")]
            })
        };
        let checks = side_by_side(["a", "b", "c"].map(look).into(), Duration::from_secs(60)).await;
        assert!(checks.iter().all(|check| check.state == State::Ok), "{checks:?}");
    }
}
