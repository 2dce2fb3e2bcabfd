//! `relay serve`: one queue for many machines.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, ValueEnum};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::context::Context;
use super::descriptors::raise;
use super::error::{Failure, fail};
use super::exit::Exit;
use super::site;
use crate::api::PREFIX;
use crate::api::route::DOCS;
use crate::client::Endpoint;
use crate::model::Secret;
use crate::site::limits::RATE;
use crate::site::owner::{Access, OwnerError, Role, connect};
use crate::site::serve::{CONNECTIONS, Listen};
use crate::store::StoreError;

/// Descriptors that are not for connections: the database, logs, git.
const KEPT_BACK: usize = 256;

/// Options of `relay serve`.
#[derive(Debug, Args)]
pub struct Options {
    /// The address to listen on; a proxy with a certificate belongs in front of any but this
    /// machine's own
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7410")]
    addr: SocketAddr,
    /// Where the queue is kept: sqlite:///PATH or postgres://… (default: DATABASE_URL, else
    /// relay.db in RELAY_HOME). A URL with a password belongs in DATABASE_URL: others see options
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// How many sites share the database: `many` needs Postgres by the server's own address, no
    /// pooler between
    #[arg(long, value_enum, default_value_t = Sites::One)]
    sites: Sites,
    /// The URL people and workers reach the site by (default: http:// and the address)
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// A proxy on another machine, whose X-Forwarded-For is believed; may be given several times
    #[arg(long, value_name = "IP")]
    trusted_proxy: Vec<IpAddr>,
    /// Requests a second that one token may make; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = RATE)]
    rate: u32,
    /// Connections at a time, as far as `ulimit -n` allows
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS)]
    connections: usize,
}

/// How many sites there are on one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sites {
    /// This one alone; an idle database is left to sleep
    One,
    /// Several, which tell each other what they change
    Many,
}

impl Options {
    /// Serves until it is told to end.
    ///
    /// # Errors
    /// When the home or the address is taken, or the database cannot be opened.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let mut signals = Signals::new()?;
        let listen = self.listen()?;
        let mut owner = site::owner(context, Role::Serve);
        owner.listen = Some(listen.clone());
        owner.database =
            self.database.map(Secret::new).or_else(|| context.config.database_url.clone());
        owner.many = self.sites == Sites::Many;
        if let Some(url) = &owner.database {
            check_database(url.expose())?;
        }
        let server =
            owner.database.as_ref().is_some_and(|url| url.expose().starts_with("postgres"));
        if owner.many && !server {
            return Err(Failure::new(Exit::Usage, "several sites need a Postgres")
                .hint("`relay serve --sites many --database postgres://HOST/NAME`")
                .into());
        }
        let mut access = tokio::select! {
            access = connect(owner) => access?,
            () = signals.next() => return Ok(Exit::Ok),
        };
        if let Access::Own(owner) = &access {
            let addr = owner.addr().unwrap_or(listen.addr);
            if let Some(token) = owner.site().first_token().await? {
                context.output.line(format!("admin token, told this once: {}", token.expose()))?;
            }
            say(context, addr, &listen)?;
        }
        let ousted = tokio::select! {
            () = signals.next() => None,
            error = ousted(&mut access) => Some(error),
        };
        match &ousted {
            None => context.output.note("relay serve: stopping; requests under way are let go"),
            Some(error) => context.output.note(format!("relay serve: stopping: {error}")),
        }
        tokio::select! {
            () = access.close() => {}
            () = signals.next() => {
                context.output.note("relay serve: stopped at once; workers say again what was not taken");
            }
        }
        ousted.map_or(Ok(Exit::Ok), |error| Err(OwnerError::Store(error).into()))
    }

    fn listen(&self) -> anyhow::Result<Listen> {
        let public_url = match self.public_url.as_deref().map(|url| url.trim_end_matches('/')) {
            Some(url) if !is_site(url) => {
                return fail(Exit::Usage, "--public-url is not `https://host` or `http://host`");
            }
            url => url.map(str::to_owned),
        };
        let connections = self.connections.min(room(self.connections)).max(1);
        let rate = (self.rate > 0).then_some(self.rate);
        let proxies = self.trusted_proxy.iter().map(IpAddr::to_canonical).collect();
        Ok(Listen { public_url, proxies, rate, connections, ..Listen::on(self.addr) })
    }
}

/// Refuses what is no URL of a database that relay keeps a queue in.
fn check_database(url: &str) -> Result<(), Failure> {
    match url.split_once("://") {
        Some(("sqlite", path)) if path.starts_with('/') => Ok(()),
        Some(("postgres" | "postgresql", _)) => Ok(()),
        _ => Err(Failure::new(Exit::Usage, "the database is of no kind that relay knows")
            .hint("only sqlite:///PATH or postgres://…, by --database or DATABASE_URL")),
    }
}

/// Completes where another site has taken the database.
async fn ousted(access: &mut Access) -> StoreError {
    match access {
        Access::Own(owner) => owner.ousted().await,
        Access::Living(_) => std::future::pending().await,
    }
}

/// A URL that a machine can be sent to.
fn is_site(url: &str) -> bool {
    matches!(url.parse(), Ok(Endpoint::Http(_)))
}

/// Tells what is served, and what is not safe about it.
fn say(context: &Context, addr: SocketAddr, listen: &Listen) -> anyhow::Result<()> {
    let here = format!("http://{addr}");
    let url = listen.public_url.as_deref().unwrap_or(&here);
    context.output.line(format!("relay serve: {here}"))?;
    if url != here {
        context.output.line(format!("public URL:  {url}"))?;
    }
    context.output.line(format!("the API:     {url}{PREFIX}{DOCS}"))?;
    let is_private = |url: &str| url.parse().is_ok_and(|site: Endpoint| site.is_private());
    if !is_private(url) {
        context.output.note(
            "warning: tokens and work cross the network in the clear: put a proxy with a certificate \
             in front, name it with --public-url https://HOST, and listen on 127.0.0.1",
        );
    } else if !addr.ip().is_loopback() {
        context.output.note(format!(
            "warning: whoever reaches {addr} past the proxy speaks in the clear: listen on 127.0.0.1, \
             or let only the proxy in",
        ));
    }
    if listen.connections < CONNECTIONS.min(1000) {
        context.output.note(format!(
            "warning: {} connections at a time is all that `ulimit -n` leaves; each waiting worker holds one",
            listen.connections
        ));
    }
    Ok(())
}

/// How many connections this process may hold, once it has as many descriptors as it may have.
fn room(wanted: usize) -> usize {
    raise(wanted.saturating_add(KEPT_BACK)).saturating_sub(KEPT_BACK)
}

/// What ends a site.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
