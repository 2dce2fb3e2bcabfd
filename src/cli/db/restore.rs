//! `relay db restore FILE`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::super::context::Context;
use super::super::exit::Exit;
use super::Which;
use crate::model::TokenName;
use crate::store::{Restored, restore};

/// What does it for a server.
const ELSEWHERE: &str = "pg_restore --clean --if-exists --dbname=\"$DATABASE_URL\" FILE, then what \
                         docs/DATABASES.md says of epochs";

/// Options of `relay db restore`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  relay db restore ~/relay-2026-11-29.db")]
pub struct Options {
    /// The backup; it is only read
    file: PathBuf,
    #[command(flatten)]
    which: Which,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Done {
    tasks: u64,
    leases: u64,
    /// `null` where nobody knows which were revoked since the backup.
    revoked: Option<Vec<TokenName>>,
    before: Option<PathBuf>,
}

impl Options {
    /// Puts it back.
    ///
    /// # Errors
    /// When somebody owns the home, the backup is damaged, or the disk refuses.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let to = self.which.file(context, ELSEWHERE)?;
        let _held = super::hold_homes(context, &[&to])?;
        let done = restore(&self.file, &to, context.clock.now()).await?;
        let Restored { tasks, leases, revoked, before } = done;
        let done = Done { tasks, leases, revoked, before };
        if self.json {
            context.output.json(&done)?;
            return Ok(Exit::Ok);
        }
        context.output.line(format!(
            "{} restored: {} tasks; {} leases are over",
            to.display(),
            done.tasks,
            done.leases
        ))?;
        if let Some(before) = &done.before {
            context.output.note(format!("what stood there is {}", before.display()));
        }
        match done.revoked.as_deref() {
            Some([]) => {}
            Some(names) => {
                let names: Vec<&str> = names.iter().map(TokenName::as_str).collect();
                context.output.note(format!(
                    "revoked since the backup, and still revoked: {}",
                    names.join(", ")
                ));
            }
            None => context.output.note(
                "warning: what stood there could not be asked, so a token that was revoked after the \
                 backup is valid again: look at `relay token ls`, then `relay token revoke`",
            ),
        }
        Ok(Exit::Ok)
    }
}
