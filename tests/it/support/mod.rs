//! What several test modules share.

use std::time::Duration;

/// How long what must come is waited for, in every test. It tells a hang from a machine that is cold,
/// loaded or stopped for a while, so it is never shortened to say that something is quick.
pub const PATIENCE: Duration = Duration::from_secs(300);

pub mod bench;
#[cfg(target_os = "linux")]
pub mod certificate;
#[cfg(target_os = "linux")]
pub mod chat;
pub mod clock;
#[cfg(target_os = "linux")]
pub mod connect;
pub mod fake_github;
pub mod full;
pub mod git_http;
pub mod hosted;
pub mod house;
pub mod lfs;
#[cfg(target_os = "linux")]
pub mod loopback;
#[cfg(target_os = "linux")]
pub mod model;
#[cfg(target_os = "linux")]
pub mod network;
pub mod postgres;
#[cfg(target_os = "linux")]
pub mod processes;
pub mod proxy;
pub mod repo;
#[cfg(target_os = "linux")]
pub mod schema;
pub mod served;
pub mod shop;
#[cfg(target_os = "linux")]
pub mod small_disk;
