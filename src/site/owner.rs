//! One owner a home: it holds the lock, opens the database, serves the socket and runs the timers.
//! Every other command is a client of that socket, or becomes the owner for its moment.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::bearers::Bearers;
use super::bell::Bell;
use super::caller::Door;
use super::desk::Desk;
use super::elsewhere::{self, kept_in};
use super::forges::Forges;
use super::home::{Holder, Home, Lock};
use super::limits::Rates;
use super::line::TICK;
use super::logs::Logs;
use super::metrics::Metrics;
use super::page::Pages;
use super::prune;
use super::router::router;
use super::serve::{self, Listen};
use super::setup::Tries;
use super::sites::{Line, Seat};
use super::socket::{self, Socket};
use super::state::Site;
use super::timers::Timers;
use super::watch::{Standing, Watch, watch};
use crate::model::disk::quoted;
use crate::model::{Clock, DiskProblem, Faults, Ids, Secret};
use crate::queue::{Queue, QueueError, Store, StoreError};

/// How long a command waits for a home that another one holds for its moment.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a held home is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long requests under way may take at the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long a closing owner stays for commands that came to it meanwhile.
const GUESTS: Duration = Duration::from_secs(2);

/// What a home is owned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// By `relay work`, until it stops.
    Work,
    /// By `relay serve`, until it stops.
    Serve,
    /// By one command, for its moment.
    Moment,
}

/// What an owner is made of.
#[derive(Clone, Debug)]
pub struct OwnerConfig {
    /// RELAY_HOME.
    pub home: PathBuf,
    /// What it is owned for.
    pub role: Role,
    /// Where the queue is kept: the home's own file where nothing is said.
    pub database: Option<Secret>,
    /// Whether other sites share that database: Postgres, by the server's own address.
    pub many: bool,
    /// The address it is served on besides the socket.
    pub listen: Option<Listen>,
    /// The version of relay this is.
    pub version: String,
    /// The revision of the API it speaks: [`crate::api::REVISION`].
    pub revision: u32,
    /// The site's clock.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
    /// The fault points of the queue's writes.
    pub faults: Arc<dyn Faults>,
    /// GitHub and the repositories on this disk.
    pub forges: Arc<dyn Forges>,
    /// How the linked repositories are watched; an owner for a moment does not.
    pub watch: Option<Watch>,
}

/// Why a home cannot be owned or reached.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Another process owns the home, and goes on owning it.
    #[error("{} is in use by {} (pid {pid})", home.display(), held_by(*role))]
    Taken {
        /// The home.
        home: PathBuf,
        /// The other process.
        pid: u32,
        /// What it owns the home for.
        role: Role,
    },
    /// The owner is another version of relay.
    #[error("the owner of this home (pid {pid}) runs relay {theirs}, this is relay {ours}")]
    Version {
        /// The owner.
        pid: u32,
        /// Its version.
        theirs: String,
        /// This one.
        ours: String,
    },
    /// Somebody holds the home's lock and does not answer.
    #[error("{} is locked by {}, which does not answer", home.display(), process(*pid))]
    Silent {
        /// The home.
        home: PathBuf,
        /// The holder, where the lock tells.
        pid: Option<u32>,
    },
    /// The home is another user's.
    #[error("{} belongs to another user (uid {uid})", path.display())]
    NotOurs {
        /// The home.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// The home's folder cannot be used.
    #[error("{} {what}: {cause}", path.display())]
    Home {
        /// The home.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// The system's words.
        cause: io::Error,
    },
    /// The lock cannot be used.
    #[error("{} cannot be locked: {cause}", path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// The socket cannot be served.
    #[error("{} cannot be served: {cause}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// The address cannot be served.
    #[error("{addr} cannot be served: {cause}")]
    Address {
        /// The address.
        addr: SocketAddr,
        /// The system's words.
        cause: io::Error,
    },
    /// The home's queue is in another database, and nothing says how that is opened.
    #[error("the queue of {} is kept in {place}, and its site does not run", home.display())]
    Elsewhere {
        /// The home.
        home: PathBuf,
        /// The other database, without a login.
        place: String,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the database holds.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl OwnerError {
    /// For a person: what helps.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Taken { role: Role::Work, pid, .. } => Some(format!(
                "one `relay work` a home: stop that one (`kill {pid}`), or set RELAY_HOME to another folder"
            )),
            Self::Taken { role: Role::Serve, pid, .. } => Some(format!(
                "this home is a site's: stop it (`kill {pid}`), or set RELAY_HOME to another folder"
            )),
            Self::Address { cause, .. } if cause.kind() == io::ErrorKind::AddrInUse => Some(
                "another program has it: `relay serve --addr HOST:PORT` takes another".to_owned(),
            ),
            Self::Address { .. } => {
                Some("name an address of this machine: `relay serve --addr HOST:PORT`".to_owned())
            }
            Self::Taken { role: Role::Moment, pid, .. } => {
                Some(format!("wait for the other command to end, or stop it (`kill {pid}`)"))
            }
            Self::Version { pid, .. } => Some(format!(
                "stop the other one (`kill {pid}`) and start `relay work` again, so that both are one version"
            )),
            Self::NotOurs { .. } => {
                Some("set RELAY_HOME to a folder of your own, or run relay as that user".to_owned())
            }
            Self::Lock { path, cause } => Some(disk_hint(path, cause).unwrap_or_else(|| {
                "a network file system may not lock: set RELAY_HOME to a local disk".to_owned()
            })),
            Self::Socket { path, cause } if cause.kind() == io::ErrorKind::AlreadyExists => {
                Some(DiskProblem::InTheWay.mend(path))
            }
            Self::Socket { path, cause } => {
                Some(disk_hint(path, cause).unwrap_or_else(|| {
                    "set RELAY_HOME to a shorter path on a local disk".to_owned()
                }))
            }
            Self::Silent { pid: Some(pid), .. } => {
                Some(format!("it may be stopping: try again, or stop it (`kill {pid}`)"))
            }
            Self::Home { path, cause, .. } => Some(disk_hint(path, cause).unwrap_or_else(|| {
                "set RELAY_HOME to a folder of your own on a local disk".to_owned()
            })),
            Self::Elsewhere { home, .. } => Some(format!(
                "start it: `relay serve` with its DATABASE_URL; or begin a queue in this home: `rm {}`",
                quoted(&elsewhere::note_in(home))
            )),
            Self::Store(cause) => cause.hint(),
            Self::Queue(cause) => cause.hint(),
            Self::Silent { pid: None, home } => {
                Some(format!("`fuser {}` names the process", quoted(&home.join("relay.lock"))))
            }
        }
    }
}

fn disk_hint(path: &Path, cause: &io::Error) -> Option<String> {
    DiskProblem::of(cause).map(|why| why.mend(path))
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"))
}

fn held_by(role: Role) -> &'static str {
    match role {
        Role::Work => "a running `relay work`",
        Role::Serve => "a running `relay serve`",
        Role::Moment => "another relay command",
    }
}

/// A way to a home's site.
#[derive(Debug)]
pub enum Access {
    /// This process owns it.
    Own(Box<Owner>),
    /// Another process owns it.
    Living(Living),
}

/// Another process that owns the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its socket.
    pub socket: PathBuf,
    /// Its process.
    pub pid: u32,
    /// What it owns the home for.
    pub role: Role,
}

impl Access {
    /// The socket the site is served on.
    #[must_use]
    pub fn socket(&self) -> &Path {
        match self {
            Self::Own(owner) => owner.socket(),
            Self::Living(living) => &living.socket,
        }
    }

    /// Lets the home go, where this process owns it.
    pub async fn close(self) {
        if let Self::Own(owner) = self {
            owner.close().await;
        }
    }
}

/// Owns the home, or reaches its living owner. For [`Role::Work`] a living owner is no way: a home
/// that a command holds for its moment is waited for, one that a worker holds is an error at once.
///
/// # Errors
/// See [`OwnerError`].
pub async fn connect(config: OwnerConfig) -> Result<Access, OwnerError> {
    let home = Home::prepare(&config.home)?;
    let socket = socket::path_in(home.path());
    let me = Holder { pid: std::process::id(), role: config.role, version: config.version.clone() };
    let patience = tokio::time::sleep(PATIENCE);
    tokio::pin!(patience);
    loop {
        let held = match home.lock(&me)? {
            Ok(lock) => return Ok(Access::Own(Box::new(Owner::open(config, home, lock).await?))),
            Err(held) => held,
        };
        if let Some(other) = &held {
            if config.role == Role::Moment && answers(&socket).await {
                return living(socket, other, &config.version).map(Access::Living);
            }
            if config.role != Role::Moment && other.role != Role::Moment {
                return Err(taken(&home, other));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = &mut patience => return Err(match &held {
                Some(other) if config.role != Role::Moment => taken(&home, other),
                other => OwnerError::Silent {
                    home: home.path().to_owned(),
                    pid: other.as_ref().map(|other| other.pid),
                },
            }),
        }
    }
}

/// What the home's owner has it for, where one answers. Neither the home nor its lock is touched.
pub async fn living_role(home: &Path) -> Option<Role> {
    let home = home.canonicalize().ok()?;
    let is_there = answers(&socket::path_in(&home)).await;
    super::home::holder(&home).filter(|_| is_there).map(|holder| holder.role)
}

/// A home that nobody owns while this lives: for what is done to the database's file itself.
#[derive(Debug)]
pub struct Held {
    _lock: Lock,
}

/// Holds the home without serving it.
///
/// # Errors
/// [`OwnerError::Taken`] where somebody owns it.
pub fn hold(home: &Path, version: &str) -> Result<Held, OwnerError> {
    let home = Home::prepare(home)?;
    let me = Holder { pid: std::process::id(), role: Role::Moment, version: version.to_owned() };
    match home.lock(&me)? {
        Ok(lock) => Ok(Held { _lock: lock }),
        Err(Some(other)) => Err(taken(&home, &other)),
        Err(None) => Err(OwnerError::Silent { home: home.path().to_owned(), pid: None }),
    }
}

/// Whether somebody serves the socket.
async fn answers(socket: &Path) -> bool {
    socket::reach(socket).await.is_ok()
}

fn living(socket: PathBuf, other: &Holder, ours: &str) -> Result<Living, OwnerError> {
    if other.version != ours {
        return Err(OwnerError::Version {
            pid: other.pid,
            theirs: other.version.clone(),
            ours: ours.to_owned(),
        });
    }
    Ok(Living { socket, pid: other.pid, role: other.role })
}

fn taken(home: &Home, other: &Holder) -> OwnerError {
    OwnerError::Taken { home: home.path().to_owned(), pid: other.pid, role: other.role }
}

/// The owner of a home. Dropped without [`Owner::close`] it stops like a killed process: nothing
/// is lost, and the next owner takes the socket over.
#[derive(Debug)]
pub struct Owner {
    site: Arc<Site>,
    socket: PathBuf,
    addr: Option<SocketAddr>,
    guests: tokio::sync::watch::Receiver<usize>,
    closing: CancellationToken,
    serving: JoinHandle<()>,
    /// The timers and the watch.
    keeping: JoinSet<()>,
    _stop: DropGuard,
    lock: Lock,
    /// Its place on a server's database.
    seat: Option<Seat>,
}

impl Owner {
    async fn open(config: OwnerConfig, home: Home, lock: Lock) -> Result<Self, OwnerError> {
        let OwnerConfig {
            home: _,
            role,
            database,
            many,
            listen,
            version,
            revision,
            clock,
            ids,
            faults,
            forges,
            watch: watched,
        } = config;
        if database.is_none()
            && let Some(place) = kept_in(home.path())?
        {
            return Err(OwnerError::Elsewhere { home: home.path().to_owned(), place });
        }
        let listener = match &listen {
            Some(listen) => Some(serve::bind(listen.addr).await?),
            None => None,
        };
        let rate = listen.as_ref().and_then(|listen| listen.rate);
        let tick = listen.as_ref().map_or(TICK, |listen| listen.tick);
        let addr = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let here = || addr.map(|addr| format!("http://{addr}"));
        let own = || Secret::new(format!("sqlite://{}", home.path().join("relay.db").display()));
        let database = database.unwrap_or_else(own);
        let machine = Arc::clone(&clock);
        let (sites, line) = Line::open(&database, many, ids.uuid(), machine).await?;
        let sites = Arc::new(sites);
        let store = Store::open(database.expose()).await?;
        if role == Role::Serve {
            elsewhere::note(home.path(), database.expose())?;
        }
        // Two sites on one server agree on the time, whatever their own clocks say.
        let clock = store.clock(clock).await?;
        let queue = Queue::with_faults(store, Arc::clone(&clock), ids, faults);
        let bell = Arc::new(Bell::new(Arc::clone(&clock)));
        let logs = Arc::new(Logs::new(Arc::clone(&clock), home.path().join("logs")));
        let timers = Timers::new(
            Arc::clone(&clock),
            queue.clone(),
            Arc::clone(&bell),
            Arc::clone(&logs),
            Arc::clone(&sites),
        );
        let timers = Arc::new(timers);
        timers.settle().await?;
        let closing = CancellationToken::new();
        let stopping = closing.child_token();
        let site = Arc::new(Site {
            queue,
            bell,
            bearers: Bearers::default(),
            sites,
            desk: Desk::default(),
            tries: Tries::default(),
            url: listen.as_ref().and_then(|listen| listen.public_url.clone()).or_else(here),
            logs,
            timers: Arc::clone(&timers),
            forges,
            rates: Rates::new(Arc::clone(&clock), rate),
            clock,
            version,
            revision,
            tick,
            standing: Standing::default(),
            linked: Notify::new(),
            orders: super::orders::Turns::default(),
            linking: tokio::sync::Mutex::new(()),
            writes: TaskTracker::new(),
            closing: closing.clone(),
            stopping: stopping.clone(),
            metrics: Metrics::default(),
            pages: Pages::default(),
            ready: tokio::sync::Mutex::default(),
        });
        let mut line = line;
        if let Some(line) = &mut line {
            line.begin(&site).await?;
        }
        if listener.is_some() {
            site.reread().await?;
        }
        let stays = role != Role::Moment;
        if stays {
            prune::once(&site).await;
        }
        let path = socket::path_in(home.path());
        let socket = Socket::bind(home.path())
            .map_err(|cause| OwnerError::Socket { path: path.clone(), cause })?;
        let guests = socket.guests();
        let by_socket = router(Arc::clone(&site), Door::Socket);
        let serving = tokio::spawn(socket::serve(socket, by_socket, tick, closing.clone()));
        let mut keeping = JoinSet::new();
        let until = closing.clone();
        keeping.spawn(async move { timers.run(until).await });
        let seat = line.map(|line| Seat::keep(line, Arc::clone(&site)));
        if let (Some(listener), Some(listen)) = (listener, listen) {
            keeping.spawn(serve::serve(listener, Arc::clone(&site), listen));
        }
        if stays {
            keeping.spawn(prune::daily(Arc::clone(&site), site.clock.now(), closing.clone()));
        }
        if let Some(watched) = watched.filter(|_| stays) {
            keeping.spawn(watch(Arc::clone(&site), watched, closing.clone()));
        }
        let stop = closing.clone().drop_guard();
        Ok(Self {
            site,
            socket: path,
            addr,
            guests,
            closing,
            serving,
            keeping,
            _stop: stop,
            lock,
            seat,
        })
    }

    /// The socket the site is served on.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The address it is served on over TCP.
    #[must_use]
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// The site itself, for what runs in the owner's process.
    #[must_use]
    pub fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Completes where another site took the database while this one had lost its session. It
    /// takes no new connection by then and holds nobody; what is left is to close it.
    pub async fn ousted(&mut self) -> StoreError {
        match &mut self.seat {
            Some(seat) => seat.ousted().await,
            None => std::future::pending().await,
        }
    }

    /// Lets held requests go, ends those under way, closes the database, removes the socket and
    /// then lets the lock go.
    pub async fn close(mut self) {
        self.site.stopping.cancel();
        self.site.bell.close();
        // A command that found this owner is not left in the middle of its requests.
        let gone = self.guests.wait_for(|guests| *guests == 0);
        let _ = tokio::time::timeout(GUESTS, gone).await;
        self.closing.cancel();
        if tokio::time::timeout(FAREWELL, &mut self.serving).await.is_err() {
            self.serving.abort();
        }
        let keeping = async { while self.keeping.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, keeping).await.is_err() {
            self.keeping.abort_all();
        }
        self.site.writes.close();
        if tokio::time::timeout(FAREWELL, self.site.writes.wait()).await.is_err() {
            tracing::warn!("a write was still under way when the owner closed");
        }
        self.site.keep_used().await;
        // The others hear what was written to the last; the lock is let go when nothing more is.
        self.site.sites.close();
        let session = match self.seat {
            Some(seat) => seat.leave(FAREWELL).await,
            None => None,
        };
        self.site.queue.close().await;
        if let Err(error) = std::fs::remove_file(&self.socket) {
            tracing::debug!(%error, "the socket was not removed");
        }
        if let Some(session) = session {
            session.close().await;
        }
        drop(self.lock);
    }
}
