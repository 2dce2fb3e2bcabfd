//! `relay db`: the database itself, as a whole.

mod backup;
mod copy;
mod restore;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::context::Context;
use super::error::{Failure, fail};
use super::exit::Exit;
use crate::site::elsewhere::kept_in;
use crate::site::owner::{Held, OwnerError, hold};

/// Options of `relay db`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a copy of the database to a new file, also while relay works
    Backup(backup::Options),
    /// Put a backup in the database's place; relay must be stopped
    Restore(restore::Options),
    /// Copy everything into an empty database, and compare; relay must be stopped
    Copy(copy::Options),
}

impl Options {
    /// Does it.
    ///
    /// # Errors
    /// Those of the databases.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Command::Backup(options) => options.run(context).await,
            Command::Restore(options) => options.run(context).await,
            Command::Copy(options) => options.run(context).await,
        }
    }
}

/// Which database.
#[derive(Debug, Args)]
struct Which {
    /// Which database: sqlite:///PATH (default: DATABASE_URL, else relay.db in RELAY_HOME)
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl Which {
    /// Its file; what does the same for a server is told `instead`.
    fn file(&self, context: &Context, instead: &str) -> anyhow::Result<PathBuf> {
        let setting = context.config.database_url.as_ref().map(|url| url.expose());
        let home = &context.config.home;
        let url = self.database.as_deref().or(setting);
        match url.map(|url| url.split_once("://").unwrap_or((url, ""))) {
            None => match kept_in(home)? {
                None => own_file(context),
                Some(place) if place.contains("Postgres") || place.starts_with("postgres") => {
                    Err(of_a_server(instead))
                }
                Some(place) => Err(Failure::new(
                    Exit::Usage,
                    format!("which database? The queue of {} is kept in {place}", home.display()),
                )
                .hint("name it with --database or DATABASE_URL")
                .into()),
            },
            Some(("sqlite", path)) if path.starts_with('/') => Ok(PathBuf::from(path)),
            Some(("postgres" | "postgresql", _)) => Err(of_a_server(instead)),
            Some(_) => fail(
                Exit::Usage,
                "the database is neither `sqlite:///absolute/path` nor `postgres://…`",
            ),
        }
    }
}

/// The home's own file. The home of another site's worker has none.
fn own_file(context: &Context) -> anyhow::Result<PathBuf> {
    let file = context.config.home.join("relay.db");
    match &context.config.site {
        Some(site) if !file.exists() => Err(Failure::new(
            Exit::NotFound,
            format!("this home keeps no queue: it is a worker of {site}"),
        )
        .hint("do it on the site's machine, or name a database with --database")
        .into()),
        _ => Ok(file),
    }
}

fn of_a_server(instead: &str) -> anyhow::Error {
    Failure::new(Exit::NotSupported, "a Postgres database is looked after by its own programs")
        .hint(instead)
        .into()
}

/// Holds the homes that these files belong to, and this one, so that nobody begins to work on them.
/// A folder without the lock of an owner is no home.
fn hold_homes(context: &Context, files: &[&Path]) -> Result<Vec<Held>, OwnerError> {
    let mut homes = vec![context.config.home.clone()];
    homes.extend(files.iter().filter_map(|file| file.parent()).map(Path::to_owned));
    let mut homes: Vec<PathBuf> = homes
        .into_iter()
        .filter(|home| home.join("relay.lock").exists())
        .filter_map(|home| home.canonicalize().ok())
        .collect();
    homes.sort();
    homes.dedup();
    homes.iter().map(|home| hold(home, env!("CARGO_PKG_VERSION"))).collect()
}
