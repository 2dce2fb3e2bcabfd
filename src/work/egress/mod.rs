//! The one way out of a run's box: a proxy of the run's own, which lives in the worker and serves
//! the run's list of hosts (crate `sandbox`, `egress`). docs/design/egress.md says why it is so.
//!
//! ```text
//! box, its own network              │ worker, this machine's network
//! program ─► 127.0.0.1:DOOR_PORT ═══╪═► Proxy ─► list ─► lookup ─► address ─► the internet
//! ```
//!
//! A program that asks no proxy gets a door more for each of the few hosts it needs ([`named`]).
//!
//! What listens in the box is a socket that `relay __door` made there and handed over. Nothing here
//! outlives the run: the proxy and its tunnels are one future beside it.

mod head;
mod hello;
mod named;
mod outward;
mod pass;
mod passed;
mod proxy;
mod reach;
mod told;
mod trial;
mod way;

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use relay_sandbox::Walls;
use relay_sandbox::egress::AllowList;

use self::named::Named;
use self::proxy::Proxy;
use self::told::{Tell, Told};
use crate::client::Outward;
use crate::git::remove_tree;
use crate::process::{DOOR, DOOR_PORT, meet, take_over};

pub use self::outward::{USABLE, unusable};
pub use self::passed::{WORDS as PASSED_BY, mind, passed_by};
pub use self::trial::{NoDoor, try_door};
pub use self::way::{Names, SystemNames};

/// What a run's proxy may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a client may take to say where it wants to go.
    pub head: Duration,
    /// How long looking up and connecting may take together.
    pub connect: Duration,
    /// How long a tunnel may be silent in both directions. A model that thinks says nothing for
    /// minutes; a run is ended as stalled after ten.
    pub idle: Duration,
    /// Tunnels at a time: a package program opens dozens.
    pub tunnels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            connect: Duration::from_secs(20),
            idle: Duration::from_secs(15 * 60),
            tunnels: 256,
        }
    }
}

/// How runs get out of their boxes on this machine.
#[derive(Clone)]
pub struct Egress {
    /// relay's own program, which opens the door in the box.
    pub relay: PathBuf,
    /// This machine's own proxy, where it has one: a run's goes through it.
    pub outward: Option<Outward>,
    /// Whether process lanes keep this machine's network (RELAY_LANE_NETWORK=shared).
    pub shared: bool,
    /// What looks up hosts.
    pub names: Arc<dyn Names>,
    /// What one run's proxy may take.
    pub limits: Limits,
}

impl fmt::Debug for Egress {
    /// Without the proxy, whose address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Egress {
    /// With the system's lookup and the usual limits.
    #[must_use]
    pub fn new(relay: PathBuf, outward: Option<Outward>, shared: bool) -> Self {
        Self { relay, outward, shared, names: Arc::new(SystemNames), limits: Limits::default() }
    }
}

/// The door of one run, before it stands. Dropping it removes what is of it on the disk.
pub struct Door {
    folder: Folder,
    meeting: UnixListener,
    allowed: AllowList,
    named: Named,
    egress: Egress,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("folder", &self.folder.0).finish_non_exhaustive()
    }
}

/// What came to a run's proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Whether the box came as far as its door: without that its program never began.
    pub opened: bool,
    /// Connections of the run's programs, whatever they wanted.
    pub asked: u64,
    /// Those that were led somewhere.
    pub led: u64,
}

impl Door {
    /// Makes the place in `folder`, beside the copy, where the worker and the box meet.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(folder: PathBuf, allowed: AllowList, egress: &Egress) -> io::Result<Self> {
        remove_tree(&folder)?;
        // Nobody else can enter it, so nobody else can knock.
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let folder = Folder(std::fs::canonicalize(folder)?);
        let meeting = meet(&folder.socket())?;
        let named = Named::default();
        Ok(Self { folder, meeting, allowed, named, egress: egress.clone() })
    }

    /// Gives each of `hosts` a door of its own, at which a program need not say where it wants to
    /// go. What may go through is the same.
    ///
    /// # Errors
    /// When the box cannot be told their addresses.
    pub fn naming(mut self, hosts: &'static [&'static str]) -> io::Result<Self> {
        self.named = Named::of(hosts, &self.folder.0)?;
        Ok(self)
    }

    /// Puts it into a run's `walls`.
    pub fn stand_in(&self, walls: &mut Walls) {
        let (folder, through) = (self.folder.0.clone(), self.through());
        match self.named.table() {
            None => walls.add_door(folder, through),
            Some(table) => walls.add_named_doors(folder, through, table),
        }
    }

    /// Where it is met.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// What a program in the box is run through.
    #[must_use]
    pub fn through(&self) -> Vec<OsString> {
        let count = self.named.count().to_string();
        vec![
            self.egress.relay.clone().into(),
            DOOR.into(),
            self.folder.socket().into(),
            count.into(),
        ]
    }

    /// What a program is told of it. The hosts of this machine that the operator listed are asked
    /// of the proxy; the box's own loopback is spoken to directly.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let proxy = format!("http://127.0.0.1:{DOOR_PORT}");
        let listed = self.allowed.loopback();
        let own = ["localhost", "127.0.0.1", "::1", "[::1]"];
        let is_listed =
            |host: &&str| listed.iter().any(|listed| listed == host.trim_matches(['[', ']']));
        let own: Vec<&str> = own.into_iter().filter(|host| !is_listed(host)).collect();
        let own = own.join(",");
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
        let both = names.iter().flat_map(|name| [(*name).to_owned(), name.to_ascii_lowercase()]);
        let value = |name: &str| if name.eq_ignore_ascii_case("NO_PROXY") { &own } else { &proxy };
        let mut env: Vec<(OsString, OsString)> =
            both.map(|name| (OsString::from(&name), OsString::from(value(&name)))).collect();
        // Node's own requests pass its variables by unless they are told not to.
        env.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
        env
    }

    /// Waits for `run`, and serves it meanwhile. Each refusal is told once, by the host's name.
    pub async fn beside<T>(self, run: impl Future<Output = T>, tell: Tell) -> (T, Traffic) {
        let Self { folder, meeting, allowed, named, egress } = self;
        let proxy = Arc::new(Proxy::new(allowed, &egress, Told::new(tell)));
        let opened = AtomicBool::new(false);
        let serving = serve(folder, meeting, &named, &proxy, &opened);
        let end = tokio::select! {
            end = run => end,
            () = serving => std::future::pending().await,
        };
        proxy.told.end();
        (end, Traffic { opened: opened.into_inner(), ..proxy.traffic() })
    }
}

/// Takes the doors over from the box and serves at them for as long as it is asked to.
async fn serve(
    folder: Folder,
    meeting: UnixListener,
    named: &Named,
    proxy: &Arc<Proxy>,
    opened: &AtomicBool,
) {
    let taken = async {
        let meeting = tokio::net::UnixListener::from_std(meeting)?;
        take_over(&meeting.accept().await?.0).await
    };
    let taken: io::Result<_> = taken.await;
    // Nobody is met here a second time.
    drop(folder);
    match taken {
        Ok(doors) => {
            opened.store(true, Ordering::Relaxed);
            let places = std::iter::once(None).chain(named.hosts().map(Some));
            let serving = doors.into_iter().zip(places);
            join_all(serving.map(|(door, host)| proxy::serve(door, host, proxy))).await;
        }
        Err(error) => tracing::warn!(%error, "the box has no door"),
    }
    std::future::pending::<()>().await;
}

/// The folder of a door, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the place of a door stays");
        }
    }
}

/// A future in a box, of a trait's method.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
