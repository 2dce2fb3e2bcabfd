//! What a machine has now, for a worker that outlives changes of it.

use std::sync::{Arc, PoisonError, RwLock};

use super::Lanes;

/// The lanes as they were last looked at. A run keeps to those that it began with.
#[derive(Clone, Debug)]
pub struct Present(Arc<RwLock<Arc<Lanes>>>);

impl From<Lanes> for Present {
    fn from(lanes: Lanes) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(lanes))))
    }
}

impl Present {
    /// As they are now.
    #[must_use]
    pub fn now(&self) -> Arc<Lanes> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on, `lanes`.
    pub fn becomes(&self, lanes: Lanes) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(lanes);
    }
}
