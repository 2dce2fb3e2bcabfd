//! The site: router, bell, timers, run logs, and the owner that serves them on a home's socket.
//!
//! Architecture invariant: the only room that knows axum.

mod answer;
mod approve;
mod attention;
pub mod bearers;
pub mod bell;
pub mod caller;
mod desk;
pub mod elsewhere;
mod extract;
mod feed;
pub mod forges;
mod gate;
mod home;
pub mod limits;
pub mod line;
pub mod logs;
pub mod metrics;
mod openapi;
mod orders;
pub mod owner;
pub mod page;
mod probe;
pub mod problem;
mod projects;
mod prune;
mod route;
pub mod router;
pub mod serve;
pub mod setup;
pub mod sites;
mod socket;
pub mod state;
mod tasks;
pub mod timers;
mod tokens;
mod versions;
pub mod watch;
mod work;
