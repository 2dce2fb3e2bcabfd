//! What a worker is told of its machine while it runs.

use tokio::sync::oneshot;

use super::lane::Lanes;
use crate::model::LaneName;

/// Other lanes that this machine could serve, found while its worker runs.
pub struct Found {
    /// What it has now.
    pub lanes: Lanes,
    /// Which of them are to be served.
    pub served: Vec<LaneName>,
    /// Of each lane that was served and is not to be any more, why; for a person.
    pub left_out: Vec<String>,
    /// Told once they are; dropped where the site did not take them.
    pub taken: oneshot::Sender<()>,
}
