//! What several test modules share.

pub mod clock;
pub mod fake_github;
