//! `relay work`: this machine does tasks.

mod status;

use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;

/// Options of `relay work`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the site, its workers, and what they do
    Status(status::Options),
}

impl Options {
    /// Does what was asked.
    ///
    /// # Errors
    /// When the site cannot be asked.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Command::Status(options) => options.run(context).await,
        }
    }
}
