//! Saying the same thing to the site until it hears. Only for requests that are idempotent by
//! design: claim, start, record, release.

use std::time::Duration;

use super::backoff::{Ramp, jitter};
use crate::client::ClientError;
use crate::model::{Clock, Ids};

/// Repeats `ask` while the site cannot be reached, for `patience` at the most.
///
/// # Errors
/// The site's refusal at once; its absence once patience is used up.
pub async fn persistently<T, F>(
    clock: &dyn Clock,
    ids: &dyn Ids,
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let deadline = clock.uptime() + patience;
    let mut ramp = Ramp::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        match ask().await {
            Err(error) if error.is_passing() => {
                let wait = ramp.wait(jitter(&ids.uuid()));
                if clock.uptime() + wait >= deadline {
                    return Err(error);
                }
                tracing::debug!(%error, wait_ms = wait.as_millis(), "the site did not answer");
                tokio::time::sleep(wait).await;
            }
            answer => return answer,
        }
    }
}
