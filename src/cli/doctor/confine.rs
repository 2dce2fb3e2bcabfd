//! The box, really tried: with a program that does nothing, with one that looks for what it must
//! not reach, and with the sandbox that claude makes for its commands inside it.

use std::future::Future;
use std::path::{Path, PathBuf};

use relay_sandbox::Confinement;

use super::super::context::Context;
use super::super::machine;
use super::Check;
use super::cure::{SETTINGS, allow, install};
use crate::work::boxing::{Boxing, Tried};
use crate::work::canary::{Hole, holes};
use crate::work::egress::{NoDoor, PASSED_BY, USABLE, passed_by, try_door, unusable};
use crate::work::walls::View;

/// Whether lanes are put in a box, and whether what keeps each vendor's commands can be made in it.
pub async fn boxes(context: &Context, boxing: impl Future<Output = Boxing>) -> Vec<Check> {
    let boxing = &boxing.await;
    let config = &context.config;
    let mend = Mend { install: install(config), allow: allow(Path::new(SETTINGS)) };
    let mut checks = vec![outer(boxing, &mend)];
    let passed = passed_by(&config.home);
    checks.extend(passed.iter().map(|lane| {
        let name = format!("{lane}'s network");
        Check::warn(
            name,
            PASSED_BY,
            "another version of its program; docs/LANES.md has those that were tried",
        )
    }));
    if config.program("claude").is_some() {
        let socat = config.program("socat").is_some();
        checks.push(inner(boxing, socat, &mend));
    }
    if config.program("codex").is_some() {
        checks.push(inner_of_codex(boxing, &mend));
    }
    if config.program("grok").is_some() {
        checks.push(inner_of_grok(boxing, &mend));
    }
    checks
}

/// What helps where there is no box.
struct Mend {
    /// The packages.
    install: &'static str,
    /// Where the kernel or a profile forbids namespaces, no package helps.
    allow: String,
}

fn outer(boxing: &Boxing, mend: &Mend) -> Check {
    const WEAKER: &str = "what a lane leaves running is killed at its end, but not when relay itself \
                          is killed";
    match (&boxing.outer, &boxing.confinement) {
        (Tried::Works, Confinement::Bubblewrap { .. }) => {
            Check::ok("box", "bubblewrap: a process namespace of its own (tried)")
        }
        (Tried::Works, _) => Check::ok("box", "unshare: a process namespace of its own (tried)"),
        (Tried::Missing, _) => Check::warn("box", format!("none: {WEAKER}"), mend.install),
        (Tried::Fails { why }, _) => {
            Check::warn("box", format!("none ({why}): {WEAKER}"), &mend.allow)
        }
    }
}

/// Whether a program in the box reaches what it must not.
pub async fn walls(context: &Context, boxing: impl Future<Output = Boxing>) -> Vec<Check> {
    let boxing = boxing.await;
    if !boxing.confinement.has_walls() {
        let seen = "none: a lane reaches all that your user may";
        return vec![Check::warn("walls", seen, install(&context.config))];
    }
    let places = Places::of(context);
    let found = holes(&boxing.confinement, &places.view(context)).await;
    vec![standing(&found, rustix::process::geteuid().is_root())]
}

/// Whether a program in the box has a way out, and only that one.
pub async fn network(context: &Context, boxing: impl Future<Output = Boxing>) -> Vec<Check> {
    vec![door(context, &boxing.await).await]
}

async fn door(context: &Context, boxing: &Boxing) -> Check {
    const NAME: &str = "network";
    const PAGE: &str = "docs/LANES.md says what a lane reaches";
    let config = &context.config;
    if !boxing.confinement.has_walls() {
        return Check::warn(NAME, "a lane reaches all that your user may", install(config));
    }
    let places = Places::of(context);
    let egress = machine::egress(config);
    match try_door(&boxing.confinement, &places.view(context), &egress).await {
        Ok(()) => {}
        Err(NoDoor::Untried(why)) => {
            return Check::warn(NAME, format!("it could not be tried: {why}"), PAGE);
        }
        Err(NoDoor::Shut(why)) => {
            let seen = format!("the door of the box does not work ({why}): lanes reach nothing");
            return Check::fail(NAME, seen, PAGE);
        }
    }
    if let Some(why) = unusable(config.outward.as_ref()) {
        return Check::warn(NAME, why, USABLE);
    }
    let mut seen = "a lane's own, with relay's proxy for the only door (tried)".to_owned();
    if !config.lane_domains.is_empty() {
        seen.push_str(&format!(", which also leads to {}", config.lane_domains.join(", ")));
    }
    if config.lane_network_shared {
        return Check::warn(NAME, format!("{seen}; process lanes have this machine's"), PAGE);
    }
    Check::ok(NAME, seen)
}

/// The homes, where they really are.
struct Places {
    home: PathBuf,
    relay_home: PathBuf,
}

impl Places {
    fn of(context: &Context) -> Self {
        let real = |path| machine::without_links(path);
        Self { home: real(&context.config.user_home), relay_home: real(&context.config.home) }
    }

    fn view<'a>(&'a self, context: &'a Context) -> View<'a> {
        View {
            home: &self.home,
            relay_home: &self.relay_home,
            environment: &context.config.environment,
            cwd: &self.home,
            own: &[],
            programs: &[],
            given: &[],
            replaced: &[],
            fixed: &[],
        }
    }
}

fn standing(found: &Result<Vec<Hole>, String>, root: bool) -> Check {
    const NAME: &str = "walls";
    const PAGE: &str = "docs/SECURITY.md says what stands in their way";
    const USER: &str = "give relay a user of its own, as docs/SECURITY.md says";
    match found.as_deref() {
        Err(why) => Check::warn(NAME, format!("they could not be tried: {why}"), PAGE),
        Ok([]) if root => {
            let seen = "they hold (tried), but a lane as root can change settings of the kernel";
            Check::warn(NAME, seen, USER)
        }
        Ok([]) => {
            Check::ok(NAME, "relay's folder, host sockets and your home are out of reach (tried)")
        }
        Ok(holes) => {
            let words: Vec<_> = holes.iter().map(|hole| hole.words()).collect();
            Check::fail(NAME, format!("a lane {}", words.join(", ")), PAGE)
        }
    }
}

fn inner(boxing: &Boxing, socat: bool, mend: &Mend) -> Check {
    const NAME: &str = "claude's sandbox";
    let boxed = !matches!(boxing.confinement, Confinement::Bare { .. });
    match &boxing.nested {
        Tried::Missing => Check::fail(NAME, "bubblewrap is not on PATH", mend.install),
        _ if !socat => Check::fail(NAME, "socat is not on PATH", mend.install),
        Tried::Works if boxed => Check::ok(NAME, "bubblewrap inside the box (tried), socat"),
        Tried::Works => Check::ok(NAME, "bubblewrap (tried), socat"),
        Tried::Fails { why } if boxed => {
            let seen = format!("does not work inside the box ({why}): claude runs without walls");
            Check::warn(NAME, seen, &mend.allow)
        }
        Tried::Fails { why } => Check::fail(NAME, why, &mend.allow),
    }
}

/// Codex brings its own bubblewrap, so that this machine's need not be there; where its sandbox
/// cannot be made inside the walls, the walls alone keep it.
fn inner_of_codex(boxing: &Boxing, mend: &Mend) -> Check {
    const NAME: &str = "codex's sandbox";
    let walls = boxing.confinement.has_walls();
    let why = match &boxing.nested {
        Tried::Works if walls => return Check::ok(NAME, "its own inside the walls (tried)"),
        Tried::Works => return Check::warn(NAME, "its own, without walls around it", mend.install),
        Tried::Missing => "bubblewrap is not on PATH",
        Tried::Fails { why } => why,
    };
    if walls {
        let seen = format!(
            "does not work inside the box ({why}): the walls alone keep codex, and its commands \
             can read its login"
        );
        return Check::warn(NAME, seen, &mend.allow);
    }
    match boxing.claude {
        Some(_) => Check::warn(NAME, "its own, without walls around it", &mend.allow),
        None => Check::fail(NAME, why, mend.install),
    }
}

/// Each of grok's commands is in a sandbox that relay makes inside the walls, so that it sees nothing
/// of the login; grok itself is run with walls or not at all.
fn inner_of_grok(boxing: &Boxing, mend: &Mend) -> Check {
    const NAME: &str = "grok's sandbox";
    if !boxing.confinement.has_walls() {
        let seen = "no walls can be made, and grok is not run without them";
        return match boxing.outer {
            Tried::Fails { .. } => Check::fail(NAME, seen, &mend.allow),
            _ => Check::fail(NAME, seen, mend.install),
        };
    }
    let (why, mend) = match &boxing.nested {
        Tried::Works => return Check::ok(NAME, "one for each command inside the walls (tried)"),
        Tried::Missing => ("bubblewrap is not on PATH", mend.install),
        Tried::Fails { why } => (why.as_str(), mend.allow.as_str()),
    };
    let seen = format!(
        "does not work inside the box ({why}): the walls alone keep grok, and its commands can read \
         its login"
    );
    Check::warn(NAME, seen, mend)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn walls_that_hold_and_walls_that_do_not() {
        let of = |found: Result<Vec<Hole>, String>, root| {
            let check = standing(&found, root);
            (check.state, check.seen)
        };
        assert_eq!(of(Ok(Vec::new()), false).0, State::Ok);
        assert_eq!(of(Ok(Vec::new()), true).0, State::Warn);
        assert_eq!(of(Err("not permitted".to_owned()), false).0, State::Warn);
        let open = "a lane reads relay's folder, writes in your home".to_owned();
        assert_eq!(of(Ok(vec![Hole::File, Hole::Home]), false), (State::Fail, open));
    }

    #[test]
    fn what_is_weaker_warns_and_what_stops_claude_fails() {
        let why = || Tried::Fails { why: "not permitted".to_owned() };
        let mend = Mend { install: "packages", allow: "a setting".to_owned() };
        let bare = Confinement::Bare { setpriv: None };
        let bwrap = Confinement::Bubblewrap { bwrap: "/usr/bin/bwrap".into() };
        let of = |outer: Tried, nested: Tried, confinement: &Confinement, socat| {
            let (confinement, claude) = (confinement.clone(), Some(confinement.clone()));
            let boxing = Boxing { outer, nested, confinement, claude };
            (super::outer(&boxing, &mend).state, inner(&boxing, socat, &mend).state)
        };
        let of_codex = |nested: Tried, confinement: &Confinement, weaker: bool| {
            let claude = weaker.then(|| confinement.clone());
            let confinement = confinement.clone();
            let boxing = Boxing { outer: Tried::Works, nested, confinement, claude };
            inner_of_codex(&boxing, &mend).state
        };
        assert_eq!(of_codex(Tried::Works, &bwrap, true), State::Ok);
        assert_eq!(of_codex(why(), &bwrap, false), State::Warn);
        assert_eq!(of_codex(Tried::Works, &bare, true), State::Warn);
        assert_eq!(of_codex(why(), &bare, true), State::Warn);
        assert_eq!(of_codex(Tried::Missing, &bare, false), State::Fail);
        let of_grok = |outer: Tried, nested: Tried, confinement: &Confinement| {
            let boxing = Boxing { outer, nested, confinement: confinement.clone(), claude: None };
            let check = inner_of_grok(&boxing, &mend);
            (check.state, check.seen, check.mend.unwrap_or_default())
        };
        assert_eq!(of_grok(Tried::Works, Tried::Works, &bwrap).0, State::Ok);
        let (state, seen, mended) = of_grok(Tried::Works, why(), &bwrap);
        assert_eq!((state, mended.as_str()), (State::Warn, "a setting"));
        assert!(seen.contains("can read its login"), "{seen}");
        let (state, _, mended) = of_grok(why(), why(), &bare);
        assert_eq!((state, mended.as_str()), (State::Fail, "a setting"));
        let (state, _, mended) = of_grok(Tried::Missing, Tried::Missing, &bare);
        assert_eq!((state, mended.as_str()), (State::Fail, "packages"));
        assert_eq!(of(Tried::Works, Tried::Works, &bwrap, true), (State::Ok, State::Ok));
        assert_eq!(of(Tried::Works, Tried::Works, &bwrap, false), (State::Ok, State::Fail));
        assert_eq!(of(Tried::Works, why(), &bwrap, true), (State::Ok, State::Warn));
        assert_eq!(of(why(), why(), &bare, true), (State::Warn, State::Fail));
        assert_eq!(of(Tried::Missing, Tried::Missing, &bare, true), (State::Warn, State::Fail));
    }
}
