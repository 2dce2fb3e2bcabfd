//! Saying the same thing to the site until it hears. Only for requests that are idempotent by
//! design: register, claim, heartbeat, start, record, log, release.

use std::time::Duration;

use super::backoff::{Backoff, jitter};
use crate::client::ClientError;
use crate::model::{Clock, Ids};

/// The bound of the first pause.
const FIRST: Duration = Duration::from_millis(500);

/// How long a site that does not hear is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For so long.
    For(Duration),
    /// As long as the site is away. Where it is there and fails at this very request, for so long.
    WhileAway(Duration),
}

/// Repeats `ask` while the site cannot be reached, as long as `patience` lasts.
///
/// # Errors
/// The site's refusal at once; its absence once patience is used up.
pub async fn persistently<T, F>(
    clock: &dyn Clock,
    ids: &dyn Ids,
    patience: Patience,
    mut ask: impl FnMut() -> F,
) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut since = clock.uptime();
    let mut backoff = Backoff::new(FIRST);
    loop {
        let error = match ask().await {
            Err(error) if error.is_passing() => error,
            answer => return answer,
        };
        let wait = backoff.wait(jitter(&ids.uuid()), error.retry_after());
        let allowed = match patience {
            Patience::WhileAway(_) if error.is_away() => {
                since = clock.uptime() + wait;
                Duration::MAX
            }
            Patience::For(time) | Patience::WhileAway(time) => time,
        };
        if (clock.uptime() + wait).saturating_sub(since) >= allowed {
            return Err(error);
        }
        tracing::debug!(%error, wait_ms = wait.as_millis(), "the site did not answer");
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Code, Problem};
    use crate::system::SystemClock;

    /// The shortest waits.
    #[derive(Debug)]
    struct Eager;
    impl Ids for Eager {
        fn uuid(&self) -> String {
            "00000000-0000-7000-8000-000000000000".to_owned()
        }
        fn random(&self) -> Option<[u8; 32]> {
            None
        }
    }

    fn away() -> ClientError {
        ClientError::Unreachable { endpoint: "x".to_owned(), why: "gone".to_owned(), sent: true }
    }

    fn failing() -> ClientError {
        ClientError::Refused(Problem::new(Code::Internal, "a bug"))
    }

    async fn told(
        patience: Patience,
        errors: Vec<ClientError>,
    ) -> (usize, Result<(), ClientError>) {
        let mut errors = errors.into_iter();
        let mut asked = 0;
        let answer = persistently(&SystemClock, &Eager, patience, || {
            asked += 1;
            std::future::ready(errors.next().map_or(Ok(()), Err))
        });
        let answer = answer.await;
        (asked, answer)
    }

    #[tokio::test]
    async fn a_site_that_is_away_is_waited_for_and_one_that_fails_is_not_for_ever() {
        let patience = Patience::WhileAway(Duration::ZERO);
        assert_eq!(told(patience, vec![away(); 5]).await, (6, Ok(())));
        let busy = ClientError::Refused(Problem::new(Code::Busy, "another program"));
        assert_eq!(told(patience, vec![busy; 5]).await, (6, Ok(())));
        assert_eq!(told(patience, vec![failing(); 5]).await, (1, Err(failing())));
        assert_eq!(told(Patience::For(Duration::ZERO), vec![away()]).await, (1, Err(away())));
        let lost = ClientError::Refused(Problem::new(Code::LeaseLost, "lost"));
        assert_eq!(told(patience, vec![lost.clone()]).await, (1, Err(lost)));
    }
}
