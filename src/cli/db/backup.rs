//! `relay db backup FILE`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::super::context::Context;
use super::super::exit::Exit;
use super::Which;
use crate::store::{backup, dump_command};

/// Options of `relay db backup`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  relay db backup ~/relay-$(date +%F).db")]
pub struct Options {
    /// The new file; one that is there is never replaced
    file: PathBuf,
    #[command(flatten)]
    which: Which,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Written<'a> {
    file: &'a std::path::Path,
    bytes: u64,
}

impl Options {
    /// Writes it.
    ///
    /// # Errors
    /// When the file is there, the disk refuses, or the database is damaged.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let from = self.which.file(context, &dump_command(&self.file))?;
        let bytes = backup(&from, &self.file).await?;
        if self.json {
            context.output.json(&Written { file: &self.file, bytes })?;
        } else {
            context.output.note(format!("{:.1} MB, checked", bytes as f64 / 1e6));
            context.output.line(self.file.display().to_string())?;
        }
        Ok(Exit::Ok)
    }
}
