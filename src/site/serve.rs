//! The site over TCP, for other machines. HTTP/1 alone: a worker holds one request at a time, and
//! whoever wants more speaks to the proxy in front.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::caller::Door;
use super::limits::{Peer, RATE};
use super::line::{TICK, hold};
use super::owner::OwnerError;
use super::router::router;
use super::state::Site;

/// Connections at a time, unless the operator says otherwise.
pub const CONNECTIONS: usize = 20_000;

/// Of these one address has at most so many parts of a hundred, unless it is this machine's: its
/// proxy speaks for everybody.
const ONE_ADDRESS: usize = 50;

/// A peer that acknowledges nothing for so long is gone: a held doorbell's blanks find that out.
#[cfg(target_os = "linux")]
const GONE: Duration = Duration::from_secs(60);

/// A silent connection is asked whether its peer is there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Before the next connection is tried, where one could not be accepted: out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\n\
content-type: application/problem+json\r\ncontent-length: 69\r\n\r\n\
{\"status\":503,\"code\":\"busy\",\"detail\":\"too many connections are open\"}";

/// What is served over TCP, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub addr: SocketAddr,
    /// The URL that people and workers know the site by; of `addr` where nothing is said.
    pub public_url: Option<String>,
    /// Requests a second of one token; `None` for no limit.
    pub rate: Option<u32>,
    /// Proxies on other machines, which tell whose requests they bring.
    pub proxies: Vec<IpAddr>,
    /// Connections at a time.
    pub connections: usize,
    /// What every time-out of a slow client is counted in.
    pub tick: Duration,
}

impl Listen {
    /// The address with the limits that hold unless somebody says otherwise.
    #[must_use]
    pub fn on(addr: SocketAddr) -> Self {
        Self {
            addr,
            public_url: None,
            proxies: Vec::new(),
            rate: Some(RATE),
            connections: CONNECTIONS,
            tick: TICK,
        }
    }
}

/// Takes the address, so that a second site on it is told before anything else happens.
pub(super) async fn bind(addr: SocketAddr) -> Result<TcpListener, OwnerError> {
    TcpListener::bind(addr).await.map_err(|cause| OwnerError::Address { addr, cause })
}

/// Serves until the site is stopping, then lets what is under way go on to its end.
pub(super) async fn serve(listener: TcpListener, site: Arc<Site>, listen: Listen) {
    let router = router(Arc::clone(&site), Door::Network);
    let places = Arc::new(Places { most: listen.connections, taken: Mutex::default(), site });
    let stopping = places.site.stopping.clone();
    let (has_url, tick) = (listen.public_url.is_some(), listen.tick);
    let mut lines = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = lines.join_next() => continue,
            () = stopping.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                let proxied =
                    listen.proxies.contains(&peer.ip()) || has_url && peer.ip().is_loopback();
                match Place::take(&places, peer.ip(), proxied) {
                    Some(place) => {
                        prepare(&stream);
                        let peer = Some(Peer { address: peer, proxied });
                        // One of its own: waiting on the one that all share is a turn at its lock
                        // for every request.
                        let (router, stopping) = (router.clone(), stopping.child_token());
                        lines.spawn(async move {
                            hold(stream, peer, router, tick, stopping).await;
                            drop(place);
                        });
                    }
                    // Whether it is read is the client's affair.
                    None => drop(stream.try_write(FULL)),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    while lines.join_next().await.is_some() {}
}

/// Small answers go at once, and a peer that vanished is noticed. None of it is needed to serve.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE);
    #[cfg(target_os = "linux")]
    let _ =
        sockopt::set_tcp_user_timeout(stream, u32::try_from(GONE.as_millis()).unwrap_or(u32::MAX));
}

/// How many connections there are, in all and of each address.
#[derive(Debug)]
struct Places {
    most: usize,
    taken: Mutex<Taken>,
    site: Arc<Site>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// One connection's place; given back when dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Place {
    fn take(places: &Arc<Places>, address: IpAddr, proxied: bool) -> Option<Self> {
        let mut taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.of.get(&address).copied().unwrap_or(0);
        let most = if proxied || address.is_loopback() {
            places.most
        } else {
            places.most * ONE_ADDRESS / 100
        };
        let metrics = &places.site.metrics;
        if taken.all >= places.most || own >= most {
            metrics.turned_away.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        taken.all += 1;
        *taken.of.entry(address).or_default() += 1;
        metrics.open.fetch_add(1, Ordering::Relaxed);
        drop(taken);
        Some(Self { places: Arc::clone(places), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        if let Some(own) = taken.of.get_mut(&self.address) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.of.remove(&self.address);
            }
        }
        self.places.site.metrics.open.fetch_sub(1, Ordering::Relaxed);
    }
}
