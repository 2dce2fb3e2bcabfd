//! The worker's own repositories: mirror, checkout, snapshot, push.
