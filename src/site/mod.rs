//! The site: router, bell, timers, run logs, and the owner that serves them on a home's socket.
//!
//! Architecture invariant: the only room that knows axum.

pub mod bell;
