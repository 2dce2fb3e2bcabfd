//! How often one caller may ask: a bucket of tokens for each, filled at a steady rate. Generous to
//! whoever is known, since a worker that is refused loses time; narrow for strangers.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Extensions, HeaderMap};

use super::caller::Caller;
use super::problem::Refusal;
use crate::api::{Code, Problem};
use crate::model::Clock;

/// Requests a second of one token, unless the operator says otherwise. A thousand workers behind
/// one token ring and report far below it; a client that spins meets it.
pub const RATE: u32 = 2000;

/// Requests a second of one address that shows no token, or none that is known: enough for people
/// who sign in, and for probes.
const STRANGERS: u32 = 20;

/// A full bucket holds so many seconds of its rate.
const BURST: f64 = 5.0;

/// Buckets that are full are forgotten when there are more than this.
const BUCKETS: usize = 10_000;

/// The address a connection came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// What the connection says.
    pub address: SocketAddr,
    /// Whether it is a proxy that tells whose requests it brings: one of this machine, where the site
    /// is known by another URL than its address, or one that the operator named.
    pub proxied: bool,
}

/// Whose address a request is counted under. A proxy tells it, as the last of `x-forwarded-for`;
/// what anybody else writes there is not believed, nor where no proxy is known of: a tunnel to a
/// laptop hands on what a stranger writes. `None` on the socket.
pub(super) fn peer(extensions: &Extensions, headers: &HeaderMap) -> Option<IpAddr> {
    let Peer { address, proxied } = extensions.get::<Peer>()?;
    let own = address.ip().to_canonical();
    if !proxied {
        return Some(own);
    }
    let forwarded = headers.get_all("x-forwarded-for").iter().next_back();
    let last = forwarded.and_then(|value| value.to_str().ok()?.rsplit(',').next());
    Some(last.and_then(|text| text.trim().parse().ok()).unwrap_or(own))
}

/// The buckets of one site.
#[derive(Debug)]
pub struct Rates {
    clock: Arc<dyn Clock>,
    /// Requests a second of one token; `None` for no limit.
    rate: Option<u32>,
    buckets: Mutex<HashMap<Key, Bucket>>,
    /// Whether it was said that a proxy is there which nobody named.
    warned: AtomicBool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Token(String),
    Address(IpAddr),
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    filled: Duration,
}

impl Rates {
    /// With `rate` requests a second for each token.
    pub fn new(clock: Arc<dyn Clock>, rate: Option<u32>) -> Self {
        Self { clock, rate, buckets: Mutex::default(), warned: AtomicBool::default() }
    }

    /// Says once that a proxy stands before the site which nobody named: all who come through it are
    /// one address.
    pub(super) fn look_for_proxy(&self, extensions: &Extensions, headers: &HeaderMap) {
        let named = extensions.get::<Peer>().is_none_or(|peer| peer.proxied);
        if !named
            && headers.contains_key("x-forwarded-for")
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "a request came with x-forwarded-for, which counts only where `relay serve` has a \
                 --public-url: till then all who come by that way are one address"
            );
        }
    }

    /// Refuses a caller that asks too often.
    pub(super) fn caller(&self, caller: &Caller, from: Option<IpAddr>) -> Result<(), Refusal> {
        let refused = match (caller, from, self.rate) {
            (Caller::Bearer(bearer), _, Some(rate)) => {
                self.take(Key::Token(bearer.id.to_string()), rate)
            }
            (Caller::Stranger, Some(from), _) => return self.stranger(from).map_or(Ok(()), Err),
            (Caller::Bearer(_), _, None) | (Caller::Stranger, None, _) | (Caller::Owner, ..) => {
                None
            }
        };
        refused.map_or(Ok(()), |wait| Err(too_many("this token", wait)))
    }

    /// Counts a request without a known token; the refusal where there were too many.
    pub(super) fn stranger(&self, from: IpAddr) -> Option<Refusal> {
        let wait = self.take(Key::Address(home_of(from)), STRANGERS)?;
        Some(too_many("this address without a known token", wait))
    }

    /// Takes one token of the bucket, or tells how long until there is one.
    fn take(&self, key: Key, rate: u32) -> Option<Duration> {
        let (now, rate) = (self.clock.uptime(), f64::from(rate.max(1)));
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > BUCKETS {
            // One that had time to fill up says nothing any more.
            let full = Duration::from_secs_f64(BURST);
            buckets.retain(|_, bucket| now.saturating_sub(bucket.filled) < full);
            if buckets.len() > BUCKETS {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(key).or_insert(Bucket { left: rate * BURST, filled: now });
        let passed = now.saturating_sub(bucket.filled).as_secs_f64();
        bucket.left = passed.mul_add(rate, bucket.left).min(rate * BURST);
        bucket.filled = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return None;
        }
        Some(Duration::from_secs_f64((1.0 - bucket.left) / rate))
    }
}

/// Who an address is counted as: an IPv6 customer has a whole /64 to ask from.
pub(super) fn home_of(address: IpAddr) -> IpAddr {
    network_of(address, 64)
}

/// The network of so many bits that an IPv6 address is in; an IPv4 address stands for itself.
pub(super) fn network_of(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => {
            let rest = 128 - bits;
            IpAddr::from((u128::from(six) >> rest << rest).to_be_bytes())
        }
    }
}

fn too_many(who: &str, wait: Duration) -> Refusal {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let detail = format!("too many requests of {who}");
    Refusal(Problem::new(Code::TooMany, detail).hint(format!("wait {seconds} s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;
    use crate::model::clock::Sleep;
    use std::sync::atomic::AtomicU64;

    #[derive(Debug, Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
        fn uptime(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
        fn sleep_until(&self, _: Timestamp) -> Sleep {
            Box::pin(std::future::pending())
        }
    }

    fn address(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn a_stranger_has_a_burst_and_then_its_rate() {
        let hand = Arc::new(Hand::default());
        let rates = Rates::new(Arc::clone(&hand) as Arc<dyn Clock>, Some(RATE));
        for n in 0..100 {
            assert!(rates.stranger(address(1)).is_none(), "request {n}");
        }
        let refusal = rates.stranger(address(1)).expect("the bucket is empty");
        assert_eq!(refusal.0.code, Code::TooMany);
        assert!(rates.stranger(address(2)).is_none(), "another address has its own");
        hand.0.store(1000, Ordering::Relaxed);
        for n in 0..20 {
            assert!(rates.stranger(address(1)).is_none(), "request {n} of the next second");
        }
        assert!(rates.stranger(address(1)).is_some());
    }

    #[test]
    fn buckets_that_filled_up_are_forgotten() {
        let hand = Arc::new(Hand::default());
        let rates = Rates::new(Arc::clone(&hand) as Arc<dyn Clock>, None);
        for n in 0..=BUCKETS {
            let n = u32::try_from(n).expect("a small number");
            assert!(rates.stranger(IpAddr::from(n.to_be_bytes())).is_none());
        }
        hand.0.store(6000, Ordering::Relaxed);
        assert!(rates.stranger(address(1)).is_none());
        assert_eq!(rates.buckets.lock().expect("no panic").len(), 1);
    }

    #[test]
    fn a_forwarded_address_is_believed_from_a_known_proxy_alone() {
        let of = |peer: &str, forwarded: &str, proxied| {
            let mut extensions = Extensions::new();
            let address = peer.parse().expect("an address");
            extensions.insert(Peer { address, proxied });
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().expect("a value"));
            super::peer(&extensions, &headers).expect("an address").to_string()
        };
        let from = |peer: &str, forwarded: &str| of(peer, forwarded, true);
        assert_eq!(of("127.0.0.1:1", "192.0.2.7", false), "127.0.0.1", "no proxy is known of");
        assert_eq!(from("127.0.0.1:1", "203.0.113.9, 192.0.2.7"), "192.0.2.7");
        assert_eq!(from("[::1]:1", "2001:db8::1"), "2001:db8::1");
        assert_eq!(from("127.0.0.1:1", "nonsense"), "127.0.0.1");
        assert_eq!(of("198.51.100.4:1", "192.0.2.7", false), "198.51.100.4");
        assert_eq!(super::peer(&Extensions::new(), &HeaderMap::new()), None);
    }
}
