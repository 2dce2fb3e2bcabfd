//! `relay serve`: one queue for many machines.

use std::net::SocketAddr;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::context::Context;
use super::exit::Exit;
use super::site;
use crate::model::Secret;
use crate::site::owner::{Access, Role, connect};

/// Options of `relay serve`.
#[derive(Debug, Args)]
pub struct Options {
    /// The address to listen on; a proxy with a certificate belongs in front of any but this
    /// machine's own
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7410")]
    addr: SocketAddr,
    /// Where the queue is kept: sqlite:///PATH or postgres://… (default: DATABASE_URL, else
    /// relay.db in RELAY_HOME)
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl Options {
    /// Serves until it is told to end.
    ///
    /// # Errors
    /// When the home or the address is taken, or the database cannot be opened.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut owner = site::owner(context, Role::Serve);
        owner.listen = Some(self.addr);
        owner.database =
            self.database.map(Secret::new).or_else(|| context.config.database_url.clone());
        let access = connect(owner).await?;
        if let Access::Own(owner) = &access {
            let addr = owner.addr().unwrap_or(self.addr);
            if let Some(token) = owner.site().first_token().await? {
                context.output.line(format!("admin token, told this once: {}", token.expose()))?;
            }
            context.output.line(format!("relay serve: http://{addr}"))?;
        }
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        access.close().await;
        Ok(Exit::Ok)
    }
}
