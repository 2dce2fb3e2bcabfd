//! The proxy itself: one connection, one request, one tunnel.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use relay_sandbox::egress::{AllowList, Destination, Grant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::head::{self, Asked, BadHead};
use super::outward::Beyond;
use super::pass::{May, pass};
use super::told::Told;
use super::way::{self, Line, NoWay};
use super::{Egress, Limits, Names, Traffic};

/// What is read of a request that was refused, so that its client reads the answer.
const LEFT: usize = 256 << 10;
/// How long that may take.
const LEAVING: Duration = Duration::from_secs(2);
/// Connections at a time that are told that there are too many. More are closed without a word.
const TURNED_AWAY: usize = 16;
/// The pause after a connection that could not be taken: the machine is short of something.
const SHORT: Duration = Duration::from_millis(100);

/// The proxy of one run.
pub(super) struct Proxy {
    allowed: AllowList,
    names: Arc<dyn Names>,
    beyond: Option<Beyond>,
    limits: Limits,
    places: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    asked: AtomicU64,
    led: AtomicU64,
    pub(super) told: Told,
}

/// What a connection holds until it is closed.
struct Place {
    permit: OwnedSemaphorePermit,
    /// Whether it may only hear that there are too many.
    is_full: bool,
}

/// Why a request comes to nothing.
enum No {
    /// It is none.
    Bad(BadHead),
    /// It took too long to be said.
    Slow,
    /// There are as many already as there may be.
    Full,
    /// It may not go there.
    Refused { to: Destination, why: String },
    /// It may, and nobody is there.
    Away { to: Destination, why: String },
}

/// Serves whoever connects to `door`, until it is dropped, and its tunnels with it. At a `named` one
/// a connection is what `CONNECT` to that host is at the other.
pub(super) async fn serve(door: TcpListener, named: Option<Destination>, proxy: &Arc<Proxy>) {
    let mut tunnels = JoinSet::new();
    loop {
        tokio::select! {
            taken = door.accept() => match taken {
                Ok((client, _)) => {
                    // One that has no place holds no descriptor of the worker's.
                    if let Some(place) = proxy.place() {
                        let (proxy, named) = (Arc::clone(proxy), named.clone());
                        tunnels.spawn(async move { proxy.answer(client, place, named).await });
                    }
                }
                Err(_) => tokio::time::sleep(SHORT).await,
            },
            Some(_) = tunnels.join_next() => {}
        }
    }
}

impl Proxy {
    pub(super) fn new(allowed: AllowList, egress: &Egress, told: Told) -> Self {
        Self {
            allowed,
            names: Arc::clone(&egress.names),
            beyond: egress.outward.as_ref().and_then(Beyond::of),
            limits: egress.limits,
            places: Arc::new(Semaphore::new(egress.limits.tunnels)),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY)),
            asked: AtomicU64::new(0),
            led: AtomicU64::new(0),
            told,
        }
    }

    pub(super) fn traffic(&self) -> Traffic {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Traffic { asked: read(&self.asked), led: read(&self.led), opened: false }
    }

    /// The place of a connection that has just come. One that gets none is over.
    fn place(&self) -> Option<Place> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(Place { permit, is_full: false });
        }
        if let Ok(permit) = Arc::clone(&self.turned_away).try_acquire_owned() {
            return Some(Place { permit, is_full: true });
        }
        self.tell(&No::Full);
        None
    }

    async fn answer(&self, mut client: TcpStream, place: Place, named: Option<Destination>) {
        let _only_slower = client.set_nodelay(true);
        // Whoever asked nothing of a proxy would not know its answer.
        let says = named.is_none();
        let led = if place.is_full { Err(No::Full) } else { self.lead(&mut client, named).await };
        if let Err(no) = led {
            self.tell(&no);
            if says {
                let _gone = tokio::time::timeout(LEAVING, say_no(&mut client, &no)).await;
            }
        }
        drop(client);
        drop(place.permit);
    }

    async fn lead(&self, client: &mut TcpStream, named: Option<Destination>) -> Result<(), No> {
        let says = named.is_none();
        let (asked, rest) = match named {
            Some(to) => (Asked::Tunnel(to), Vec::new()),
            None => self.ask(client).await?,
        };
        let to = match &asked {
            Asked::Tunnel(to) | Asked::Forward { to, .. } => to.clone(),
        };
        let refused = |why: String| No::Refused { to: to.clone(), why };
        let grant = self.allowed.allows(&to).map_err(|no| refused(no.words().to_owned()))?;
        let mut line = self.line(&to, grant, matches!(asked, Asked::Tunnel(_))).await?;
        self.led.fetch_add(1, Ordering::Relaxed);
        let (begun, may) = match &asked {
            Asked::Tunnel(to) => {
                let opened: &[u8] = if says { b"HTTP/1.1 200 OK\r\n\r\n" } else { b"" };
                let answer = [opened, &line.said[..]].concat();
                // What the operator named with its port has a name of the operator's choice.
                let may = if grant == Grant::Public { May::Reach(&to.host) } else { May::Anything };
                (client.write_all(&answer).await, may)
            }
            Asked::Forward { body, .. } => {
                let request = self.request(&asked, line.beyond);
                (line.stream.write_all(&request).await, May::Send(*body))
            }
        };
        if begun.is_ok()
            && let Err(why) = pass(client, &mut line.stream, &rest, may, self.limits.idle).await
        {
            // The client has its answer already.
            self.tell(&refused(why));
        }
        Ok(())
    }

    /// What the client says that it wants, and what it has said behind that.
    async fn ask(&self, client: &mut TcpStream) -> Result<(Asked, Vec<u8>), No> {
        let read = tokio::time::timeout(self.limits.head, head::read(client));
        let (head, rest) = read.await.map_err(|_| No::Slow)?.map_err(No::Bad)?;
        Ok((head::asked(&head).map_err(No::Bad)?, rest))
    }

    async fn line(&self, to: &Destination, grant: Grant, tunnel: bool) -> Result<Line, No> {
        let way = way::connect(&*self.names, self.beyond.as_ref(), to, grant, tunnel);
        let line = tokio::time::timeout(self.limits.connect, way).await;
        let away = |why| No::Away { to: to.clone(), why };
        match line.map_err(|_| away("it does not answer".to_owned()))? {
            Ok(line) => Ok(line),
            Err(NoWay::Away(why)) => Err(away(why)),
            Err(NoWay::Shut(kind)) => {
                let why = format!(
                    "it is {}; RELAY_LANE_ALLOWED_DOMAINS={to} lets lanes there all the same",
                    kind.words()
                );
                Err(No::Refused { to: to.clone(), why })
            }
        }
    }

    /// A request in the clear as it is made: for one answer, so that the next one of the client's
    /// is looked at again, and with the host that was looked at.
    fn request(&self, asked: &Asked, beyond: bool) -> Vec<u8> {
        let Asked::Forward { to, method, path, headers, .. } = asked else { return Vec::new() };
        let host = if to.port == 80 { to.host.to_string() } else { to.to_string() };
        let target = if beyond { format!("http://{host}{path}") } else { path.clone() };
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        text.extend_from_slice(headers);
        let login = self.beyond.as_ref().and_then(|b| b.login.as_ref()).filter(|_| beyond);
        if let Some(login) = login {
            text.extend_from_slice(
                format!("Proxy-Authorization: {}\r\n", login.expose()).as_bytes(),
            );
        }
        text.extend_from_slice(b"Connection: close\r\n\r\n");
        text
    }

    /// Only ever the host and the port: a path or a header may hold a secret.
    fn tell(&self, no: &No) {
        match no {
            No::Bad(BadHead::Gone) => {}
            No::Refused { to, why } => self.told.once(&format!("refused {to}"), why),
            No::Away { to, why } => self.told.once(&format!("could not reach {to}"), why),
            No::Full => self.told.once("refused a connection", "there are too many at a time"),
            No::Slow | No::Bad(_) => {
                self.told.once("refused a connection", "it was no request to a proxy");
            }
        }
    }
}

impl No {
    fn status(&self) -> &'static str {
        match self {
            Self::Bad(BadHead::TooLong) => "431 Request Header Fields Too Large",
            Self::Bad(_) => "400 Bad Request",
            Self::Slow => "408 Request Timeout",
            Self::Full => "503 Service Unavailable",
            Self::Refused { .. } => "403 Forbidden",
            Self::Away { .. } => "502 Bad Gateway",
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Refused { to, why } => format!("relay refuses {to}: {why}\n"),
            Self::Away { to, why } => format!("relay cannot reach {to}: {why}\n"),
            Self::Full => "relay: too many connections at a time\n".to_owned(),
            Self::Slow | Self::Bad(_) => "relay: this is no request to a proxy\n".to_owned(),
        }
    }
}

async fn say_no(client: &mut TcpStream, no: &No) -> io::Result<()> {
    let words = no.words();
    let text = format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}",
        no.status(),
        words.len()
    );
    client.write_all(text.as_bytes()).await?;
    client.shutdown().await?;
    // A connection that is closed with something unread is torn down, answer and all.
    let mut left = client.take(LEFT as u64);
    tokio::io::copy(&mut left, &mut tokio::io::sink()).await.map(|_| ())
}
