//! The box, really tried: once with a program that does nothing, and once with the sandbox that
//! claude makes for its commands inside it.

use relay_sandbox::Confinement;

use super::super::context::Context;
use super::super::machine;
use super::Check;
use crate::work::boxing::{Boxing, Tried};

const INSTALL: &str = "sudo apt install bubblewrap socat";
/// Where the kernel or a profile forbids namespaces, no package helps.
const ALLOW: &str = "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
                     kernel.apparmor_restrict_unprivileged_userns=0";

/// Whether lanes are put in a box, and whether claude's own sandbox can be made inside it.
pub async fn boxes(context: &Context) -> Vec<Check> {
    let boxing = machine::boxing(context).await;
    let mut checks = vec![outer(&boxing)];
    if context.config.program("claude").is_some() {
        let socat = context.config.program("socat").is_some();
        checks.push(inner(&boxing, socat));
    }
    checks
}

fn outer(boxing: &Boxing) -> Check {
    const WEAKER: &str = "what a lane leaves running is killed at its end, but not when relay itself \
                          is killed";
    match (&boxing.outer, &boxing.confinement) {
        (Tried::Works, Confinement::Bubblewrap { .. }) => {
            Check::ok("box", "bubblewrap: a process namespace of its own (tried)")
        }
        (Tried::Works, _) => Check::ok("box", "unshare: a process namespace of its own (tried)"),
        (Tried::Missing, _) => Check::warn("box", format!("none: {WEAKER}"), INSTALL),
        (Tried::Fails { why }, _) => Check::warn("box", format!("none ({why}): {WEAKER}"), ALLOW),
    }
}

fn inner(boxing: &Boxing, socat: bool) -> Check {
    const NAME: &str = "claude's sandbox";
    let boxed = !matches!(boxing.confinement, Confinement::Bare { .. });
    match &boxing.nested {
        Tried::Missing => Check::fail(NAME, "bubblewrap is not on PATH", INSTALL),
        _ if !socat => Check::fail(NAME, "socat is not on PATH", INSTALL),
        Tried::Works if boxed => Check::ok(NAME, "bubblewrap inside the box (tried), socat"),
        Tried::Works => Check::ok(NAME, "bubblewrap (tried), socat"),
        Tried::Fails { why } if boxed => {
            let seen = format!("does not work inside the box ({why}): claude runs without the box");
            Check::warn(NAME, seen, ALLOW)
        }
        Tried::Fails { why } => Check::fail(NAME, why, ALLOW),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn what_is_weaker_warns_and_what_stops_claude_fails() {
        let why = || Tried::Fails { why: "not permitted".to_owned() };
        let bare = Confinement::Bare { setpriv: None };
        let bwrap = Confinement::Bubblewrap { bwrap: "/usr/bin/bwrap".into() };
        let of = |outer: Tried, nested: Tried, confinement: &Confinement, socat| {
            let (confinement, claude) = (confinement.clone(), Some(confinement.clone()));
            let boxing = Boxing { outer, nested, confinement, claude };
            (super::outer(&boxing).state, inner(&boxing, socat).state)
        };
        assert_eq!(of(Tried::Works, Tried::Works, &bwrap, true), (State::Ok, State::Ok));
        assert_eq!(of(Tried::Works, Tried::Works, &bwrap, false), (State::Ok, State::Fail));
        assert_eq!(of(Tried::Works, why(), &bwrap, true), (State::Ok, State::Warn));
        assert_eq!(of(why(), why(), &bare, true), (State::Warn, State::Fail));
        assert_eq!(of(Tried::Missing, Tried::Missing, &bare, true), (State::Warn, State::Fail));
    }
}
