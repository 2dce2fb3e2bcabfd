//! The site: router, bell, timers, run logs, and the owner that serves them on a home's socket.
//!
//! Architecture invariant: the only room that knows axum.

mod attention;
pub mod bearers;
pub mod bell;
pub mod caller;
mod extract;
mod feed;
pub mod forges;
mod home;
pub mod logs;
pub mod owner;
pub mod problem;
mod projects;
mod prune;
pub mod router;
mod serve;
mod socket;
pub mod state;
mod tasks;
pub mod timers;
mod tokens;
pub mod watch;
mod work;
