//! Machines that ask for a token by the device flow (RFC 8628), and people who are signed in to
//! answer them. In memory: both live for minutes, and a site that starts anew asks anew.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::limits::network_of;
use crate::model::{Actor, Secret, TokenHash, WorkerName};

/// How long a machine waits for a person's answer.
pub const CODE_LIVES: Duration = Duration::from_secs(10 * 60);

/// The pause between two polls, and what a poll that came too early adds to it (RFC 8628 §3.5).
pub const INTERVAL: Duration = Duration::from_secs(5);

/// So many machines may wait for an answer at a time: a person reads them all.
pub const ASKING_MOST: usize = 64;

/// So many of one address, so that one machine cannot take all the places.
pub const ASKING_OF_ONE: usize = 8;

/// So many of the neighbours of one address: a household may have 256 and more networks of IPv6.
const ASKING_NEAR: usize = 16;

/// How long the link of `relay open` waits for its one use.
pub const LINK_LIVES: Duration = Duration::from_secs(5 * 60);

/// How long a person stays signed in.
pub const SESSION_LIVES: Duration = Duration::from_secs(60 * 60);

/// So many links, and so many sessions: the oldest goes first.
const SIGNED_IN_MOST: usize = 64;

/// RFC 8628 §6.1: no vowels, so no words; no letter that is taken for a digit.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// A machine that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// What its terminal shows, and the person compares.
    pub user_code: String,
    /// What its worker is called.
    pub worker: WorkerName,
    /// What it says its host is.
    pub host: String,
    /// Where the request came from.
    pub from: String,
    /// Whom that counts as.
    pub household: Option<IpAddr>,
    /// When, on the site's uptime.
    pub at: Duration,
    /// A person's answer, and whose.
    pub answer: Option<(bool, Actor)>,
}

/// What a poll is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nobody has answered.
    Pending,
    /// Asked again too soon; the pause is longer now.
    SlowDown,
    /// A person said no.
    Denied,
    /// There is no such code, or its time is over.
    Expired,
    /// A person said yes. The code is used up.
    Approved(Asking),
}

/// A person who is signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Who.
    pub by: Actor,
    /// What a form of this session has to carry.
    pub csrf: TokenHash,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Desk(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asking: HashMap<TokenHash, Waiting>,
    links: Passes,
    sessions: Passes,
}

#[derive(Debug)]
struct Waiting {
    asking: Asking,
    polled: Option<Duration>,
    interval: Duration,
}

impl Desk {
    /// A machine asks. False where too many wait already, or too many of its address.
    pub fn ask(&self, device_code: &Secret, asking: Asking) -> bool {
        let mut inner = self.lock(asking.at);
        let waiting = inner.asking.values().filter(|w| w.asking.answer.is_none());
        let (all, own, near) = waiting.fold((0, 0, 0), |(all, own, near), waiting| {
            let (one, other) = (waiting.asking.household, asking.household);
            let is_near = neighbours(one) == neighbours(other);
            (all + 1, own + usize::from(one == other), near + usize::from(is_near))
        });
        let room = all < ASKING_MOST && own < ASKING_OF_ONE && near < ASKING_NEAR;
        if room {
            let waiting = Waiting { asking, polled: None, interval: INTERVAL };
            inner.asking.insert(TokenHash::of(device_code.expose()), waiting);
        }
        room
    }

    /// The machine asks whether it was answered.
    pub fn poll(&self, device_code: &Secret, now: Duration) -> Polled {
        let hash = TokenHash::of(device_code.expose());
        let mut inner = self.lock(now);
        let Some(waiting) = inner.asking.get_mut(&hash) else { return Polled::Expired };
        let early = waiting.polled.is_some_and(|polled| now < polled + waiting.interval);
        waiting.polled = Some(now);
        if early {
            waiting.interval += INTERVAL;
            return Polled::SlowDown;
        }
        match &waiting.asking.answer {
            None => Polled::Pending,
            Some((false, _)) => Polled::Denied,
            Some((true, _)) => match inner.asking.remove(&hash) {
                Some(waiting) => Polled::Approved(waiting.asking),
                None => Polled::Expired,
            },
        }
    }

    /// The token could not be made: the machine may poll for it again.
    pub fn put_back(&self, device_code: &Secret, asking: Asking) {
        let waiting = Waiting { polled: None, interval: INTERVAL, asking };
        let hash = TokenHash::of(device_code.expose());
        self.lock(waiting.asking.at).asking.insert(hash, waiting);
    }

    /// Who waits for an answer, the oldest first.
    pub fn waiting(&self, now: Duration) -> Vec<Asking> {
        let inner = self.lock(now);
        let all = inner.asking.values().map(|waiting| &waiting.asking);
        let mut waiting: Vec<Asking> = all.filter(|a| a.answer.is_none()).cloned().collect();
        waiting.sort_by(|a, b| (a.at, &a.user_code).cmp(&(b.at, &b.user_code)));
        waiting
    }

    /// A person answers, once. `None` where nobody waits with that code.
    pub fn answer(&self, user_code: &str, yes: bool, by: Actor, now: Duration) -> Option<Asking> {
        let mut inner = self.lock(now);
        let mut all = inner.asking.values_mut().map(|waiting| &mut waiting.asking);
        let asking = all.find(|a| a.answer.is_none() && a.user_code == user_code)?;
        asking.answer = Some((yes, by));
        Some(asking.clone())
    }

    /// A link that signs a person in, once.
    pub fn link(&self, code: &Secret, by: Actor, now: Duration) {
        self.lock(now).links.put(code, by, now + LINK_LIVES);
    }

    /// Uses a link up: `session` is the cookie's value from then on. False where it is none.
    pub fn enter(&self, code: &str, session: &Secret, now: Duration) -> bool {
        let mut inner = self.lock(now);
        let by = inner.links.0.remove(&TokenHash::of(code)).map(|pass| pass.by);
        let entered = by.is_some();
        if let Some(by) = by {
            inner.sessions.put(session, by, now + SESSION_LIVES);
        }
        entered
    }

    /// Whose session that is.
    pub fn session(&self, cookie: &str, now: Duration) -> Option<Session> {
        let inner = self.lock(now);
        let pass = inner.sessions.0.get(&TokenHash::of(cookie))?;
        Some(Session { by: pass.by.clone(), csrf: TokenHash::of(&format!("csrf:{cookie}")) })
    }

    /// What is over goes before anything is looked up. A panic elsewhere leaves the maps whole.
    fn lock(&self, now: Duration) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.asking.retain(|_, waiting| now < waiting.asking.at + CODE_LIVES);
        inner.links.0.retain(|_, pass| now < pass.until);
        inner.sessions.0.retain(|_, pass| now < pass.until);
        inner
    }
}

/// The site of a household: the /48 that IPv6 gives one (RFC 6177 §2).
fn neighbours(household: Option<IpAddr>) -> Option<IpAddr> {
    household.map(|address| network_of(address, 48))
}

/// What one secret each opens for a time.
#[derive(Debug, Default)]
struct Passes(HashMap<TokenHash, Pass>);

#[derive(Debug)]
struct Pass {
    by: Actor,
    until: Duration,
}

impl Passes {
    fn put(&mut self, secret: &Secret, by: Actor, until: Duration) {
        if self.0.len() >= SIGNED_IN_MOST {
            let oldest = self.0.iter().min_by_key(|(_, pass)| pass.until).map(|(hash, _)| *hash);
            oldest.and_then(|hash| self.0.remove(&hash));
        }
        self.0.insert(TokenHash::of(secret.expose()), Pass { by, until });
    }
}

/// A code of 256 random bits, for links, cookies and machines.
#[must_use]
pub fn long_code(random: &[u8; 32]) -> Secret {
    Secret::new(URL_SAFE_NO_PAD.encode(random))
}

/// A code that a person reads and compares, `WDJB-MJHT`; `None` for bytes of which too few give a
/// letter, which is as good as never.
#[must_use]
pub fn short_code(random: &[u8; 32]) -> Option<String> {
    // 240 of 256 values fall on the letters evenly.
    let letters = random.iter().filter(|byte| **byte < 240);
    let mut code: String = letters
        .filter_map(|byte| LETTERS.get(usize::from(byte % 20)).map(|letter| char::from(*letter)))
        .take(8)
        .collect();
    if code.len() < 8 {
        return None;
    }
    code.insert(4, '-');
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn asking(code: &str, at: Duration) -> Asking {
        Asking {
            user_code: code.to_owned(),
            worker: "desk".parse().expect("a name"),
            host: "desk".to_owned(),
            from: "10.0.0.7".to_owned(),
            household: Some([10, 0, 0, 7].into()),
            at,
            answer: None,
        }
    }

    #[test]
    fn a_code_is_answered_once_and_used_once() {
        let (desk, code, by) = (Desk::default(), Secret::new("device"), Actor::user("ann"));
        assert!(desk.ask(&code, asking("BBBB-BBBB", S(0))));
        assert_eq!(desk.poll(&code, S(0)), Polled::Pending);
        assert_eq!(desk.answer("BBBB-BBBC", true, by.clone(), S(1)), None);
        assert!(desk.answer("BBBB-BBBB", true, by.clone(), S(1)).is_some());
        assert_eq!(desk.answer("BBBB-BBBB", false, by, S(1)), None, "it was answered");
        assert_eq!(desk.waiting(S(1)), []);
        assert!(matches!(desk.poll(&code, S(5)), Polled::Approved(_)));
        assert_eq!(desk.poll(&code, S(10)), Polled::Expired);
    }

    #[test]
    fn polling_too_fast_makes_the_pause_longer() {
        let (desk, code) = (Desk::default(), Secret::new("device"));
        desk.ask(&code, asking("BBBB-BBBB", S(0)));
        assert_eq!(desk.poll(&code, S(0)), Polled::Pending);
        assert_eq!(desk.poll(&code, S(4)), Polled::SlowDown);
        assert_eq!(desk.poll(&code, S(9)), Polled::SlowDown, "ten seconds now");
        assert_eq!(desk.poll(&code, S(24)), Polled::Pending, "fifteen");
    }

    #[test]
    fn codes_run_out_and_are_bounded() {
        let desk = Desk::default();
        let from = |n: usize, at| {
            let of = u8::try_from(n / ASKING_OF_ONE).expect("few");
            Asking { household: Some([10, 1, 0, of].into()), ..asking(&format!("BBBB-{n:04}"), at) }
        };
        for n in 0..ASKING_OF_ONE {
            assert!(desk.ask(&Secret::new(format!("d{n}")), from(n, S(1))));
        }
        assert!(!desk.ask(&Secret::new("more"), from(0, S(2))), "so many of one address");
        for n in ASKING_OF_ONE..ASKING_MOST {
            assert!(desk.ask(&Secret::new(format!("d{n}")), from(n, S(1))));
        }
        assert!(!desk.ask(&Secret::new("more"), asking("BBBB-BBBB", S(2))));
        assert!(desk.answer("BBBB-0000", false, Actor::site(), S(2)).is_some());
        assert!(desk.ask(&Secret::new("next"), asking("BBBB-BBBB", S(2))), "one was answered");
        let over = S(1) + CODE_LIVES;
        assert_eq!(desk.poll(&Secret::new("d0"), over), Polled::Expired);
        assert_eq!(desk.answer("BBBB-0001", true, Actor::site(), over), None);
        assert!(desk.ask(&Secret::new("more"), asking("BBBB-BBBB", over)), "there is room again");
    }

    #[test]
    fn one_site_of_many_networks_does_not_take_all_places() {
        let desk = Desk::default();
        let ask = |n: u16, site: u16| {
            let household = std::net::Ipv6Addr::new(0x2001, 0xdb8, site, n, 0, 0, 0, 0);
            let household = Some(IpAddr::V6(household));
            desk.ask(&Secret::new(format!("{site}-{n}")), Asking { household, ..asking("B", S(1)) })
        };
        assert_eq!((0..64).filter(|n| ask(*n, 1)).count(), ASKING_NEAR);
        assert!(ask(1, 2), "another site");
    }

    #[test]
    fn a_no_stays_a_no() {
        let (desk, code) = (Desk::default(), Secret::new("device"));
        desk.ask(&code, asking("BBBB-BBBB", S(0)));
        desk.answer("BBBB-BBBB", false, Actor::site(), S(1));
        assert_eq!(desk.poll(&code, S(5)), Polled::Denied);
        assert_eq!(desk.poll(&code, S(10)), Polled::Denied);
    }

    #[test]
    fn a_link_opens_once_and_in_time_and_a_session_ends() {
        let (desk, by) = (Desk::default(), Actor::user("ann"));
        let (link, session) = (Secret::new("link"), Secret::new("session"));
        desk.link(&link, by.clone(), S(0));
        assert!(!desk.enter("other", &session, S(1)));
        assert!(desk.enter("link", &session, S(1)));
        assert!(!desk.enter("link", &Secret::new("second"), S(1)), "it was used");
        assert_eq!(desk.session("session", S(2)).map(|s| s.by), Some(by.clone()));
        assert_eq!(desk.session("link", S(2)), None);
        assert_eq!(desk.session("session", S(1) + SESSION_LIVES), None);
        desk.link(&link, by, S(0));
        assert!(!desk.enter("link", &session, LINK_LIVES), "it is too late");
    }

    #[test]
    fn short_codes_have_no_vowels() {
        let code = short_code(&std::array::from_fn(|i| u8::try_from(i * 7).unwrap_or(0))).unwrap();
        assert_eq!((code.len(), &code[4..5]), (9, "-"));
        assert!(code.bytes().all(|b| b == b'-' || LETTERS.contains(&b)), "{code}");
        assert_eq!(short_code(&[255; 32]), None, "an uneven byte is passed over");
    }
}
