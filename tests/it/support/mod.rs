//! What several test modules share.

pub mod bench;
#[cfg(target_os = "linux")]
pub mod certificate;
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
pub mod model;
#[cfg(target_os = "linux")]
pub mod network;
pub mod postgres;
#[cfg(target_os = "linux")]
pub mod processes;
pub mod proxy;
pub mod repo;
pub mod served;
pub mod shop;
#[cfg(target_os = "linux")]
pub mod small_disk;
