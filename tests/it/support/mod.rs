//! What several test modules share.

pub mod clock;
pub mod fake_github;
pub mod full;
#[cfg(target_os = "linux")]
pub mod processes;
