//! Why a worker came to its end that was not told to.

use std::path::PathBuf;

use super::misfit::Misfit;
use super::room::Lacking;
use crate::client::ClientError;
use crate::model::{IdError, WorkerName};

/// Why a worker ended that was not told to.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// There is nothing it could do.
    #[error("no lanes to serve")]
    NoLanes,
    /// The site refused it or cannot be reached at the start.
    #[error("the site did not take the worker `{name}`: {source}")]
    Register {
        /// The worker.
        name: WorkerName,
        /// Why.
        source: ClientError,
    },
    /// The site does not let it work any more: its token was revoked, or may not do this.
    #[error("the site does not let the worker `{name}` work: {source}")]
    Barred {
        /// The worker.
        name: WorkerName,
        /// The site's words.
        source: ClientError,
    },
    /// With `--once` nobody asks a site again that is away.
    #[error("nothing was claimed: {0}")]
    Unclaimed(#[source] ClientError),
    /// With `--once` a site is not asked again that gave what was not asked for.
    #[error("nothing was claimed: {0}")]
    Misfit(Misfit),
    /// Another instance of its name registered.
    #[error("another worker registered as `{0}` and took over")]
    Replaced(WorkerName),
    /// The source of ids gave something that is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// With `--once` nobody waits for room.
    #[error("nothing was claimed: the disk under {} has no room for a run: {lacking}", folder.display())]
    NoRoom {
        /// Where copies stand.
        folder: PathBuf,
        /// What is missing.
        lacking: Lacking,
    },
}
