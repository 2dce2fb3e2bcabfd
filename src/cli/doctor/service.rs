//! The service that keeps `relay work` running, where there is one.

use super::super::context::Context;
use super::super::output::one_line;
use super::super::work::service::{ServiceStatus, status};
use super::Check;

/// How it stands. None is as it should be: whoever wants one installs it.
pub async fn service(context: &Context) -> Check {
    check(&status(context).await)
}

fn check(service: &ServiceStatus) -> Check {
    const NAME: &str = "service";
    let word = one_line(&service.detail);
    let path = service.path.display();
    match (service.installed, service.loaded, service.active) {
        (_, _, true) => Check::ok(NAME, format!("{word}, {path}")),
        (false, false, false) => {
            Check::ok(NAME, "none; `relay work --install` shows the one it would make")
        }
        (_, true, false) => Check::warn(
            NAME,
            format!("loaded, but not running ({word}): {path}"),
            "relay work status",
        ),
        (true, false, false) => {
            let why = if word.is_empty() { String::new() } else { format!(" ({word})") };
            let seen = format!("{path} is there and not loaded{why}");
            Check::warn(NAME, seen, "relay work --install --yes")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_service_that_is_there_and_does_not_run_warns() {
        let of = |installed, loaded, active, detail: &str| {
            let (path, detail) = ("/u/relay-work.service".into(), detail.to_owned());
            check(&ServiceStatus { path, installed, loaded, active, detail })
        };
        assert_eq!(of(false, false, false, "").state, State::Ok);
        assert_eq!(of(true, true, true, "active (running)").state, State::Ok);
        let failed = of(true, true, false, "failed (exit-code)");
        assert_eq!(failed.state, State::Warn);
        assert!(failed.seen.contains("failed (exit-code)"), "{failed:?}");
        let forgotten = of(true, false, false, "no bus");
        assert_eq!(forgotten.state, State::Warn);
        assert_eq!(forgotten.seen, "/u/relay-work.service is there and not loaded (no bus)");
        assert_eq!(forgotten.mend.as_deref(), Some("relay work --install --yes"));
    }
}
